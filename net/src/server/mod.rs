//! Connections on a shard's executor: accepted, greeted, handed to the shard that they want, read and answered.
//!
//! ```text
//! listener --> connection: hello --> handover to the wanted shard, or stay
//!                  |
//!   read task:  socket --one large read--> receive --> session --> ShardService::request … then ::flush
//!   replies:    Replies::reply appends to the connection's outbound bytes … ::flush writes each connection's once
//! ```
//! All receive into one buffer that the shard's connections share: a connection keeps only the part of a frame that has not come to
//! its end, so that ten thousand idle ones cost nothing. An answer is written by whoever flushes, with no task in between; a task
//! waits only for a socket that is full.
//!
//! **Invariants**: before the hello has succeeded a frame of more than 64 KiB is refused from its header; a bad frame costs its own
//! connection and nobody else's; answers that are not read stop their connection's reading at one bound and end it at another;
//! requests that are not answered stop their connection's reading, and only that.

// The deadline of a hello is the executor's timer; nothing else here looks at a clock.
#![allow(clippy::disallowed_types)]

mod connection;
mod handover;
mod listener;
mod receive;
mod replies;
mod unanswered;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sealog_engine::types::ShardId;

pub use self::handover::{HandoverPort, handover};
pub use self::listener::{Server, shared_socket};
use crate::session::Handshake;

/// How a shard serves its connections.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where to listen; port 0 asks for a free one.
    pub listen: SocketAddr,
    /// This shard.
    pub shard: ShardId,
    pub handshake: Handshake,
    /// Connections that this shard takes.
    pub connections_max: usize,
    /// Requests without an answer at which a connection is not read any more until one is answered. Their bytes are bounded too, by
    /// what the handshake tells the client.
    pub requests_max: usize,
    /// Time that a connection has for its hello.
    pub hello_timeout: Duration,
    /// Bytes of unread answers at which a connection is not read any more until it has taken half of them.
    pub outbound_bytes_pause: usize,
    /// Bytes of unread answers at which a connection is closed.
    pub outbound_bytes_max: usize,
    /// Time without any progress after which a connection that does not read its answers is closed.
    pub write_timeout: Duration,
}

impl ServerSettings {
    /// The defaults.
    #[must_use]
    pub fn new(listen: SocketAddr, shard: ShardId, handshake: Handshake) -> Self {
        Self {
            listen,
            shard,
            handshake,
            connections_max: 10_000,
            requests_max: 16_384,
            hello_timeout: Duration::from_secs(10),
            outbound_bytes_pause: 4 << 20,
            outbound_bytes_max: 40 << 20,
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// What all connections of a shard share.
struct Shared {
    settings: ServerSettings,
    replies: Rc<replies::Connections>,
    buffer: receive::SharedBuffer,
    handover: Option<HandoverPort>,
    /// Who comes now is told so and sent away.
    stopping: Cell<bool>,
}
