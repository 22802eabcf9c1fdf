//! Runs plans: what the metadata group has decided is carried to the shards, and what they answer becomes the next change.

mod adopt;
pub mod command;
#[expect(clippy::module_inception, reason = "the central noun is a folder, and its state has a file")]
pub mod controller;
mod damage;
mod delete;
mod drive;
pub mod event;
mod log;
pub mod open;
mod request;
mod reshape;
mod round;
mod snapshots;
#[cfg(test)]
mod testing;

pub use command::{Command, Commands};
pub use controller::Controller;
pub use event::Event;
pub use open::{MetadataStart, RecoverMetadataError, RecoveredMetadata, recover_metadata};
