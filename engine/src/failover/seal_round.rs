//! The rule that fixes where a segment ends, from what its replicas answered after they promised a newer epoch.
//!
//! With W copies, A of them needed for an acknowledgement, and at least W-A+1 answers, the end is number W-A (from 0) of the
//! answers' ends in ascending order. Why: let every replica that did not answer hold everything. The greatest offset that A
//! replicas can then hold is exactly that number, so no acknowledged record lies above it, now or ever: those who answered take
//! nothing older any more. With one answer fewer nothing bounds it; the next lower end may lie below an acknowledged record.
//!
//! ```text
//!  W = 3, A = 2     ends  @10 @12 @15   all answered        -> @12 : @15 is on one copy only, nobody was told that it is stored
//!                   ends  @10     @15   one is unknown      -> @15 : it may hold up to @15 as well
//!                   ends  @10           two are unknown     -> too few
//! ```
//! Unreadable is not absent: a damaged copy counts with the end that it may have held. What no copy can give back is a hole, but
//! only when nobody is left who might: all have answered, or the wait for them is over.

use std::collections::BTreeMap;

use crate::api::response::GapCause;
use crate::format::checksum::Digest;
use crate::replica::message::{Fence, SealAnswer, Span, join_fences};
use crate::types::{NodeId, Offset, SegmentId};

/// How many copies a segment has, and how many of them an acknowledgement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// W.
    pub replicas: u8,
    /// A: more than half of W.
    pub quorum: u8,
}

/// What the answers so far allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do not seal: a record may have been acknowledged by those who did not answer.
    TooFew { have: usize, need: usize },
    /// The end is known, but these cannot be read from any copy that answered, and not all have.
    AwaitCopies { unreadable: Vec<Span> },
    /// Seal so.
    Seal(Outcome),
}

/// Where and how a segment ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exclusive.
    pub end: Offset,
    /// What no copy can give back.
    pub holes: Vec<Span>,
    /// The running digest at the end with those holes; `None` if no copy has it so before it is repaired.
    pub digest: Option<Digest>,
    /// The segment ends in a roll mark: the tail goes on in this one.
    pub goes_on: Option<SegmentId>,
    /// Who answered: those that reach the end before those that do not, then by fewer unreadable spans, then by node.
    pub sources: Vec<NodeId>,
    /// What any of them knows of producers, ascending by producer. One that is above the end may fence too early, never too late: its
    /// producer's id was opened again all the same.
    pub fences: Vec<Fence>,
}

impl Copies {
    /// Answers without which nothing is sealed: W-A+1.
    #[must_use]
    pub fn answers_needed(self) -> usize {
        usize::from(self.replicas - self.quorum) + 1
    }
}

/// The rule: the end that the answers' ends give, or `None` if they are too few.
#[must_use]
pub fn choose_end(copies: Copies, ends: &[Offset]) -> Option<Offset> {
    if ends.len() < copies.answers_needed() {
        return None;
    }
    let mut ascending = ends.to_vec();
    ascending.sort_unstable();
    Some(ascending[usize::from(copies.replicas - copies.quorum)])
}

/// What the answers, all of them [tidy], allow. `damage_wait_over`: those who have not answered are no longer
/// waited for where no other copy can be read.
#[must_use]
pub fn decide(copies: Copies, answers: &BTreeMap<NodeId, SealAnswer>, damage_wait_over: bool) -> Decision {
    let ends: Vec<Offset> = answers.values().map(|answer| answer.end).collect();
    let Some(end) = choose_end(copies, &ends) else {
        return Decision::TooFew { have: answers.len(), need: copies.answers_needed() };
    };
    let holes = missing_everywhere(end, answers.values());
    let all_answered = answers.len() >= usize::from(copies.replicas);
    if !holes.is_empty() && !all_answered && !damage_wait_over {
        return Decision::AwaitCopies { unreadable: holes };
    }
    let whole = answers.values().find(|answer| answer.end == end && answer.unreadable == holes);
    let marks = answers.values().filter_map(|answer| answer.mark);
    let goes_on = marks.into_iter().find(|mark| mark.end == end).map(|mark| mark.successor);
    let mut sources: Vec<NodeId> = answers.keys().copied().collect();
    sources.sort_by_key(|node| (answers[node].end < end, answers[node].unreadable.len(), *node));
    let fences = answers.values().fold(Vec::new(), |all, answer| join_fences(&all, &answer.fences));
    Decision::Seal(Outcome { end, holes, digest: whole.map(|answer| answer.digest), goes_on, sources, fences })
}

/// An answer as the rule wants it, whatever its replica sent: the end not below `base` nor below a span that it may have held,
/// the spans inside the segment, ascending and apart.
#[must_use]
pub fn tidy(base: Offset, answer: SealAnswer) -> SealAnswer {
    let SealAnswer { end, digest, unreadable: mut spans, mark, fences } = answer;
    spans.sort_by_key(|span| span.from);
    let mut unreadable: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        let (from, to) = (span.from.max(base), span.to);
        if from >= to {
            continue;
        }
        match unreadable.last_mut() {
            Some(last) if from < last.to => {
                last.to = last.to.max(to);
                let records = last.records_at_most.saturating_add(span.records_at_most);
                last.records_at_most = records.min(last.to.since(last.from));
                last.cause = last.cause.max(span.cause);
            }
            Some(_) | None => {
                let records_at_most = span.records_at_most.min(to.since(from));
                unreadable.push(Span { from, to, records_at_most, cause: span.cause });
            }
        }
    }
    let held = unreadable.last().map_or(base, |last| last.to);
    SealAnswer { end: end.max(held), digest, unreadable, mark, fences: join_fences(&fences, &[]) }
}

/// A span that one copy cannot give: damaged (with what it may have held), or above that copy's end.
#[derive(Clone, Copy)]
struct Missing {
    from: Offset,
    to: Offset,
    damaged: Option<(u64, GapCause)>,
}

/// What lies below `end` and can be read from none of the answering copies.
fn missing_everywhere<'a>(end: Offset, answers: impl Iterator<Item = &'a SealAnswer>) -> Vec<Span> {
    let lists = answers.map(|answer| missing_of(answer, end));
    let everywhere = lists.reduce(|ours, theirs| intersect(&ours, &theirs)).unwrap_or_default();
    let spans = everywhere.into_iter().map(|missing| {
        // The end is that of a copy which answered: what it does not hold readable below, it holds damaged.
        let (records_at_most, cause) = missing.damaged.expect("one copy reaches the end");
        Span { from: missing.from, to: missing.to, records_at_most, cause }
    });
    spans.collect()
}

fn missing_of(answer: &SealAnswer, end: Offset) -> Vec<Missing> {
    let below = answer.unreadable.iter().filter(|span| span.from < end);
    let mut missing: Vec<Missing> = below
        .map(|span| {
            let to = span.to.min(end);
            let records = span.records_at_most.min(to.since(span.from));
            Missing { from: span.from, to, damaged: Some((records, span.cause)) }
        })
        .collect();
    if answer.end < end {
        missing.push(Missing { from: answer.end, to: end, damaged: None });
    }
    missing
}

/// The spans in which both miss something. Both ascend and do not overlap.
fn intersect(ours: &[Missing], theirs: &[Missing]) -> Vec<Missing> {
    let (mut i, mut j) = (0, 0);
    let mut both = Vec::new();
    while let (Some(a), Some(b)) = (ours.get(i), theirs.get(j)) {
        let (from, to) = (a.from.max(b.from), a.to.min(b.to));
        if from < to {
            let damaged = match (a.damaged, b.damaged) {
                (Some((m, c)), Some((n, d))) => Some((m.min(n), c.max(d))),
                (one, other) => one.or(other),
            };
            let damaged = damaged.map(|(records, cause)| (records.min(to.since(from)), cause));
            both.push(Missing { from, to, damaged });
        }
        if a.to <= b.to { i += 1 } else { j += 1 }
    }
    both
}

#[cfg(test)]
mod tests;
