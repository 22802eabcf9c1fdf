//! The frame: a header of 32 bytes, a struct part with a checksum of its own, and bytes.
//!
//! ```text
//!  0        4   5   6      8               16            20      22      24            28            32
//!  | length |ver|flg| kind | correlation   | deadline ms | struct| reserv| struct crc  | header crc  |
//!  |        |   |   |      |               |             | bytes | = 0   |             |             |
//! ```
//! All little-endian. `length` counts the whole frame, header included. The header's checksum is CRC-32C of its first 28 bytes;
//! the struct part's is CRC-32C of the `struct bytes` bytes behind the header, so that a flipped epoch or committed end is not
//! believed. What follows the struct part carries checksums of its own (a batch has one; lists and messages have one in the
//! struct part).
//!
//! **Invariant**: version 1 has no flags and nothing reserved in use; a frame that says otherwise is refused, not guessed at.

use std::mem::offset_of;

use sealog_engine::api::response::Route;
use sealog_engine::format::checksum;
use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::kind::Kind;

/// Version of the protocol that this code speaks.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<FrameHeader>();
/// Bytes of the longest frame that is taken before the hello has succeeded.
pub const HELLO_FRAME_BYTES_MAX: u32 = 64 * 1024;
/// Bytes that a frame may have beyond the largest batch.
pub const FRAME_OVERHEAD_MAX: u32 = 64 * 1024;
/// Bytes of the longest frame that anybody may ever send.
pub const FRAME_BYTES_CEILING: u32 = 32 * 1024 * 1024;

/// The header as it lies on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FrameHeader {
    /// Bytes of the whole frame, this header included.
    pub length: U32,
    /// Version of the protocol.
    pub version: u8,
    /// None are defined.
    pub flags: u8,
    /// Number of a [`Kind`].
    pub kind: U16,
    /// Chosen by who asks, repeated by who answers.
    pub correlation: U64,
    /// Milliseconds that a request still has; 0 in answers and where there is no deadline.
    pub deadline_ms: U32,
    /// Bytes of the struct part.
    pub struct_length: U16,
    /// Zero.
    pub reserved: U16,
    /// CRC-32C of the struct part.
    pub struct_checksum: U32,
    /// CRC-32C of the 28 bytes before this field.
    pub header_checksum: U32,
}

const _: () = {
    assert!(size_of::<FrameHeader>() == 32 && align_of::<FrameHeader>() == 1);
    assert!(offset_of!(FrameHeader, kind) == 6 && offset_of!(FrameHeader, correlation) == 8);
    assert!(offset_of!(FrameHeader, struct_length) == 20 && offset_of!(FrameHeader, header_checksum) == 28);
};

/// One frame, borrowed from a receive buffer; its checksums hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Number of its kind, known or not.
    pub kind: u16,
    pub correlation: u64,
    /// 0: none.
    pub deadline_ms: u32,
    /// The checksummed part.
    pub struct_part: &'a [u8],
    /// What follows it, not looked at.
    pub bytes: &'a [u8],
}

/// What a frame to be written is, apart from its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub kind: Kind,
    pub correlation: u64,
    /// 0: none.
    pub deadline_ms: u32,
}

/// A frame whose checksums hold, but whose body is not what its kind asks for: the sender has a bug, or is newer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BodyError {
    #[error("a struct part of {found} bytes where its kind has {expected}")]
    StructLength { found: usize, expected: usize },
    #[error("{found} bytes behind the struct part where it says {expected}")]
    BytesLength { found: usize, expected: usize },
    #[error("the value of field {field} is not possible")]
    Value { field: &'static str },
    #[error("the checksum of the {part} does not hold")]
    Checksum { part: &'static str },
    #[error("the message cannot be decoded")]
    Message,
    #[error("kind {kind:#06x} is not expected here")]
    Kind { kind: u16 },
}

impl Head {
    /// The head of a request.
    #[must_use]
    pub fn request(kind: Kind, correlation: u64, deadline_ms: u32) -> Self {
        Self { kind, correlation, deadline_ms }
    }

    /// The head of an answer.
    #[must_use]
    pub fn answer(kind: Kind, correlation: u64) -> Self {
        Self { kind, correlation, deadline_ms: 0 }
    }
}

impl Frame<'_> {
    /// The struct part as the struct of its kind, of exactly its size.
    ///
    /// # Errors
    /// It has another size.
    pub fn body<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<&T, BodyError> {
        T::ref_from_bytes(self.struct_part)
            .map_err(|_| BodyError::StructLength { found: self.struct_part.len(), expected: size_of::<T>() })
    }

    /// Checks that nothing follows the struct part.
    ///
    /// # Errors
    /// Something does.
    pub fn without_bytes(&self) -> Result<(), BodyError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(BodyError::BytesLength { found: self.bytes.len(), expected: 0 })
        }
    }
}

/// Appends a frame of `structure` and the concatenation of `parts` to `out`.
///
/// # Panics
/// If the struct part is over 65,535 bytes or the frame over [`FRAME_BYTES_CEILING`]: the callers bound both.
#[inline]
pub fn append(out: &mut Vec<u8>, head: Head, structure: &[u8], parts: &[&[u8]]) {
    let length = HEADER_BYTES + structure.len() + parts.iter().map(|p| p.len()).sum::<usize>();
    let length =
        u32::try_from(length).ok().filter(|l| *l <= FRAME_BYTES_CEILING).expect("a frame is below the ceiling");
    let mut header = FrameHeader {
        length: length.into(),
        version: VERSION,
        flags: 0,
        kind: head.kind.number().into(),
        correlation: head.correlation.into(),
        deadline_ms: head.deadline_ms.into(),
        struct_length: u16::try_from(structure.len()).expect("a struct part is below 64 KiB").into(),
        reserved: 0.into(),
        struct_checksum: checksum(0, structure).into(),
        header_checksum: 0.into(),
    };
    header.header_checksum = checksum(0, &header.as_bytes()[..HEADER_BYTES - 4]).into();
    out.reserve(length as usize);
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(structure);
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// A route as it lies in struct parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RouteStruct {
    range: U64,
    span_start: U64,
    epoch: U64,
    node: U32,
    shard: U16,
    span_depth: u8,
    reserved: u8,
}

const _: () = assert!(size_of::<RouteStruct>() == 32);

impl From<&Route> for RouteStruct {
    fn from(route: &Route) -> Self {
        Self {
            range: route.range.0.into(),
            span_start: route.span.first().0.into(),
            epoch: route.epoch.0.into(),
            node: route.node.0.into(),
            shard: route.shard.0.into(),
            span_depth: route.span.depth(),
            reserved: 0,
        }
    }
}

impl TryFrom<&RouteStruct> for Route {
    type Error = BodyError;

    fn try_from(wire: &RouteStruct) -> Result<Self, BodyError> {
        use sealog_engine::types::{Epoch, KeyHash, KeySpan, NodeId, RangeId, ShardId};
        Ok(Self {
            range: RangeId(wire.range.get()),
            span: KeySpan::new(KeyHash(wire.span_start.get()), wire.span_depth)
                .ok_or(BodyError::Value { field: "route.span" })?,
            epoch: Epoch(wire.epoch.get()),
            node: NodeId(wire.node.get()),
            shard: ShardId(wire.shard.get()),
        })
    }
}

/// Reads a list of routes.
pub(crate) fn read_routes(bytes: &[u8]) -> Result<Vec<Route>, BodyError> {
    let routes = <[RouteStruct]>::ref_from_bytes(bytes).map_err(|_| BodyError::BytesLength {
        found: bytes.len(),
        expected: bytes.len().next_multiple_of(size_of::<RouteStruct>()),
    })?;
    routes.iter().map(Route::try_from).collect()
}

/// `count` as it is counted on the wire.
///
/// # Panics
/// If it does not fit: nothing in memory has so many parts.
pub(crate) fn count_u32(count: usize) -> u32 {
    u32::try_from(count).expect("a count fits 32 bits")
}
