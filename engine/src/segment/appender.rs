//! The tail of an open segment in memory, behind the journal: entries lie here just as they will lie in the file.
//!
//! ```text
//!            checkpointed                handed out        position
//!  file: ------|                              |                |
//!  memory:     [ closed ........pad][ closed .pad][ filling ...|   free   ]
//!              └ chunk: begins and ends on a block; no entry crosses its end
//! ```
//! A chunk is filled by its owner alone; closed, its rest is a pad up to a block boundary and it never changes again: so it can be
//! lent to a write while readers copy from it, and no block of the file is ever written twice. Chunks begin small and grow with the
//! use made of them, so that many idle segments cost little.
//!
//! Invariants: chunks are contiguous and ascend; only the last is filling; `end` and `digest` are those behind the last batch;
//! what is below `checkpointed` is in the file, synced, and gone from here.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::format::BatchRef;
use crate::format::batch::{Place, PlacedBatch, entry_length, place};
use crate::format::checksum::Digest;
use crate::format::entry::{EntryKind, SegmentSeed, entry_bytes, pad_bytes, read_entry, write_entry, write_pad};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::segment::index::SparseIndex;
use crate::segment::pool::{CHUNK_BYTES, ChunkPool};
use crate::segment::tally::Tally;
use crate::types::limits::{BLOCK, round_up_to_block};
use crate::types::{AlignedBuffer, Epoch, Offset, SegmentId};

/// Where an entry lies in its segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Placed {
    /// Byte position in the segment.
    pub position: u64,
    /// Bytes of the whole entry.
    pub length: u32,
}

/// A point of a segment up to which it can be checkpointed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// A block boundary; every entry so far lies below it.
    pub position: u64,
    /// Offset behind the last batch, exclusive.
    pub end: Offset,
    /// The running digest there.
    pub digest: Digest,
    /// What lies below.
    pub tally: Tally,
}

/// A piece of a segment to be written to its file.
#[derive(Clone, Debug)]
pub struct UnwrittenChunk {
    /// Byte position in the segment, a block boundary.
    pub position: u64,
    /// Written from its beginning.
    pub buffer: Arc<AlignedBuffer>,
    /// Bytes, whole blocks.
    pub length: usize,
}

/// What memory holds of the records that a reader asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TailRead {
    /// Batches have been added, perhaps none: goes on at `next`, inclusive.
    Read { next: Offset },
    /// They are older than memory: the file has them, up to `memory_from` (exclusive).
    Older { memory_from: Offset },
}

#[derive(Debug)]
struct Chunk {
    position: u64,
    fill: usize,
    /// The segment's end when the chunk was begun: the first batch in it begins here.
    first: Offset,
    /// The end of the last batch in it, exclusive.
    end: Offset,
    closed: bool,
    buffer: Arc<AlignedBuffer>,
}

/// An open segment, written by this life of the process alone.
#[derive(Debug)]
pub struct Appender {
    segment: SegmentId,
    seed: SegmentSeed,
    base: Offset,
    table: Option<Digest>,
    end: Offset,
    digest: Digest,
    /// The table is there.
    started: bool,
    tally: Tally,
    position: u64,
    /// Below it, chunks have been handed out to be written.
    handed: u64,
    /// Below it, all is in the file and synced.
    checkpointed: u64,
    chunks: VecDeque<Chunk>,
    memory_bytes: u64,
    /// Index into `CHUNK_BYTES` of the next chunk.
    class: usize,
    index: SparseIndex,
}

impl Chunk {
    fn end_position(&self) -> u64 {
        self.position + self.fill as u64
    }

    /// Whether an entry of `bytes` and the pad behind it fit.
    fn fits(&self, bytes: usize) -> bool {
        let fill = self.fill + bytes;
        !self.closed && fill + pad_bytes(fill) <= self.buffer.len()
    }
}

impl Appender {
    /// A new segment that begins as `header` says. Its digest is not yet defined: `append_table` comes first.
    ///
    /// # Panics
    /// If the header has no base: a prepared successor is begun when that is known.
    #[must_use]
    pub fn create(pool: &mut ChunkPool, header: &SegmentHeader) -> Self {
        let base = header.base.expect("a segment is begun when its base is known");
        let mut appender = Self {
            segment: header.segment,
            seed: header.seed(),
            base,
            table: header.table,
            end: base,
            digest: Digest::default(),
            started: false,
            tally: Tally::default(),
            position: 0,
            handed: 0,
            checkpointed: 0,
            chunks: VecDeque::new(),
            memory_bytes: 0,
            class: 0,
            index: SparseIndex::default(),
        };
        let (bytes, zeros) = appender.room(pool, BLOCK).split_at_mut(SEGMENT_HEADER_BYTES);
        bytes.copy_from_slice(&header.encode());
        zeros.fill(0);
        appender
    }

    /// The producer table as at the base. Before the first batch, once; counted toward no size.
    ///
    /// # Panics
    /// If a table is there, or it is not the one that the header names.
    pub fn append_table(&mut self, pool: &mut ChunkPool, payload: &[u8]) -> Placed {
        assert!(!self.started, "the table comes first, and once");
        let table = Digest::of(payload);
        assert!(self.table.is_none_or(|named| named == table), "the table is the one that the header names");
        self.started = true;
        self.digest = Digest::start_from(self.segment, self.base, table);
        self.append_other(pool, EntryKind::Table, payload)
    }

    /// Stores a batch at the end. One copy of its bytes, one pass of the digest over them.
    pub fn append_batch(
        &mut self,
        pool: &mut ChunkPool,
        epoch: Epoch,
        append_time_ms: u64,
        batch: BatchRef<'_>,
    ) -> Placed {
        let bytes = entry_length(batch.bytes().len());
        assert!(self.started, "a batch lies behind the table");
        let (end, before, seed) = (self.end, self.digest, self.seed);
        let at = Place { segment: self.segment, offset: end, epoch, append_time_ms };
        let out = self.room(pool, bytes);
        self.digest = place(out, seed, at, before, batch);
        let position = self.position - bytes as u64;
        self.index.note(end, position, self.tally.timestamp_ms_max);
        self.tally.note(batch, bytes);
        self.end = end.plus(u64::from(batch.record_count()));
        self.chunks.back_mut().expect("room was made").end = self.end;
        placed(position, bytes)
    }

    /// The segment ends here, and its successor goes on.
    pub fn append_roll_mark(&mut self, pool: &mut ChunkPool, payload: &[u8]) -> Placed {
        self.append_other(pool, EntryKind::RollMark, payload)
    }

    /// What a sealed segment ends with.
    pub fn append_footer(&mut self, pool: &mut ChunkPool, payload: &[u8]) -> Placed {
        self.append_other(pool, EntryKind::Footer, payload)
    }

    fn append_other(&mut self, pool: &mut ChunkPool, kind: EntryKind, payload: &[u8]) -> Placed {
        let (bytes, seed) = (entry_bytes(payload.len()), self.seed);
        write_entry(self.room(pool, bytes), kind, seed, payload);
        placed(self.position - bytes as u64, bytes)
    }

    /// Room for `bytes` at the position, which moves behind it.
    fn room(&mut self, pool: &mut ChunkPool, bytes: usize) -> &mut [u8] {
        if !self.chunks.back().is_some_and(|chunk| chunk.fits(bytes)) {
            if self.close() {
                self.class = (self.class + 1).min(CHUNK_BYTES.len() - 1);
            }
            // A gap too small for a pad's header takes a whole block more.
            let wanted = round_up_to_block(bytes + pad_bytes(bytes));
            let buffer = pool.take(wanted.max(CHUNK_BYTES[self.class]));
            self.memory_bytes += buffer.len() as u64;
            let (position, end) = (self.position, self.end);
            self.chunks.push_back(Chunk { position, fill: 0, first: end, end, closed: false, buffer });
        }
        self.position += bytes as u64;
        let chunk = self.chunks.back_mut().expect("it was made above");
        let at = chunk.fill;
        chunk.fill += bytes;
        &mut unshared(&mut chunk.buffer)[at..at + bytes]
    }

    /// Closes the filling chunk, if there is one, with a pad.
    fn close(&mut self) -> bool {
        let Some(chunk) = self.chunks.back_mut().filter(|chunk| !chunk.closed) else { return false };
        let pad = pad_bytes(chunk.fill);
        if pad != 0 {
            write_pad(&mut unshared(&mut chunk.buffer)[chunk.fill..chunk.fill + pad], self.seed);
        }
        chunk.fill += pad;
        chunk.closed = true;
        self.position = chunk.end_position();
        true
    }

    /// Ends the tail at a block boundary: what is appended later lies behind it. Called when the journal group that holds the last
    /// entry is handed to the journal; a checkpoint at that group covers exactly what lies below.
    pub fn cut(&mut self) -> Cut {
        if self.close() {
            let used = self.chunks.back().map_or(0, |chunk| chunk.fill);
            self.class = CHUNK_BYTES.iter().position(|size| *size >= used).unwrap_or(CHUNK_BYTES.len() - 1);
        }
        Cut { position: self.position, end: self.end, digest: self.digest, tally: self.tally }
    }

    /// The next closed chunk that begins below `below` (a position) and has not been handed out.
    pub fn next_unwritten(&mut self, below: u64) -> Option<UnwrittenChunk> {
        let at = self.chunks.partition_point(|chunk| chunk.position < self.handed);
        let chunk = self.chunks.get(at).filter(|chunk| chunk.closed && chunk.position < below)?;
        self.handed = chunk.end_position();
        Some(UnwrittenChunk { position: chunk.position, buffer: Arc::clone(&chunk.buffer), length: chunk.fill })
    }

    /// All below `position`, a cut's, is in the file and synced: its memory goes back to the pool.
    ///
    /// # Panics
    /// If something below it was never handed out.
    pub fn checkpointed(&mut self, pool: &mut ChunkPool, position: u64) {
        assert!(position <= self.handed, "{position} is checkpointed, and only {} was written", self.handed);
        while self.chunks.front().is_some_and(|chunk| chunk.closed && chunk.end_position() <= position) {
            let chunk = self.chunks.pop_front().expect("it was looked at");
            self.memory_bytes -= chunk.buffer.len() as u64;
            pool.give(chunk.buffer);
        }
        self.checkpointed = self.checkpointed.max(position);
    }

    /// Gives all memory back. The appender is done with.
    pub fn release(self, pool: &mut ChunkPool) {
        for chunk in self.chunks {
            pool.give(chunk.buffer);
        }
    }

    /// The bytes of an entry that was appended here and is not checkpointed.
    ///
    /// # Panics
    /// If it is not in memory.
    #[must_use]
    pub fn entry(&self, placed: Placed) -> &[u8] {
        let after = self.chunks.partition_point(|chunk| chunk.position <= placed.position);
        let chunk = &self.chunks[after.checked_sub(1).expect("the entry is in memory")];
        let at = usize::try_from(placed.position - chunk.position).expect("a chunk fits memory");
        let bytes = &chunk.buffer[at..at + placed.length as usize];
        assert!(at + bytes.len() <= chunk.fill, "the entry was appended");
        bytes
    }

    /// Adds to `out` whole batch entries that hold records from `from` (inclusive) and end at or below `below`, from memory, while
    /// `out` stays within `bytes_max`; but one, if `out` was empty.
    pub fn read(&self, from: Offset, below: Offset, bytes_max: usize, out: &mut Vec<u8>) -> TailRead {
        let memory_from = self.memory_from();
        if from < memory_from {
            return TailRead::Older { memory_from };
        }
        let mut next = from;
        let first = self.chunks.partition_point(|chunk| chunk.end <= from);
        for chunk in self.chunks.range(first..) {
            let mut at = self.begin_in(chunk, from);
            while at < chunk.fill && next < below {
                let entry = read_entry(&chunk.buffer[at..chunk.fill], self.seed).expect("entries lie back to back");
                at += entry.bytes.len();
                if entry.kind != EntryKind::Batch {
                    continue;
                }
                let batch = PlacedBatch::trust(entry.bytes).expect("it was placed here");
                if batch.end() <= from {
                    continue;
                }
                let full = !out.is_empty() && out.len() + batch.bytes().len() > bytes_max;
                if batch.end() > below || full {
                    return TailRead::Read { next };
                }
                out.extend_from_slice(batch.bytes());
                next = batch.end();
            }
        }
        TailRead::Read { next }
    }

    /// Where in `chunk` to begin for `from`: at an index entry if one lies in it.
    fn begin_in(&self, chunk: &Chunk, from: Offset) -> usize {
        let skip = if chunk.position == 0 { BLOCK } else { 0 };
        match self.index.find_offset(from) {
            Some((_, position)) if position >= chunk.position => {
                usize::try_from(position - chunk.position).expect("a chunk fits memory").min(chunk.fill)
            }
            Some(_) | None => skip,
        }
    }

    /// The offset from which on memory has everything.
    #[must_use]
    pub fn memory_from(&self) -> Offset {
        self.chunks.front().map_or(self.end, |chunk| chunk.first)
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// First offset, inclusive.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Next offset, exclusive end of the last batch.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// The running digest at the end.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Where the next entry will lie, unless a chunk is closed before.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What is counted of its batches; `bytes` of it count toward the segment's size.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Bytes appended and not handed out to be written.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.position - self.handed
    }

    /// Below it, all is in the file and synced.
    #[must_use]
    pub fn checkpointed_position(&self) -> u64 {
        self.checkpointed
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The sparse index.
    #[must_use]
    pub fn index(&self) -> &SparseIndex {
        &self.index
    }
}

fn placed(position: u64, bytes: usize) -> Placed {
    Placed { position, length: u32::try_from(bytes).expect("an entry is far below 4 GiB") }
}

/// Nobody else holds a chunk that is being filled: it is lent out only when closed.
fn unshared(buffer: &mut Arc<AlignedBuffer>) -> &mut AlignedBuffer {
    Arc::get_mut(buffer).expect("a filling chunk has one owner")
}

#[cfg(test)]
mod tests;
