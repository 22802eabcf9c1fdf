//! One core's connections on this executor.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use glommio::timer::Timer;
use sealog_engine::types::Now;

use crate::client::clock::Clock;
use crate::client::core::{Client, LinkId};
use crate::wire::ReceiveBuffer;
use crate::wire::frame::FRAME_BYTES_CEILING;

/// Bytes of a connection's receive buffer at rest.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait in all: whatever else happens, the core is looked at as often.
const WAIT_MAX_NS: u64 = 500_000_000;

type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>>>>;

/// One link's socket.
enum Socket {
    None,
    Connecting(Connecting),
    Open(Box<Open>),
}

struct Open {
    stream: TcpStream,
    receive: ReceiveBuffer,
    /// Bytes of the link's outbound bytes that are written.
    sent: usize,
}

/// A core and its sockets.
pub(super) struct Io<C> {
    pub(super) core: C,
    clock: Clock,
    address: SocketAddr,
    sockets: Vec<Socket>,
    /// A timer that is armed, and when it ends on the monotonic clock.
    timer: Option<(u64, Timer)>,
    /// When something was last received.
    pub(super) received_at: Now,
}

impl<C: Client> Io<C> {
    pub(super) fn new(address: SocketAddr, core: C) -> Self {
        Self { core, clock: Clock::new(), address, sockets: vec![], timer: None, received_at: Now::default() }
    }

    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Ends the turn: writes what the core has to say, as far as the sockets take it.
    pub(super) fn turn(&mut self, now: Now) {
        self.core.turn(now);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for link in 0..self.sockets.len() {
            self.write(&mut cx, link);
        }
    }

    /// Waits until something was received or a connection changed, or until `until_ns` on the monotonic clock.
    pub(super) async fn wait(&mut self, until_ns: Option<u64>) {
        poll_fn(|cx| {
            let mut moved = self.poll(cx);
            let now = self.clock.now();
            if self.core.next_ns().is_some_and(|ns| ns <= now.monotonic_ns) {
                self.core.tick(now);
                moved |= self.poll(cx);
            }
            if moved || until_ns.is_some_and(|until| until <= now.monotonic_ns) {
                return Poll::Ready(());
            }
            self.arm(cx, now, until_ns);
            Poll::Pending
        })
        .await;
    }

    /// Arms the timer for the next time that matters. One that ends earlier is left: it only wakes too early.
    fn arm(&mut self, cx: &mut Context<'_>, now: Now, until_ns: Option<u64>) {
        let most_ns = now.monotonic_ns + WAIT_MAX_NS;
        let due_ns = [until_ns, self.core.next_ns()].into_iter().flatten().fold(most_ns, u64::min);
        let due_ns = due_ns.max(now.monotonic_ns + 1_000);
        if let Some((armed_ns, timer)) = &mut self.timer
            && *armed_ns <= due_ns
            && *armed_ns > now.monotonic_ns
        {
            let _ = Pin::new(timer).poll(cx);
            return;
        }
        let mut timer = Timer::new(Duration::from_nanos(due_ns - now.monotonic_ns));
        let _ = Pin::new(&mut timer).poll(cx);
        self.timer = Some((due_ns, timer));
    }

    /// Looks at every socket once; `true` if something happened.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let now = self.clock.now();
        while let Some(link) = self.core.links().condemned() {
            self.close(now, link);
            moved = true;
        }
        while let Some((link, _)) = self.core.links().wanted(now) {
            self.sockets.resize_with(self.sockets.len().max(link.0 + 1), || Socket::None);
            self.sockets[link.0] = Socket::Connecting(Box::pin(connect(self.address)));
        }
        for link in 0..self.sockets.len() {
            moved |= self.poll_link(cx, link);
        }
        if moved {
            self.core.turn(now);
        }
        for link in 0..self.sockets.len() {
            self.write(cx, link);
        }
        moved
    }

    fn poll_link(&mut self, cx: &mut Context<'_>, link: usize) -> bool {
        match &mut self.sockets[link] {
            Socket::None => false,
            Socket::Connecting(connecting) => match connecting.as_mut().poll(cx) {
                Poll::Pending => false,
                Poll::Ready(Ok(stream)) => {
                    let receive = ReceiveBuffer::new(RECEIVE_BYTES, FRAME_BYTES_CEILING);
                    self.sockets[link] = Socket::Open(Box::new(Open { stream, receive, sent: 0 }));
                    self.core.opened(LinkId(link));
                    // Its first bytes have still to be waited for.
                    self.poll_link(cx, link);
                    true
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, address = %self.address, "cannot connect");
                    self.close(self.clock.now(), LinkId(link));
                    true
                }
            },
            Socket::Open(open) => {
                let read = Pin::new(&mut open.stream).poll_read(cx, open.receive.space());
                match read {
                    Poll::Pending => false,
                    Poll::Ready(read) => {
                        let taken = read.and_then(|bytes| self.take(link, bytes));
                        if let Err(error) = taken {
                            tracing::debug!(%error, address = %self.address, "connection lost");
                            self.close(self.clock.now(), LinkId(link));
                        }
                        true
                    }
                }
            }
        }
    }

    fn take(&mut self, link: usize, bytes: usize) -> io::Result<()> {
        let Socket::Open(open) = &mut self.sockets[link] else { return Ok(()) };
        if bytes == 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        open.receive.filled(bytes);
        let now = self.clock.now();
        self.received_at = now;
        while let Some(frame) = open.receive.next_frame().map_err(io::Error::other)? {
            self.core.received(now, LinkId(link), &frame).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn write(&mut self, cx: &mut Context<'_>, link: usize) {
        let Socket::Open(open) = &mut self.sockets[link] else { return };
        let outbound = self.core.links().outbound(LinkId(link));
        while open.sent < outbound.len() {
            match Pin::new(&mut open.stream).poll_write(cx, &outbound[open.sent..]) {
                Poll::Ready(Ok(bytes)) => open.sent += bytes,
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, address = %self.address, "connection lost");
                    self.close(self.clock.now(), LinkId(link));
                    return;
                }
                Poll::Pending => return,
            }
        }
        open.sent = 0;
        outbound.clear();
    }

    fn close(&mut self, now: Now, link: LinkId) {
        self.sockets[link.0] = Socket::None;
        self.core.closed(now, link);
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, CONNECT_TIMEOUT).await.map_err(io::Error::from)?;
    stream.set_nodelay(true).map_err(io::Error::from)?;
    Ok(stream)
}
