//! A shard's journal: where durability comes from. One a shard, so that one write and one sync make a batch of any range durable.
//!
//! Pure: it plans where a group goes, composes its bytes, judges what lies in the files after a crash, and keeps count of what may be
//! overwritten. It neither writes nor reads.
//!
//! ```text
//!            live: not yet checkpointed
//!          ┌──────────────────────────────┐
//! file 0 | 7 | 8 | 9 | 10 | 11 |  gap  |
//! file 1 | 12 | 13 | M |  3 | 4 | 5 |  gap |        M: the marker, where group 14 will go
//! ```
//! Strictly one group is in flight: group k + 1 is handed to the device when k is durable. So a valid group proves every earlier one, and
//! only the very last can be torn.

pub mod checkpoint;
pub mod group;
pub mod replay;
pub mod ring;
#[cfg(test)]
mod tests;

pub use checkpoint::Checkpoints;
pub use group::{ClosedGroup, OpenGroup, compose_empty};
pub use replay::{Damage, DamageCause, End, FileImage, GroupView, JournalImage, Replay, Uncertain, replay};
pub use ring::{Geometry, Mark, Position, Ring, Slot};
