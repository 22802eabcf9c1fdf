//! Receiving into the buffer that all connections of a shard share.
//!
//! ```text
//! shared   | rest of this connection | one read …              |     frames are taken at once, in the same poll
//! rest     | what is left: the beginning of one frame |              kept by the connection
//! long     a buffer of its own, while long frames come: what is left of one would be copied in and out at every read
//! ```
//! **Invariant**: nobody else touches the shared buffer between a read into it and the taking of its frames, since both are one poll.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use futures_lite::AsyncRead;
use glommio::net::TcpStream;

use crate::wire::decoder::DecodeError;
use crate::wire::frame::Frame;
use crate::wire::{Decoded, ReceiveBuffer, decode};

/// Bytes of the shared buffer: what one read takes at most.
pub(super) const SHARED_BYTES: usize = 512 * 1024;
/// Frames of more bytes are received into a buffer of their own.
const LONG_BYTES: usize = 64 * 1024;
/// Bytes of such a buffer at rest.
const LONG_RESTING: usize = 256 * 1024;
/// Reads in a row without a long frame after which the buffer is given back.
const SHORT_READS: u32 = 16;

/// The shard's buffer.
pub(super) type SharedBuffer = Rc<RefCell<Box<[u8]>>>;

/// A buffer for a shard.
pub(super) fn shared_buffer() -> SharedBuffer {
    Rc::new(RefCell::new(vec![0; SHARED_BYTES].into_boxed_slice()))
}

/// Whether more frames are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    More,
    /// Not now: the frames behind this one are kept.
    NoMore,
}

/// What one receive came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// Every whole frame was taken; the socket may have more at once if `full`.
    All { full: bool },
    /// Whole frames may be left: take them before reading on.
    Held,
    /// The other side has closed.
    Closed,
}

/// Why receiving ended.
#[derive(Debug)]
pub(super) enum ReceiveError<E> {
    Io(io::Error),
    /// The bytes are not frames.
    Decode(DecodeError),
    /// What the taker gave.
    Taker(E),
}

/// One connection's side of receiving.
pub(super) struct Receive {
    shared: SharedBuffer,
    rest: Vec<u8>,
    long: Option<ReceiveBuffer>,
    /// Reads in a row that brought no long frame.
    short_reads: u32,
    /// Bytes of the longest frame.
    limit: u32,
    held: bool,
}

impl Receive {
    /// Goes on behind `rest`, bytes that were received before.
    pub(super) fn new(shared: SharedBuffer, rest: Vec<u8>, limit: u32) -> Self {
        let held = !rest.is_empty();
        Self { shared, rest, long: None, short_reads: 0, limit, held }
    }

    /// Gives up what was received and not taken.
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.rest
    }

    /// Takes what is held, or else reads once and takes what came: calls `take` with each frame.
    pub(super) fn poll_receive<E>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &RefCell<TcpStream>,
        take: &mut dyn FnMut(&Frame<'_>) -> Result<Want, E>,
    ) -> Poll<Result<Received, ReceiveError<E>>> {
        if self.held {
            return Poll::Ready(self.take_held(take));
        }
        if self.long.is_some() {
            return self.poll_long(cx, stream, take);
        }
        let shared = self.shared.clone();
        let mut shared = shared.borrow_mut();
        let kept = self.rest.len();
        let read = {
            let (front, space) = shared.split_at_mut(kept);
            front.copy_from_slice(&self.rest);
            let read = ready!(Pin::new(&mut *stream.borrow_mut()).poll_read(cx, space));
            read.map(|bytes| (bytes, bytes == space.len()))
        };
        let (bytes, full) = match read {
            Ok((0, _)) => return Poll::Ready(Ok(Received::Closed)),
            Ok(read) => read,
            Err(error) => return Poll::Ready(Err(ReceiveError::Io(error))),
        };
        self.rest.clear();
        Poll::Ready(self.take_from(&shared[..kept + bytes], full, take))
    }

    fn take_held<E>(
        &mut self,
        take: &mut dyn FnMut(&Frame<'_>) -> Result<Want, E>,
    ) -> Result<Received, ReceiveError<E>> {
        self.held = false;
        if self.long.is_some() {
            return self.take_long(false, take);
        }
        let rest = std::mem::take(&mut self.rest);
        self.take_from(&rest, false, take)
    }

    /// Takes the frames in `bytes` and keeps what is left.
    fn take_from<E>(
        &mut self,
        bytes: &[u8],
        full: bool,
        take: &mut dyn FnMut(&Frame<'_>) -> Result<Want, E>,
    ) -> Result<Received, ReceiveError<E>> {
        let mut at = 0;
        let mut needed = 0;
        while at < bytes.len() {
            match decode(&bytes[at..], self.limit).map_err(ReceiveError::Decode)? {
                Decoded::Partial { needed: all } => {
                    needed = all;
                    break;
                }
                Decoded::Frame { frame, length } => {
                    at += length;
                    if take(&frame).map_err(ReceiveError::Taker)? == Want::NoMore {
                        self.rest.extend_from_slice(&bytes[at..]);
                        self.held = !self.rest.is_empty();
                        return Ok(if self.held { Received::Held } else { Received::All { full } });
                    }
                }
            }
        }
        let left = &bytes[at..];
        if needed > LONG_BYTES {
            let mut long = ReceiveBuffer::new(LONG_RESTING.max(left.len()), self.limit);
            long.space()[..left.len()].copy_from_slice(left);
            long.filled(left.len());
            // Lets the buffer learn how long the frame is.
            long.next_frame().map_err(ReceiveError::Decode)?;
            self.long = Some(long);
            self.short_reads = 0;
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(left);
        }
        Ok(Received::All { full })
    }

    /// Reads into the connection's own buffer.
    fn poll_long<E>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &RefCell<TcpStream>,
        take: &mut dyn FnMut(&Frame<'_>) -> Result<Want, E>,
    ) -> Poll<Result<Received, ReceiveError<E>>> {
        let long = self.long.as_mut().expect("asked for only while there is one");
        let space = long.space();
        let length = space.len();
        let bytes = match ready!(Pin::new(&mut *stream.borrow_mut()).poll_read(cx, space)) {
            Ok(0) => return Poll::Ready(Ok(Received::Closed)),
            Ok(bytes) => bytes,
            Err(error) => return Poll::Ready(Err(ReceiveError::Io(error))),
        };
        long.filled(bytes);
        Poll::Ready(self.take_long(bytes == length, take))
    }

    /// Takes the frames in the connection's own buffer, which is given up when it is not worth keeping.
    fn take_long<E>(
        &mut self,
        full: bool,
        take: &mut dyn FnMut(&Frame<'_>) -> Result<Want, E>,
    ) -> Result<Received, ReceiveError<E>> {
        let long = self.long.as_mut().expect("asked for only while there is one");
        self.short_reads += 1;
        while let Some(frame) = long.next_frame().map_err(ReceiveError::Decode)? {
            if frame.bytes.len() > LONG_BYTES {
                self.short_reads = 0;
            }
            if take(&frame).map_err(ReceiveError::Taker)? == Want::NoMore {
                self.held = true;
                return Ok(Received::Held);
            }
        }
        if long.rest().len() > LONG_BYTES {
            self.short_reads = 0;
        }
        if self.short_reads >= SHORT_READS {
            self.rest.extend_from_slice(long.rest());
            self.long = None;
        }
        Ok(Received::All { full })
    }
}
