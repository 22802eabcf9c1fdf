//! One core of a node: its ranges, journal and files, as one state machine. Shards share nothing.

mod admission;
mod chain;
mod checkpoint;
pub mod command;
pub mod counters;
mod damage;
mod delete;
pub mod event;
mod fetch;
mod groups;
mod obey;
pub mod open;
mod queue;
mod range;
mod reads;
mod roll;
#[expect(clippy::module_inception, reason = "the central noun is a folder, and its state has a file")]
pub mod shard;
mod since;
mod tail;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

pub use shard::Shard;
