//! Going on in a prepared successor without a pause.
//!
//! The mark lies behind the last batch of the full segment and before the first of its successor, in one journal: so nothing in
//! the successor is acknowledged before the mark is durable. The roll is reported when the full segment is committed to its end;
//! only then may the controller prepare the next successor.

use crate::format::checksum::Digest;
use crate::replica::message::{Rolled, SegmentOpen, ToController};
use crate::replica::replica::{Command, Phase, Replica};
use crate::types::{Offset, SegmentId};

/// A roll that the metadata group has not committed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roll {
    pub mark: Rolled,
    pub reported: bool,
}

impl Replica {
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
    pub fn roll(&mut self, segment: SegmentId, digest: Digest, commands: &mut Vec<Command>) {
        let open = self.successor.take().expect("a roll has a successor");
        let mark = Rolled { segment, end: self.assigned, digest, successor: open.segment };
        self.roll = Some(Roll { mark, reported: false });
        self.begin(open, commands);
    }

    /// Reports the roll once the full segment is committed to its end.
    pub fn report_roll(&mut self, mark_durable: Offset, commands: &mut Vec<Command>) {
        let committed = self.committed;
        if let Some(roll) = &mut self.roll
            && !roll.reported
            && mark_durable >= roll.mark.end
            && committed >= roll.mark.end
        {
            roll.reported = true;
            commands.push(Command::Tell(ToController::Rolled { range: self.range, mark: roll.mark }));
        }
    }
}
