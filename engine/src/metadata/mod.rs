//! The replicated state machine: topics, ranges, segments, epochs, nodes, producers. `apply(state, change)` is total and
//! deterministic; everything that is true of a cluster is the result of its changes in order.

pub mod apply;
pub mod change;
mod codec;
pub mod consensus;
pub mod query;
pub mod range_chain;
pub mod snapshot;
pub mod state;

pub use apply::{Applied, Rejected};
pub use change::{Change, SealReason};
pub use codec::DecodeError;
pub use consensus::Consensus;
pub use range_chain::RangeChain;
pub use snapshot::{LogStart, Snapshot, SnapshotError};
pub use state::{AutoSplit, Deleted, Node, Range, RangeLoad, RangeStatus, Sealing, State, Topic};
