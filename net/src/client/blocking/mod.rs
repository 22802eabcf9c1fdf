//! The client on one thread and std's sockets: for the command line, and for whoever wants no executor.
//!
//! Everything goes over one connection; what belongs to another shard is forwarded by the node. A call blocks until it has an answer
//! or its deadline has passed.
//!
//! ```text
//! turn:  connect if wanted -> write what the core has to say -> read, at most until the core or the caller is due -> frames to the core
//! ```

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod admin;
mod consumer;
mod producer;

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use sealog_engine::types::Now;
use thiserror::Error;

pub use self::admin::{Admin, RequestError};
pub use self::consumer::{ConsumeError, Consumer, Ended};
pub use self::producer::{Done, ProduceError, Producer};
use super::clock::Clock;
use super::core::{Client, Failure, LinkId};
use crate::wire::ReceiveBuffer;
use crate::wire::frame::FRAME_BYTES_CEILING;

/// Bytes of the receive buffer at rest.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Longest wait for a connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest single wait for bytes: whatever else happens, the core is looked at as often.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// No connection could be kept for as long as the caller would wait.
#[derive(Debug, Error)]
#[error("cannot reach {address}: {error}")]
pub struct Unreachable {
    /// The address tried last.
    pub address: String,
    pub error: io::Error,
}

/// The client could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error(transparent)]
    Failed(Failure),
    #[error("the node did not answer in time")]
    TimedOut,
}

/// Carries one core's bytes over one connection.
#[derive(Debug)]
struct Driver {
    addresses: Vec<String>,
    next_address: usize,
    clock: Clock,
    connection: Option<(LinkId, TcpStream)>,
    receive: ReceiveBuffer,
    /// Since when there is no connection, and why.
    failing: Option<(Instant, String, io::Error)>,
}

impl Driver {
    /// A driver that tries these addresses (`host:port`) in turn.
    fn new(addresses: &[String]) -> Self {
        Self {
            addresses: addresses.to_vec(),
            next_address: 0,
            clock: Clock::new(),
            connection: None,
            receive: ReceiveBuffer::new(RECEIVE_BYTES, FRAME_BYTES_CEILING),
            failing: None,
        }
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    /// One turn. Waits for bytes for `wait` at most.
    fn turn(&mut self, core: &mut impl Client, wait: Duration) {
        let now = self.now();
        if let Some(link) = core.links().condemned() {
            self.lose(core, link, io::ErrorKind::TimedOut.into());
        }
        if let Some((link, _)) = core.links().wanted(now) {
            self.connect(core, link);
        }
        core.tick(self.now());
        let due = core.next_ns().map(|ns| Duration::from_nanos(ns.saturating_sub(self.now().monotonic_ns)));
        let wait = wait.min(due.unwrap_or(WAIT_MAX)).min(WAIT_MAX);
        let Some((link, stream)) = &mut self.connection else {
            std::thread::sleep(wait);
            return;
        };
        let link = *link;
        let outbound = core.links().outbound(link);
        let carried = stream.write_all(outbound).and_then(|()| {
            outbound.clear();
            read_some(stream, &mut self.receive, wait)
        });
        match carried.and_then(|()| self.give_frames(core, link)) {
            Ok(()) => {}
            Err(error) => self.lose(core, link, error),
        }
    }

    fn give_frames(&mut self, core: &mut impl Client, link: LinkId) -> io::Result<()> {
        let now = self.clock.now();
        while let Some(frame) = self.receive.next_frame().map_err(io::Error::other)? {
            core.received(now, link, &frame).map_err(io::Error::other)?;
            self.failing = None;
        }
        Ok(())
    }

    fn connect(&mut self, core: &mut impl Client, link: LinkId) {
        let address = self.addresses[self.next_address % self.addresses.len()].clone();
        self.next_address += 1;
        match connect(&address) {
            Ok(stream) => {
                self.receive = ReceiveBuffer::new(RECEIVE_BYTES, FRAME_BYTES_CEILING);
                self.connection = Some((link, stream));
                core.opened(link);
            }
            Err(error) => self.lose(core, link, error),
        }
    }

    fn lose(&mut self, core: &mut impl Client, link: LinkId, error: io::Error) {
        self.connection = None;
        let since = self.failing.as_ref().map_or_else(Instant::now, |f| f.0);
        let tried = self.next_address.wrapping_sub(1) % self.addresses.len();
        self.failing = Some((since, self.addresses[tried].clone(), error));
        core.closed(self.now(), link);
    }

    /// Whether nothing was heard of any node for `patience`.
    fn check_reachable(&mut self, patience: Duration) -> Result<(), Unreachable> {
        match self.failing.take_if(|f| f.0.elapsed() >= patience) {
            Some((_, address, error)) => Err(Unreachable { address, error }),
            None => Ok(()),
        }
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&socket, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(Duration::from_secs(10)))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Reads once, waiting for `wait` at most; nothing within that time is no error.
fn read_some(stream: &mut TcpStream, receive: &mut ReceiveBuffer, wait: Duration) -> io::Result<()> {
    let read = if wait < Duration::from_micros(1) {
        stream.set_nonblocking(true)?;
        let read = stream.read(receive.space());
        stream.set_nonblocking(false)?;
        read
    } else {
        stream.set_read_timeout(Some(wait))?;
        stream.read(receive.space())
    };
    match read {
        Ok(0) => Err(io::ErrorKind::ConnectionAborted.into()),
        Ok(bytes) => {
            receive.filled(bytes);
            Ok(())
        }
        Err(error) if is_nothing(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a read that failed only found nothing in time.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
