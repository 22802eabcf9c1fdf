//! View in, plan out: the next steps of a seal round, from whatever point it has reached.

use super::plan::{NextSegment, Plan, Step};
use super::seal_round::{Decision, Outcome, decide};
use super::view::{Goal, RoundView};
use crate::replica::message::{SealedSegment, join_fences};
use crate::types::{Epoch, SegmentId};

/// Plans the round of a range whose tail is open. Deterministic: the same view gives the same plan.
#[must_use]
pub fn plan(view: &RoundView) -> Plan {
    let refused = view.promised.filter(|promised| *promised >= view.epoch);
    let steps = if !view.begun || refused.is_some_and(|promised| promised > view.epoch) {
        begin(view, refused.unwrap_or(view.epoch).next())
    } else {
        match decide(view.copies(), &view.answers, view.damage_wait_over) {
            Decision::TooFew { have, need } => {
                let mut steps = ask(view, view.first.segment, view.epoch);
                steps.push(Step::AwaitAnswers { have, need });
                steps
            }
            Decision::AwaitCopies { unreadable } => {
                let mut steps = ask(view, view.first.segment, view.epoch);
                steps.push(Step::AwaitCopies { unreadable });
                steps
            }
            Decision::Seal(outcome) => finish(view, outcome),
        }
    };
    Plan { range: view.range, steps }
}

fn begin(view: &RoundView, epoch: Epoch) -> Vec<Step> {
    let segment = view.first.segment;
    vec![
        Step::BeginSeal { segment, epoch, reason: view.reason },
        Step::Ask { segment, epoch, nodes: view.replica_set.clone() },
        Step::AwaitAnswers { have: 0, need: view.copies().answers_needed() },
    ]
}

fn ask(view: &RoundView, segment: SegmentId, epoch: Epoch) -> Vec<Step> {
    let nodes = view.unanswered();
    if nodes.is_empty() { Vec::new() } else { vec![Step::Ask { segment, epoch, nodes }] }
}

fn finish(view: &RoundView, outcome: Outcome) -> Vec<Step> {
    let Outcome { end, holes, digest, goes_on, sources, fences } = outcome;
    let (segment, base, epoch) = (view.first.segment, view.base(), view.epoch);
    let (primary, others) = sources.split_first().expect("a decision has answers");
    let Some(digest) = digest else {
        return vec![Step::Repair { segment, end, node: *primary, from: others.to_vec() }];
    };
    // A mark names the successor that was prepared; one that names another is of no segment that is left.
    let second = view.second.filter(|second| goes_on == Some(second.segment));
    let goes_on = second.map(|second| second.segment);
    let predecessor = if end > base { Some(segment) } else { view.predecessor };
    let next = NextSegment { base: end, epoch, predecessor, primary: *primary };
    let sealed = SealedSegment { segment, base, end, digest, holes, epoch };
    let (primary, second_follows) = (*primary, second.is_some());
    let mut steps = vec![match view.goal {
        // The round goes on in the second segment: what it is for follows then.
        _ if second_follows => Step::Seal { sealed, goes_on, open: None },
        Goal::Rest => Step::Seal { sealed, goes_on, open: None },
        Goal::GoOn => Step::Seal { sealed, goes_on, open: Some(next) },
        Goal::Split => Step::Split { sealed, fences, primary },
        Goal::Merge => Step::Hold { sealed, fences, primary },
    }];
    if let Some(second) = second {
        let need = usize::from(second.replicas - second.quorum) + 1;
        steps.push(Step::Ask { segment: second.segment, epoch, nodes: view.replica_set.clone() });
        steps.push(Step::AwaitAnswers { have: 0, need });
    }
    steps
}

/// The step by which two ranges become one, once the plan of each holds its end; the lower half first.
#[must_use]
pub fn merge(low: &Plan, high: &Plan) -> Option<Step> {
    let held = |plan: &Plan| match plan.steps.last() {
        Some(Step::Hold { sealed, fences, primary }) => Some((plan.range, sealed.clone(), fences.clone(), *primary)),
        Some(_) | None => None,
    };
    let (low, lower, ours, primary) = held(low)?;
    let (high, upper, theirs, _) = held(high)?;
    Some(Step::Merge { parents: [(low, lower), (high, upper)], fences: join_fences(&ours, &theirs), primary })
}

#[cfg(test)]
mod tests;
