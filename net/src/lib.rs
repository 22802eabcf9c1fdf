//! The wire protocol of Sealog, its server and its client library.
//!
//! `wire` and `session` are pure functions between bytes and the words of `sealog_engine::api`. `client` has a pure core and thin
//! drivers; `server` carries connections on glommio.

pub mod client;
#[cfg(feature = "glommio")]
pub mod server;
pub mod session;
pub mod wire;
