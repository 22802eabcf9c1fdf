//! The end of a run and the end of a range.
//!
//! A *run* ends when a batch was given up: nothing more is sent, every answer that can come is awaited, what is left and known not to
//! be stored is numbered from 0 in the next run. A batch that may be stored cannot be numbered anew: it ends as unknown.
//!
//! A *range* ends when it is sealed or gone from the routes. `Sealed` carries the producer's last stored batch and so settles all; where
//! answers were lost and no such refusal comes, a replica of the sealed range is asked. Then what is not stored goes, record by record and
//! in order, to the ranges that took its place, where the producer starts at 0. Until then new records of its span wait behind.

use sealog_engine::api::error::Outcome;
use sealog_engine::api::request::ShardRequest;
use sealog_engine::api::response::Route;
use sealog_engine::format::BatchBuilder;
use sealog_engine::format::batch::{BatchRef, Stamp};
use sealog_engine::types::{KeySpan, Now, ProducerEpoch, Run, Sequence};

use super::batches::BatchState;
use super::ranges::{Mode, Range, Settle};
use super::{Producer, RecordParts, SendError, TAG_SETTLE};
use crate::wire::client;

impl Producer {
    /// Ends a range's run.
    pub(super) fn drain(&mut self, now: Now, range: usize) {
        let entry = &mut self.ranges[range];
        if !matches!(entry.mode, Mode::Leaving { .. } | Mode::Gone) {
            entry.mode = Mode::Draining;
        }
        self.advance(now, range);
    }

    /// Goes on with a range that drains or leaves, as far as its answers allow.
    pub(super) fn advance(&mut self, now: Now, range: usize) {
        let entry = &mut self.ranges[range];
        match entry.mode {
            Mode::Sending | Mode::Delayed { .. } | Mode::Refreshing | Mode::Gone => {}
            Mode::Draining => {
                self.tell_lost(range);
                let entry = &mut self.ranges[range];
                if !entry.awaits_answers(&mut self.batches) {
                    entry.unnumber(&mut self.batches);
                    entry.mode = Mode::Sending;
                    self.mark_dirty(range);
                }
            }
            Mode::Leaving { settle } => {
                if entry.awaits_answers(&mut self.batches) {
                    return;
                }
                if !entry.lost_answers(&mut self.batches) {
                    self.leave(now, range);
                } else if settle == Settle::NotAsked {
                    self.ask_settle(range);
                }
            }
        }
    }

    /// Tells what may be stored and will not be answered as unknown.
    fn tell_lost(&mut self, range: usize) {
        for at in 0..self.ranges[range].numbered {
            let slot = self.ranges[range].queue[at];
            let batch = self.batches.get(slot);
            if batch.lost && batch.unanswered == 0 && batch.state != BatchState::Done {
                let code = batch.code;
                self.tell(slot, Outcome::Unknown, code);
            }
        }
    }

    fn ask_settle(&mut self, range: usize) {
        let Some((producer, _)) = self.identity else { return };
        let entry = &mut self.ranges[range];
        if !self.links.is_up(entry.link) {
            return;
        }
        entry.mode = Mode::Leaving { settle: Settle::Asked };
        let request = ShardRequest::Settle { range: entry.id, producer };
        let deadline_ms = self.settings.timeout_ms;
        client::append_request(self.links.outbound(entry.link), TAG_SETTLE | range as u64, deadline_ms, &request);
    }

    /// Settling was refused: it is asked again, or what may be stored is unknown.
    pub(super) fn settle_refused(&mut self, now: Now, range: u64, again_ns: Option<u64>) {
        let Some(range) = usize::try_from(range).ok().filter(|r| *r < self.ranges.len()) else { return };
        if self.ranges[range].mode != (Mode::Leaving { settle: Settle::Asked }) {
            return;
        }
        match again_ns {
            Some(at_ns) => {
                self.ranges[range].mode = Mode::Leaving { settle: Settle::Due { at_ns } };
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
            None => {
                self.tell_lost(range);
                self.advance(now, range);
            }
        }
    }

    /// A range is sealed: `last` settles all that was sent to it, and `successors` take its place.
    pub(super) fn sealed(
        &mut self,
        now: Now,
        range: usize,
        successors: &[Route],
        last: Option<(ProducerEpoch, Run, Sequence)>,
    ) {
        // Where the range is already gone from the routes they are newer than what the refusal says.
        let routed = self.routing.route(self.ranges[range].id).is_some();
        let replaced = routed && !successors.is_empty() && self.routing.update(successors);
        self.settle_batches(range, last, false);
        if replaced {
            self.apply_routes(now);
        } else if routed {
            self.ranges[range].mode = Mode::Refreshing;
            let delay_ns = self.strike(range);
            self.want_routes(now.monotonic_ns + delay_ns);
            self.ask(now);
        } else {
            self.advance(now, range);
        }
    }

    /// A replica has said what is stored of us in a range that we leave.
    pub(super) fn settled(
        &mut self,
        now: Now,
        range: usize,
        last: Option<(ProducerEpoch, Run, Sequence)>,
        doubtful: bool,
    ) {
        self.settle_batches(range, last, doubtful);
        self.advance(now, range);
    }

    /// Judges each batch that was sent to a sealed range by the last one stored there. It is final: what is not stored never will be.
    fn settle_batches(&mut self, range: usize, last: Option<(ProducerEpoch, Run, Sequence)>, doubtful: bool) {
        let epoch = self.identity.map(|(_, epoch)| epoch);
        let run = self.ranges[range].run;
        // A later instance has written there: what this one had stored before that is not known any more.
        let superseded = last.is_some_and(|(e, ..)| Some(e) > epoch);
        for at in 0..self.ranges[range].numbered {
            let slot = self.ranges[range].queue[at];
            let batch = self.batches.get(slot);
            if batch.state == BatchState::Done {
                continue;
            }
            let code = batch.code;
            if last.is_some_and(|(e, r, s)| (Some(e), r) == (epoch, run) && batch.sequence <= s) {
                self.tell(slot, Outcome::Stored, 0);
            } else if (doubtful || superseded) && batch.may_be_stored() {
                self.tell(slot, Outcome::Unknown, code);
            }
        }
        self.ranges[range].unnumber(&mut self.batches);
    }

    /// Brings the ranges into line with the routes.
    pub(super) fn apply_routes(&mut self, now: Now) {
        let routes = self.routing.routes().to_vec();
        for route in &routes {
            let link = self.links.for_shard(route.node, route.shard);
            let Some(at) = self.ranges.iter().position(|r| r.id == route.range) else {
                self.ranges.push(Range::new(route, link));
                continue;
            };
            let entry = &mut self.ranges[at];
            entry.epoch = entry.epoch.max(route.epoch);
            if entry.link != link {
                entry.lose_answers(&mut self.batches);
                entry.link = link;
            }
            match entry.mode {
                Mode::Refreshing => {
                    let delay_ns = self.strike(at);
                    self.delay(now, at, delay_ns);
                }
                Mode::Leaving { .. } | Mode::Gone => {
                    entry.mode = Mode::Sending;
                    self.mark_dirty(at);
                }
                Mode::Sending | Mode::Delayed { .. } | Mode::Draining => self.mark_dirty(at),
            }
        }
        for at in 0..self.ranges.len() {
            let entry = &mut self.ranges[at];
            let gone = self.routing.route(entry.id).is_none();
            if gone && !matches!(entry.mode, Mode::Leaving { .. } | Mode::Gone) {
                entry.go_back(&mut self.batches, 0);
                entry.mode = Mode::Leaving { settle: Settle::NotAsked };
            }
        }
        self.rebuild_table();
        for at in 0..self.ranges.len() {
            if matches!(self.ranges[at].mode, Mode::Leaving { .. }) {
                self.advance(now, at);
            }
        }
    }

    fn rebuild_table(&mut self) {
        let leaving = |at: &usize| matches!(self.ranges[*at].mode, Mode::Leaving { .. });
        let mut held: Vec<usize> = (0..self.ranges.len()).filter(leaving).collect();
        // Ids are given in the order of the lineage. The oldest comes last and so takes what it shares with a younger one: what
        // waits for it was sent first.
        held.sort_by_key(|at| std::cmp::Reverse(self.ranges[*at].id));
        let held: Vec<(KeySpan, usize)> = held.into_iter().map(|at| (self.ranges[at].span, at)).collect();
        let slot = |id| self.ranges.iter().position(|r| r.id == id).expect("every route has a range");
        self.routing.rebuild(slot, &held);
    }

    /// All that was sent to a range is settled: what is left of it goes to the ranges that took its place.
    fn leave(&mut self, now: Now, range: usize) {
        self.close_open(range);
        let entry = &mut self.ranges[range];
        entry.unnumber(&mut self.batches);
        entry.mode = Mode::Gone;
        let left = std::mem::take(&mut entry.queue);
        self.rebuild_table();
        for slot in left {
            self.move_records(now, slot);
        }
    }

    /// Takes the records out of a batch and adds each to the batch that it now belongs to.
    fn move_records(&mut self, now: Now, slot: usize) {
        let batch = self.batches.get(slot);
        let mut builder = std::mem::replace(&mut batch.builder, BatchBuilder::new(0));
        let tokens = std::mem::take(&mut batch.tokens);
        let (deadline_ns, cost) = (batch.deadline_ns, batch.cost);
        let count = builder.count();
        self.records_in_flight -= count;
        self.bytes_in_flight -= cost;
        self.moved += u64::from(count);
        let bytes = builder.finish(Stamp::default());
        let records = BatchRef::trust(bytes).expect("this builder made the batch").records();
        let mut costs = Shares { left: cost, parts: u64::from(count) };
        let tokens = tokens.iter().flat_map(|run| run.first..run.first + u64::from(run.count));
        for (record, token) in records.zip(tokens) {
            let record = record.expect("this builder made the record");
            let headers: Vec<(&[u8], &[u8])> = record.headers.collect();
            let parts = RecordParts {
                key: record.key,
                value: record.value,
                headers: &headers,
                timestamp_ms: record.timestamp_ms,
                cost: costs.next_share(),
            };
            match self.add(now, &parts, token, deadline_ns) {
                Ok(()) => {}
                Err(SendError::NotReady | SendError::Full | SendError::TooLarge { .. }) => {
                    unreachable!("the record was in a batch of this producer, and every hash has a range")
                }
            }
        }
        self.batches.get(slot).builder = builder;
        self.batches.release(slot);
    }
}

/// Divides a cost so that the parts add up to it.
struct Shares {
    left: u64,
    parts: u64,
}

impl Shares {
    fn next_share(&mut self) -> u64 {
        let share = self.left / self.parts.max(1);
        self.left -= share;
        self.parts = self.parts.saturating_sub(1);
        share
    }
}
