use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::replica::message::Rolled;

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

fn answer(end: u64) -> SealAnswer {
    SealAnswer {
        end: Offset(end),
        digest: Digest(u128::from(end)),
        unreadable: Vec::new(),
        mark: None,
        fences: Vec::new(),
    }
}

fn damaged(end: u64, spans: &[(u64, u64)]) -> SealAnswer {
    let unreadable = spans.iter().map(|(from, to)| span(*from, *to, to - from)).collect();
    SealAnswer { unreadable, ..answer(end) }
}

fn span(from: u64, to: u64, records_at_most: u64) -> Span {
    Span { from: Offset(from), to: Offset(to), records_at_most, cause: GapCause::Unreadable }
}

fn answers(of: &[SealAnswer]) -> BTreeMap<NodeId, SealAnswer> {
    NODES.into_iter().zip(of.iter().cloned()).collect()
}

const ONE: Copies = Copies { replicas: 1, quorum: 1 };
const MAJORITY_OF_3: Copies = Copies { replicas: 3, quorum: 2 };

/// A set of replicas to which a primary appends records in order, and a round that asks them to promise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Model {
    ends: Vec<u64>,
    /// The end that each answered with, if it has.
    answered: Vec<Option<u64>>,
}

const RECORDS: u64 = 3;

impl Model {
    fn acknowledged(&self, copies: Copies) -> u64 {
        let mut ends = self.ends.clone();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends[usize::from(copies.quorum) - 1]
    }

    /// Every state that one step leads to. `fenced`: who has answered takes no more.
    fn successors(&self, fenced: bool) -> Vec<Self> {
        let mut all = Vec::new();
        for replica in 0..self.ends.len() {
            if self.ends[replica] < RECORDS && !(fenced && self.answered[replica].is_some()) {
                let mut next = self.clone();
                next.ends[replica] += 1;
                all.push(next);
            }
            if self.answered[replica].is_none() {
                let mut next = self.clone();
                next.answered[replica] = Some(self.ends[replica]);
                all.push(next);
            }
        }
        all
    }

    fn reachable(self, fenced: bool) -> BTreeSet<Self> {
        let mut seen = BTreeSet::new();
        let mut open = vec![self];
        while let Some(model) = open.pop() {
            if seen.insert(model.clone()) {
                open.extend(model.successors(fenced));
            }
        }
        seen
    }
}

/// Whether, in some order of appends, promises and answers, a record is acknowledged at or above the end that `choose` gives from
/// some of the answers.
fn loses_an_acknowledged_record(copies: Copies, fenced: bool, choose: impl Fn(&[Offset]) -> Option<Offset>) -> bool {
    let replicas = usize::from(copies.replicas);
    let start = Model { ends: vec![0; replicas], answered: vec![None; replicas] };
    start.reachable(fenced).into_iter().any(|model| {
        let future = || model.clone().reachable(fenced).into_iter().map(|model| model.acknowledged(copies)).max();
        (0..1u32 << replicas).any(|subset| {
            let chosen = (0..replicas).filter(|replica| subset & (1 << replica) != 0);
            let ends: Option<Vec<Offset>> = chosen.map(|replica| model.answered[replica].map(Offset)).collect();
            let end = ends.and_then(|ends| choose(&ends));
            end.is_some_and(|end| future() > Some(end.0))
        })
    })
}

fn all_copies() -> Vec<Copies> {
    let pairs = (1..=3u8).flat_map(|replicas| (replicas / 2 + 1..=replicas).map(move |quorum| (replicas, quorum)));
    pairs.map(|(replicas, quorum)| Copies { replicas, quorum }).collect()
}

fn ascending(ends: &[Offset]) -> Vec<Offset> {
    let mut ascending = ends.to_vec();
    ascending.sort_unstable();
    ascending
}

#[test]
fn no_order_of_appends_and_promises_acknowledges_above_the_chosen_end() {
    for copies in all_copies() {
        assert!(!loses_an_acknowledged_record(copies, true, |ends| choose_end(copies, ends)), "{copies:?}");
    }
}

#[test]
fn with_one_answer_fewer_an_acknowledged_record_is_lost() {
    for copies in all_copies() {
        let fewer = copies.answers_needed() - 1;
        let choose = |ends: &[Offset]| {
            let greatest = ends.iter().copied().max().unwrap_or(Offset::ZERO);
            (ends.len() >= fewer).then_some(greatest)
        };
        assert!(loses_an_acknowledged_record(copies, true, choose), "{copies:?}");
    }
}

#[test]
fn with_the_next_lower_end_an_acknowledged_record_is_lost() {
    for copies in all_copies() {
        let choose = |ends: &[Offset]| {
            let index = usize::from(copies.replicas - copies.quorum);
            let enough = ends.len() >= copies.answers_needed();
            enough.then(|| if index == 0 { Offset::ZERO } else { ascending(ends)[index - 1] })
        };
        assert!(loses_an_acknowledged_record(copies, true, choose), "{copies:?}");
    }
}

#[test]
fn without_the_promise_an_acknowledged_record_is_lost() {
    for copies in all_copies() {
        assert!(loses_an_acknowledged_record(copies, false, |ends| choose_end(copies, ends)), "{copies:?}");
    }
}

#[test]
fn the_median_not_the_maximum_of_three() {
    assert_eq!(choose_end(MAJORITY_OF_3, &[Offset(15), Offset(10), Offset(12)]), Some(Offset(12)));
    assert_eq!(choose_end(MAJORITY_OF_3, &[Offset(15), Offset(10)]), Some(Offset(15)));
    assert_eq!(choose_end(MAJORITY_OF_3, &[Offset(15)]), None);
}

#[test]
fn a_single_copys_unreadable_spans_are_holes_at_once() {
    let copy = damaged(20, &[(3, 5), (5, 6), (18, 20)]);
    let expected = Outcome {
        end: Offset(20),
        holes: copy.unreadable.clone(),
        digest: Some(copy.digest),
        goes_on: None,
        sources: vec![NODES[0]],
        fences: Vec::new(),
    };
    assert_eq!(decide(ONE, &answers(&[copy]), false), Decision::Seal(expected));
}

#[test]
fn a_single_copy_that_has_not_answered_is_waited_for() {
    assert_eq!(decide(ONE, &answers(&[]), true), Decision::TooFew { have: 0, need: 1 });
}

#[test]
fn what_another_copy_can_read_is_no_hole() {
    let three = answers(&[damaged(10, &[(2, 6)]), damaged(10, &[(4, 8)]), damaged(10, &[(5, 9)])]);
    let Decision::Seal(outcome) = decide(MAJORITY_OF_3, &three, false) else {
        panic!("all have answered");
    };
    assert_eq!(outcome.holes, [span(5, 6, 1)]);
    assert_eq!(outcome.digest, None, "no copy is right before it is repaired");
}

#[test]
fn a_copy_that_may_still_be_readable_is_waited_for_until_the_wait_is_over() {
    let two = answers(&[damaged(10, &[(2, 6)]), damaged(10, &[(4, 8)])]);
    let unreadable = vec![span(4, 6, 2)];
    assert_eq!(decide(MAJORITY_OF_3, &two, false), Decision::AwaitCopies { unreadable: unreadable.clone() });
    let Decision::Seal(outcome) = decide(MAJORITY_OF_3, &two, true) else {
        panic!("nobody is waited for");
    };
    assert_eq!(outcome.holes, unreadable);
}

#[test]
fn a_short_copy_does_not_make_a_damaged_one_readable() {
    let two = answers(&[damaged(10, &[(4, 10)]), answer(4)]);
    let Decision::Seal(outcome) = decide(MAJORITY_OF_3, &two, true) else {
        panic!("enough have answered");
    };
    assert_eq!((outcome.end, outcome.holes), (Offset(10), vec![span(4, 10, 6)]));
}

#[test]
fn a_hole_is_cut_at_the_end() {
    let three = answers(&[damaged(10, &[(5, 10)]), answer(5), answer(7)]);
    let Decision::Seal(outcome) = decide(MAJORITY_OF_3, &three, false) else {
        panic!("all have answered");
    };
    assert_eq!((outcome.end, outcome.holes), (Offset(7), Vec::new()));
    assert_eq!(outcome.sources, [NODES[2], NODES[0], NODES[1]], "the most advanced intact copy first");
}

#[test]
fn the_round_goes_on_behind_a_mark_that_the_end_reaches() {
    let mark = Rolled { segment: SegmentId(1), end: Offset(9), digest: Digest(9), successor: SegmentId(2) };
    let marked = SealAnswer { mark: Some(mark), ..answer(9) };
    let goes_on = |of: &[SealAnswer]| match decide(MAJORITY_OF_3, &answers(of), false) {
        Decision::Seal(outcome) => outcome.goes_on,
        other @ (Decision::TooFew { .. } | Decision::AwaitCopies { .. }) => panic!("{other:?}"),
    };
    assert_eq!(goes_on(&[marked.clone(), answer(9), answer(3)]), Some(SegmentId(2)));
    assert_eq!(goes_on(&[marked.clone(), answer(3)]), Some(SegmentId(2)));
    assert_eq!(goes_on(&[marked, answer(8), answer(3)]), None, "the end falls short of the mark");
    assert_eq!(goes_on(&[answer(9), answer(9), answer(9)]), None, "nobody has a mark");
}

#[test]
fn a_tidy_answer_is_left_as_it_is() {
    let copy = damaged(20, &[(3, 5), (5, 6), (18, 20)]);
    assert_eq!(tidy(Offset(2), copy.clone()), copy);
}

#[test]
fn an_answer_that_is_not_tidy_keeps_all_that_it_may_have_held() {
    let untidy = damaged(4, &[(8, 12), (0, 2), (1, 6), (5, 7), (7, 7)]);
    let expected = SealAnswer { end: Offset(12), ..damaged(4, &[(3, 7), (8, 12)]) };
    assert_eq!(tidy(Offset(3), untidy), expected);
    assert_eq!(tidy(Offset(9), answer(4)).end, Offset(9));
}

proptest! {
    #[test]
    fn the_end_is_one_of_the_answers_and_enough_copies_could_hold_up_to_it(
        ends in prop::collection::vec(0u64..6, 1..6),
        replicas in 1u8..6,
        all: bool,
    ) {
        let quorum = if all { replicas } else { replicas / 2 + 1 };
        let copies = Copies { replicas, quorum };
        let ends: Vec<Offset> = ends.into_iter().take(usize::from(replicas)).map(Offset).collect();
        let unknown = usize::from(replicas) - ends.len();
        let could_hold = |offset: Offset| unknown + ends.iter().filter(|end| **end > offset).count();
        match choose_end(copies, &ends) {
            Some(end) => {
                prop_assert!(ends.contains(&end));
                prop_assert!(could_hold(end) < usize::from(quorum), "a record at the end may be acknowledged");
            }
            None => prop_assert!(could_hold(Offset(1000)) >= usize::from(quorum), "nothing bounds it"),
        }
    }
}
