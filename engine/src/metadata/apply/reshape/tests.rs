use super::super::tests::{after, create, opening, refuses, sealed, started};
use super::*;
use crate::api::response::GapCause;
use crate::metadata::range_chain::Misfit;
use crate::metadata::{Change, SealReason};
use crate::replica::message::Span;
use crate::types::{Epoch, ProducerEpoch, ProducerId};

const R1: RangeId = RangeId(1);
const R2: RangeId = RangeId(2);

fn block() -> Change {
    Change::ProducerBlock { node: super::super::tests::NODE, first: ProducerId(1), count: 100 }
}

fn open(range: RangeId, segment: u64) -> Change {
    Change::Open { range, open: opening(segment, Some(0), 1, 1, None) }
}

fn begin(range: RangeId, segment: u64, reason: SealReason) -> Change {
    Change::BeginSeal { range, segment: SegmentId(segment), epoch: Epoch(2), reason }
}

fn fence(producer: u64) -> Fence {
    Fence { producer: ProducerId(producer), epoch: ProducerEpoch(2), seen_ms: 9 }
}

fn split(end: u64, fences: &[u64], opens: &[u64]) -> Change {
    let opens = opens.iter().map(|segment| opening(*segment, Some(0), 1, 1, None)).collect();
    let fences = fences.iter().copied().map(fence).collect();
    Change::Split { range: R1, sealed: sealed(1, 0, end, 2), fences, opens }
}

/// A topic of one range whose only segment is being sealed for a split.
fn splitting() -> State {
    after(&[started(1), block(), create("a", 1), open(R1, 1), begin(R1, 1, SealReason::Split)])
}

fn merge(low: RangeId, high: RangeId, open: Option<u64>) -> Change {
    let parents = [(low, sealed(1, 0, 7, 2)), (high, sealed(2, 0, 8, 2))];
    let open = open.map(|segment| opening(segment, Some(0), 1, 1, None));
    Change::Merge { parents, fences: vec![fence(4)], open }
}

/// A topic of two ranges whose only segments are being sealed for a merge.
fn merging() -> State {
    let rounds = [begin(R1, 1, SealReason::Merge), begin(R2, 2, SealReason::Merge)];
    let mut state = after(&[started(1), block(), create("a", 2), open(R1, 1), open(R2, 2)]);
    for round in rounds {
        state.apply(&round).unwrap();
    }
    state
}

fn spans(state: &State) -> Vec<(u64, KeySpan)> {
    state.routes(TopicId(1)).unwrap().into_iter().map(|route| (route.range.0, route.span)).collect()
}

#[test]
fn a_split_seals_the_parent_and_begins_both_halves_in_one_change() {
    let mut state = splitting();
    assert_eq!(state.apply(&split(10, &[4, 6], &[2, 3])), Ok(Applied::Reshaped));
    let halves = KeySpan::divide(2).unwrap();
    assert_eq!(spans(&state), [(2, halves[0]), (3, halves[1])]);
    let parent = state.range_view(R1).unwrap();
    assert_eq!((parent.end, parent.sealed.len(), parent.open.len()), (Offset(10), 1, 0));
    let successors: Vec<u64> = parent.successors.unwrap().iter().map(|route| route.range.0).collect();
    assert_eq!(successors, [2, 3]);
    for (child, segment) in [(2, 2), (3, 3)] {
        let view = state.range_view(RangeId(child)).unwrap();
        assert_eq!((view.epoch, view.end, view.fences), (FIRST_EPOCH, Offset(0), vec![fence(4), fence(6)]));
        assert_eq!(view.open, [opening(segment, Some(0), 1, 1, None)]);
        let lineage = state.range_lineage(RangeId(child)).unwrap();
        assert_eq!((lineage.parents, lineage.successors), (vec![R1], vec![]));
    }
    assert_eq!(state.next().segment, SegmentId(4));
    assert_eq!(state.topic_view(TopicId(1)).unwrap().ranges, 2, "active ones");
}

#[test]
fn a_sealed_range_takes_no_change_any_more() {
    let mut state = splitting();
    state.apply(&split(10, &[], &[])).unwrap();
    let gone = Rejected::RangeSealed { range: R1 };
    for change in [open(R1, 5), begin(R1, 1, SealReason::Asked), split(10, &[], &[]), split(11, &[], &[])] {
        refuses(&state, &change, gone);
    }
}

#[test]
fn children_begin_only_with_the_end_of_the_parents_committed_round() {
    let state = after(&[started(1), block(), create("a", 1), open(R1, 1)]);
    let stale = Rejected::StaleEpoch { current: Epoch(1) };
    refuses(&state, &split(10, &[], &[]), stale);
    let mut state = splitting();
    let other = Change::Split { range: R1, sealed: sealed(9, 0, 10, 2), fences: vec![], opens: vec![] };
    refuses(&state, &other, Rejected::NotSealing { segment: SegmentId(9) });
    let misplaced = Change::Split { range: R1, sealed: sealed(1, 3, 10, 2), fences: vec![], opens: vec![] };
    refuses(&state, &misplaced, Misfit::Base { expected: Some(Offset(0)) }.into());
    state.apply(&Change::Sealed { range: R1, sealed: sealed(1, 0, 10, 2), goes_on: false, open: None }).unwrap();
    refuses(&state, &split(10, &[], &[]), Rejected::NotSealing { segment: SegmentId(1) });
}

#[test]
fn what_the_children_are_to_begin_with_is_judged_first() {
    let state = splitting();
    refuses(&state, &split(10, &[6, 4], &[]), Rejected::BadFences);
    refuses(&state, &split(10, &[4, 4], &[]), Rejected::BadFences);
    refuses(&state, &split(10, &[101], &[]), Rejected::BadFences);
    refuses(&state, &split(10, &[], &[2]), Rejected::BadOpens { found: 1, children: 2 });
    refuses(&state, &split(10, &[], &[3, 2]), Rejected::BadOpens { found: 2, children: 2 });
    refuses(&state, &split(10, &[], &[1, 2]), Rejected::SegmentGiven { next: SegmentId(2) });
    let opens = vec![opening(2, Some(0), 1, 1, None), opening(3, Some(10), 1, 1, None)];
    let above = Change::Split { range: R1, sealed: sealed(1, 0, 10, 2), fences: vec![], opens };
    refuses(&state, &above, Misfit::Base { expected: Some(Offset(0)) }.into());
}

#[test]
fn a_merge_seals_both_parents_or_neither() {
    let mut state = merging();
    let unsealed =
        Change::Merge { parents: [(R1, sealed(1, 0, 7, 2)), (R2, sealed(2, 5, 8, 2))], fences: vec![], open: None };
    refuses(&state, &unsealed, Misfit::Base { expected: Some(Offset(0)) }.into());
    assert_eq!(state.apply(&merge(R1, R2, Some(3))), Ok(Applied::Reshaped));
    assert_eq!(spans(&state), [(3, KeySpan::ALL)]);
    let lineage = state.range_lineage(RangeId(3)).unwrap();
    assert_eq!(lineage.parents, [R1, R2]);
    assert_eq!(state.range_view(RangeId(3)).unwrap().fences, [fence(4)]);
    for parent in [R1, R2] {
        assert_eq!(state.range_lineage(parent).unwrap().successors, [RangeId(3)]);
    }
}

#[test]
fn a_merge_needs_the_round_of_both() {
    let mut state = after(&[started(1), block(), create("a", 2), open(R1, 1), open(R2, 2)]);
    state.apply(&begin(R1, 1, SealReason::Merge)).unwrap();
    refuses(&state, &merge(R1, R2, None), Rejected::StaleEpoch { current: Epoch(1) });
}

#[test]
fn only_the_two_halves_of_one_span_merge_the_lower_first() {
    let state = merging();
    let upside_down =
        Change::Merge { parents: [(R2, sealed(2, 0, 8, 2)), (R1, sealed(1, 0, 7, 2))], fences: vec![], open: None };
    refuses(&state, &upside_down, Rejected::NotBuddies { low: R2, high: R1 });
    let mut state = after(&[started(1), block(), create("a", 4), open(R2, 1), open(RangeId(3), 2)]);
    for (range, segment) in [(R2, 1), (RangeId(3), 2)] {
        state.apply(&begin(range, segment, SealReason::Merge)).unwrap();
    }
    refuses(&state, &merge(R2, RangeId(3), None), Rejected::NotBuddies { low: R2, high: RangeId(3) });
}

#[test]
fn what_a_child_knows_of_producers_is_kept_until_a_segment_of_its_own_is_sealed() {
    let mut state = splitting();
    state.apply(&split(10, &[4], &[2, 3])).unwrap();
    let known = |state: &State| [2, 3].map(|range| state.range_view(RangeId(range)).unwrap().fences.len());
    let seal = |end| Change::Sealed { range: R2, sealed: sealed(2, 0, end, 2), goes_on: false, open: None };
    state.apply(&begin(R2, 2, SealReason::Restart)).unwrap();
    let mut empty = state.clone();
    empty.apply(&seal(0)).unwrap();
    assert_eq!(known(&empty), [1, 1], "nothing of the segment is left, and its table is not either");
    let mut lost = state.clone();
    let hole = Span { from: Offset(0), to: Offset(5), records_at_most: 5, cause: GapCause::Interrupted };
    let sealed = SealedSegment { holes: vec![hole], ..sealed(2, 0, 5, 2) };
    lost.apply(&Change::Sealed { range: R2, sealed, goes_on: false, open: None }).unwrap();
    assert_eq!(known(&lost), [1, 1], "nothing of the segment can be read, and its table may not be either");
    state.apply(&seal(5)).unwrap();
    assert_eq!(known(&state), [0, 1]);
    state.apply(&Change::DeleteTopic { topic: TopicId(1) }).unwrap();
    assert!(state.fences.is_empty());
}

#[test]
fn a_topic_has_no_more_ranges_than_it_may() {
    let mut state = after(&[started(1), block(), create("a", 4096), open(R1, 1)]);
    state.apply(&begin(R1, 1, SealReason::Split)).unwrap();
    refuses(&state, &split(10, &[], &[]), Rejected::TooManyRanges { most: 4096 });
}
