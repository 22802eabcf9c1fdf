//! The storage engine of Sealog.
//!
//! Everything but `io` is pure: state machines that take `(now, event)` and give commands, with no clock, socket, file,
//! thread or randomness of their own. `io` performs the commands on glommio and io_uring, and decides nothing.

pub mod api;
pub mod balance;
pub mod controller;
pub mod failover;
pub mod format;
pub mod inspect;
#[cfg(feature = "glommio")]
pub mod io;
pub mod journal;
pub mod metadata;
pub mod recovery;
pub mod replica;
pub mod segment;
pub mod shard;
pub mod types;
