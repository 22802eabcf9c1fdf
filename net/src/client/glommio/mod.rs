//! The client on a glommio executor: for the load test, and for whoever embeds a client in a shard.
//!
//! There are no tasks behind it. Whoever awaits `wait` polls the sockets itself, so that an answer costs no switch between tasks:
//!
//! ```text
//! loop { send … ; turn()            one write a link
//!        wait(until).await           one read a link, frames to the core, events
//!        done(..) }
//! ```

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod consumer;
mod io;
mod producer;

pub use self::consumer::Consumer;
pub use self::producer::{Done, Producer};
