//! From received bytes to frames. A frame is looked at only when its header's checksum holds, its length is checked against the
//! limit before memory is given to it, and its body is lent from the receive buffer: nothing is copied.
//!
//! ```text
//! ReceiveBuffer   | taken | frame | frame | part of a frame | space: the next read goes here |
//!                 0       start                             end                        capacity
//! ```
//! **Invariants**: the buffer is never longer than the greater of its resting size and the limit; an error is final, since
//! nothing behind a bad header can be told from noise.

use sealog_engine::format::checksum;
use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

use super::frame::{Frame, FrameHeader, HEADER_BYTES, VERSION};

/// Reads in a row that need no long buffer after which it is given back.
const SMALL_READS: u32 = 64;

/// What lies at the beginning of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// A whole frame, and the bytes that it takes.
    Frame { frame: Frame<'a>, length: usize },
    /// The beginning of one; in all so many bytes are needed before more can be told.
    Partial { needed: usize },
}

/// Bytes that are not a frame. The connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    #[error("a header whose checksum is {found:08x} and whose bytes give {computed:08x}")]
    HeaderChecksum { found: u32, computed: u32 },
    #[error("a frame of version {found}; {VERSION} is spoken here")]
    Version { found: u8 },
    #[error("a frame of {length} bytes; the limit is {limit}")]
    TooLong { length: u32, limit: u32 },
    #[error("a frame of {length} bytes with a struct part of {struct_length}")]
    TooShort { length: u32, struct_length: u16 },
    #[error("flags or reserved bits that are not defined")]
    Reserved,
    #[error("a struct part whose checksum is {found:08x} and whose bytes give {computed:08x}")]
    StructChecksum { found: u32, computed: u32 },
}

/// Reads the frame at the beginning of `bytes`. `limit` is in bytes of a whole frame.
///
/// # Errors
/// What is there is not a frame, or is longer than the limit.
#[inline]
pub fn decode(bytes: &[u8], limit: u32) -> Result<Decoded<'_>, DecodeError> {
    let Ok((header, rest)) = FrameHeader::ref_from_prefix(bytes) else {
        return Ok(Decoded::Partial { needed: HEADER_BYTES });
    };
    let (found, computed) = (header.header_checksum.get(), checksum(0, &header.as_bytes()[..HEADER_BYTES - 4]));
    if found != computed {
        return Err(DecodeError::HeaderChecksum { found, computed });
    }
    if header.version != VERSION {
        return Err(DecodeError::Version { found: header.version });
    }
    if header.flags != 0 || header.reserved.get() != 0 {
        return Err(DecodeError::Reserved);
    }
    let (length, struct_length) = (header.length.get(), header.struct_length.get());
    if length > limit {
        return Err(DecodeError::TooLong { length, limit });
    }
    let Some(body_length) = (length as usize).checked_sub(HEADER_BYTES).filter(|b| *b >= usize::from(struct_length))
    else {
        return Err(DecodeError::TooShort { length, struct_length });
    };
    let Some(body) = rest.get(..body_length) else {
        return Ok(Decoded::Partial { needed: length as usize });
    };
    let (struct_part, bytes) = body.split_at(usize::from(struct_length));
    let (found, computed) = (header.struct_checksum.get(), checksum(0, struct_part));
    if found != computed {
        return Err(DecodeError::StructChecksum { found, computed });
    }
    let frame = Frame {
        kind: header.kind.get(),
        correlation: header.correlation.get(),
        deadline_ms: header.deadline_ms.get(),
        struct_part,
        bytes,
    };
    Ok(Decoded::Frame { frame, length: length as usize })
}

/// Where a connection's bytes are received and its frames are read from.
///
/// Call contract: [`space`](Self::space), read into it, [`filled`](Self::filled), then [`next_frame`](Self::next_frame) until it gives
/// `None`.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes to keep when no long frame is under way.
    resting: usize,
    /// Bytes of the longest frame taken.
    limit: u32,
    /// Bytes from `start` that the frame under way has, as far as is known.
    needed: usize,
    /// Reads in a row that would have fitted the resting size.
    small_reads: u32,
}

impl ReceiveBuffer {
    /// A buffer of `resting` bytes that takes frames of up to `limit` bytes.
    #[must_use]
    pub fn new(resting: usize, limit: u32) -> Self {
        let resting = resting.max(HEADER_BYTES);
        Self { bytes: vec![0; resting], start: 0, end: 0, resting, limit, needed: HEADER_BYTES, small_reads: 0 }
    }

    /// Changes both bounds: the hello has succeeded.
    pub fn set_bounds(&mut self, resting: usize, limit: u32) {
        self.resting = resting.max(HEADER_BYTES);
        self.limit = limit;
    }

    /// Where the next bytes are to be received; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // A length is a claim: memory follows the bytes that came, doubling, not the length that was announced.
        let wanted = self.needed.min(2 * self.end).max(self.resting).max(self.end + 1);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        // A stream of long frames keeps its buffer; one that was alone gives it back.
        self.small_reads = if wanted > self.resting { 0 } else { self.small_reads.saturating_add(1) };
        if self.small_reads >= SMALL_READS && self.bytes.len() > self.resting && self.end < self.resting {
            self.bytes.truncate(self.resting);
            self.bytes.shrink_to_fit();
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were received into [`space`](Self::space).
    ///
    /// # Panics
    /// If there was less space.
    pub fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.bytes.len(), "no more was received than there was space for");
    }

    /// The next whole frame, or `None` if more bytes are needed. It is taken: the next call gives the one behind it.
    ///
    /// # Errors
    /// The bytes are not a frame. Final.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        match decode(&self.bytes[self.start..self.end], self.limit)? {
            Decoded::Frame { frame, length } => {
                self.start += length;
                self.needed = HEADER_BYTES;
                Ok(Some(frame))
            }
            Decoded::Partial { needed } => {
                self.needed = needed;
                Ok(None)
            }
        }
    }

    /// Bytes that were received and not yet taken.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests;
