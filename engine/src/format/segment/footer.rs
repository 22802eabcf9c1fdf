//! What a sealed segment ends with: how much is in it, its holes, its sparse index, its final producer table.
//!
//! ```text
//!  0 version u8   1 … 4 reserved   4 holes u32   8 index entries u32   12 table bytes u32   16 segment u64   24 base u64   32 end u64
//! 40 records u64   48 batches u64   56 digest, 16 bytes   72 least timestamp, ms u64   80 greatest timestamp, ms u64   88 reserved u64
//! 96 holes … | index … | table
//! ```
//! A footer says what its writer believed. It is trusted only where a *committed* seal has the same end and digest.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::hole::{Holes, RawHole, judge_holes};
use super::{Hole, Seal, TableRef, judge_version, take_slice};
use crate::format::checksum::Digest;
use crate::format::index::{IndexEntry, is_ordered};
use crate::format::verdict::DecodeError;
use crate::types::{Offset, SegmentId};

/// Bytes of a footer before its holes.
pub const FOOTER_HEADER_BYTES: usize = 96;
const WHAT: &str = "footer";
const VERSION: u8 = 1;

/// A footer, its lists aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The segment.
    pub segment: SegmentId,
    /// Its first offset.
    pub base: Offset,
    /// Its end, exclusive.
    pub end: Offset,
    /// Records in it, those of holes not counted.
    pub records: u64,
    /// Batches in it.
    pub batches: u64,
    /// The running digest at the end, with a hole that reaches it.
    pub digest: Digest,
    /// Least timestamp of its records; meaningless where there is none.
    pub timestamp_ms_min: u64,
    /// Greatest timestamp of its records, inclusive; meaningless where there is none.
    pub timestamp_ms_max: u64,
}

/// A footer as it lies at rest, judged.
#[derive(Clone, Copy, Debug)]
pub struct FooterRef<'a> {
    /// The fixed part.
    pub footer: Footer,
    /// The holes, ascending.
    pub holes: Holes<'a>,
    /// The sparse index, ascending.
    pub index: &'a [IndexEntry],
    /// The final producer table.
    pub table: TableRef<'a>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    version: u8,
    reserved_bytes: [u8; 3],
    holes: U32,
    index: U32,
    table_bytes: U32,
    segment: U64,
    base: U64,
    end: U64,
    records: U64,
    batches: U64,
    digest: [u8; Digest::BYTES],
    timestamp_ms_min: U64,
    timestamp_ms_max: U64,
    reserved: U64,
}

const _: () = assert!(
    size_of::<Head>() == FOOTER_HEADER_BYTES
        && std::mem::offset_of!(Head, holes) == 4
        && std::mem::offset_of!(Head, table_bytes) == 12
        && std::mem::offset_of!(Head, segment) == 16
        && std::mem::offset_of!(Head, end) == 32
        && std::mem::offset_of!(Head, digest) == 56
        && std::mem::offset_of!(Head, timestamp_ms_min) == 72
);

impl Footer {
    /// Appends the payload of a footer's entry. `table` is a table's payload, `index` ascends.
    pub fn encode(&self, out: &mut Vec<u8>, holes: &[Hole], index: &[IndexEntry], table: &[u8]) {
        let count = |length| U32::from(u32::try_from(length).expect("a footer is far below 4 GiB"));
        let head = Head {
            version: VERSION,
            reserved_bytes: [0; 3],
            holes: count(holes.len()),
            index: count(index.len()),
            table_bytes: count(table.len()),
            segment: self.segment.0.into(),
            base: self.base.0.into(),
            end: self.end.0.into(),
            records: self.records.into(),
            batches: self.batches.into(),
            digest: self.digest.to_bytes(),
            timestamp_ms_min: self.timestamp_ms_min.into(),
            timestamp_ms_max: self.timestamp_ms_max.into(),
            reserved: 0.into(),
        };
        out.extend_from_slice(head.as_bytes());
        for hole in holes {
            out.extend_from_slice(RawHole::from(*hole).as_bytes());
        }
        out.extend_from_slice(index.as_bytes());
        out.extend_from_slice(table);
    }

    /// Whether it agrees with a committed seal.
    #[must_use]
    pub fn agrees_with(&self, seal: &Seal) -> bool {
        self.end == seal.end && self.digest == seal.digest
    }
}

impl<'a> FooterRef<'a> {
    /// Reads exactly one footer's payload.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        judge_version(WHAT, payload.first().copied().unwrap_or(0), VERSION)?;
        let found = payload.len() as u64;
        let wrong_length = |expected| DecodeError::Length { what: WHAT, expected, found };
        let (head, rest) = Head::ref_from_prefix(payload).map_err(|_| wrong_length(FOOTER_HEADER_BYTES as u64))?;
        let (holes, rest) = take_slice::<RawHole>(WHAT, rest, head.holes.get())?;
        let (index, table) = take_slice::<IndexEntry>(WHAT, rest, head.index.get())?;
        if table.len() as u64 != u64::from(head.table_bytes.get()) {
            return Err(wrong_length(found - table.len() as u64 + u64::from(head.table_bytes.get())));
        }
        let value = |field, found| DecodeError::Value { what: WHAT, field, found };
        judge_holes(holes)?;
        if !is_ordered(index) {
            return Err(value("index order", index.len() as u64));
        }
        if head.base.get() > head.end.get() {
            return Err(value("end", head.end.get()));
        }
        let footer = Footer {
            segment: SegmentId(head.segment.get()),
            base: Offset(head.base.get()),
            end: Offset(head.end.get()),
            records: head.records.get(),
            batches: head.batches.get(),
            digest: Digest::from_bytes(head.digest),
            timestamp_ms_min: head.timestamp_ms_min.get(),
            timestamp_ms_max: head.timestamp_ms_max.get(),
        };
        Ok(Self { footer, holes: Holes(holes), index, table: TableRef::decode(table)? })
    }
}
