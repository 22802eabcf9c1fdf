//! Where in a range the records begin that are not earlier than a time: the start of a reading from a time.
//!
//! ```text
//!   segments         greatest timestamps 40, 70, 60          time 65
//!   the first one whose greatest timestamp is not earlier     .........^
//!   in its index, the last entry before which all are earlier         entry ── records walk on from there
//! ```
//! **Invariants**
//! - every record below the place that is told is earlier, however timestamps jump: the greatest of each segment is known, and the
//!   index has it of all that lies before an entry. How far behind the place the first record that is not earlier lies is not said:
//!   up to what lies between two entries.
//! - a hole right before the place may have held such a record, so the place is in front of it and the reader is told. Of a
//!   hole further below nothing is said: only where timestamps go back may it have held one.

use crate::api::request::ReplyTo;
use crate::api::response::Response;
use crate::format::index::find_time;
use crate::segment::catalog::{Contents, SegmentState};
use crate::segment::tally::Tally;
use crate::shard::command::{Command, Commands};
use crate::shard::range::{Piece, Range, RangeSlot};
use crate::shard::reads::AfterFooter;
use crate::shard::shard::Shard;
use crate::types::Offset;

impl Shard {
    /// Of a range whose end is known; `footer_failed` once the index of the segment that was read does not verify.
    pub(super) fn since(
        &mut self,
        slot: RangeSlot,
        to: ReplyTo,
        timestamp_ms: u64,
        footer_failed: bool,
        commands: &mut Commands,
    ) {
        let range = &self.ranges[slot.0];
        let (trimmed, end) = (range.trimmed, range.replica.committed());
        let piece = range.chain.iter().find(|piece| {
            self.tally_of(piece).is_some_and(|tally| tally.batches > 0 && tally.timestamp_ms_max >= timestamp_ms)
        });
        let Some(piece) = piece else {
            return answer(range, to, end, commands);
        };
        let entry = match piece.tail {
            Some(tail) => {
                let tail = self.tails[tail.0].as_ref().expect("a tail in use");
                find_time(tail.appender.index().entries(), timestamp_ms)
            }
            None => match &self.catalog.segment(piece.segment).expect("it has a tally").state {
                SegmentState::Open(tail)
                | SegmentState::Rolled { tail, .. }
                | SegmentState::Sealed { contents: Contents::Catalog(tail), .. } => {
                    find_time(&tail.index, timestamp_ms)
                }
                SegmentState::Sealed { contents: Contents::Footer(footer), .. } => {
                    match self.reads.index(piece.segment) {
                        Some(index) => find_time(index, timestamp_ms),
                        // The segment is searched from its start: more is read, and nothing left out.
                        None if footer_failed => None,
                        None => {
                            let (footer, segment) = (*footer, piece.segment);
                            return self.read_footer(
                                slot,
                                to,
                                segment,
                                footer,
                                AfterFooter::Since { timestamp_ms },
                                commands,
                            );
                        }
                    }
                }
            },
        };
        let place = entry.map_or(piece.base, |entry| entry.offset());
        answer(range, to, place.clamp(trimmed, end), commands);
    }

    /// What a segment's records add up to, if this disk has any of it.
    fn tally_of(&self, piece: &Piece) -> Option<&Tally> {
        match piece.tail {
            Some(tail) => Some(self.tails[tail.0].as_ref().expect("a tail in use").appender.tally()),
            None => self.catalog.segment(piece.segment).map(|record| &record.checkpoint.tally),
        }
    }
}

fn answer(range: &Range, to: ReplyTo, place: Offset, commands: &mut Commands) {
    let mut start = place;
    while let Some(hole) = range.chain.iter().flat_map(|piece| &piece.holes).find(|hole| hole.to == start) {
        start = hole.from;
    }
    let start = start.max(range.trimmed);
    let response = Response::Bounds { start, end: range.replica.committed() };
    commands.push(Command::Reply { to, response });
}
