//! When a topic that looks after itself splits a range, and when it merges two.
//!
//! The facts are the committed rolls of a range, in the order of the log, never a clock: a segment that was full when it was rolled says
//! that the range is pressed, one that was only old says that it is not; one that somebody asked for, and every seal after a failure, say
//! nothing. How fast a range must be written to count as pressed follows from the configuration: a full segment within its age.
//!
//! ```text
//!            3 full in a row                       3 old in a row, and its buddy too
//!  range ---------------------> two halves   two halves ---------------------------> range
//!         a roll of the other reason begins the count anew; what is split or merged begins at 0
//! ```
//! So between a split and the merge that undoes it lie at least three segments of each half that time alone ended: that, and the two
//! bounds of the topic, keep it from going back and forth. A range that nobody writes to does not roll, says nothing, and stays.

use crate::metadata::{RangeLoad, RangeStatus, State};
use crate::types::RangeId;

/// Full segments in a row after which a range is split.
pub const FULL_ROLLS: u32 = 3;
/// Segments in a row that were only old after which a range may be merged.
pub const AGED_ROLLS: u32 = 3;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Split { range: RangeId },
    Merge { low: RangeId, high: RangeId },
}

/// What the facts ask for now that `range` has rolled.
#[must_use]
pub fn decide(state: &State, range: RangeId) -> Option<Wish> {
    let known = state.range(range).filter(|known| known.status == RangeStatus::Active && known.sealing.is_none())?;
    let bounds = state.auto_split(known.topic)?;
    let active = state.active_count(known.topic);
    let RangeLoad { full, aged } = state.load(range);
    if full >= FULL_ROLLS && active < bounds.ranges_max as usize && known.span.halves().is_some() {
        return Some(Wish::Split { range });
    }
    if aged < AGED_ROLLS || active <= bounds.ranges_min as usize {
        return None;
    }
    let buddy = state.active_with_span(known.topic, known.span.buddy()?)?;
    let is_idle = state.load(buddy).aged >= AGED_ROLLS && state.range(buddy)?.sealing.is_none();
    let (low, high) =
        if known.span.first() <= state.range(buddy)?.span.first() { (range, buddy) } else { (buddy, range) };
    is_idle.then_some(Wish::Merge { low, high })
}

#[cfg(test)]
mod tests;
