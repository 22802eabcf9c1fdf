//! The load test of Sealog.
//!
//! ```text
//! load    open or closed loop against a node; every answer timed from the moment its record was meant to be sent
//! floor   what the same device and the same loopback do with nothing in between
//! report  report.json, and the text beside it
//! ```
//! One thread makes the load: it sleeps in epoll, and does one read and one write a connection for all that is ready.

pub mod floor;
pub mod load;
pub mod machine;
pub mod null;
pub mod reading;
pub mod report;
pub mod run;
pub mod sweep;

/// The commit of this build, with `-dirty` where its tree was changed; `unknown` outside a repository.
pub const COMMIT: &str = env!("SEALOG_COMMIT");
