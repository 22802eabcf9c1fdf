//! What a catalog knows, as records: each says the whole of one thing, so a later one simply takes the place of an earlier one.
//!
//! ```text
//!  0 kind u8   1 … 4 reserved   4 bytes u32   8 fields …            one after another, without padding
//! ```

use zerocopy::{FromBytes, IntoBytes};

use super::codec::{Fields, Put};
use crate::format::checksum::Digest;
use crate::format::index::{IndexEntry, is_ordered};
use crate::format::segment::roll_mark::ROLL_MARK_BYTES;
use crate::format::segment::{Hole, HoleCause, RollMark, SEGMENT_HEADER_BYTES, Seal, SealRef, SegmentHeader, TableRef};
use crate::format::upgrade::Newer;
use crate::format::verdict::DecodeError;
use crate::segment::appender::{Cut, Placed};
use crate::segment::tally::Tally;
use crate::types::{Epoch, Offset, RangeId, SegmentId};

const WHAT: &str = "catalog record";

/// A part of a segment in one of its files. Positions of the segment count through all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The file: `DataFile::Segment::part`.
    pub part: u16,
    /// Where the extent begins in that file, in bytes; whole blocks.
    pub start: u64,
    /// Bytes of it, whole blocks.
    pub length: u64,
}

/// A sparse index and a producer table that no durable footer holds yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// Of the batches below the checkpoint, ascending.
    pub index: Vec<IndexEntry>,
    /// The payload of the producer table as at the checkpoint's end; `format::segment::table`.
    pub table: Vec<u8>,
}

/// Where the index and the final table of a sealed segment are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Here, until a footer is durable.
    Catalog(Tail),
    /// In the footer, which lies there.
    Footer(Placed),
}

/// How far a segment has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// It takes batches, or did when its writer stopped.
    Open(Tail),
    /// It ends in a roll mark, and its seal is not yet known to be committed.
    Rolled { mark: RollMark, tail: Tail },
    /// Its end is committed.
    Sealed { seal: Seal, holes: Vec<Hole>, contents: Contents },
}

/// A segment of which this disk has a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRecord {
    /// Its `Open`, with its base.
    pub header: SegmentHeader,
    /// Its files, in the order of their positions.
    pub extents: Vec<Extent>,
    /// What lies in the files and is synced: a checkpointed byte is never written again.
    pub checkpoint: Cut,
    pub state: SegmentState,
}

/// The first group of the journal that a catalog does not cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LiveMark {
    /// Its sequence.
    pub sequence: u64,
    /// Its position, counted from the generation's start, or where to look for it from.
    pub position: u64,
    /// Digest of the group before it.
    pub previous: u64,
}

/// One change of a catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A segment as it is now.
    Segment(Box<SegmentRecord>),
    /// A segment is gone: a committed trim said so.
    SegmentRemoved(SegmentId),
    /// Nothing below `epoch` is taken for the range.
    Promise { range: RangeId, epoch: Epoch },
    /// Spans of a segment that were found uncertain or unreadable, all of them; none once a committed seal covers them.
    Uncertain { range: RangeId, segment: SegmentId, spans: Vec<Hole> },
    /// Below `start`, the range is deleted by a committed trim.
    Trim { range: RangeId, start: Offset },
    /// Where the journal is to be read from.
    Live(LiveMark),
    /// The range is deleted, as committed: nothing else that is known of it counts any more, whatever journals say. These files of it are
    /// still to be removed.
    Deletion { range: RangeId, files: Vec<DoomedFile> },
    /// All of the range's files are gone, and so is what journals said of it.
    DeletionDone { range: RangeId },
}

/// A file of a deleted range: the segment and the part of it.
pub type DoomedFile = (SegmentId, u16);

impl SegmentRecord {
    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.header.segment
    }

    /// First offset, inclusive.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.header.base.expect("a segment on disk has its base")
    }

    /// The index and table, unless a footer has them.
    #[must_use]
    pub fn tail(&self) -> Option<&Tail> {
        match &self.state {
            SegmentState::Open(tail) | SegmentState::Rolled { tail, .. } => Some(tail),
            SegmentState::Sealed { contents: Contents::Catalog(tail), .. } => Some(tail),
            SegmentState::Sealed { contents: Contents::Footer(_), .. } => None,
        }
    }

    /// The committed seal.
    #[must_use]
    pub fn seal(&self) -> Option<(&Seal, &[Hole])> {
        match &self.state {
            SegmentState::Sealed { seal, holes, .. } => Some((seal, holes)),
            SegmentState::Open(_) | SegmentState::Rolled { .. } => None,
        }
    }

    /// The file and the position in it of a position of the segment below its end, and how many bytes lie there in one piece.
    #[must_use]
    pub fn locate(&self, position: u64) -> Option<(u16, u64, u64)> {
        let mut begin = 0;
        for extent in &self.extents {
            let end = begin + extent.length;
            if position < end {
                return Some((extent.part, extent.start + (position - begin), end - position));
            }
            begin = end;
        }
        None
    }
}

impl Tail {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_counted(self.index.as_bytes());
        out.put_counted(&self.table);
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let bytes = fields.counted()?;
        let index = <[IndexEntry]>::ref_from_bytes(bytes).map_err(|_| fields.wrong("index", bytes.len() as u64))?;
        if !is_ordered(index) {
            return Err(fields.wrong("index order", index.len() as u64));
        }
        let table = fields.counted()?;
        TableRef::decode(table)?;
        Ok(Self { index: index.to_vec(), table: table.to_vec() })
    }
}

/// Appends a checkpoint's fields.
fn encode_cut(cut: &Cut, out: &mut Vec<u8>) {
    out.put_u64(cut.position);
    out.put_u64(cut.end.0);
    out.put(&cut.digest.to_bytes());
    let tally = &cut.tally;
    for count in [tally.batches, tally.records, tally.bytes, tally.timestamp_ms_min, tally.timestamp_ms_max] {
        out.put_u64(count);
    }
}

fn decode_cut(fields: &mut Fields<'_>) -> Result<Cut, DecodeError> {
    Ok(Cut {
        position: fields.u64()?,
        end: Offset(fields.u64()?),
        digest: Digest::from_bytes(fields.array()?),
        tally: Tally {
            batches: fields.u64()?,
            records: fields.u64()?,
            bytes: fields.u64()?,
            timestamp_ms_min: fields.u64()?,
            timestamp_ms_max: fields.u64()?,
        },
    })
}

const STATE_OPEN: u8 = 1;
const STATE_ROLLED: u8 = 2;
const STATE_SEALED: u8 = 3;
const STATE_SEALED_FOOTER: u8 = 4;

impl SegmentState {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open(tail) => {
                out.put_u8(STATE_OPEN);
                tail.encode(out);
            }
            Self::Rolled { mark, tail } => {
                out.put_u8(STATE_ROLLED);
                out.put(&mark.encode());
                tail.encode(out);
            }
            Self::Sealed { seal, holes, contents } => {
                out.put_u8(match contents {
                    Contents::Catalog(_) => STATE_SEALED,
                    Contents::Footer(_) => STATE_SEALED_FOOTER,
                });
                let mut bytes = Vec::new();
                seal.encode(&mut bytes, holes);
                out.put_counted(&bytes);
                match contents {
                    Contents::Catalog(tail) => tail.encode(out),
                    Contents::Footer(placed) => {
                        out.put_u64(placed.position);
                        out.put_u32(placed.length);
                    }
                }
            }
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        Ok(match fields.u8()? {
            STATE_OPEN => Self::Open(Tail::decode(fields)?),
            STATE_ROLLED => {
                let mark = RollMark::decode(fields.take(ROLL_MARK_BYTES)?)?;
                Self::Rolled { mark, tail: Tail::decode(fields)? }
            }
            found @ (STATE_SEALED | STATE_SEALED_FOOTER) => {
                let sealed = SealRef::decode(fields.counted()?)?;
                let holes = sealed.holes.iter().collect();
                let contents = if found == STATE_SEALED {
                    Contents::Catalog(Tail::decode(fields)?)
                } else {
                    Contents::Footer(Placed { position: fields.u64()?, length: fields.u32()? })
                };
                Self::Sealed { seal: sealed.seal, holes, contents }
            }
            found => return Err(fields.wrong("state", u64::from(found))),
        })
    }
}

impl SegmentRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put(&self.header.encode());
        out.put_count(self.extents.len());
        for extent in &self.extents {
            out.put_u16(extent.part);
            out.put_u64(extent.start);
            out.put_u64(extent.length);
        }
        encode_cut(&self.checkpoint, out);
        self.state.encode(out);
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let header = SegmentHeader::decode(fields.take(SEGMENT_HEADER_BYTES)?)?;
        if header.base.is_none() {
            return Err(fields.wrong("base", 0));
        }
        let (mut extents, mut bytes) = (Vec::new(), 0u64);
        for _ in 0..fields.u32()? {
            let extent = Extent { part: fields.u16()?, start: fields.u64()?, length: fields.u64()? };
            // Positions in the segment and in its files are added up without looking.
            let ends = (bytes.checked_add(extent.length), extent.start.checked_add(extent.length));
            let (Some(end), Some(_)) = ends else { return Err(fields.wrong("extent length", extent.length)) };
            bytes = end;
            extents.push(extent);
        }
        let checkpoint = decode_cut(fields)?;
        if Some(checkpoint.end) < header.base {
            return Err(fields.wrong("checkpoint end", checkpoint.end.0));
        }
        Ok(Self { header, extents, checkpoint, state: SegmentState::decode(fields)? })
    }
}

const KIND_SEGMENT: u8 = 1;
const KIND_SEGMENT_REMOVED: u8 = 2;
const KIND_PROMISE: u8 = 3;
const KIND_UNCERTAIN: u8 = 4;
const KIND_TRIM: u8 = 5;
const KIND_LIVE: u8 = 6;
const KIND_DELETION: u8 = 7;
const KIND_DELETION_DONE: u8 = 8;
const KIND_NEWEST: u8 = KIND_DELETION_DONE;
const RECORD_HEADER_BYTES: usize = 8;

impl Record {
    /// Appends it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Segment(record) => put_segment(record, out),
            Self::SegmentRemoved(segment) => framed(out, KIND_SEGMENT_REMOVED, |out| out.put_u64(segment.0)),
            Self::Promise { range, epoch } => framed(out, KIND_PROMISE, |out| {
                out.put_u64(range.0);
                out.put_u64(epoch.0);
            }),
            Self::Uncertain { range, segment, spans } => framed(out, KIND_UNCERTAIN, |out| {
                out.put_u64(range.0);
                out.put_u64(segment.0);
                out.put_count(spans.len());
                for span in spans {
                    out.put_u64(span.from.0);
                    out.put_u64(span.to.0);
                    out.put_u64(span.records_at_most);
                    out.put_u8(span.cause as u8);
                }
            }),
            Self::Trim { range, start } => framed(out, KIND_TRIM, |out| {
                out.put_u64(range.0);
                out.put_u64(start.0);
            }),
            Self::Live(live) => framed(out, KIND_LIVE, |out| {
                out.put_u64(live.sequence);
                out.put_u64(live.position);
                out.put_u64(live.previous);
            }),
            Self::Deletion { range, files } => framed(out, KIND_DELETION, |out| {
                out.put_u64(range.0);
                out.put_count(files.len());
                for (segment, part) in files {
                    out.put_u64(segment.0);
                    out.put_u16(*part);
                }
            }),
            Self::DeletionDone { range } => framed(out, KIND_DELETION_DONE, |out| out.put_u64(range.0)),
        }
    }

    /// Reads all records of `bytes`.
    ///
    /// # Errors
    /// The first that makes no sense. Their file's checksum is verified before.
    pub(super) fn decode_all(bytes: &[u8], mut each: impl FnMut(Self)) -> Result<(), DecodeError> {
        let mut all = Fields::new(WHAT, bytes);
        while !all.is_empty() {
            let kind = all.u8()?;
            all.take(3)?;
            let mut fields = Fields::new(WHAT, all.counted()?);
            each(Self::decode(kind, &mut fields)?);
            fields.end()?;
        }
        Ok(())
    }

    fn decode(kind: u8, fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            KIND_SEGMENT => Self::Segment(Box::new(SegmentRecord::decode(fields)?)),
            KIND_SEGMENT_REMOVED => Self::SegmentRemoved(SegmentId(fields.u64()?)),
            KIND_PROMISE => Self::Promise { range: RangeId(fields.u64()?), epoch: Epoch(fields.u64()?) },
            KIND_UNCERTAIN => {
                let (range, segment) = (RangeId(fields.u64()?), SegmentId(fields.u64()?));
                let mut spans = Vec::new();
                for _ in 0..fields.u32()? {
                    let (from, to, records_at_most) = (fields.u64()?, fields.u64()?, fields.u64()?);
                    let cause = fields.u8()?;
                    let cause = HoleCause::from_byte(cause).ok_or_else(|| fields.wrong("cause", u64::from(cause)))?;
                    spans.push(Hole { from: Offset(from), to: Offset(to), records_at_most, cause });
                }
                Self::Uncertain { range, segment, spans }
            }
            KIND_TRIM => Self::Trim { range: RangeId(fields.u64()?), start: Offset(fields.u64()?) },
            KIND_LIVE => {
                Self::Live(LiveMark { sequence: fields.u64()?, position: fields.u64()?, previous: fields.u64()? })
            }
            KIND_DELETION => {
                let (range, mut files) = (RangeId(fields.u64()?), Vec::new());
                for _ in 0..fields.u32()? {
                    files.push((SegmentId(fields.u64()?), fields.u16()?));
                }
                Self::Deletion { range, files }
            }
            KIND_DELETION_DONE => Self::DeletionDone { range: RangeId(fields.u64()?) },
            // It verifies and is unknown: a newer build wrote it.
            found => {
                let (found, supported) = (u32::from(found), u32::from(KIND_NEWEST));
                return Err(Newer { what: "kind of catalog record", found, supported }.into());
            }
        })
    }
}

/// Appends `Record::Segment` without a copy of it.
pub(super) fn put_segment(record: &SegmentRecord, out: &mut Vec<u8>) {
    framed(out, KIND_SEGMENT, |out| record.encode(out));
}

fn framed(out: &mut Vec<u8>, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.put(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    fields(out);
    let length = u32::try_from(out.len() - at - RECORD_HEADER_BYTES).expect("a record is far below 4 GiB");
    out[at + 4..at + RECORD_HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
}
