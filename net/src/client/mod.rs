//! The client library: a pure core, and thin drivers that carry its bytes.
//!
//! | module | what |
//! |---|---|
//! | `core` | routing, batching, sequences, retry, settling, cursors: `(now, what happened) -> bytes to write, events` |
//! | `blocking` | a driver on one thread and std's sockets: for the command line |
//! | `glommio` | a driver on a glommio executor: for the load test and embedded use |

pub mod blocking;
pub(crate) mod clock;
pub mod core;
#[cfg(feature = "glommio")]
pub mod glommio;

pub use core::{Cursor, CursorEntry, CursorError};
