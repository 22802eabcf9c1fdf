//! Sockets of one thread: sleep until one is readable or a moment has come, then read and write without waiting.
//!
//! Plain epoll and no executor: a load test's client must cost as little as it can, and this is one read, one write and one wait for
//! all that is ready.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

/// Connections that one wait can tell of.
const EVENTS_MAX: usize = 256;

/// Waits for sockets.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

/// A connection that never blocks.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poller {
    /// For the calling thread, whose timers are made as sharp as the kernel can.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn new() -> io::Result<Self> {
        // The default slack of 50 us would make every open loop late by as much.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches a socket; `token` names it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, socket: &Socket, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, &socket.stream, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Also wakes up when the socket can be written to, or no longer does.
    ///
    /// # Errors
    /// The kernel's.
    pub fn want_write(&self, socket: &Socket, token: u64, wanted: bool) -> io::Result<()> {
        let write = if wanted { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let flags = epoll::EventFlags::IN | write;
        Ok(epoll::modify(&self.epoll, &socket.stream, epoll::EventData::new_u64(token), flags)?)
    }

    /// Sleeps until a socket is ready, at most `timeout_ns` (`None`: as long as it takes), and gives the tokens of those that are.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<impl Iterator<Item = u64>> {
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).expect("below a second"),
        });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.events.iter().map(|event| event.data.u64()))
    }
}

impl Socket {
    /// Connects, waiting for as long as the kernel does.
    ///
    /// # Errors
    /// There is nobody, or no way.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream })
    }

    /// Gives the kernel as much of `out` as it takes, and takes that from its front.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut sent = 0;
        while sent < out.len() {
            match self.stream.write(&out[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        out.drain(..sent);
        Ok(())
    }

    /// Reads what has come, once: 0 bytes if nothing has.
    ///
    /// # Errors
    /// The connection is gone, or was closed by the other side (`UnexpectedEof`).
    pub fn receive(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(space) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => Ok(bytes),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
