//! Brings one segment up to where the journal knows it: what it says behind the checkpoint is verified, gathered in memory, and then
//! written to the segment's file in one go.
//!
//! ```text
//!   file:    | … checkpointed … pad |  whatever an earlier life left  |
//!   journal:                        [table][batch][batch][roll mark]
//!   after:   | … checkpointed … pad | table | batch | batch | mark | pad |       the new checkpoint
//! ```
//! The layout behind the checkpoint may differ from what the earlier life wrote there: positions are local, and nothing names those
//! bytes until the new catalog is durable. Crash at any point before that: the same is done again, from the same checkpoint.

use thiserror::Error;

use crate::api::port::{DataFile, Fill, Store, StoreError};
use crate::format::batch::{PlacedBatch, PlacedError};
use crate::format::checksum::Digest;
use crate::format::entry::{EntryKind, EntryRef, SegmentSeed, pad_bytes, read_entry, write_pad};
use crate::format::segment::{RollMark, SEGMENT_HEADER_BYTES, SealRef, SegmentHeader};
use crate::format::verdict::{DecodeError, Verdict};
use crate::segment::appender::Cut;
use crate::segment::catalog::{Contents, Extent, SegmentRecord, SegmentState, Tail};
use crate::segment::index::SparseIndex;
use crate::segment::tally::Tally;
use crate::types::limits::{BLOCK, IO_BYTES_MAX};
use crate::types::{AlignedBuffer, Offset, SegmentId};

/// Why what a journal says of a segment cannot be: it verifies, so only an error in a writer makes such.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum EntryFault {
    /// The entry does not verify, though its group does.
    #[error(transparent)]
    Entry(#[from] Verdict),
    /// The batch does not verify, though its group does.
    #[error(transparent)]
    Batch(#[from] PlacedError),
    /// A payload makes no sense.
    #[error(transparent)]
    Payload(#[from] DecodeError),
    /// An entry of another kind than the journal's directory says.
    #[error("an entry of kind {0:?} lies there")]
    Kind(EntryKind),
    /// A batch of another segment or place.
    #[error("a batch of {segment} with offset {found} lies where {expected} belongs")]
    Elsewhere {
        /// The segment that it names.
        segment: SegmentId,
        /// The offset that it names.
        found: Offset,
        /// The offset that belongs there.
        expected: Offset,
    },
    /// The digest that it carries does not follow from the one before.
    #[error("the running digest breaks at {at}")]
    Digest {
        /// Where the batch or mark begins.
        at: Offset,
    },
    /// Something lies behind a roll mark or a committed seal, or before the table, or a table lies behind the first batch.
    #[error("it does not belong at {at}")]
    Order {
        /// The segment's end.
        at: Offset,
    },
    /// A seal below what the only copy holds: it would have to be cut.
    #[error("it is sealed at {sealed}, and holds records up to {end}")]
    SealedBelow {
        /// The committed end.
        sealed: Offset,
        /// What is here.
        end: Offset,
    },
    /// The journal speaks of a segment that neither it nor the catalog has opened.
    #[error("it was never opened here")]
    Unknown,
}

/// A segment that the journal says more of than the catalog does.
#[derive(Debug)]
pub struct Rebuild {
    record: SegmentRecord,
    seed: SegmentSeed,
    index: SparseIndex,
    /// The table is there, and with it the digest.
    started: bool,
    /// Where `bytes` begin.
    from: u64,
    bytes: Vec<u8>,
}

impl Rebuild {
    /// A segment that was opened after the last checkpoint.
    ///
    /// # Errors
    /// If its header has no base.
    pub fn begin(header: SegmentHeader) -> Result<Self, EntryFault> {
        let end = header.base.ok_or(EntryFault::Unknown)?;
        let mut bytes = vec![0; BLOCK];
        bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        let checkpoint = Cut { position: 0, end, digest: Digest::default(), tally: Tally::default() };
        let state = SegmentState::Open(Tail::default());
        let record = SegmentRecord { header, extents: Vec::new(), checkpoint, state };
        Ok(Self { seed: header.seed(), index: SparseIndex::default(), started: false, from: 0, bytes, record })
    }

    /// A segment as the catalog has it. `None` if its footer is durable: there is no more to say of it.
    #[must_use]
    pub fn go_on(mut record: SegmentRecord) -> Option<Self> {
        let index = match &mut record.state {
            SegmentState::Open(tail)
            | SegmentState::Rolled { tail, .. }
            | SegmentState::Sealed { contents: Contents::Catalog(tail), .. } => std::mem::take(&mut tail.index),
            SegmentState::Sealed { contents: Contents::Footer(_), .. } => return None,
        };
        let (seed, from) = (record.header.seed(), record.checkpoint.position);
        let index = SparseIndex::from_entries(index);
        Some(Self { record, seed, index, started: true, from, bytes: Vec::new() })
    }

    /// The segment as far as it is known, without its index and table.
    #[must_use]
    pub fn record(&self) -> &SegmentRecord {
        &self.record
    }

    /// Whether its table is there: without it, nothing of it was stored.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Takes the table that it begins with; gives its payload.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn table<'a>(&mut self, entry: &'a [u8]) -> Result<&'a [u8], EntryFault> {
        let table = self.expect(entry, EntryKind::Table)?;
        if self.started || !self.is_open() {
            return Err(self.out_of_order());
        }
        let digest = Digest::of(table.payload);
        if self.record.header.table.is_some_and(|named| named != digest) {
            return Err(EntryFault::Digest { at: self.record.base() });
        }
        self.start(digest);
        self.bytes.extend_from_slice(entry);
        Ok(table.payload)
    }

    /// The table could not be read: the digest begins from what the header says of it.
    pub fn start_without_table(&mut self) {
        self.start(self.record.header.table.unwrap_or_default());
    }

    fn start(&mut self, table: Digest) {
        self.started = true;
        self.record.checkpoint.digest = Digest::start_from(self.record.segment(), self.record.base(), table);
    }

    /// Takes the next batch.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn batch<'a>(&mut self, entry: &'a [u8]) -> Result<PlacedBatch<'a>, EntryFault> {
        let batch = PlacedBatch::verify(entry, self.seed)?;
        if !self.started || !self.is_open() {
            return Err(self.out_of_order());
        }
        let (place, checkpoint) = (batch.place(), &mut self.record.checkpoint);
        let expected = checkpoint.end;
        if place.segment != self.record.header.segment || place.offset != expected {
            return Err(EntryFault::Elsewhere { segment: place.segment, found: place.offset, expected });
        }
        if !batch.continues(checkpoint.digest) {
            return Err(EntryFault::Digest { at: expected });
        }
        let position = self.from + self.bytes.len() as u64;
        self.index.note(expected, position, checkpoint.tally.timestamp_ms_max);
        checkpoint.tally.note(batch.batch(), batch.bytes().len());
        checkpoint.end = batch.end();
        checkpoint.digest = batch.digest();
        self.bytes.extend_from_slice(batch.bytes());
        Ok(batch)
    }

    /// Takes the mark that it ends with.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn roll_mark(&mut self, entry: &[u8]) -> Result<(), EntryFault> {
        let mark = RollMark::decode(self.expect(entry, EntryKind::RollMark)?.payload)?;
        if !self.started || !self.is_open() {
            return Err(self.out_of_order());
        }
        if (mark.end, mark.digest) != (self.record.checkpoint.end, self.record.checkpoint.digest) {
            return Err(EntryFault::Digest { at: mark.end });
        }
        self.record.state = SegmentState::Rolled { mark, tail: Tail::default() };
        self.bytes.extend_from_slice(entry);
        Ok(())
    }

    /// Takes its committed seal. A second one changes nothing.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn seal(&mut self, payload: &[u8]) -> Result<(), EntryFault> {
        let found = SealRef::decode(payload)?;
        if self.record.seal().is_some() {
            return Ok(());
        }
        let end = self.record.checkpoint.end;
        if found.seal.end < end {
            return Err(EntryFault::SealedBelow { sealed: found.seal.end, end });
        }
        let contents = Contents::Catalog(Tail::default());
        self.record.state = SegmentState::Sealed { seal: found.seal, holes: found.holes.iter().collect(), contents };
        Ok(())
    }

    fn expect<'a>(&self, entry: &'a [u8], kind: EntryKind) -> Result<EntryRef<'a>, EntryFault> {
        let read = read_entry(entry, self.seed)?;
        if read.kind == kind && read.bytes.len() == entry.len() { Ok(read) } else { Err(EntryFault::Kind(read.kind)) }
    }

    fn is_open(&self) -> bool {
        matches!(self.record.state, SegmentState::Open(_))
    }

    fn out_of_order(&self) -> EntryFault {
        EntryFault::Order { at: self.record.checkpoint.end }
    }

    /// Writes what was gathered to the segment's file and syncs that. Gives the file if it is new: its folder is to be synced.
    ///
    /// # Errors
    /// The device's.
    pub fn write(&mut self, store: &mut dyn Store) -> Result<Option<DataFile>, StoreError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let pad = pad_bytes(self.bytes.len());
        if pad != 0 {
            let at = self.bytes.len();
            self.bytes.resize(at + pad, 0);
            write_pad(&mut self.bytes[at..], self.seed);
        }
        let length = self.bytes.len() as u64;
        let is_new = self.record.extents.is_empty();
        if is_new {
            self.record.extents.push(Extent { part: 0, start: 0, length: 0 });
        }
        let segment = self.record.segment();
        let (last, before) = self.record.extents.split_last_mut().expect("there is one");
        let begin: u64 = before.iter().map(|extent| extent.length).sum();
        let file = DataFile::Segment { segment, part: last.part };
        if is_new {
            store.create(file, length, Fill::Allocated)?;
        }
        let mut position = last.start + (self.from - begin);
        for piece in self.bytes.chunks(IO_BYTES_MAX) {
            let mut blocks = AlignedBuffer::zeroed(piece.len());
            blocks[..piece.len()].copy_from_slice(piece);
            store.write(file, position, &blocks)?;
            position += piece.len() as u64;
        }
        store.sync(file)?;
        self.record.checkpoint.position = self.from + length;
        last.length = last.length.max(self.record.checkpoint.position - begin);
        self.from += length;
        self.bytes.clear();
        Ok(is_new.then_some(file))
    }

    /// The segment as the new catalog is to have it, with the payload of the producer table at its end. To be called when it is written.
    ///
    /// # Panics
    /// If something is not written.
    #[must_use]
    pub fn finish(mut self, table: Vec<u8>) -> SegmentRecord {
        assert!(self.bytes.is_empty(), "a catalog speaks only of what is written");
        let rebuilt = Tail { index: self.index.entries().to_vec(), table };
        match &mut self.record.state {
            SegmentState::Open(tail)
            | SegmentState::Rolled { tail, .. }
            | SegmentState::Sealed { contents: Contents::Catalog(tail), .. } => *tail = rebuilt,
            SegmentState::Sealed { contents: Contents::Footer(_), .. } => {
                unreachable!("a segment with a durable footer is not rebuilt")
            }
        }
        self.record
    }
}
