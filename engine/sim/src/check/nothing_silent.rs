//! Nothing silent: between the offset asked for and `next` every offset is in a batch or in a gap that is told; a fetch below the
//! committed end gives something; and no gap comes from nowhere.

use sealog_engine::api::response::{Gap, GapCause};
use sealog_engine::types::{Offset, RangeId};

use super::{Mode, Violation};

/// The checker.
#[derive(Default)]
pub struct NothingSilent {
    /// Answers that gave something.
    pub checked: u64,
    /// Gaps told.
    pub gaps: u64,
}

/// One answer to a fetch.
pub struct Given<'a> {
    pub range: RangeId,
    pub asked: Offset,
    /// First offset and end of each batch, in the order given.
    pub batches: &'a [(Offset, Offset)],
    pub gaps: &'a [Gap],
    pub next: Offset,
    pub end: Offset,
}

impl NothingSilent {
    /// A range answered a fetch. `crashes`: how often the node has been stopped so far, without which nothing can be interrupted.
    ///
    /// # Errors
    /// Something is missing and not told.
    pub fn given(&mut self, given: &Given<'_>, mode: Mode, crashes: u64) -> Result<(), Violation> {
        let &Given { range, asked, batches, gaps, next, end } = given;
        for gap in gaps {
            self.gaps += 1;
            let explained = match gap.cause {
                GapCause::Interrupted => crashes > 0,
                GapCause::Unreadable => mode == Mode::Beyond,
                GapCause::Forced => false,
            };
            if !explained || gap.from >= gap.to {
                return Err(Violation::GapWithoutFault { range, gap: *gap });
            }
        }
        let mut expected = asked;
        let mut gaps = gaps.iter().peekable();
        let mut step_over = |expected: &mut Offset| {
            while let Some(gap) = gaps.next_if(|gap| gap.from <= *expected) {
                *expected = (*expected).max(gap.to);
            }
        };
        for (index, (from, to)) in batches.iter().enumerate() {
            step_over(&mut expected);
            let fits = if index == 0 { *from <= expected && *to > expected } else { *from == expected };
            if !fits {
                return Err(Violation::Skipped { range, asked, expected, found: *from });
            }
            expected = *to;
        }
        step_over(&mut expected);
        if next != expected {
            return Err(Violation::WrongNext { range, asked, next, given: expected });
        }
        // An empty answer below an end that is not settled yet gives nothing and takes nothing back.
        if next > end && next > asked {
            return Err(Violation::BeyondCommitted { range, next, end });
        }
        if next == asked && asked < end {
            return Err(Violation::Stalled { range, asked, end });
        }
        self.checked += u64::from(next > asked);
        Ok(())
    }
}
