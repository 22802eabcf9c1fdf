//! Connections that want another shard are handed to its executor: the descriptor, what was already read, and the hello.
//!
//! The channels carry a connection once in its life; no request passes here.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use glommio::net::TcpStream;
use sealog_engine::types::ShardId;

/// A connection under way from one shard to another.
pub(super) struct Handed {
    fd: OwnedFd,
    /// Bytes behind the hello.
    pub(super) rest: Vec<u8>,
    /// The hello's correlation id.
    pub(super) correlation: u64,
}

/// One shard's ends of the channels between all shards.
pub struct HandoverPort {
    to: Vec<flume::Sender<Handed>>,
    from: flume::Receiver<Handed>,
}

/// The ports of `shards` shards, by shard.
#[must_use]
pub fn handover(shards: u16) -> Vec<HandoverPort> {
    let channels: Vec<_> = (0..shards).map(|_| flume::unbounded()).collect();
    let to: Vec<_> = channels.iter().map(|(sender, _)| sender.clone()).collect();
    channels.into_iter().map(|(_, from)| HandoverPort { to: to.clone(), from }).collect()
}

impl HandoverPort {
    /// Hands a connection to another shard. `false` if that is not possible; the connection is then still here.
    pub(super) fn give(&self, stream: &TcpStream, rest: &[u8], correlation: u64, shard: ShardId) -> bool {
        let Some(to) = self.to.get(usize::from(shard.0)) else { return false };
        // SAFETY: the stream is borrowed for the length of this call, and its descriptor is open as long as it lives.
        let fd = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
        let Ok(fd) = fd.try_clone_to_owned() else { return false };
        to.send(Handed { fd, rest: rest.to_vec(), correlation }).is_ok()
    }

    /// The next connection that another shard hands to this one; `None` once all others are gone.
    pub(super) async fn take(&self) -> Option<Handed> {
        self.from.recv_async().await.ok()
    }
}

impl Handed {
    /// The connection, on the executor that runs this.
    pub(super) fn into_stream(self) -> (TcpStream, Vec<u8>, u64) {
        // SAFETY: the descriptor is a connected TCP socket, and its ownership passes into the stream.
        let stream = unsafe { TcpStream::from_raw_fd(self.fd.into_raw_fd()) };
        (stream, self.rest, self.correlation)
    }
}
