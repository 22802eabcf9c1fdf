//! One connection: its hello, its read loop, its outbound bytes.
//!
//! ```text
//! accepted --hello--> here or handed over --welcome--> reading <--> paused (answers are not read, or too many are due)
//!     |                                                   |
//!     +--- bad frame, no hello in time, slow reader: bye with the reason, then closed
//! ```

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use glommio::timer::{Timer, timeout};
use sealog_engine::api::error::Refusal;
use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::ReplyTo;

use super::receive::{Receive, ReceiveError, Received, Want};
use super::unanswered::Unanswered;
use super::{ServerSettings, Shared};
use crate::session::handshake::{Greeted, decode_bye};
use crate::session::{self, Inbound};
use crate::wire::frame::{Frame, HEADER_BYTES, HELLO_FRAME_BYTES_MAX};
use crate::wire::hello::append_pong;
use crate::wire::{Bye, ByeReason, refusal};

/// Reads in a row that filled the buffer, after which others are let have their turn.
const FULL_READS_MAX: u32 = 2;
/// How long a connection that was ended is drained, so that its last words are not lost with the bytes it still sends.
const DRAIN: Duration = Duration::from_millis(500);
/// Bytes of outbound memory that a connection keeps when it has nothing to write.
const OUTBOUND_KEPT: usize = 256 * 1024;

/// How a connection came to this shard.
pub(super) enum Arrival {
    /// From the listener: it has still to say hello.
    Accepted,
    /// From the shard that heard its hello.
    Handed { rest: Vec<u8>, correlation: u64 },
}

#[derive(Default)]
struct Outbound {
    bytes: Vec<u8>,
    sent: usize,
}

/// A connection that was greeted.
pub(super) struct Connection {
    id: u32,
    stream: RefCell<TcpStream>,
    outbound: RefCell<Outbound>,
    unanswered: RefCell<Unanswered>,
    bytes_max: usize,
    patience: Duration,
    /// Bytes that the socket has taken in all.
    written: Cell<u64>,
    touched: Cell<bool>,
    /// A task waits for the socket to take more.
    blocked: Cell<bool>,
    /// Nothing more is read or answered.
    ended: Cell<bool>,
    /// Waits for the outbound bytes or the unanswered requests to become fewer.
    paused: RefCell<Option<Waker>>,
    /// Waits for something to be read.
    reading: RefCell<Option<Waker>>,
    own: std::rc::Weak<Self>,
}

impl Connection {
    fn new(shared: &Shared, stream: TcpStream) -> Rc<Self> {
        Rc::new_cyclic(|own| Self {
            id: shared.replies.new_id(),
            stream: RefCell::new(stream),
            outbound: RefCell::default(),
            unanswered: RefCell::new(Unanswered::new(
                shared.settings.requests_max,
                shared.settings.handshake.limits.connection_bytes_max,
            )),
            bytes_max: shared.settings.outbound_bytes_max,
            patience: shared.settings.write_timeout,
            written: Cell::new(0),
            touched: Cell::new(false),
            blocked: Cell::new(false),
            ended: Cell::new(false),
            paused: RefCell::new(None),
            reading: RefCell::new(None),
            own: own.clone(),
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Sets whether it is in the list of those with something to write; `true` if that changes it.
    pub(super) fn set_touched(&self, touched: bool) -> bool {
        self.touched.replace(touched) != touched
    }

    fn pending(&self) -> usize {
        let outbound = self.outbound.borrow();
        outbound.bytes.len() - outbound.sent
    }

    /// Appends to its outbound bytes; a connection that has too many is ended.
    #[inline]
    pub(super) fn append(&self, append: impl FnOnce(&mut Vec<u8>)) {
        if self.ended.get() {
            return;
        }
        let mut outbound = self.outbound.borrow_mut();
        append(&mut outbound.bytes);
        if outbound.bytes.len() - outbound.sent > self.bytes_max {
            drop(outbound);
            tracing::warn!(connection = self.id, "closed: its answers are not read");
            self.abandon();
        }
    }

    /// A request was taken, of so many bytes.
    #[inline]
    fn asked(&self, correlation: u64, bytes: usize) {
        self.unanswered.borrow_mut().asked(correlation, bytes as u64);
    }

    /// Appends the answer to a request.
    #[inline]
    pub(super) fn answer(&self, correlation: u64, append: impl FnOnce(&mut Vec<u8>)) {
        self.append(append);
        if self.unanswered.borrow_mut().answered(correlation) {
            self.resume();
        }
    }

    /// Writes what the socket takes now; a task takes care of the rest.
    pub(super) fn write(&self) {
        if self.blocked.get() {
            return;
        }
        let mut cx = Context::from_waker(Waker::noop());
        if self.poll_write(&mut cx).is_pending()
            && let Some(own) = self.own.upgrade()
        {
            self.blocked.set(true);
            glommio::spawn_local(async move { own.drain().await }).detach();
        }
    }

    /// Writes what is left as the socket takes it; ends the connection when it takes nothing for too long.
    async fn drain(&self) {
        loop {
            let before = self.written.get();
            let all = async {
                poll_fn(|cx| self.poll_write(cx)).await;
                Ok(())
            };
            if timeout(self.patience, all).await.is_ok() {
                break;
            }
            if self.written.get() == before {
                tracing::warn!(connection = self.id, "closed: its answers are not read");
                self.abandon();
                break;
            }
        }
        self.blocked.set(false);
    }

    /// Ready when all is written, or nothing more can be.
    fn poll_write(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut outbound = self.outbound.borrow_mut();
        while outbound.sent < outbound.bytes.len() {
            let written = Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, &outbound.bytes[outbound.sent..]);
            match written {
                Poll::Ready(Ok(bytes)) => {
                    outbound.sent += bytes;
                    self.written.set(self.written.get() + bytes as u64);
                }
                Poll::Ready(Err(_)) => {
                    drop(outbound);
                    self.abandon();
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    // What was sent is given back, so that memory follows what is unread and not what was ever sent.
                    if outbound.sent >= outbound.bytes.len() / 2 {
                        let sent = std::mem::take(&mut outbound.sent);
                        outbound.bytes.drain(..sent);
                    }
                    drop(outbound);
                    self.resume();
                    return Poll::Pending;
                }
            }
        }
        // A stream of long answers keeps its memory; a short one gives back what a long one before it needed.
        let short = outbound.bytes.len() < outbound.bytes.capacity() / 4;
        outbound.sent = 0;
        outbound.bytes.clear();
        if short {
            outbound.bytes.shrink_to(OUTBOUND_KEPT);
        }
        drop(outbound);
        self.resume();
        Poll::Ready(())
    }

    /// Lets the read loop look whether it may go on.
    fn resume(&self) {
        if let Some(waker) = self.paused.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Ready when `is_ready` is, which is looked at whenever the outbound bytes or the unanswered requests become fewer.
    async fn paused_until(&self, is_ready: impl Fn(&Self) -> bool) {
        poll_fn(|cx| {
            if is_ready(self) {
                return Poll::Ready(());
            }
            *self.paused.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether nothing more is read for now.
    fn is_paused(&self, settings: &ServerSettings) -> bool {
        self.pending() > settings.outbound_bytes_pause || self.unanswered.borrow().is_full()
    }

    /// Ready when it takes its answers again and few enough are due, or it has ended.
    async fn resumed(&self, settings: &ServerSettings) {
        if self.is_paused(settings) {
            let most = settings.outbound_bytes_pause / 2;
            let may_go_on = |own: &Self| own.pending() <= most && !own.unanswered.borrow().is_full();
            self.paused_until(|own| own.ended.get() || may_go_on(own)).await;
        }
    }

    /// One receive; as if the other side had closed once this side has ended.
    fn poll_reading<E>(
        &self,
        cx: &mut Context<'_>,
        receive: impl FnOnce(&mut Context<'_>) -> Poll<Result<Received, ReceiveError<E>>>,
    ) -> Poll<Result<Received, ReceiveError<E>>> {
        if self.ended.get() {
            return Poll::Ready(Ok(Received::Closed));
        }
        let mut reading = self.reading.borrow_mut();
        match &mut *reading {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *reading = Some(cx.waker().clone()),
        }
        drop(reading);
        receive(cx)
    }

    /// Says goodbye; nothing is answered any more.
    fn end(&self, bye: &Bye) {
        self.append(|out| bye.append(out));
        self.write();
        self.ended.set(true);
    }

    /// Says goodbye and ends its read loop.
    pub(super) fn dismiss(&self, bye: &Bye) {
        self.end(bye);
        self.resume();
        // Its socket is not shut down for reading: what the client still sends is taken, or the bye would be lost with it.
        if let Some(waker) = self.reading.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Ends it without a word: nothing can be written.
    fn abandon(&self) {
        self.ended.set(true);
        *self.outbound.borrow_mut() = Outbound::default();
        // A read that waits then ends. The stream may be borrowed by the write that found it broken.
        if let Ok(stream) = self.stream.try_borrow() {
            shut(&stream, Shutdown::Both);
        }
        self.resume();
    }
}

/// Shuts a socket down. A socket that is no longer connected is no error.
fn shut(stream: &TcpStream, how: Shutdown) {
    let mut shutdown = pin!(stream.shutdown(how));
    let _ = shutdown.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

/// A connection from its arrival to its end.
pub(super) async fn run(shared: &Rc<Shared>, service: &Rc<dyn ShardService>, stream: TcpStream, arrival: Arrival) {
    let settings = &shared.settings;
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (stream, rest, correlation) = match arrival {
        Arrival::Handed { rest, correlation } => (stream, rest, correlation),
        Arrival::Accepted => match greet(shared, stream).await {
            Some(greeted) => greeted,
            None => return,
        },
    };
    let connection = Connection::new(shared, stream);
    let welcome = settings.handshake.welcome(settings.shard);
    connection.append(|out| welcome.append(out, correlation));
    connection.write();
    shared.replies.insert(connection.clone());
    if shared.stopping.get() {
        connection.dismiss(&stopping_bye());
    }
    let bye = read(shared, service, &connection, rest).await;
    shared.replies.remove(connection.id);
    service.disconnected(connection.id);
    if let Some(bye) = bye {
        tracing::info!(connection = connection.id, reason = bye.reason, text = %bye.text, "connection ended");
        connection.end(&bye);
    }
    linger(&connection).await;
}

/// Hears a connection's hello. `None` if there is none that stays here.
async fn greet(shared: &Rc<Shared>, stream: TcpStream) -> Option<(TcpStream, Vec<u8>, u64)> {
    let settings = &shared.settings;
    let stream = RefCell::new(stream);
    let mut receive = Receive::new(shared.buffer.clone(), Vec::new(), HELLO_FRAME_BYTES_MAX);
    let heard = timeout(settings.hello_timeout, async { Ok(hear(shared, &stream, &mut receive).await) }).await;
    let stream = stream.into_inner();
    let bye = match heard {
        Ok(Ok(Some(greeted))) => {
            let rest = receive.into_rest();
            if let Some(shard) = greeted.shard.filter(|s| *s != settings.shard)
                && let Some(handover) = &shared.handover
                && handover.give(&stream, &rest, greeted.correlation, shard)
            {
                return None;
            }
            return Some((stream, rest, greeted.correlation));
        }
        Ok(Ok(None)) => return None,
        Ok(Err(bye)) => bye,
        Err(_) => Bye::new(ByeReason::HelloTimeout, "no hello came in time"),
    };
    let connection = Connection::new(shared, stream);
    connection.end(&bye);
    linger(&connection).await;
    None
}

/// Receives until the first frame is judged. `None`: the other side has closed.
async fn hear(shared: &Rc<Shared>, stream: &RefCell<TcpStream>, receive: &mut Receive) -> Result<Option<Greeted>, Bye> {
    let mut greeted = None;
    loop {
        let mut take = |frame: &Frame<'_>| {
            greeted = Some(shared.settings.handshake.judge(frame)?);
            Ok(Want::NoMore)
        };
        let received = poll_fn(|cx| receive.poll_receive(cx, stream, &mut take)).await;
        if greeted.is_some() {
            return Ok(greeted);
        }
        match received {
            Ok(Received::All { .. } | Received::Held) => {}
            Ok(Received::Closed) | Err(ReceiveError::Io(_)) => return Ok(None),
            Err(ReceiveError::Decode(error)) => return Err(decode_bye(&error)),
            Err(ReceiveError::Taker(bye)) => return Err(bye),
        }
    }
}

/// The read loop. Gives the bye that the connection has earned.
async fn read(
    shared: &Rc<Shared>,
    service: &Rc<dyn ShardService>,
    connection: &Rc<Connection>,
    rest: Vec<u8>,
) -> Option<Bye> {
    let settings = &shared.settings;
    let limit = settings.handshake.limits.frame_bytes_max();
    let mut receive = Receive::new(shared.buffer.clone(), rest, limit);
    let mut full_reads = 0;
    loop {
        connection.resumed(settings).await;
        if connection.ended.get() {
            return None;
        }
        let mut take = |frame: &Frame<'_>| take_frame(shared, service, connection, frame);
        let received =
            poll_fn(|cx| connection.poll_reading(cx, |cx| receive.poll_receive(cx, &connection.stream, &mut take)));
        let received = received.await;
        service.flush();
        shared.replies.flush();
        match received {
            Ok(Received::All { full: true }) => full_reads += 1,
            Ok(Received::All { full: false } | Received::Held) => full_reads = 0,
            Ok(Received::Closed) => return None,
            Err(ReceiveError::Io(error)) => {
                tracing::debug!(connection = connection.id, %error, "connection broken");
                return None;
            }
            Err(ReceiveError::Decode(error)) => return Some(decode_bye(&error)),
            Err(ReceiveError::Taker(bye)) => return Some(bye),
        }
        if full_reads >= FULL_READS_MAX {
            // A socket that always has more would keep the executor from ever looking at its other events.
            full_reads = 0;
            Timer::new(Duration::from_micros(1)).await;
        }
    }
}

#[inline]
fn take_frame(
    shared: &Rc<Shared>,
    service: &Rc<dyn ShardService>,
    connection: &Rc<Connection>,
    frame: &Frame<'_>,
) -> Result<Want, Bye> {
    let settings = &shared.settings;
    match session::read(frame, &settings.handshake.limits) {
        Ok(Inbound::Request(request)) => {
            let to = ReplyTo { shard: settings.shard, connection: connection.id, correlation: frame.correlation };
            connection.asked(frame.correlation, HEADER_BYTES + frame.struct_part.len() + frame.bytes.len());
            service.request(to, frame.deadline_ms, request);
        }
        Ok(Inbound::Ping) => {
            connection.append(|out| append_pong(out, frame.correlation));
            shared.replies.touch(connection);
        }
        Ok(Inbound::End) => return Err(Bye::new(ByeReason::HelloExpected, "a hello or a bye ends the session")),
        Err(error) => {
            tracing::debug!(connection = connection.id, %error, "a request that cannot be understood");
            connection.append(|out| refusal::append(out, frame.correlation, &Refusal::BadRequest));
            shared.replies.touch(connection);
        }
    }
    let paused = connection.ended.get() || connection.is_paused(settings);
    Ok(if paused { Want::NoMore } else { Want::More })
}

/// What is said to every connection when the server stops.
pub(super) fn stopping_bye() -> Bye {
    Bye::new(ByeReason::Stopping, "the node is stopping")
}

/// Tells a connection that there are too many.
pub(super) async fn turn_away(shared: &Rc<Shared>, stream: TcpStream) {
    let connection = Connection::new(shared, stream);
    connection.end(&Bye::new(ByeReason::TooManyConnections, "this shard takes no more connections"));
    linger(&connection).await;
}

/// Lets the last words arrive: a socket that is closed with bytes unread takes back what it has said.
async fn linger(connection: &Rc<Connection>) {
    let drained = async {
        connection.paused_until(|own| own.pending() == 0).await;
        shut(&connection.stream.borrow(), Shutdown::Write);
        let mut sink = [0; 4096];
        loop {
            let read = poll_fn(|cx| Pin::new(&mut *connection.stream.borrow_mut()).poll_read(cx, &mut sink)).await;
            if !matches!(read, Ok(bytes) if bytes > 0) {
                return Ok(());
            }
        }
    };
    let _ = timeout(DRAIN, drained).await;
    connection.abandon();
}
