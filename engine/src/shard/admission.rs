//! A produce from the door to its place in the log. Refused early and cheaply: room, then epoch, then bytes, then sequence.

use crate::api::error::{BadBatch, Refusal};
use crate::api::request::ReplyTo;
use crate::api::response::Response;
use crate::format::batch::{BatchRef, Stamp};
use crate::replica::Admission;
use crate::replica::message::RollCause;
use crate::shard::command::{Command, Commands};
use crate::shard::queue::{Body, Kind, Queued};
use crate::shard::range::RangeSlot;
use crate::shard::shard::Shard;
use crate::types::time::MILLISECOND_NS;
use crate::types::{Epoch, Now, RangeId, SegmentId};

/// Delay advised when memory or the journal is full: about the time of a few groups.
pub(super) const OVERLOADED_DELAY_MS: u32 = 2;

impl Shard {
    /// Takes one batch, or answers at once why not.
    pub(super) fn produce(
        &mut self,
        now: Now,
        to: ReplyTo,
        range: RangeId,
        epoch: Epoch,
        batch: &[u8],
        commands: &mut Commands,
    ) {
        if let Err(refusal) = self.admit(now, to, range, epoch, batch, commands) {
            self.counters.produce_refused += 1;
            commands.push(Command::Reply { to, response: Response::Refused(refusal) });
        }
    }

    fn admit(
        &mut self,
        now: Now,
        to: ReplyTo,
        range: RangeId,
        epoch: Epoch,
        batch: &[u8],
        commands: &mut Commands,
    ) -> Result<(), Refusal> {
        self.admit_room(batch.len())?;
        let slot = self.find(range).ok_or(Refusal::UnknownRange)?;
        let most = self.config.batch_bytes_max;
        if batch.len() > most as usize {
            return Err(Refusal::BatchTooLarge { most });
        }
        let batch = BatchRef::verify(batch, most as usize).map_err(|error| Refusal::BadBatch(BadBatch::from(error)))?;
        let stamp = stamp_of(batch);
        let replica = &mut self.ranges[slot.0].replica;
        let segment = match replica.admit_epoch(epoch, stamp.producer, &mut self.replica_commands) {
            Ok(segment) => segment,
            Err(refusal) => {
                self.obey(now, slot, commands);
                return Err(refusal);
            }
        };
        match replica.admit_stamp(segment, &stamp)? {
            Admission::Repeat { end } => {
                if let Some(due) = replica.repeat(end, batch.record_count(), to) {
                    self.counters.batches_stored += 1;
                    self.counters.batches_repeated += 1;
                    commands.push(Command::Reply { to, response: due.response() });
                }
                Ok(())
            }
            Admission::Take { segment } => {
                batch.walk(replica.span()).map_err(|error| Refusal::BadBatch(BadBatch::from(error)))?;
                let segment = self.room_in_segment(now, slot, segment, commands)?;
                self.place(now, slot, segment, batch, &stamp, to);
                self.ask_successor(now, slot, commands);
                Ok(())
            }
        }
    }

    /// Whether the shard has memory and journal for `bytes` more.
    fn admit_room(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.groups.failed {
            return Err(Refusal::WriteFailed);
        }
        if !self.has_room(bytes) {
            self.counters.produce_overloaded += 1;
            return Err(Refusal::Overloaded { delay_ms: OVERLOADED_DELAY_MS });
        }
        Ok(())
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.counters.unwritten_bytes + bytes as u64 <= self.config.memory_bytes / 2 && self.groups.admits(bytes)
    }

    /// The segment that takes the next batch: the open one, or its successor if that is full.
    fn room_in_segment(
        &mut self,
        now: Now,
        slot: RangeSlot,
        segment: SegmentId,
        commands: &mut Commands,
    ) -> Result<SegmentId, Refusal> {
        let (bytes, opened_ns) = self.fill_of(slot);
        let cause = if bytes >= self.config.segment_bytes {
            RollCause::Full
        } else if bytes > 0 && now.monotonic_ns.saturating_sub(opened_ns) >= self.config.segment_age_ms * MILLISECOND_NS
        {
            RollCause::Age
        } else {
            return Ok(segment);
        };
        match self.ranges[slot.0].replica.ready_successor() {
            Some(successor) => {
                self.roll(now, slot, (segment, successor), cause, commands);
                Ok(successor)
            }
            None => {
                self.ask_successor(now, slot, commands);
                Err(Refusal::Opening { delay_ms: 1 })
            }
        }
    }

    fn ask_successor(&mut self, now: Now, slot: RangeSlot, commands: &mut Commands) {
        let (size, opened_ns) = self.fill_of(slot);
        let age_ms = now.monotonic_ns.saturating_sub(opened_ns) / 1_000_000;
        if size >= self.config.segment_bytes / 4 * 3 || age_ms >= self.config.segment_age_ms / 4 * 3 {
            self.ranges[slot.0].replica.want_successor(&mut self.replica_commands);
            self.obey(now, slot, commands);
        }
    }

    /// Bytes of batches in the open segment, and when it was opened.
    pub(super) fn fill_of(&self, slot: RangeSlot) -> (u64, u64) {
        let tail = self.ranges[slot.0].open_tail().expect("an open segment has a tail");
        let tail = self.tails[tail.0].as_ref().expect("a tail in use");
        (tail.appender.tally().bytes, tail.opened_ns)
    }

    /// Gives offsets: copies the batch into the segment's memory and queues it for the next journal group.
    fn place(
        &mut self,
        now: Now,
        slot: RangeSlot,
        segment: SegmentId,
        batch: BatchRef<'_>,
        stamp: &Stamp,
        to: ReplyTo,
    ) {
        let range = &mut self.ranges[slot.0];
        let first = range.replica.assigned();
        let tail_slot = range.open_tail().expect("an open segment has a tail");
        let tail = self.tails[tail_slot.0].as_mut().expect("an open segment has a tail");
        assert_eq!(tail.appender.end(), first, "offsets are given in order");
        let placed = tail.appender.append_batch(&mut self.pool, tail.header.epoch, now.wall_ms, batch);
        let records = batch.record_count();
        range.replica.take(stamp, records, to);
        self.counters.batches_taken += 1;
        self.counters.records_taken += u64::from(records);
        self.counters.bytes_taken += batch.bytes().len() as u64;
        self.counters.unwritten_bytes += u64::from(placed.length);
        let (range, body) = (range.range, Body::Entry { tail: tail_slot, placed });
        let (first, count, bytes) = (first.0, records, placed.length);
        self.groups.queue.push(Queued { kind: Kind::Batch, slot, range, segment, first, count, body, bytes });
    }
}

fn stamp_of(batch: BatchRef<'_>) -> Stamp {
    Stamp {
        producer: batch.producer(),
        epoch: batch.producer_epoch(),
        run: batch.run(),
        sequence: batch.sequence(),
        last: batch.is_last_of_producer(),
    }
}
