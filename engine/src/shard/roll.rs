//! A client asks for a roll: what a produce does on its way when it finds the segment full.
//!
//! Nothing waits here but the answer to a roll whose mark is in the journal's queue; whoever comes before a successor is there is
//! refused with a delay, like a produce.

use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::{RangeRolled, Response};
use crate::replica::RollAdmission;
use crate::replica::message::RollCause;
use crate::shard::admission::OVERLOADED_DELAY_MS;
use crate::shard::command::{Command, Commands};
use crate::shard::range::RangeSlot;
use crate::shard::shard::{Shard, refuse};
use crate::types::{Now, RangeId};

impl Shard {
    /// Rolls the range, or answers at once why not.
    pub(super) fn roll_asked(&mut self, now: Now, to: ReplyTo, range: RangeId, commands: &mut Commands) {
        let Some(slot) = self.find(range) else { return refuse(to, Refusal::UnknownRange, commands) };
        if let Err(refusal) = self.begin_roll(now, to, slot, commands) {
            refuse(to, refusal, commands);
        }
    }

    fn begin_roll(&mut self, now: Now, to: ReplyTo, slot: RangeSlot, commands: &mut Commands) -> Result<(), Refusal> {
        if self.groups.failed {
            return Err(Refusal::WriteFailed);
        }
        let holds_records = self.ranges[slot.0].replica.open_segment().is_some() && self.fill_of(slot).0 > 0;
        let admitted = self.ranges[slot.0].replica.admit_roll(holds_records, &mut self.replica_commands);
        self.obey(now, slot, commands);
        match admitted? {
            RollAdmission::Nothing { end } => {
                let response = Response::Rolled(RangeRolled { end, segments: None });
                commands.push(Command::Reply { to, response });
                return Ok(());
            }
            RollAdmission::UnderWay => {}
            RollAdmission::Roll { segment, successor } => {
                // The journal's last eighth is for what a roll of its own accord writes, not for as many as are asked for.
                if !self.has_room(0) {
                    return Err(Refusal::Overloaded { delay_ms: OVERLOADED_DELAY_MS });
                }
                self.roll(now, slot, (segment, successor), RollCause::Asked, commands);
            }
        }
        self.ranges[slot.0].replica.await_roll(to);
        Ok(())
    }
}
