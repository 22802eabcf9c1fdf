//! Server and clients over real sockets.

#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods, clippy::wildcard_enum_match_arm)]

mod clients;
mod hostile;
mod node;
mod unanswered;
