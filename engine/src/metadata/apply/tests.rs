use super::*;
use crate::api::response::GapCause;
use crate::format::checksum::Digest;
use crate::replica::message::Span;
use crate::types::ShardId;

pub(super) const NODE: NodeId = NodeId(1);
const RANGE: RangeId = RangeId(1);

pub(super) fn started(life: u64) -> Change {
    Change::NodeStarted { node: NODE, life: ProcessLife(life), shards: 2 }
}

pub(super) fn create(name: &str, ranges: u32) -> Change {
    Change::CreateTopic {
        name: name.to_owned(),
        keyspace_version: 1,
        batch_bytes_max: 1 << 20,
        ranges,
        homes: vec![NODE],
        auto_split: None,
    }
}

pub(super) fn opening(segment: u64, base: Option<u64>, epoch: u64, life: u64, predecessor: Option<u64>) -> SegmentOpen {
    SegmentOpen {
        segment: SegmentId(segment),
        base: base.map(Offset),
        epoch: Epoch(epoch),
        seed: 7,
        predecessor: predecessor.map(SegmentId),
        primary: NODE,
        life: ProcessLife(life),
        replicas: 1,
        quorum: 1,
        batch_bytes_max: 1 << 20,
        retention_ms: 0,
    }
}

pub(super) fn sealed(segment: u64, base: u64, end: u64, epoch: u64) -> SealedSegment {
    SealedSegment {
        segment: SegmentId(segment),
        base: Offset(base),
        end: Offset(end),
        digest: Digest(5),
        holes: Vec::new(),
        epoch: Epoch(epoch),
    }
}

fn open(segment: SegmentOpen) -> Change {
    Change::Open { range: RANGE, open: segment }
}

fn begin_seal(segment: u64, epoch: u64) -> Change {
    let (segment, epoch) = (SegmentId(segment), Epoch(epoch));
    Change::BeginSeal { range: RANGE, segment, epoch, reason: SealReason::Restart }
}

fn seal(sealed: SealedSegment, goes_on: bool, open: Option<SegmentOpen>) -> Change {
    Change::Sealed { range: RANGE, sealed, goes_on, open }
}

/// A state in which all of these were taken.
pub(super) fn after(changes: &[Change]) -> State {
    let mut state = State::default();
    for change in changes {
        state.apply(change).unwrap_or_else(|rejected| panic!("{change:?}: {rejected}"));
    }
    state
}

/// Refuses the change for this reason, and nothing but the count has changed.
pub(super) fn refuses(state: &State, change: &Change, why: Rejected) {
    let mut next = state.clone();
    assert_eq!(next.apply(change), Err(why), "{change:?}");
    next.applied -= 1;
    assert_eq!(next, *state, "{change:?}");
}

fn one_open() -> State {
    after(&[started(1), create("a", 1), open(opening(1, Some(0), 1, 1, None))])
}

#[test]
fn a_topic_is_cut_into_equal_ranges_with_ids_of_their_own() {
    let state = after(&[started(1), create("a", 2), create("b", 4)]);
    let routes = state.routes(state.find_topic("b").unwrap()).unwrap();
    let ids: Vec<u64> = routes.iter().map(|route| route.range.0).collect();
    assert_eq!(ids, [3, 4, 5, 6]);
    assert_eq!(routes.iter().map(|route| route.span).collect::<Vec<_>>(), KeySpan::divide(4).unwrap());
    assert_eq!((routes[0].node, routes[0].shard, routes[1].shard), (NODE, ShardId(1), ShardId(0)));
    let names: Vec<(String, u32)> = state.topic_views().into_iter().map(|view| (view.name, view.ranges)).collect();
    assert_eq!(names, [("a".to_owned(), 2), ("b".to_owned(), 4)]);
}

#[test]
fn a_topic_that_cannot_be_is_refused() {
    let state = after(&[started(1), create("a", 1)]);
    for name in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
        refuses(&state, &create(name, 1), Rejected::BadTopicName);
    }
    refuses(&state, &create("a", 1), Rejected::TopicExists { topic: TopicId(1) });
    for ranges in [0, 3, 8192] {
        refuses(&state, &create("b", ranges), Rejected::BadRangeCount { ranges, most: 4096 });
    }
    assert!(after(&[started(1), create(&"x".repeat(249), 4096)]).find_topic(&"x".repeat(249)).is_some());
}

#[test]
fn a_segment_opens_only_where_the_chain_ends_and_only_once() {
    let state = after(&[started(1), create("a", 1)]);
    refuses(&state, &open(opening(1, Some(1), 1, 1, None)), Misfit::Base { expected: Some(Offset(0)) }.into());
    refuses(&state, &open(opening(1, Some(0), 1, 1, Some(9))), Misfit::Predecessor { expected: None }.into());
    let opened = one_open();
    let again = open(opening(2, Some(0), 1, 1, None));
    refuses(&opened, &again, Misfit::AlreadyOpen { segment: SegmentId(1) }.into());
    let reused = open(opening(1, Some(0), 1, 1, None));
    refuses(&opened, &reused, Rejected::SegmentGiven { next: SegmentId(2) });
}

#[test]
fn an_open_by_a_process_that_is_not_the_nodes_newest_is_refused() {
    let state = after(&[started(1), create("a", 1), started(5)]);
    let stale = Rejected::StaleLife { current: ProcessLife(5) };
    refuses(&state, &open(opening(1, Some(0), 1, 1, None)), stale);
    refuses(&state, &open(opening(1, Some(0), 1, 6, None)), stale);
    refuses(&state, &started(5), stale);
    refuses(&state, &started(4), stale);
    assert!(state.is_current(NODE, ProcessLife(5)) && !state.is_current(NODE, ProcessLife(1)));
}

#[test]
fn an_open_or_prepare_in_a_superseded_epoch_is_refused() {
    let mut state = one_open();
    state.apply(&begin_seal(1, 2)).unwrap();
    let stale = Rejected::StaleEpoch { current: Epoch(2) };
    let prepare =
        |epoch| Change::Prepare { range: RANGE, after: SegmentId(1), open: opening(2, None, epoch, 1, Some(1)) };
    refuses(&state, &prepare(1), stale);
    refuses(&state, &prepare(2), Rejected::Sealing);
    refuses(&state, &begin_seal(1, 2), stale);
    state.apply(&seal(sealed(1, 0, 10, 2), false, None)).unwrap();
    refuses(&state, &open(opening(2, Some(10), 1, 1, Some(1))), stale);
    state.apply(&open(opening(2, Some(10), 2, 1, Some(1)))).unwrap();
}

#[test]
fn a_seal_needs_the_round_that_was_begun() {
    let mut state = one_open();
    refuses(&state, &seal(sealed(1, 0, 10, 1), false, None), Rejected::NotSealing { segment: SegmentId(1) });
    refuses(&state, &begin_seal(2, 2), Misfit::NotOpen { segment: SegmentId(2) }.into());
    state.apply(&begin_seal(1, 2)).unwrap();
    state.apply(&begin_seal(1, 4)).unwrap();
    let stale = Rejected::StaleEpoch { current: Epoch(4) };
    refuses(&state, &seal(sealed(1, 0, 10, 2), false, None), stale);
    state.apply(&seal(sealed(1, 0, 10, 4), false, None)).unwrap();
    refuses(&state, &seal(sealed(1, 0, 11, 4), false, None), Rejected::NotSealing { segment: SegmentId(1) });
    assert_eq!(state.range(RANGE).unwrap().chain.find_sealed(SegmentId(1)).unwrap().end, Offset(10));
}

#[test]
fn a_seal_and_the_next_open_are_taken_together_or_not_at_all() {
    let mut state = one_open();
    state.apply(&begin_seal(1, 2)).unwrap();
    let misplaced = opening(2, Some(11), 2, 1, Some(1));
    let misfit = Misfit::Base { expected: Some(Offset(10)) };
    refuses(&state, &seal(sealed(1, 0, 10, 2), false, Some(misplaced)), misfit.into());
    state.apply(&seal(sealed(1, 0, 10, 2), false, Some(opening(2, Some(10), 2, 1, Some(1))))).unwrap();
    let view = state.range_view(RANGE).unwrap();
    assert_eq!((view.end, view.epoch, view.open.len(), view.sealed.len()), (Offset(10), Epoch(2), 1, 1));
}

#[test]
fn an_empty_segment_leaves_the_chain() {
    let mut state = one_open();
    state.apply(&begin_seal(1, 2)).unwrap();
    state.apply(&seal(sealed(1, 0, 0, 2), false, None)).unwrap();
    let chain = &state.range(RANGE).unwrap().chain;
    assert_eq!((chain.sealed(), chain.open(), chain.end()), ([].as_slice(), None, Offset(0)));
    state.apply(&open(opening(2, Some(0), 2, 1, None))).unwrap();
}

#[test]
fn holes_lie_in_order_inside_their_segment() {
    let mut state = one_open();
    state.apply(&begin_seal(1, 2)).unwrap();
    let hole = |from, to| Span {
        from: Offset(from),
        to: Offset(to),
        records_at_most: to - from,
        cause: GapCause::Interrupted,
    };
    let with = |holes: &[Span]| seal(SealedSegment { holes: holes.to_vec(), ..sealed(1, 0, 10, 2) }, false, None);
    refuses(&state, &with(&[hole(3, 11)]), Misfit::Hole { index: 0 }.into());
    refuses(&state, &with(&[hole(3, 5), hole(4, 6)]), Misfit::Hole { index: 1 }.into());
    refuses(&state, &with(&[Span { to: Offset(3), ..hole(3, 4) }]), Misfit::Hole { index: 0 }.into());
    state.apply(&with(&[hole(3, 5), hole(5, 6), hole(8, 10)])).unwrap();
}

fn prepared() -> State {
    let mut state = one_open();
    let open = opening(2, None, 1, 1, Some(1));
    state.apply(&Change::Prepare { range: RANGE, after: SegmentId(1), open }).unwrap();
    state
}

#[test]
fn a_roll_opens_the_prepared_successor_where_the_first_ends() {
    let mut state = prepared();
    let rolled = |successor, epoch| Change::Rolled {
        range: RANGE,
        sealed: sealed(1, 0, 10, epoch),
        successor: SegmentId(successor),
        cause: RollCause::Asked,
    };
    refuses(&state, &rolled(3, 1), Misfit::NotPrepared { segment: SegmentId(3) }.into());
    refuses(&state, &rolled(2, 2), Rejected::StaleEpoch { current: Epoch(1) });
    let second = opening(3, None, 1, 1, Some(2));
    let too_soon = Change::Prepare { range: RANGE, after: SegmentId(2), open: second };
    refuses(&state, &too_soon, Misfit::NotOpen { segment: SegmentId(2) }.into());
    state.apply(&rolled(2, 1)).unwrap();
    let chain = &state.range(RANGE).unwrap().chain;
    assert_eq!(chain.open(), Some(&opening(2, Some(10), 1, 1, Some(1))));
    assert_eq!(chain.prepared(), None);
    state.apply(&too_soon).unwrap();
}

#[test]
fn a_round_goes_on_in_the_second_segment_or_drops_it() {
    let mut state = prepared();
    state.apply(&begin_seal(1, 2)).unwrap();
    let rolled =
        Change::Rolled { range: RANGE, sealed: sealed(1, 0, 10, 2), successor: SegmentId(2), cause: RollCause::Asked };
    refuses(&state, &rolled, Rejected::Sealing);

    let mut dropped = state.clone();
    dropped.apply(&seal(sealed(1, 0, 10, 2), false, None)).unwrap();
    let range = dropped.range(RANGE).unwrap();
    assert_eq!((range.chain.open(), range.chain.prepared(), range.sealing), (None, None, None));

    state.apply(&seal(sealed(1, 0, 10, 2), true, None)).unwrap();
    let range = state.range(RANGE).unwrap();
    assert_eq!(range.sealing, Some(Sealing { segment: SegmentId(2), reason: SealReason::Restart }));
    assert_eq!(range.chain.open().unwrap().base, Some(Offset(10)));
    state.apply(&seal(sealed(2, 10, 12, 2), false, None)).unwrap();
    assert_eq!(state.range(RANGE).unwrap().chain.end(), Offset(12));
    assert_eq!(state.range(RANGE).unwrap().sealing, None);
}

#[test]
fn a_producer_is_fenced_by_the_epoch_above_its_own_and_by_no_other() {
    let mut state = after(&[started(1)]);
    let block = |first, count| Change::ProducerBlock { node: NODE, first: ProducerId(first), count };
    let raise = |producer, epoch| Change::ProducerEpoch { producer: ProducerId(producer), epoch: ProducerEpoch(epoch) };
    refuses(&state, &raise(1, 2), Rejected::UnknownProducer { producer: ProducerId(1) });
    refuses(&state, &block(2, 10), Rejected::BadBlock { next: ProducerId(1) });
    refuses(&state, &block(1, 0), Rejected::BadBlock { next: ProducerId(1) });
    state.apply(&block(1, 10)).unwrap();
    refuses(&state, &block(1, 10), Rejected::BadBlock { next: ProducerId(11) });
    refuses(&state, &raise(1, 3), Rejected::ProducerFenced { current: ProducerEpoch(1) });
    state.apply(&raise(1, 2)).unwrap();
    refuses(&state, &raise(1, 2), Rejected::ProducerFenced { current: ProducerEpoch(2) });
    refuses(&state, &raise(0, 2), Rejected::UnknownProducer { producer: ProducerId(0) });
    assert_eq!(state.producer_epoch(ProducerId(10)), Some(ProducerEpoch(1)));
    assert_eq!(state.producer_epoch(ProducerId(11)), None);
}

#[test]
fn what_is_not_known_is_refused() {
    let state = after(&[started(1), create("a", 1)]);
    let unknown =
        Change::BeginSeal { range: RangeId(9), segment: SegmentId(1), epoch: Epoch(2), reason: SealReason::Asked };
    refuses(&state, &unknown, Rejected::UnknownRange { range: RangeId(9) });
    let elsewhere = SegmentOpen { primary: NodeId(2), ..opening(1, Some(0), 1, 1, None) };
    refuses(&state, &open(elsewhere), Rejected::UnknownNode { node: NodeId(2) });
    for (replicas, quorum) in [(1, 0), (1, 2), (2, 1), (3, 1), (0, 0)] {
        let odd = SegmentOpen { replicas, quorum, ..opening(1, Some(0), 1, 1, None) };
        refuses(&state, &open(odd), Rejected::BadQuorum { replicas, quorum });
    }
}

#[test]
fn a_deleted_topic_leaves_its_name_free_and_no_id_is_given_again() {
    let mut state = after(&[started(1), create("a", 2), open(opening(1, Some(0), 1, 1, None)), create("b", 1)]);
    let delete = Change::DeleteTopic { topic: TopicId(1) };
    assert_eq!(state.apply(&delete), Ok(Applied::TopicDeleted(TopicId(1))));
    assert_eq!((state.find_topic("a"), state.topic_views().len()), (None, 1));
    assert!(
        state.range(RangeId(1)).is_none()
            && state.range_view(RangeId(2)).is_none()
            && state.range(RangeId(3)).is_some()
    );
    refuses(&state, &delete, Rejected::UnknownTopic { topic: TopicId(1) });
    let late = [begin_seal(1, 2), open(opening(2, Some(0), 1, 1, None))];
    late.iter().for_each(|change| refuses(&state, change, Rejected::UnknownRange { range: RANGE }));
    assert_eq!(state.apply(&create("a", 1)), Ok(Applied::Topic(TopicId(3))));
    assert_eq!(state.routes(TopicId(3)).unwrap()[0].range, RangeId(4));
    let next = opening(2, Some(0), 1, 1, None);
    assert_eq!(state.apply(&Change::Open { range: RangeId(4), open: next }), Ok(Applied::Range(RangeId(4))));
}

#[test]
fn a_deleted_range_is_remembered_until_its_holder_has_taken_note() {
    let mut state = after(&[started(1), create("a", 2), Change::DeleteTopic { topic: TopicId(1) }]);
    let told = |state: &State| [0, 1].map(|shard| state.deleted_of(NODE, ShardId(shard)).collect::<Vec<_>>());
    assert_eq!(told(&state), [vec![RangeId(2)], vec![RANGE]]);
    assert_eq!(state.deleted(RANGE), Some(&Deleted { topic: TopicId(1), home: NODE }));
    let gone = Change::RangeGone { range: RANGE };
    assert_eq!(state.apply(&gone), Ok(Applied::Range(RANGE)));
    assert_eq!(told(&state), [vec![RangeId(2)], vec![]]);
    refuses(&state, &gone, Rejected::UnknownRange { range: RANGE });
}

#[test]
fn holes_that_come_later_join_those_that_they_overlap() {
    let mut state = one_open();
    state.apply(&begin_seal(1, 2)).unwrap();
    let hole =
        |from, to| Span { from: Offset(from), to: Offset(to), records_at_most: to - from, cause: GapCause::Unreadable };
    let first = SealedSegment { holes: vec![hole(2, 4), hole(8, 9)], ..sealed(1, 0, 20, 2) };
    state.apply(&seal(first, false, None)).unwrap();
    let add = |holes: &[Span]| Change::Holes { range: RANGE, segment: SegmentId(1), holes: holes.to_vec() };
    let found = |state: &State| -> Vec<(u64, u64, u64)> {
        let sealed = state.range(RANGE).unwrap().chain.find_sealed(SegmentId(1)).unwrap();
        sealed.holes.iter().map(|hole| (hole.from.0, hole.to.0, hole.records_at_most)).collect()
    };
    refuses(&state, &add(&[hole(19, 21)]), Misfit::Hole { index: 0 }.into());
    let unknown = Change::Holes { range: RANGE, segment: SegmentId(7), holes: vec![] };
    refuses(&state, &unknown, Misfit::NotSealed { segment: SegmentId(7) }.into());
    state.apply(&add(&[hole(4, 6), hole(18, 20)])).unwrap();
    assert_eq!(found(&state), [(2, 4, 2), (4, 6, 2), (8, 9, 1), (18, 20, 2)], "what touches stays apart");
    state.apply(&add(&[hole(3, 9)])).unwrap();
    assert_eq!(found(&state), [(2, 9, 7), (18, 20, 2)]);
    state.apply(&add(&[hole(3, 4)])).unwrap();
    assert_eq!(found(&state), [(2, 9, 7), (18, 20, 2)], "known already");
}
