//! Fetch: the tail from memory, history from the segment's file, a hole as a gap, and a wait where there is nothing yet.
//!
//! ```text
//!  trimmed        file            memory      committed
//!  ---|------------------------|-------------|---- waits, or the successors of a sealed range
//!   Expired    DiskRead          at once
//! ```
//! Invariants: nothing at or above the committed end is given, nor of a segment whose end an earlier life left open; bytes inside
//! a committed hole are never given; each fetch is answered once, at its deadline at the latest.

use std::collections::{BTreeMap, VecDeque};

use crate::api::error::Refusal;
use crate::api::port::DataFile;
use crate::api::request::ReplyTo;
use crate::api::response::{Fetched, Gap, Response};
use crate::format::IndexEntry;
use crate::format::entry::{EntryKind, read_entry};
use crate::format::index::find_offset;
use crate::format::segment::FooterRef;
use crate::replica::message::Span;
use crate::segment::appender::{Placed, TailRead};
use crate::segment::catalog::{Contents, SegmentState};
use crate::segment::reader::{Scanned, SegmentReader, Wanted};
use crate::shard::command::{Command, Commands, FileOperation};
use crate::shard::event::{Failed, FileResult, FileToken};
use crate::shard::range::{RangeSlot, Waiting};
use crate::shard::shard::{Shard, refuse};
use crate::types::limits::{BLOCK, IO_BYTES_MAX, round_up_to_block};
use crate::types::{Now, Offset, SegmentId};

/// Reads of files under way at once; more wait their turn.
const READS_MAX: usize = 8;
/// Fetches that wait for their turn to read; more are refused.
const READ_QUEUE_MAX: usize = 1024;
/// Indexes of sealed segments kept in memory.
const INDEXES_MAX: usize = 64;
/// Bytes of the largest answer, whatever a fetch asks for, unless one batch is larger.
const FETCH_BYTES_MAX: u32 = 1 << 20;
/// Fetches of one range that wait for a record; more are refused.
const WAITING_MAX: usize = 4096;

/// A fetch that reads a file.
#[derive(Debug)]
struct DiskRead {
    slot: RangeSlot,
    to: ReplyTo,
    bytes_max: usize,
    gaps: Vec<Gap>,
    file: DataFile,
    position: u64,
    length: usize,
    kind: Reading,
}

/// What is being read.
#[derive(Debug)]
enum Reading {
    /// Batches.
    Batches { reader: SegmentReader, out: Vec<u8> },
    /// A sealed segment's footer, for its index; then the fetch goes on, with the gaps that it has passed over.
    Footer { within: usize, segment: SegmentId, offset: Offset, until_ns: u64 },
}

/// File reads of a shard.
#[derive(Debug, Default)]
pub(super) struct Reads {
    under_way: BTreeMap<FileToken, DiskRead>,
    queue: VecDeque<DiskRead>,
    /// When the first waiting fetch is due, on the monotonic clock.
    pub(super) next_deadline_ns: Option<u64>,
    /// Indexes read from footers, the one used last at the back.
    indexes: VecDeque<(SegmentId, Vec<IndexEntry>)>,
}

impl Reads {
    /// Whether the answer to `token` belongs here.
    pub(super) fn owns(&self, token: FileToken) -> bool {
        self.under_way.contains_key(&token)
    }

    fn index(&self, segment: SegmentId) -> Option<&[IndexEntry]> {
        self.indexes.iter().find(|(of, _)| *of == segment).map(|(_, index)| index.as_slice())
    }

    fn keep_index(&mut self, segment: SegmentId, index: Vec<IndexEntry>) {
        if self.indexes.len() >= INDEXES_MAX {
            self.indexes.pop_front();
        }
        self.indexes.push_back((segment, index));
    }
}

impl Shard {
    #[expect(clippy::too_many_arguments, reason = "a fetch is what it is")]
    pub(super) fn fetch(
        &mut self,
        now: Now,
        slot: RangeSlot,
        to: ReplyTo,
        offset: Offset,
        bytes_max: u32,
        until_ns: u64,
        commands: &mut Commands,
    ) {
        let bytes_max = bytes_max.clamp(1, FETCH_BYTES_MAX);
        let range = &mut self.ranges[slot.0];
        if offset < range.trimmed {
            return refuse(to, Refusal::Expired { resume: range.trimmed }, commands);
        }
        let unsettled = range.replica.settle_for_reader(offset, &mut self.replica_commands);
        self.obey(now, slot, commands);
        let range = &self.ranges[slot.0];
        let committed = range.replica.committed();
        if unsettled {
            return self.wait(now, slot, Waiting { to, offset, bytes_max, until_ns }, commands);
        }
        if offset > committed {
            return refuse(to, Refusal::BeyondEnd { end: committed }, commands);
        }
        let mut gaps = Vec::new();
        let offset = self.step_over_holes(slot, offset, committed, &mut gaps);
        if offset == committed {
            if gaps.is_empty() && self.ranges[slot.0].replica.successors().is_none() && until_ns > now.monotonic_ns {
                return self.wait(now, slot, Waiting { to, offset, bytes_max, until_ns }, commands);
            }
            return self.answer_fetch(slot, to, Vec::new(), offset, gaps, commands);
        }
        self.read_from(slot, to, offset, bytes_max as usize, until_ns, gaps, commands);
    }

    /// The next offset at or above `offset` that is in no hole, at most `committed`; the holes passed are told.
    fn step_over_holes(&self, slot: RangeSlot, mut offset: Offset, committed: Offset, gaps: &mut Vec<Gap>) -> Offset {
        let range = &self.ranges[slot.0];
        while offset < committed {
            let hole = range.piece_at(offset).and_then(|at| range.chain[at].hole_at(offset));
            let Some(hole) = hole else { break };
            gaps.push(gap_of(hole));
            offset = hole.to;
        }
        offset
    }

    #[expect(clippy::too_many_arguments, reason = "a fetch is what it is")]
    fn read_from(
        &mut self,
        slot: RangeSlot,
        to: ReplyTo,
        offset: Offset,
        bytes_max: usize,
        until_ns: u64,
        gaps: Vec<Gap>,
        commands: &mut Commands,
    ) {
        let range = &self.ranges[slot.0];
        let Some(piece) = range.piece_at(offset).map(|at| &range.chain[at]) else {
            return refuse(to, Refusal::Unreadable { from: offset }, commands);
        };
        let mut below = piece.readable_below(offset, range.replica.committed());
        let segment = piece.segment;
        let (start, seed, base, until) = match piece.tail {
            Some(tail) => {
                let tail = self.tails[tail.0].as_ref().expect("a tail in use");
                let mut out = Vec::new();
                match tail.appender.read(offset, below, bytes_max, &mut out) {
                    TailRead::Read { next } => return self.answer_fetch(slot, to, out, next, gaps, commands),
                    TailRead::Older { memory_from } => below = below.min(memory_from),
                }
                let start = tail.appender.index().find_offset(offset);
                (start, tail.header.random, tail.base, tail.appender.checkpointed_position())
            }
            None => {
                let Some(record) = self.catalog.segment(segment) else {
                    return refuse(to, Refusal::Unreadable { from: offset }, commands);
                };
                let index = match &record.state {
                    SegmentState::Open(tail)
                    | SegmentState::Rolled { tail, .. }
                    | SegmentState::Sealed { contents: Contents::Catalog(tail), .. } => &tail.index[..],
                    SegmentState::Sealed { contents: Contents::Footer(footer), .. } => {
                        match self.reads.index(segment) {
                            Some(index) => index,
                            None => {
                                let footer = *footer;
                                return self.read_footer(
                                    slot,
                                    to,
                                    footer,
                                    (segment, offset),
                                    bytes_max,
                                    until_ns,
                                    gaps,
                                    commands,
                                );
                            }
                        }
                    }
                };
                let start = find_offset(index, offset).map(|entry| (entry.offset(), entry.position()));
                (start, record.header.random, record.base(), record.checkpoint.position)
            }
        };
        let reader = SegmentReader::new(segment, seed, base, start, Wanted { from: offset, below, until });
        let position = reader.read_position();
        let length = round_up_to_block((bytes_max + (64 << 10)).min(IO_BYTES_MAX));
        let kind = Reading::Batches { reader, out: Vec::new() };
        let file = DataFile::Segment { segment, part: 0 };
        self.queue_read(DiskRead { slot, to, bytes_max, gaps, file, position, length, kind }, commands);
    }

    /// The segment's index is in its footer only: read that first.
    #[expect(clippy::too_many_arguments, reason = "a fetch is what it is")]
    fn read_footer(
        &mut self,
        slot: RangeSlot,
        to: ReplyTo,
        footer: Placed,
        (segment, offset): (SegmentId, Offset),
        bytes_max: usize,
        until_ns: u64,
        gaps: Vec<Gap>,
        commands: &mut Commands,
    ) {
        let start = footer.position - footer.position % BLOCK as u64;
        let within = usize::try_from(footer.position - start).expect("below a block");
        let length = round_up_to_block(within + footer.length as usize);
        let kind = Reading::Footer { within, segment, offset, until_ns };
        let file = DataFile::Segment { segment, part: 0 };
        self.queue_read(DiskRead { slot, to, bytes_max, gaps, file, position: start, length, kind }, commands);
    }

    fn queue_read(&mut self, read: DiskRead, commands: &mut Commands) {
        if self.reads.under_way.len() < READS_MAX {
            self.start_read(read, commands);
        } else if self.reads.queue.len() < READ_QUEUE_MAX {
            self.reads.queue.push_back(read);
        } else {
            refuse(read.to, Refusal::Overloaded { delay_ms: 2 }, commands);
        }
    }

    fn start_read(&mut self, read: DiskRead, commands: &mut Commands) {
        let token = self.token();
        self.counters.reads += 1;
        let operation = FileOperation::Read { file: read.file, position: read.position, length: read.length };
        commands.push(Command::File { token, operation });
        self.reads.under_way.insert(token, read);
    }

    /// A read is done: answers, or reads on.
    pub(super) fn read_done(&mut self, token: FileToken, outcome: Result<FileResult, Failed>, commands: &mut Commands) {
        let read = self.reads.under_way.remove(&token).expect("a read under way");
        let bytes = match outcome {
            Ok(FileResult::Read { bytes, length }) => Some((bytes, length)),
            Ok(FileResult::Done) | Err(_) => None,
        };
        let bytes = bytes.as_ref().map_or(&[][..], |(bytes, length)| &bytes[..*length]);
        match read.kind {
            Reading::Batches { .. } => self.batches_read(read, bytes, commands),
            Reading::Footer { within, segment, offset, until_ns } => {
                if self.keep_index(segment, bytes.get(within..).unwrap_or(&[])) {
                    self.read_from(read.slot, read.to, offset, read.bytes_max, until_ns, read.gaps, commands);
                } else {
                    refuse(read.to, Refusal::Unreadable { from: offset }, commands);
                }
            }
        }
        while self.reads.under_way.len() < READS_MAX
            && let Some(next) = self.reads.queue.pop_front()
        {
            self.start_read(next, commands);
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

    fn batches_read(&mut self, read: DiskRead, bytes: &[u8], commands: &mut Commands) {
        let Reading::Batches { mut reader, mut out } = read.kind else { unreachable!("the caller has looked") };
        let scanned = match reader.feed(read.position, bytes, read.bytes_max, &mut out) {
            // The file gave fewer bytes than were asked for: it has no more.
            Scanned::More { .. } if bytes.len() < read.length => reader.ended(),
            scanned @ (Scanned::Enough { .. } | Scanned::More { .. } | Scanned::Bad { .. }) => scanned,
        };
        match scanned {
            Scanned::More { position, length } if out.is_empty() => {
                let length = length.max(read.length.min(IO_BYTES_MAX));
                let kind = Reading::Batches { reader, out };
                self.start_read(DiskRead { position, length, kind, ..read }, commands);
            }
            Scanned::Bad { offset, .. } if out.is_empty() && read.gaps.is_empty() => {
                refuse(read.to, Refusal::Unreadable { from: offset }, commands);
            }
            Scanned::Enough { .. } | Scanned::More { .. } | Scanned::Bad { .. } => {
                let next = reader.next();
                self.answer_fetch(read.slot, read.to, out, next, read.gaps, commands);
            }
        }
    }

    fn answer_fetch(
        &mut self,
        slot: RangeSlot,
        to: ReplyTo,
        entries: Vec<u8>,
        next: Offset,
        gaps: Vec<Gap>,
        commands: &mut Commands,
    ) {
        self.counters.bytes_fetched += entries.len() as u64;
        let replica = &self.ranges[slot.0].replica;
        let end = replica.committed();
        let successors = if next >= end { replica.successors().map(<[_]>::to_vec) } else { None };
        commands
            .push(Command::Reply { to, response: Response::Fetched(Fetched { entries, next, end, gaps, successors }) });
    }

    fn wait(&mut self, now: Now, slot: RangeSlot, waiting: Waiting, commands: &mut Commands) {
        if waiting.until_ns <= now.monotonic_ns {
            // Nothing is known to be readable yet, and the caller does not wait.
            if self.ranges[slot.0].replica.is_known() {
                return self.answer_fetch(slot, waiting.to, Vec::new(), waiting.offset, Vec::new(), commands);
            }
            return refuse(waiting.to, Refusal::Opening { delay_ms: 1 }, commands);
        }
        if self.ranges[slot.0].waiting.len() >= WAITING_MAX {
            return refuse(waiting.to, Refusal::Overloaded { delay_ms: 10 }, commands);
        }
        self.counters.waiting_fetches += 1;
        self.reads.next_deadline_ns =
            Some(self.reads.next_deadline_ns.map_or(waiting.until_ns, |due| due.min(waiting.until_ns)));
        self.ranges[slot.0].waiting.push(waiting);
    }

    /// The committed end has moved, or the range's state: whoever waits is looked at again.
    pub(super) fn wake(&mut self, now: Now, slot: RangeSlot, commands: &mut Commands) {
        let waiting = std::mem::take(&mut self.ranges[slot.0].waiting);
        self.counters.waiting_fetches -= waiting.len() as u64;
        for fetch in waiting {
            self.fetch(now, slot, fetch.to, fetch.offset, fetch.bytes_max, fetch.until_ns, commands);
        }
    }

    /// Answers, with nothing, every fetch whose time has come.
    pub(super) fn expire_fetches(&mut self, now: Now, commands: &mut Commands) {
        if self.reads.next_deadline_ns.is_none_or(|due| due > now.monotonic_ns) {
            return;
        }
        self.reads.next_deadline_ns = None;
        for slot in (0..self.ranges.len()).map(RangeSlot) {
            if !self.ranges[slot.0].waiting.is_empty() {
                self.wake(now, slot, commands);
            }
        }
    }

    /// Forgets what a connection that is gone was waiting for.
    pub(super) fn forget_connection(&mut self, gone: ReplyTo) {
        let is_gone = |to: ReplyTo| to.shard == gone.shard && to.connection == gone.connection;
        for range in &mut self.ranges {
            let before = range.waiting.len();
            range.waiting.retain(|fetch| !is_gone(fetch.to));
            self.counters.waiting_fetches -= (before - range.waiting.len()) as u64;
        }
        self.reads.queue.retain(|read| !is_gone(read.to));
    }
}

fn gap_of(hole: &Span) -> Gap {
    Gap { from: hole.from, to: hole.to, records_at_most: hole.records_at_most, cause: hole.cause }
}
