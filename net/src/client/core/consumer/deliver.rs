//! From chunks to records: verified, filtered by the part's span, in offset order, with the gaps between them.

use std::ops::ControlFlow;

use sealog_engine::api::response::Gap;
use sealog_engine::format::batch::{Overlap, PlacedBatch, ReaderBatches};
use sealog_engine::types::limits::BATCH_BYTES_CEILING;
use sealog_engine::types::{Now, Offset};

use super::parts::{Chunk, Part, State};
use super::{Consumer, Event, RangeId, RecordRef};

/// Bad answers to the same fetch after which a range stands still.
const DAMAGE_STRIKES: u32 = 3;

/// One thing that is read.
#[derive(Clone, Copy, Debug)]
pub enum Delivery<'a> {
    /// A record.
    Record { range: RangeId, offset: Offset, record: RecordRef<'a> },
    /// Records that cannot be given back, if there were any.
    Gap { range: RangeId, gap: Gap },
}

/// Whether the application wants more: `Break` ends the delivery behind this one.
pub type Flow = ControlFlow<()>;

/// How far a chunk was delivered.
enum Progress {
    /// To its end.
    Whole,
    /// To the part's stop.
    Stop,
    /// The application wants no more now.
    Break,
    /// What is next does not verify.
    Damaged,
}

impl Consumer {
    /// Delivers what has come, until there is no more or `sink` wants no more; then asks for what follows. Returns whether the sink
    /// broke off. The cursor is behind the last delivery that the sink took.
    ///
    /// A batch that was broken off in its middle is walked again from its start by the next call.
    pub fn deliver(&mut self, now: Now, sink: &mut dyn FnMut(Delivery<'_>) -> Flow) -> Flow {
        while let Some(id) = self.arrived.front().copied() {
            let Some(at) = self.position_of(id) else {
                self.arrived.pop_front();
                continue;
            };
            let part = &mut self.parts[at];
            let Some(mut chunk) = part.chunks.pop_front() else {
                self.arrived.pop_front();
                continue;
            };
            match part.take_chunk(&mut chunk, sink) {
                Progress::Break => {
                    part.chunks.push_front(chunk);
                    return Flow::Break(());
                }
                Progress::Whole => self.taken(now, at, &chunk),
                Progress::Stop => {
                    part.next = part.next.max(part.stop.unwrap_or_default());
                    part.state = State::Done;
                    part.chunks.clear();
                }
                Progress::Damaged => self.damaged(now, at),
            }
            self.arrived.pop_front();
        }
        Flow::Continue(())
    }

    /// A chunk was delivered to its end.
    fn taken(&mut self, now: Now, at: usize, chunk: &Chunk) {
        let part = &mut self.parts[at];
        part.next = part.next.max(chunk.next);
        part.strikes = 0;
        // What took the place of its range is behind the end that was asked for.
        if part.stop.is_some_and(|stop| part.next >= stop) {
            part.state = State::Done;
            part.chunks.clear();
            return;
        }
        match &chunk.successors {
            Some(successors) => {
                if self.follow(at, successors) {
                    self.fetch_all(now);
                } else {
                    self.back_off(now, at);
                }
            }
            None => self.fetch(now, at),
        }
    }

    fn damaged(&mut self, now: Now, at: usize) {
        let part = &mut self.parts[at];
        part.strikes += 1;
        // What lies behind it came by itself, but is delivered in order only.
        part.chunks.clear();
        if part.strikes < DAMAGE_STRIKES {
            part.state = State::Idle;
            self.fetch(now, at);
        } else {
            part.state = State::Failed;
            self.events.push_back(Event::Damaged { range: part.range, next: part.next });
        }
    }
}

impl Part {
    fn take_chunk(&mut self, chunk: &mut Chunk, sink: &mut dyn FnMut(Delivery<'_>) -> Flow) -> Progress {
        let entries = std::mem::take(&mut chunk.entries);
        let progress = self.take_entries(&entries, chunk, sink);
        chunk.entries = entries;
        match progress {
            Progress::Whole => {}
            Progress::Stop | Progress::Break | Progress::Damaged => return progress,
        }
        self.take_gaps(chunk, Offset(u64::MAX), sink)
    }

    fn take_entries(
        &mut self,
        entries: &[u8],
        chunk: &mut Chunk,
        sink: &mut dyn FnMut(Delivery<'_>) -> Flow,
    ) -> Progress {
        for placed in ReaderBatches::new(&entries[chunk.taken..], BATCH_BYTES_CEILING) {
            let Ok(placed) = placed else { return Progress::Damaged };
            match self.take_gaps(chunk, placed.place().offset, sink) {
                Progress::Whole => {}
                other @ (Progress::Stop | Progress::Break | Progress::Damaged) => return other,
            }
            match self.take_batch(&placed, sink) {
                Progress::Whole => {}
                other @ (Progress::Stop | Progress::Break | Progress::Damaged) => return other,
            }
            chunk.taken = placed.bytes().as_ptr() as usize - entries.as_ptr() as usize + placed.bytes().len();
        }
        Progress::Whole
    }

    fn take_batch(&mut self, placed: &PlacedBatch<'_>, sink: &mut dyn FnMut(Delivery<'_>) -> Flow) -> Progress {
        let batch = placed.batch();
        let overlap = batch.overlap(self.span);
        if overlap != Overlap::Nothing && placed.end() > self.next {
            let offsets = (placed.place().offset.0..).map(Offset);
            for (record, offset) in batch.records().zip(offsets) {
                let Ok(record) = record else { return Progress::Damaged };
                if offset < self.next {
                    continue;
                }
                if self.stop.is_some_and(|stop| offset >= stop) {
                    return Progress::Stop;
                }
                self.next = offset.plus(1);
                if self.from_ms.is_some_and(|from_ms| record.timestamp_ms < from_ms) {
                    continue;
                }
                self.from_ms = None;
                if overlap == Overlap::Part && !self.span.contains(record.key.hash()) {
                    continue;
                }
                if sink(Delivery::Record { range: self.range, offset, record }).is_break() {
                    return Progress::Break;
                }
            }
        }
        self.next = self.next.max(placed.end());
        Progress::Whole
    }

    /// Delivers the gaps that begin below `before`.
    fn take_gaps(&mut self, chunk: &mut Chunk, before: Offset, sink: &mut dyn FnMut(Delivery<'_>) -> Flow) -> Progress {
        while let Some(gap) = chunk.gaps.first().copied().filter(|g| g.from < before) {
            chunk.gaps.remove(0);
            if gap.to <= self.next {
                continue;
            }
            if self.stop.is_some_and(|stop| gap.from >= stop) {
                return Progress::Stop;
            }
            self.next = self.next.max(gap.to);
            if sink(Delivery::Gap { range: self.range, gap }).is_break() {
                return Progress::Break;
            }
        }
        Progress::Whole
    }
}
