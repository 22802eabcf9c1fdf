//! Does what a replica wants: what it decides in offsets is written here into segments and the journal.

use crate::format::checksum::Digest;
use crate::format::segment::{Footer, Hole, HoleCause, RollMark, Seal, SegmentHeader};
use crate::replica;
use crate::replica::message::{RollCause, Rolled, SealAnswer, SealedSegment, SegmentOpen, Span};
use crate::segment::appender::{Appender, Placed};
use crate::shard::command::{Command, Commands};
use crate::shard::queue::{Body, Kind, Queued};
use crate::shard::range::{Piece, RangeSlot, TailSlot};
use crate::shard::shard::Shard;
use crate::shard::tail::{Closed, Tail};
use crate::types::{Epoch, Now, Offset, SegmentId};

impl Shard {
    /// Does all that the replica of `slot` wants.
    pub(super) fn obey(&mut self, now: Now, slot: RangeSlot, commands: &mut Commands) {
        let mut wanted = std::mem::take(&mut self.replica_commands);
        for command in wanted.drain(..) {
            match command {
                replica::Command::Reply { to, response } => commands.push(Command::Reply { to, response }),
                replica::Command::Tell(message) => commands.push(Command::Tell(message)),
                replica::Command::Promise { segment, epoch } => self.promise(slot, segment, epoch),
                replica::Command::Begin { open, base } => self.begin(now, slot, open, base),
                replica::Command::Close(sealed) => self.close(slot, sealed),
                replica::Command::Wake => self.wake(now, slot, commands),
            }
        }
        debug_assert!(self.replica_commands.is_empty(), "nothing done here asks the replica for more");
        self.replica_commands = wanted;
    }

    fn entry(&self, kind: Kind, slot: RangeSlot, segment: SegmentId, first: u64) -> Queued {
        let range = self.ranges[slot.0].range;
        Queued { kind, slot, range, segment, first, count: 0, body: Body::Nothing, bytes: 0 }
    }

    fn queue_placed(&mut self, kind: Kind, slot: RangeSlot, tail: TailSlot, first: Offset, placed: Placed) {
        let segment = self.tail(tail).segment;
        let body = Body::Entry { tail, placed };
        let entry = Queued { body, bytes: placed.length, ..self.entry(kind, slot, segment, first.0) };
        self.unwritten(placed.length);
        self.groups.queue.push(entry);
    }

    pub(super) fn unwritten(&mut self, bytes: u32) {
        self.counters.unwritten_bytes += u64::from(bytes);
    }

    fn promise(&mut self, slot: RangeSlot, segment: SegmentId, epoch: Epoch) {
        let range = self.ranges[slot.0].range;
        self.catalog.promise(range, epoch);
        let entry = self.entry(Kind::Promise, slot, segment, epoch.0);
        self.groups.queue.push(entry);
    }

    /// The promise is durable, and with it all that was taken before it: answers with what the segment holds.
    pub(super) fn answer_seal(&mut self, now: Now, entry: &Queued, commands: &mut Commands) {
        let range = &mut self.ranges[entry.slot.0];
        let fences = range.replica.producers().fences();
        let answer = match range.piece_of(entry.segment).map(|at| &range.chain[at]) {
            Some(Piece { tail: Some(tail), .. }) => {
                let tail = self.tails[tail.0].as_ref().expect("a tail in use");
                let (end, digest) = (tail.appender.end(), tail.appender.digest());
                let mark = tail.rolled.map(|mark| Rolled {
                    segment: tail.segment,
                    end: mark.end,
                    digest: mark.digest,
                    successor: mark.successor,
                });
                SealAnswer { end, digest, unreadable: Vec::new(), mark, fences }
            }
            Some(Piece { found: Some(found), .. }) => SealAnswer {
                end: found.end,
                digest: found.digest,
                unreadable: found.unreadable.clone(),
                mark: found.mark,
                fences,
            },
            // It was opened, and nothing of it had become durable here.
            Some(_) | None => {
                let end = range.replica.assigned();
                SealAnswer { end, digest: Digest::default(), unreadable: Vec::new(), mark: None, fences }
            }
        };
        range.replica.promised_durable(entry.segment, Epoch(entry.first), answer, &mut self.replica_commands);
        self.obey(now, entry.slot, commands);
    }

    /// Begins a segment: its descriptor and its table go to the journal before its first batch.
    fn begin(&mut self, now: Now, slot: RangeSlot, open: SegmentOpen, base: Offset) {
        let range = &self.ranges[slot.0];
        self.scratch.clear();
        range.replica.producers().encode(&mut self.scratch);
        let table = std::mem::take(&mut self.scratch);
        let header = SegmentHeader {
            topic: range.replica.topic(),
            range: range.range,
            segment: open.segment,
            span: range.replica.span(),
            base: Some(base),
            table: Some(Digest::of(&table)),
            epoch: open.epoch,
            random: open.seed,
            predecessors: [open.predecessor, None],
            max_batch: open.batch_bytes_max,
            replicas: open.replicas,
            acknowledgements: open.quorum,
            retention_clock: open.retention_ms,
            primary: open.primary,
            life: open.life,
            extent: 0,
            extent_first: base,
        };
        let mut appender = Appender::create(&mut self.pool, &header);
        let placed = appender.append_table(&mut self.pool, &table);
        self.scratch = table;
        let tail = self.add_tail(Tail {
            segment: open.segment,
            slot,
            header,
            base,
            appender,
            opened_ns: now.monotonic_ns,
            rolled: None,
            closed: None,
            final_table: None,
            has_file: false,
            noted_closed: false,
            doomed: false,
        });
        self.ranges[slot.0].chain.push(Piece::open(open.segment, base, tail));
        let entry = self.entry(Kind::Open, slot, open.segment, base.0);
        self.groups.queue.push_note(entry, header.encode().to_vec());
        self.queue_placed(Kind::Table, slot, tail, base, placed);
        self.counters.segments_opened += 1;
    }

    /// Ends the full segment with a mark and goes on in its prepared successor.
    pub(super) fn roll(
        &mut self,
        now: Now,
        slot: RangeSlot,
        (segment, successor): (SegmentId, SegmentId),
        cause: RollCause,
        commands: &mut Commands,
    ) {
        let tail_slot = self.ranges[slot.0].open_tail().expect("an open segment has a tail");
        let replica = &mut self.ranges[slot.0].replica;
        let end = replica.assigned();
        let tail = self.tails[tail_slot.0].as_mut().expect("a tail in use");
        let digest = tail.appender.digest();
        let mut table = Vec::new();
        replica.producers().encode(&mut table);
        tail.final_table = Some(table);
        replica.roll(segment, digest, cause, &mut self.replica_commands);
        self.scratch.clear();
        replica.producers().encode(&mut self.scratch);
        let mark = RollMark { end, digest, successor, successor_table: Digest::of(&self.scratch) };
        let placed = tail.appender.append_roll_mark(&mut self.pool, &mark.encode());
        tail.rolled = Some(mark);
        if let Some(piece) = self.ranges[slot.0].chain.last_mut() {
            piece.end = Some(end);
        }
        self.queue_placed(Kind::RollMark, slot, tail_slot, end, placed);
        self.counters.rolls += 1;
        self.counters.last_roll_wall_ms = now.wall_ms;
        self.obey(now, slot, commands);
    }

    /// The end of a segment is committed: notes it in the journal, and writes the footer.
    fn close(&mut self, slot: RangeSlot, sealed: SealedSegment) {
        let range = &mut self.ranges[slot.0];
        let Some(at) = range.piece_of(sealed.segment) else { return };
        let piece = &mut range.chain[at];
        if piece.closed {
            return;
        }
        assert!(piece.base == sealed.base, "{} begins at {}, not at {}", sealed.segment, piece.base, sealed.base);
        piece.closed = true;
        piece.end = Some(sealed.end);
        piece.holes.clone_from(&sealed.holes);
        piece.found = None;
        let tail = piece.tail;
        // What an earlier life may have begun below this end is dropped: its offsets lie in a hole of this segment.
        range.chain.retain(|later| later.segment <= sealed.segment || later.base >= sealed.end);
        self.counters.segments_closed += 1;
        let holes: Vec<Hole> = sealed.holes.iter().map(hole_of).collect();
        let mut note = Vec::new();
        Seal { end: sealed.end, epoch: sealed.epoch, digest: sealed.digest }.encode(&mut note, &holes);
        let entry = self.entry(Kind::Seal, slot, sealed.segment, sealed.end.0);
        self.groups.queue.push_note(entry, note);
        match tail {
            Some(tail) => self.close_tail(tail, sealed, &holes),
            None => self.close_found(&sealed, holes),
        }
    }

    fn close_tail(&mut self, tail_slot: TailSlot, sealed: SealedSegment, holes: &[Hole]) {
        let tail = self.tails[tail_slot.0].as_mut().expect("a tail in use");
        assert!(tail.appender.end() == sealed.end, "nothing was appended behind a committed end");
        let footer = Footer {
            segment: sealed.segment,
            base: sealed.base,
            end: sealed.end,
            records: tail.appender.tally().records,
            batches: tail.appender.tally().batches,
            timestamp_ms_min: tail.appender.tally().timestamp_ms_min,
            timestamp_ms_max: tail.appender.tally().timestamp_ms_max,
            digest: sealed.digest,
        };
        if tail.final_table.is_none() {
            let mut table = Vec::new();
            self.ranges[tail.slot.0].replica.producers().encode(&mut table);
            tail.final_table = Some(table);
        }
        let table = tail.final_table.as_deref().expect("it was made above");
        let mut payload = Vec::new();
        footer.encode(&mut payload, holes, tail.appender.index().entries(), table);
        let placed = tail.appender.append_footer(&mut self.pool, &payload);
        tail.closed = Some(Closed { sealed, footer: placed });
        self.unwritten(placed.length);
    }

    pub(super) fn add_tail(&mut self, tail: Tail) -> TailSlot {
        match self.tails.iter().position(Option::is_none) {
            Some(at) => {
                self.tails[at] = Some(tail);
                TailSlot(at)
            }
            None => {
                self.tails.push(Some(tail));
                TailSlot(self.tails.len() - 1)
            }
        }
    }
}

pub(super) fn hole_of(span: &Span) -> Hole {
    let cause = match span.cause {
        crate::api::response::GapCause::Interrupted => HoleCause::Interrupted,
        crate::api::response::GapCause::Unreadable => HoleCause::Unreadable,
        crate::api::response::GapCause::Forced => HoleCause::Forced,
    };
    Hole { from: span.from, to: span.to, records_at_most: span.records_at_most, cause }
}
