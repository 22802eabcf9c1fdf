//! Fetch: the tail from memory, history from the segment's file, a hole as a gap, and a wait where there is nothing yet.
//!
//! ```text
//!  trimmed        file            memory      committed
//!  ---|------------------------|-------------|---- waits, or the successors of a sealed range
//!   Expired    DiskRead          at once
//! ```
//! Invariants: nothing at or above the committed end is given, nor of a segment whose end an earlier life left open; bytes inside
//! a committed hole are never given; each fetch is answered once, at its deadline at the latest.

use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::{Fetched, Gap, Response};
use crate::format::index::find_offset;
use crate::replica::message::Span;
use crate::segment::appender::TailRead;
use crate::segment::catalog::{Contents, SegmentState};
use crate::segment::reader::{SegmentReader, Wanted};
use crate::shard::command::{Command, Commands};
use crate::shard::range::{Fetch, RangeSlot};
use crate::shard::reads::{AfterFooter, BatchRead};
use crate::shard::shard::{Shard, refuse};
use crate::types::limits::BLOCK;
use crate::types::{Now, Offset};

/// Bytes of the largest answer, whatever a fetch asks for, unless one batch is larger: verifying and copying them takes the shard some
/// tenth of a millisecond, which whoever produces meanwhile waits.
const FETCH_BYTES_MAX: u32 = 256 << 10;
/// Fetches of one range that wait for a record; more are refused.
const WAITING_MAX: usize = 4096;

impl Shard {
    pub(super) fn fetch(&mut self, now: Now, slot: RangeSlot, fetch: Fetch, commands: &mut Commands) {
        let Fetch { to, offset, .. } = fetch;
        let range = &mut self.ranges[slot.0];
        if range.deleted {
            return refuse(to, Refusal::UnknownRange, commands);
        }
        if offset < range.trimmed {
            return refuse(to, Refusal::Expired { resume: range.trimmed }, commands);
        }
        let unsettled = range.replica.settle_for_reader(offset, &mut self.replica_commands);
        self.obey(now, slot, commands);
        let range = &self.ranges[slot.0];
        let committed = range.replica.committed();
        if unsettled {
            return self.wait(now, slot, fetch, commands);
        }
        if offset > committed {
            return refuse(to, Refusal::BeyondEnd { end: committed }, commands);
        }
        let mut gaps = Vec::new();
        let offset = self.step_over_holes(slot, offset, committed, &mut gaps);
        let fetch = Fetch { offset, ..fetch };
        if offset == committed {
            let may_wait = fetch.until_ns > now.monotonic_ns;
            if gaps.is_empty() && self.ranges[slot.0].replica.successors().is_none() && may_wait {
                return self.wait(now, slot, fetch, commands);
            }
            return self.answer_fetch(slot, to, Vec::new(), offset, gaps, commands);
        }
        self.read_from(slot, fetch, gaps, commands);
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

    /// Reads what lies at `fetch.offset`, which is below the committed end and in no hole; `gaps` were passed over on the way.
    pub(super) fn read_from(&mut self, slot: RangeSlot, fetch: Fetch, gaps: Vec<Gap>, commands: &mut Commands) {
        let Fetch { to, offset, .. } = fetch;
        let bytes_max = fetch.bytes_max.clamp(1, FETCH_BYTES_MAX) as usize;
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
                                let then = AfterFooter::Fetch { fetch, gaps };
                                return self.read_footer(slot, to, segment, footer, then, commands);
                            }
                        }
                    }
                };
                let start = find_offset(index, offset).map(|entry| (entry.offset(), entry.position()));
                (start, record.header.random, record.base(), record.checkpoint.position)
            }
        };
        // The index may lead in front of damage that lies before `offset`.
        let start = start.max(piece.place_before(offset));
        let start = self.reads.place_of(segment, offset).or(start);
        let reader = SegmentReader::new(segment, seed, base, start, Wanted { from: offset, below, until });
        self.read_batches(BatchRead { slot, to, segment, reader, bytes_max, gaps, needed: BLOCK }, commands);
    }

    pub(super) fn answer_fetch(
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

    fn wait(&mut self, now: Now, slot: RangeSlot, waiting: Fetch, commands: &mut Commands) {
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
        self.next_fetch_ns = Some(self.next_fetch_ns.map_or(waiting.until_ns, |due| due.min(waiting.until_ns)));
        self.ranges[slot.0].waiting.push(waiting);
    }

    /// The committed end has moved, or the range's state: whoever waits is looked at again.
    pub(super) fn wake(&mut self, now: Now, slot: RangeSlot, commands: &mut Commands) {
        let waiting = std::mem::take(&mut self.ranges[slot.0].waiting);
        self.counters.waiting_fetches -= waiting.len() as u64;
        for fetch in waiting {
            self.fetch(now, slot, fetch, commands);
        }
    }

    /// Answers, with nothing, every fetch whose time has come.
    pub(super) fn expire_fetches(&mut self, now: Now, commands: &mut Commands) {
        if self.next_fetch_ns.is_none_or(|due| due > now.monotonic_ns) {
            return;
        }
        self.next_fetch_ns = None;
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
        self.reads.forget(is_gone);
    }
}

fn gap_of(hole: &Span) -> Gap {
    Gap { from: hole.from, to: hole.to, records_at_most: hole.records_at_most, cause: hole.cause }
}
