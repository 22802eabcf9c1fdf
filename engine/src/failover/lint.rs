//! Says whether a plan is safe, by arguments of its own: it does not call the rule that the planner used.

use thiserror::Error;

use super::plan::{NextSegment, Plan, Step};
use super::view::RoundView;
use crate::replica::message::{SealAnswer, SealedSegment};
use crate::types::{Offset, SegmentId};

/// Why a plan must not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unsafe {
    #[error("step {step} asks for an epoch that is not above all given and promised")]
    EpochNotNew { step: usize },
    #[error("step {step} asks for a promise that no committed round covers")]
    NotBegun { step: usize },
    #[error("step {step} comes behind one that must be waited for")]
    BehindWait { step: usize },
    #[error("step {step} is about a segment that is not of the tail")]
    ForeignSegment { step: usize },
    #[error("step {step} seals below an offset that may have been acknowledged")]
    BelowAcknowledged { step: usize },
    #[error("step {step} seals above everything that was ever held")]
    AboveHeld { step: usize },
    #[error("step {step} makes a hole of a record that can still be read, or may be")]
    HoleTooLarge { step: usize },
    #[error("step {step} leaves out of its holes what nobody can read")]
    HoleTooSmall { step: usize },
    #[error("step {step} goes on in a segment that nobody's mark names")]
    NoMark { step: usize },
    #[error("step {step} drops a segment in which records may have been acknowledged")]
    DropsAcknowledged { step: usize },
    #[error("step {step} opens a segment that does not follow the seal")]
    NotNext { step: usize },
}

/// All that is wrong with `plan` for `view`; empty: it is safe.
#[must_use]
pub fn lint(view: &RoundView, plan: &Plan) -> Vec<Unsafe> {
    let mut wrong = Vec::new();
    let mut epoch = view.epoch;
    let mut segment = view.first.segment;
    let mut begun = view.begun;
    let mut waiting = false;
    for (step, what) in (1..).zip(&plan.steps) {
        if waiting {
            wrong.push(Unsafe::BehindWait { step });
        }
        match what {
            Step::BeginSeal { segment: of, epoch: new, .. } => {
                check_segment(segment, *of, step, &mut wrong);
                if *new <= epoch.max(view.promised.unwrap_or_default()) {
                    wrong.push(Unsafe::EpochNotNew { step });
                }
                (epoch, begun) = (*new, true);
            }
            Step::Ask { segment: of, epoch: asked, .. } => {
                check_segment(segment, *of, step, &mut wrong);
                if !begun || *asked != epoch {
                    wrong.push(Unsafe::NotBegun { step });
                }
            }
            Step::AwaitAnswers { .. } | Step::AwaitCopies { .. } => waiting = true,
            Step::Repair { segment: of, .. } => {
                check_segment(segment, *of, step, &mut wrong);
                waiting = true;
            }
            Step::Seal { sealed, goes_on, open } => {
                check_segment(segment, sealed.segment, step, &mut wrong);
                if !begun || sealed.epoch != view.epoch {
                    wrong.push(Unsafe::NotBegun { step });
                }
                check_end(view, sealed, step, &mut wrong);
                check_holes(view, sealed, step, &mut wrong);
                check_second(view, sealed, *goes_on, step, &mut wrong);
                let follows = |open: &NextSegment| {
                    let last = if sealed.end > sealed.base { Some(sealed.segment) } else { view.predecessor };
                    goes_on.is_none() && open.base == sealed.end && open.epoch == epoch && open.predecessor == last
                };
                if !open.as_ref().is_none_or(follows) {
                    wrong.push(Unsafe::NotNext { step });
                }
                segment = goes_on.unwrap_or(segment);
            }
            Step::Split { sealed, .. } | Step::Hold { sealed, .. } => {
                check_segment(segment, sealed.segment, step, &mut wrong);
                if !begun || sealed.epoch != view.epoch {
                    wrong.push(Unsafe::NotBegun { step });
                }
                check_end(view, sealed, step, &mut wrong);
                check_holes(view, sealed, step, &mut wrong);
                check_second(view, sealed, None, step, &mut wrong);
                // Nothing of this range follows its end.
                waiting = true;
            }
            // Made of two plans, each of which is judged by itself.
            Step::Merge { .. } => waiting = true,
        }
    }
    wrong
}

fn check_segment(expected: SegmentId, found: SegmentId, step: usize, wrong: &mut Vec<Unsafe>) {
    if expected != found {
        wrong.push(Unsafe::ForeignSegment { step });
    }
}

/// Whether `offset` may have been acknowledged: enough copies hold it, if all that did not answer do.
fn may_be_acknowledged(view: &RoundView, offset: Offset) -> bool {
    let unknown = view.replica_set.iter().filter(|node| !view.answers.contains_key(node)).count();
    let holding = view.answers.values().filter(|answer| answer.end > offset).count();
    unknown + holding >= usize::from(view.first.quorum)
}

fn check_end(view: &RoundView, sealed: &SealedSegment, step: usize, wrong: &mut Vec<Unsafe>) {
    if may_be_acknowledged(view, sealed.end) {
        wrong.push(Unsafe::BelowAcknowledged { step });
    }
    let held = view.answers.values().map(|answer| answer.end).max().unwrap_or_default().max(view.base());
    if sealed.end > held || sealed.end < sealed.base || sealed.base != view.base() {
        wrong.push(Unsafe::AboveHeld { step });
    }
}

fn can_read(answer: &SealAnswer, offset: Offset) -> bool {
    offset < answer.end && !answer.unreadable.iter().any(|span| span.from <= offset && offset < span.to)
}

/// Readability changes only at the bounds of spans and ends: one offset behind each bound stands for all up to the next.
fn check_holes(view: &RoundView, sealed: &SealedSegment, step: usize, wrong: &mut Vec<Unsafe>) {
    let mut points = vec![sealed.base];
    let spans = view.answers.values().flat_map(|answer| &answer.unreadable).chain(&sealed.holes);
    points.extend(spans.flat_map(|span| [span.from, span.to]));
    points.extend(view.answers.values().map(|answer| answer.end));
    let unanswered = !view.unanswered().is_empty();
    for point in points.into_iter().filter(|point| (sealed.base..sealed.end).contains(point)) {
        let in_hole = sealed.holes.iter().any(|hole| hole.from <= point && point < hole.to);
        let readable = view.answers.values().any(|answer| can_read(answer, point));
        if in_hole && (readable || (unanswered && !view.damage_wait_over)) {
            wrong.push(Unsafe::HoleTooLarge { step });
        }
        if !in_hole && !readable {
            wrong.push(Unsafe::HoleTooSmall { step });
        }
    }
}

fn check_second(
    view: &RoundView,
    sealed: &SealedSegment,
    goes_on: Option<SegmentId>,
    step: usize,
    wrong: &mut Vec<Unsafe>,
) {
    let marks = |successor: SegmentId| {
        let mut marks = view.answers.values().filter_map(|answer| answer.mark);
        marks.any(|mark| mark.successor == successor && mark.end == sealed.end)
    };
    match (goes_on, view.second) {
        (Some(second), prepared) => {
            if !marks(second) || prepared.is_none_or(|prepared| prepared.segment != second) {
                wrong.push(Unsafe::NoMark { step });
            }
        }
        (None, Some(prepared)) => {
            if marks(prepared.segment) {
                wrong.push(Unsafe::DropsAcknowledged { step });
            }
        }
        (None, None) => {}
    }
}
