//! Going on in a prepared successor without a pause.
//!
//! The mark lies behind the last batch of the full segment and before the first of its successor, in one journal: so nothing in
//! the successor is acknowledged before the mark is durable. The roll is reported when the full segment is committed to its end;
//! only then may the controller prepare the next successor.
//!
//! A client may ask for what a full segment does by itself. It is answered when the roll is reported:
//!
//! ```text
//!  asked, and the open segment        no successor yet    -> prepare one; refused, to be asked again
//!                                     a successor         -> roll
//!                                     none of its records -> nothing to do: what was acknowledged is sealed
//!         a roll is not reported yet                      -> that one: what was acknowledged lies before its mark
//! ```
//! So whatever the answer is, all that had been acknowledged before the question lies in sealed segments.

use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::{RangeRolled, Response};
use crate::format::checksum::Digest;
use crate::replica::message::{RollCause, Rolled, SegmentOpen, ToController};
use crate::replica::replica::{Command, OPENING_DELAY_MS, Phase, Replica};
use crate::types::{Offset, SegmentId};

/// A roll that the metadata group has not committed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roll {
    pub mark: Rolled,
    pub cause: RollCause,
    pub reported: bool,
}

/// Judgement of a client's wish to roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollAdmission {
    /// End this segment and go on in its successor, then call `await_roll`.
    Roll { segment: SegmentId, successor: SegmentId },
    /// A roll is under way: call `await_roll`.
    UnderWay,
    /// No open segment holds a record; everything below the end (exclusive) is sealed.
    Nothing { end: Offset },
}

impl Replica {
    /// Whether the range can be rolled now. `holds_records`: the open segment does.
    ///
    /// # Errors
    /// Why not. What stands in the way has been asked of the controller.
    pub fn admit_roll(&mut self, holds_records: bool, commands: &mut Vec<Command>) -> Result<RollAdmission, Refusal> {
        let opening = Refusal::Opening { delay_ms: OPENING_DELAY_MS };
        let nothing = RollAdmission::Nothing { end: self.committed };
        match &self.phase {
            Phase::Open { .. } if self.roll.is_some_and(|roll| !roll.reported) => Ok(RollAdmission::UnderWay),
            Phase::Open { .. } if !holds_records => Ok(nothing),
            Phase::Open { segment } => match self.successor {
                Some(open) => Ok(RollAdmission::Roll { segment: *segment, successor: open.segment }),
                None => {
                    self.want_successor(commands);
                    Err(opening)
                }
            },
            Phase::Resting => Ok(nothing),
            Phase::Retired { successors } => Err(Refusal::Sealed { successors: successors.clone(), last: None }),
            // Its end is fixed by a seal, which is what is wanted.
            Phase::Unsettled { .. } => {
                self.settle_for_reader(self.committed, commands);
                Err(opening)
            }
            Phase::Unknown | Phase::Fenced { .. } => Err(opening),
        }
    }

    /// `to` is answered when the roll under way is reported.
    ///
    /// # Panics
    /// If none is under way.
    pub fn await_roll(&mut self, to: ReplyTo) {
        assert!(self.roll.is_some_and(|roll| !roll.reported), "a roll is under way");
        self.rollers.push(to);
    }

    pub(super) fn answer_rollers(&mut self, mark: Rolled, commands: &mut Vec<Command>) {
        let rolled = RangeRolled { end: mark.end, segments: Some((mark.segment, mark.successor)) };
        let answer = |to| Command::Reply { to, response: Response::Rolled(rolled) };
        commands.extend(self.rollers.drain(..).map(answer));
    }

    /// The open segment is filling: ask for its successor, once.
    pub fn want_successor(&mut self, commands: &mut Vec<Command>) {
        if let Phase::Open { segment } = self.phase
            && !self.asked_successor
            && self.successor.is_none()
            && self.roll.is_none()
        {
            self.asked_successor = true;
            commands.push(Command::Tell(ToController::NeedSuccessor { range: self.range, segment }));
        }
    }

    /// A successor for the segment `after` is prepared.
    pub(super) fn prepared(&mut self, after: SegmentId, open: SegmentOpen) {
        if self.phase == (Phase::Open { segment: after }) && open.epoch == self.epoch && self.roll.is_none() {
            self.successor = Some(open);
        }
    }

    /// The successor, if the full segment may be rolled into it now.
    #[must_use]
    pub fn ready_successor(&self) -> Option<SegmentId> {
        self.successor.map(|open| open.segment)
    }

    /// Ends the open segment at the assigned end, whose digest is `digest`, and goes on in the successor. The caller writes the mark before it does what the commands ask.
    ///
    /// # Panics
    /// If no successor is ready.
    pub fn roll(&mut self, segment: SegmentId, digest: Digest, cause: RollCause, commands: &mut Vec<Command>) {
        let open = self.successor.take().expect("a roll has a successor");
        let mark = Rolled { segment, end: self.assigned, digest, successor: open.segment };
        self.roll = Some(Roll { mark, cause, reported: false });
        self.begin(open, commands);
    }

    /// Reports the roll once the full segment is committed to its end, and answers who asked for it.
    pub fn report_roll(&mut self, mark_durable: Offset, commands: &mut Vec<Command>) {
        let committed = self.committed;
        if let Some(roll) = &mut self.roll
            && !roll.reported
            && mark_durable >= roll.mark.end
            && committed >= roll.mark.end
        {
            roll.reported = true;
            let (mark, cause) = (roll.mark, roll.cause);
            commands.push(Command::Tell(ToController::Rolled { range: self.range, mark, cause }));
            self.answer_rollers(mark, commands);
        }
    }
}
