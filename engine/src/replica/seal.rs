//! Promising an epoch and taking note of a committed end.

use crate::api::error::Refusal;
use crate::replica::message::{SealAnswer, SealedSegment, ToController};
use crate::replica::replica::{Command, Phase, Replica};
use crate::replica::roll::Roll;
use crate::types::{Epoch, SegmentId};

impl Replica {
    /// From the receipt of a seal nothing older is taken. The promise goes into the journal behind all that was taken before, so
    /// that the answer, given when it is durable, covers every acknowledgement ever sent.
    pub(super) fn seal(&mut self, segment: SegmentId, epoch: Epoch, commands: &mut Vec<Command>) {
        if epoch < self.promised {
            commands.push(Command::Tell(ToController::PromiseRefused {
                range: self.range,
                segment,
                promised: self.promised,
            }));
            return;
        }
        match self.phase {
            Phase::Open { .. } | Phase::Unsettled { .. } | Phase::Fenced { .. } | Phase::Resting
                if Some(segment) > self.last_sealed =>
            {
                self.promised = epoch;
                self.epoch = epoch;
                self.phase = Phase::Fenced { segment };
                commands.push(Command::Promise { segment, epoch });
            }
            // Late or repeated: that segment's end is committed, or nothing is known yet.
            Phase::Open { .. }
            | Phase::Unsettled { .. }
            | Phase::Fenced { .. }
            | Phase::Resting
            | Phase::Unknown
            | Phase::Retired { .. } => {}
        }
    }

    /// The promise is durable, and this is what the segment holds.
    pub fn promised_durable(
        &mut self,
        segment: SegmentId,
        epoch: Epoch,
        answer: SealAnswer,
        commands: &mut Vec<Command>,
    ) {
        if self.phase == (Phase::Fenced { segment }) && epoch == self.promised {
            self.answered_mark = answer.mark;
            commands.push(Command::Tell(ToController::Promised { range: self.range, segment, epoch, answer }));
        }
    }

    /// A segment's end is committed.
    pub(super) fn sealed(&mut self, sealed: SealedSegment, commands: &mut Vec<Command>) {
        if Some(sealed.segment) <= self.last_sealed {
            return;
        }
        self.last_sealed = Some(sealed.segment);
        match self.phase {
            Phase::Fenced { segment } | Phase::Unsettled { segment } if segment == sealed.segment => {
                self.settle(sealed, commands);
            }
            // A rolled segment, whose successor goes on.
            Phase::Resting
            | Phase::Unsettled { .. }
            | Phase::Open { .. }
            | Phase::Fenced { .. }
            | Phase::Retired { .. } => {
                if let Some(Roll { mark, .. }) = self.roll.take_if(|roll| roll.mark.segment == sealed.segment) {
                    self.answer_rollers(mark, commands);
                }
                commands.push(Command::Close(sealed));
            }
            // The committed state will tell it.
            Phase::Unknown => self.last_sealed = None,
        }
    }

    /// The tail's segment ends at `sealed.end`: what waited below it is stored. If it was rolled there, the tail goes on in the
    /// successor, which is sealed next; if not, what waited above it is not stored and never will be.
    fn settle(&mut self, sealed: SealedSegment, commands: &mut Vec<Command>) {
        let end = sealed.end;
        self.epoch = self.epoch.max(sealed.epoch);
        self.committed = self.committed.max(end);
        self.assigned = end;
        self.durable = end;
        while let Some(pending) = self.pending.front()
            && pending.end <= end
        {
            let due = pending.due();
            commands.push(Command::Reply { to: due.to, response: due.response() });
            self.pending.pop_front();
        }
        let mark = self.answered_mark.take().filter(|mark| mark.segment == sealed.segment && mark.end == end);
        match mark {
            Some(mark) => self.answer_rollers(mark, commands),
            None => self.refuse_pending(&Refusal::StaleEpoch { current: self.epoch }, commands),
        }
        if !sealed.holes.is_empty() {
            self.producers.doubt();
        }
        self.asked_seal = false;
        // An open that overtook this was not taken: the next produce asks again.
        self.asked_open = false;
        self.successor = None;
        self.roll = None;
        self.phase = mark.map_or(Phase::Resting, |mark| Phase::Unsettled { segment: mark.successor });
        commands.push(Command::Close(sealed));
        commands.push(Command::Wake);
    }
}
