//! File reads of a shard: batches of history for fetches, footers for their indexes, and what a reader will ask for next.
//!
//! ```text
//!  fetch at 40   --read--> [40 … 71] answered        72 … is read ahead, with nobody waiting
//!  fetch at 72   --------> [72 … 103] at once        104 … is read ahead
//! ```
//! What was read ahead is raw bytes, kept by the segment and the offset that they begin with. It never decides anything: the fetch that
//! comes for it is judged as any other, and the bytes are verified as they would have been.
//!
//! **Invariants**
//! - of an open segment nothing at or behind its checkpointed position is read ahead: there it may still be written.
//! - reads under way, reads that wait and what was read ahead are bounded, whatever is asked.
//! - while the shard takes records few reads are under way at once: what they cost is spread between groups.

use std::collections::{BTreeMap, VecDeque};

use crate::api::error::Refusal;
use crate::api::port::DataFile;
use crate::api::request::ReplyTo;
use crate::api::response::Gap;
use crate::format::IndexEntry;
use crate::format::entry::{EntryKind, read_entry};
use crate::format::segment::FooterRef;
use crate::segment::appender::Placed;
use crate::segment::reader::{Scanned, SegmentReader};
use crate::shard::command::{Command, Commands, FileOperation};
use crate::shard::damage::Suspect;
use crate::shard::event::{Failed, FileResult, FileToken};
use crate::shard::range::{Fetch, RangeSlot};
use crate::shard::shard::{Shard, refuse};
use crate::types::limits::{BLOCK, IO_BYTES_MAX, round_up_to_block};
use crate::types::{AlignedBuffer, Offset, SegmentId};

/// Reads of files under way at once; more wait their turn.
const READS_MAX: usize = 8;
/// The same while batches are on their way to the journal.
const READS_BESIDE_PRODUCE_MAX: usize = 2;
/// Fetches that wait for their turn to read; more are refused.
const READ_QUEUE_MAX: usize = 1024;
/// Indexes of sealed segments kept in memory.
const INDEXES_MAX: usize = 64;
/// Spans that are read ahead or were and have not been asked for.
const AHEAD_MAX: usize = 16;
/// Bytes read beyond what a fetch may be given: its first batch may begin in front of its offset, and its last is whole.
const SLACK_BYTES: usize = 64 << 10;

/// A read of a file.
#[derive(Debug)]
struct DiskRead {
    file: DataFile,
    position: u64,
    length: usize,
    kind: Reading,
}

/// What is being read.
#[derive(Debug)]
enum Reading {
    /// Batches.
    Batches(BatchRead),
    /// A sealed segment's footer, for its index.
    Footer { slot: RangeSlot, to: ReplyTo, within: usize, segment: SegmentId, then: AfterFooter },
    /// What lies behind bytes that do not verify.
    Search { slot: RangeSlot },
    /// What nobody has asked for yet.
    Ahead { segment: SegmentId, offset: Offset },
}

/// Batches that a fetch waits for.
#[derive(Debug)]
pub(super) struct BatchRead {
    pub(super) slot: RangeSlot,
    pub(super) to: ReplyTo,
    pub(super) segment: SegmentId,
    pub(super) reader: SegmentReader,
    pub(super) bytes_max: usize,
    pub(super) gaps: Vec<Gap>,
    /// Bytes without which it cannot go on.
    pub(super) needed: usize,
}

/// What goes on once an index has been read.
#[derive(Debug)]
pub(super) enum AfterFooter {
    /// A fetch, with the gaps that it has passed over.
    Fetch { fetch: Fetch, gaps: Vec<Gap> },
    /// A search by time.
    Since { timestamp_ms: u64 },
}

/// A span that a reader is likely to ask for next.
#[derive(Debug)]
struct Ahead {
    segment: SegmentId,
    /// Of its first batch.
    offset: Offset,
    /// Where the entry of that batch begins.
    position: u64,
    bytes: AheadBytes,
}

#[derive(Debug)]
enum AheadBytes {
    UnderWay(FileToken),
    /// `length` bytes from the block of `position` on.
    Here {
        buffer: AlignedBuffer,
        length: usize,
    },
}

/// File reads of a shard.
#[derive(Debug, Default)]
pub(super) struct Reads {
    under_way: BTreeMap<FileToken, DiskRead>,
    queue: VecDeque<DiskRead>,
    /// Indexes read from footers, the one read last at the back.
    indexes: VecDeque<(SegmentId, Vec<IndexEntry>)>,
    /// The one begun last at the back.
    ahead: VecDeque<Ahead>,
}

impl DiskRead {
    /// Who waits for it.
    fn to(&self) -> Option<ReplyTo> {
        match &self.kind {
            Reading::Batches(BatchRead { to, .. }) | Reading::Footer { to, .. } => Some(*to),
            Reading::Search { .. } | Reading::Ahead { .. } => None,
        }
    }

    /// The range that somebody reads with it.
    fn slot(&self) -> Option<RangeSlot> {
        match &self.kind {
            Reading::Batches(BatchRead { slot, .. }) | Reading::Footer { slot, .. } | Reading::Search { slot } => {
                Some(*slot)
            }
            Reading::Ahead { .. } => None,
        }
    }
}

impl Reads {
    /// Whether the answer to `token` belongs here.
    pub(super) fn owns(&self, token: FileToken) -> bool {
        self.under_way.contains_key(&token)
    }

    /// The index of a sealed segment, if it was read from its footer not long ago.
    pub(super) fn index(&self, segment: SegmentId) -> Option<&[IndexEntry]> {
        self.indexes.iter().find(|(of, _)| *of == segment).map(|(_, index)| index.as_slice())
    }

    /// Where the batch that begins with `offset` lies, if a reader came to it not long ago.
    pub(super) fn place_of(&self, segment: SegmentId, offset: Offset) -> Option<(Offset, u64)> {
        self.ahead.iter().find(|a| (a.segment, a.offset) == (segment, offset)).map(|a| (a.offset, a.position))
    }

    /// Forgets the reads of a connection that is gone, unless they are under way.
    pub(super) fn forget(&mut self, is_gone: impl Fn(ReplyTo) -> bool) {
        self.queue.retain(|read| !read.to().is_some_and(&is_gone));
    }

    /// Takes out what waits for its turn to read a range. Gives those who asked.
    pub(super) fn take_waiting(&mut self, slot: RangeSlot) -> Vec<ReplyTo> {
        let taken = self.queue.iter().filter(|read| read.slot() == Some(slot)).filter_map(DiskRead::to).collect();
        self.queue.retain(|read| read.slot() != Some(slot));
        taken
    }

    fn keep_index(&mut self, segment: SegmentId, index: Vec<IndexEntry>) {
        if self.indexes.len() >= INDEXES_MAX {
            self.indexes.pop_front();
        }
        self.indexes.push_back((segment, index));
    }

    fn take_ahead(&mut self, segment: SegmentId, offset: Offset) -> Option<AheadBytes> {
        let at = self.ahead.iter().position(|a| (a.segment, a.offset) == (segment, offset))?;
        self.ahead.remove(at).map(|ahead| ahead.bytes)
    }
}

impl Shard {
    /// Reads batches from where `read.reader` begins: from what was read ahead, if that is there.
    pub(super) fn read_batches(&mut self, read: BatchRead, commands: &mut Commands) {
        let position = read.reader.read_position();
        let file = DataFile::Segment { segment: read.segment, part: 0 };
        match self.reads.take_ahead(read.segment, read.reader.next()) {
            Some(AheadBytes::Here { buffer, length }) => {
                self.batches_read(position, length, &buffer[..length], read, commands);
            }
            Some(AheadBytes::UnderWay(token)) => {
                let under_way = self.reads.under_way.get_mut(&token).expect("what is read ahead is under way or here");
                under_way.kind = Reading::Batches(read);
            }
            None => {
                let length = round_up_to_block((read.bytes_max + SLACK_BYTES).min(IO_BYTES_MAX));
                self.queue_read(DiskRead { file, position, length, kind: Reading::Batches(read) }, commands);
            }
        }
    }

    /// The segment's index is in its footer only: read that first.
    pub(super) fn read_footer(
        &mut self,
        slot: RangeSlot,
        to: ReplyTo,
        segment: SegmentId,
        footer: Placed,
        then: AfterFooter,
        commands: &mut Commands,
    ) {
        let position = footer.position - footer.position % BLOCK as u64;
        let within = usize::try_from(footer.position - position).expect("below a block");
        let length = round_up_to_block(within + footer.length as usize);
        let kind = Reading::Footer { slot, to, within, segment, then };
        let file = DataFile::Segment { segment, part: 0 };
        self.queue_read(DiskRead { file, position, length, kind }, commands);
    }

    fn reads_max(&self) -> usize {
        if self.groups.is_busy() { READS_BESIDE_PRODUCE_MAX } else { READS_MAX }
    }

    fn queue_read(&mut self, read: DiskRead, commands: &mut Commands) {
        if self.reads.under_way.len() < self.reads_max() {
            self.start_read(read, commands);
        } else if self.reads.queue.len() < READ_QUEUE_MAX {
            self.reads.queue.push_back(read);
        } else {
            let to = read.to().expect("somebody waits for what is queued");
            refuse(to, Refusal::Overloaded { delay_ms: 2 }, commands);
        }
    }

    fn start_read(&mut self, read: DiskRead, commands: &mut Commands) -> FileToken {
        let token = self.token();
        self.counters.reads += 1;
        let operation = FileOperation::Read { file: read.file, position: read.position, length: read.length };
        commands.push(Command::File { token, operation });
        self.reads.under_way.insert(token, read);
        token
    }

    /// A read of a search, which waits for nobody.
    pub(super) fn start_search_read(
        &mut self,
        slot: RangeSlot,
        segment: SegmentId,
        position: u64,
        length: usize,
        commands: &mut Commands,
    ) {
        let file = DataFile::Segment { segment, part: 0 };
        self.start_read(DiskRead { file, position, length, kind: Reading::Search { slot } }, commands);
    }

    /// A read is done: answers, or reads on.
    pub(super) fn read_done(&mut self, token: FileToken, outcome: Result<FileResult, Failed>, commands: &mut Commands) {
        let done = self.reads.under_way.remove(&token).expect("a read under way");
        let deleted = done.slot().is_some_and(|slot| self.ranges[slot.0].deleted);
        let asker = done.to().filter(|_| deleted);
        let DiskRead { position, length, kind, .. } = done;
        let read = match outcome {
            Ok(FileResult::Read { bytes, length }) => Some((bytes, length)),
            Ok(FileResult::Done) | Err(_) => None,
        };
        match (kind, asker) {
            (_, Some(to)) => refuse(to, Refusal::UnknownRange, commands),
            (kind, None) => self.read_on(kind, (position, length), read, commands),
        }
        while self.reads.under_way.len() < self.reads_max()
            && let Some(next) = self.reads.queue.pop_front()
        {
            self.start_read(next, commands);
        }
    }

    /// What a read has brought, of `length` bytes asked for at `position`, is used.
    fn read_on(
        &mut self,
        kind: Reading,
        (position, length): (u64, usize),
        read: Option<(AlignedBuffer, usize)>,
        commands: &mut Commands,
    ) {
        let bytes = read.as_ref().map_or(&[][..], |(bytes, length)| &bytes[..*length]);
        match kind {
            Reading::Batches(asked) if read.is_none() && length > asked.needed => {
                // The device does not give all of it; what is needed first may be whole.
                let length = asked.needed.max(round_up_to_block(length / 2));
                let file = DataFile::Segment { segment: asked.segment, part: 0 };
                self.start_read(DiskRead { file, position, length, kind: Reading::Batches(asked) }, commands);
            }
            Reading::Batches(asked) => self.batches_read(position, length, bytes, asked, commands),
            Reading::Footer { slot, to, within, segment, then } => {
                let kept = self.keep_index(segment, bytes.get(within..).unwrap_or(&[]));
                match then {
                    AfterFooter::Fetch { fetch, gaps } => {
                        if !kept {
                            // Then the segment is walked from its start: its records are what counts.
                            tracing::warn!(%segment, "the footer of a segment does not verify");
                            self.reads.keep_index(segment, Vec::new());
                        }
                        self.read_from(slot, fetch, gaps, commands);
                    }
                    AfterFooter::Since { timestamp_ms } => self.since(slot, to, timestamp_ms, !kept, commands),
                }
            }
            Reading::Search { .. } => self.search_read(position, length, read.is_some().then_some(bytes), commands),
            Reading::Ahead { segment, offset } => self.keep_ahead(segment, offset, read),
        }
    }

    /// What was read ahead is here, unless it was given up or could not be read: then whoever comes for it reads again.
    fn keep_ahead(&mut self, segment: SegmentId, offset: Offset, read: Option<(AlignedBuffer, usize)>) {
        let ahead = &mut self.reads.ahead;
        let Some(at) = ahead.iter().position(|a| (a.segment, a.offset) == (segment, offset)) else { return };
        match read {
            Some((buffer, length)) => ahead[at].bytes = AheadBytes::Here { buffer, length },
            None => drop(ahead.remove(at)),
        }
    }

    /// Keeps the index of a sealed segment, from its footer, which is trusted only where it agrees with the committed seal.
    fn keep_index(&mut self, segment: SegmentId, bytes: &[u8]) -> bool {
        let Some(record) = self.catalog.segment(segment) else { return false };
        let Some((seal, _)) = record.seal() else { return false };
        let entry = read_entry(bytes, record.header.seed()).ok().filter(|entry| entry.kind == EntryKind::Footer);
        let Some(footer) = entry.and_then(|entry| FooterRef::decode(entry.payload).ok()) else { return false };
        if !footer.footer.agrees_with(seal) {
            return false;
        }
        self.reads.keep_index(segment, footer.index.to_vec());
        true
    }

    /// `bytes` of the segment from `position` on, of which `length` were asked for.
    fn batches_read(
        &mut self,
        position: u64,
        length: usize,
        bytes: &[u8],
        mut read: BatchRead,
        commands: &mut Commands,
    ) {
        let mut out = Vec::new();
        let scanned = match read.reader.feed(position, bytes, read.bytes_max, &mut out) {
            // The file gave fewer bytes than were asked for: it has no more.
            Scanned::More { .. } if bytes.len() < length => read.reader.ended(),
            scanned @ (Scanned::Enough { .. } | Scanned::More { .. } | Scanned::Bad { .. }) => scanned,
        };
        match scanned {
            Scanned::More { position, length: needed } if out.is_empty() => {
                let file = DataFile::Segment { segment: read.segment, part: 0 };
                let length = needed.max(length.min(IO_BYTES_MAX));
                read.needed = needed;
                self.start_read(DiskRead { file, position, length, kind: Reading::Batches(read) }, commands);
            }
            // What a later build has written is no damage.
            Scanned::Bad { offset, cause, .. } if out.is_empty() && read.gaps.is_empty() && cause.is_newer() => {
                refuse(read.to, Refusal::Unreadable { from: offset }, commands);
            }
            Scanned::Bad { position, offset, .. } if out.is_empty() && read.gaps.is_empty() => {
                let until = read.reader.until();
                let suspect = Suspect { slot: read.slot, segment: read.segment, position, offset, until };
                self.suspect(read.to, suspect, commands);
            }
            Scanned::Enough { .. } | Scanned::More { .. } | Scanned::Bad { .. } => {
                let is_bad = matches!(scanned, Scanned::Bad { .. });
                let next = read.reader.next();
                self.answer_fetch(read.slot, read.to, out, next, read.gaps, commands);
                if !is_bad {
                    self.read_ahead(read.segment, &read.reader, read.bytes_max, commands);
                }
            }
        }
    }

    /// Reads what lies behind the batches just given, if there is more and the device has nothing better to do.
    fn read_ahead(&mut self, segment: SegmentId, reader: &SegmentReader, bytes_max: usize, commands: &mut Commands) {
        let Some((offset, position)) = reader.place() else { return };
        let block = reader.read_position();
        let most = usize::try_from(reader.until().saturating_sub(block)).unwrap_or(usize::MAX);
        let length = round_up_to_block(bytes_max + SLACK_BYTES).min(IO_BYTES_MAX).min(most);
        if length == 0 || !self.reads.queue.is_empty() || self.reads.under_way.len() >= self.reads_max() {
            return;
        }
        if self.reads.place_of(segment, offset).is_some() {
            return;
        }
        let file = DataFile::Segment { segment, part: 0 };
        let kind = Reading::Ahead { segment, offset };
        let token = self.start_read(DiskRead { file, position: block, length, kind }, commands);
        let ahead = &mut self.reads.ahead;
        if ahead.len() >= AHEAD_MAX {
            ahead.pop_front();
        }
        ahead.push_back(Ahead { segment, offset, position, bytes: AheadBytes::UnderWay(token) });
    }
}
