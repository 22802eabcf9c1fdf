//! The header of a segment: what its `Open` says, in the journal and at the front of each of its files.
//!
//! With the headers of all segments the metadata of a cluster of one can be rebuilt: topic, range, span, base, epoch, predecessors.
//!
//! ```text
//!   0 magic "SEALSEGM"   8 version u16   10 keyspace version u16   12 max_batch u32   16 topic u64   24 range u64   32 segment u64
//!  40 span start u64   48 span depth u8   49 replicas W u8   50 acknowledgements A u8   51 flags u8 (below)   52 extent u32
//!  56 base u64   64 first offset of this file u64   72 epoch u64   80 random u64   88 predecessors 2 × u64   104 table digest, 16 bytes
//! 120 retention clock u64   128 primary's life u64   136 primary u32   140 … 188 reserved   188 checksum u32 (of bytes 0 to 188)   192
//! ```
//! Flags: bit 0 *base unknown*, bit 1 *table unknown*, both of a prepared successor. In a file the rest of its first block is zeros.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::checksum::{Digest, checksum};
use crate::format::entry::SegmentSeed;
use crate::format::upgrade::Newer;
use crate::format::verdict::DecodeError;
use crate::types::keyspace::KEYSPACE_VERSION;
use crate::types::limits::BLOCK;
use crate::types::{Epoch, KeyHash, KeySpan, NodeId, Offset, ProcessLife, RangeId, SegmentId, TopicId};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 192;
const WHAT: &str = "segment header";
const MAGIC: [u8; 8] = *b"SEALSEGM";
const VERSION: u16 = 1;
const BASE_UNKNOWN: u8 = 1;
const TABLE_UNKNOWN: u8 = 1 << 1;
const COVERED: usize = SEGMENT_HEADER_BYTES - 4;

/// What a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Its topic.
    pub topic: TopicId,
    /// Its range.
    pub range: RangeId,
    /// Itself.
    pub segment: SegmentId,
    /// The range's key span.
    pub span: KeySpan,
    /// The offset of its first record; `None` in a prepared successor, whose roll mark will say.
    pub base: Option<Offset>,
    /// The digest of its table's payload; `None` where that is not made yet.
    pub table: Option<Digest>,
    /// The epoch it is written in.
    pub epoch: Epoch,
    /// Seeds its checksums, with its id.
    pub random: u64,
    /// The segments that it goes on from: none, one, or two after a merge.
    pub predecessors: [Option<SegmentId>; 2],
    /// Bytes of the largest batch that it takes.
    pub max_batch: u32,
    /// Replicas in its set.
    pub replicas: u8,
    /// Durable copies that an acknowledgement needs.
    pub acknowledgements: u8,
    /// The committed retention clock at its opening.
    pub retention_clock: u64,
    /// The only node that appends to it.
    pub primary: NodeId,
    /// The only life of that node's process that does.
    pub life: ProcessLife,
    /// Which of the segment's files this is, from 0; 0 in the journal.
    pub extent: u32,
    /// The first offset of this file; the base in file 0 and in the journal.
    pub extent_first: Offset,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U16,
    keyspace_version: U16,
    max_batch: U32,
    topic: U64,
    range: U64,
    segment: U64,
    span_start: U64,
    span_depth: u8,
    replicas: u8,
    acknowledgements: u8,
    flags: u8,
    extent: U32,
    base: U64,
    extent_first: U64,
    epoch: U64,
    random: U64,
    predecessors: [U64; 2],
    table: [u8; Digest::BYTES],
    retention_clock: U64,
    life: U64,
    primary: U32,
    reserved: [u8; 48],
    checksum: U32,
}

const _: () = assert!(
    size_of::<Raw>() == SEGMENT_HEADER_BYTES
        && SEGMENT_HEADER_BYTES <= BLOCK
        && std::mem::offset_of!(Raw, version) == 8
        && std::mem::offset_of!(Raw, topic) == 16
        && std::mem::offset_of!(Raw, segment) == 32
        && std::mem::offset_of!(Raw, span_start) == 40
        && std::mem::offset_of!(Raw, flags) == 51
        && std::mem::offset_of!(Raw, base) == 56
        && std::mem::offset_of!(Raw, random) == 80
        && std::mem::offset_of!(Raw, predecessors) == 88
        && std::mem::offset_of!(Raw, table) == 104
        && std::mem::offset_of!(Raw, retention_clock) == 120
        && std::mem::offset_of!(Raw, primary) == 136
        && std::mem::offset_of!(Raw, checksum) == COVERED
);

impl SegmentHeader {
    /// What its entries' checksums are seeded with.
    #[must_use]
    pub fn seed(&self) -> SegmentSeed {
        SegmentSeed::new(self.segment, self.random)
    }

    /// As it lies at rest.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let id = |segment: Option<SegmentId>| segment.map_or(0, |s| s.0).into();
        let bit = |set, bit| if set { bit } else { 0 };
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            keyspace_version: u16::from(KEYSPACE_VERSION).into(),
            max_batch: self.max_batch.into(),
            topic: self.topic.0.into(),
            range: self.range.0.into(),
            segment: self.segment.0.into(),
            span_start: self.span.first().0.into(),
            span_depth: self.span.depth(),
            replicas: self.replicas,
            acknowledgements: self.acknowledgements,
            flags: bit(self.base.is_none(), BASE_UNKNOWN) | bit(self.table.is_none(), TABLE_UNKNOWN),
            extent: self.extent.into(),
            base: self.base.map_or(0, |base| base.0).into(),
            extent_first: self.extent_first.0.into(),
            epoch: self.epoch.0.into(),
            random: self.random.into(),
            predecessors: self.predecessors.map(id),
            table: self.table.map_or([0; Digest::BYTES], Digest::to_bytes),
            retention_clock: self.retention_clock.into(),
            life: self.life.0.into(),
            primary: self.primary.0.into(),
            reserved: [0; 48],
            checksum: 0.into(),
        };
        raw.checksum = checksum(0, &raw.as_bytes()[..COVERED]).into();
        raw.as_bytes().try_into().expect("a raw header has the header's size")
    }

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let length =
            DecodeError::Length { what: WHAT, expected: SEGMENT_HEADER_BYTES as u64, found: bytes.len() as u64 };
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| length)?;
        if raw.magic != MAGIC {
            return Err(DecodeError::Magic { what: WHAT });
        }
        let (stored, computed) = (raw.checksum.get(), checksum(0, &raw.as_bytes()[..COVERED]));
        // Magic, version and checksum never move, so that a newer header is told for certain.
        if stored != computed {
            return Err(DecodeError::Checksum { what: WHAT, stored, computed });
        }
        if raw.version.get() > VERSION {
            let found = u32::from(raw.version.get());
            return Err(Newer { what: WHAT, found, supported: u32::from(VERSION) }.into());
        }
        let value = |field, found| DecodeError::Value { what: WHAT, field, found };
        if raw.version.get() == 0 {
            return Err(value("version", 0));
        }
        if raw.keyspace_version.get() > u16::from(KEYSPACE_VERSION) {
            let found = u32::from(raw.keyspace_version.get());
            return Err(Newer { what: "keyspace", found, supported: u32::from(KEYSPACE_VERSION) }.into());
        }
        if raw.flags & !(BASE_UNKNOWN | TABLE_UNKNOWN) != 0 {
            return Err(value("flags", u64::from(raw.flags)));
        }
        let span = KeySpan::new(KeyHash(raw.span_start.get()), raw.span_depth);
        let id = |segment: U64| Some(SegmentId(segment.get())).filter(|s| s.0 != 0);
        let is_known = |unknown| raw.flags & unknown == 0;
        Ok(Self {
            topic: TopicId(raw.topic.get()),
            range: RangeId(raw.range.get()),
            segment: SegmentId(raw.segment.get()),
            span: span.ok_or_else(|| value("span depth", u64::from(raw.span_depth)))?,
            base: is_known(BASE_UNKNOWN).then_some(Offset(raw.base.get())),
            table: is_known(TABLE_UNKNOWN).then_some(Digest::from_bytes(raw.table)),
            epoch: Epoch(raw.epoch.get()),
            random: raw.random.get(),
            predecessors: raw.predecessors.map(id),
            max_batch: raw.max_batch.get(),
            replicas: raw.replicas,
            acknowledgements: raw.acknowledgements,
            retention_clock: raw.retention_clock.get(),
            primary: NodeId(raw.primary.get()),
            life: ProcessLife(raw.life.get()),
            extent: raw.extent.get(),
            extent_first: Offset(raw.extent_first.get()),
        })
    }
}
