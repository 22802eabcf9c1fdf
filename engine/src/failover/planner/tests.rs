use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::api::response::GapCause;
use crate::failover::lint::{Unsafe, lint};
use crate::format::checksum::Digest;
use crate::metadata::SealReason;
use crate::replica::message::{Fence, Rolled, SealAnswer, SegmentOpen, Span};
use crate::types::{NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId};

fn segment(id: u64, base: Option<u64>, replicas: u8, quorum: u8) -> SegmentOpen {
    SegmentOpen {
        segment: SegmentId(id),
        base: base.map(Offset),
        epoch: Epoch(2),
        seed: 0,
        predecessor: Some(SegmentId(id - 1)),
        primary: NodeId(1),
        life: ProcessLife(1),
        replicas,
        quorum,
        batch_bytes_max: 1 << 20,
        retention_ms: 0,
    }
}

fn view(replicas: u8, quorum: u8) -> RoundView {
    RoundView {
        range: RangeId(4),
        epoch: Epoch(2),
        first: segment(7, Some(100), replicas, quorum),
        second: None,
        predecessor: Some(SegmentId(6)),
        replica_set: (1..=u32::from(replicas)).map(NodeId).collect(),
        reason: SealReason::Restart,
        begun: false,
        promised: None,
        answers: BTreeMap::new(),
        damage_wait_over: false,
        goal: Goal::Rest,
    }
}

fn answer(end: u64) -> SealAnswer {
    SealAnswer {
        end: Offset(end),
        digest: Digest(u128::from(end)),
        unreadable: Vec::new(),
        mark: None,
        fences: Vec::new(),
    }
}

fn begun(replicas: u8, quorum: u8, answers: &[SealAnswer]) -> RoundView {
    let answers = (1..).map(NodeId).zip(answers.iter().cloned()).collect();
    RoundView { begun: true, epoch: Epoch(3), answers, ..view(replicas, quorum) }
}

/// Plans, checks that the plan is safe, and compares its text.
fn expect(view: &RoundView, text: &str) {
    let plan = plan(view);
    assert_eq!(lint(view, &plan), []);
    let expected: String = text.trim_start().lines().map(|line| format!("{}\n", line.trim_start())).collect();
    let found: String = plan.to_string().lines().map(|line| format!("{}\n", line.trim_start())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_round_begins_with_a_committed_epoch() {
    expect(
        &view(1, 1),
        "r4
         1 commit: begin to seal s7 in e3 (Restart)
         2 ask n1 to promise e3 for s7
         3 await 1 answers, 0 are here",
    );
}

#[test]
fn a_refused_promise_raises_the_epoch_above_what_was_promised() {
    expect(
        &RoundView { promised: Some(Epoch(9)), ..begun(3, 2, &[]) },
        "r4
         1 commit: begin to seal s7 in e10 (Restart)
         2 ask n1, n2, n3 to promise e10 for s7
         3 await 2 answers, 0 are here",
    );
}

#[test]
fn who_has_not_answered_is_asked() {
    expect(
        &begun(3, 2, &[answer(120)]),
        "r4
         1 ask n2, n3 to promise e3 for s7
         2 await 2 answers, 1 are here",
    );
}

#[test]
fn a_single_copys_answer_seals_with_its_holes() {
    let mut copy = answer(120);
    copy.unreadable.push(Span {
        from: Offset(110),
        to: Offset(120),
        records_at_most: 10,
        cause: GapCause::Interrupted,
    });
    expect(
        &begun(1, 1, &[copy]),
        "r4
         1 commit: seal s7 [@100, @120) in e3, digest 00000000000000000000000000000078, holes [@110, @120) at most 10 (Interrupted)",
    );
}

#[test]
fn the_next_segment_opens_with_the_seal_if_somebody_waits() {
    expect(
        &RoundView { goal: Goal::GoOn, ..begun(1, 1, &[answer(120)]) },
        "r4
         1 commit: seal s7 [@100, @120) in e3, digest 00000000000000000000000000000078, open the next at @120 in e3 on n1 after s7",
    );
}

#[test]
fn behind_an_empty_segment_the_next_follows_the_one_before() {
    expect(
        &RoundView { goal: Goal::GoOn, ..begun(1, 1, &[answer(100)]) },
        "r4
         1 commit: seal s7 [@100, @100) in e3, digest 00000000000000000000000000000064, open the next at @100 in e3 on n1 after s6",
    );
}

#[test]
fn the_most_advanced_intact_replica_becomes_the_primary() {
    let mut damaged = answer(130);
    let (from, to) = (Offset(105), Offset(106));
    damaged.unreadable.push(Span { from, to, records_at_most: 1, cause: GapCause::Unreadable });
    expect(
        &RoundView { goal: Goal::GoOn, ..begun(3, 2, &[damaged, answer(110), answer(120)]) },
        "r4
         1 commit: seal s7 [@100, @120) in e3, digest 00000000000000000000000000000078, open the next at @120 in e3 on n3 after s7",
    );
}

#[test]
fn a_copy_that_may_be_readable_is_awaited() {
    let mut damaged = answer(130);
    let (from, to) = (Offset(105), Offset(130));
    damaged.unreadable.push(Span { from, to, records_at_most: 25, cause: GapCause::Unreadable });
    expect(
        &begun(3, 2, &[damaged, answer(105)]),
        "r4
         1 ask n3 to promise e3 for s7
         2 await a copy that can read [@105, @130) at most 25 (Unreadable)",
    );
}

#[test]
fn copies_that_complete_each_other_are_repaired_before_the_seal() {
    let with_hole = |from: u64, to: u64| {
        let mut copy = answer(130);
        let (from, to) = (Offset(from), Offset(to));
        copy.unreadable.push(Span { from, to, records_at_most: to.since(from), cause: GapCause::Unreadable });
        copy
    };
    expect(
        &begun(3, 2, &[with_hole(100, 110), with_hole(120, 130)]),
        "r4
         1 repair s7 on n1 up to @130 from n2",
    );
}

#[test]
fn a_round_goes_on_in_the_second_segment_behind_a_mark() {
    let mark = Rolled { segment: SegmentId(7), end: Offset(120), digest: Digest(120), successor: SegmentId(8) };
    let marked = SealAnswer { mark: Some(mark), ..answer(120) };
    let second = Some(segment(8, None, 1, 1));
    expect(
        &RoundView { second, goal: Goal::GoOn, ..begun(1, 1, &[marked]) },
        "r4
         1 commit: seal s7 [@100, @120) in e3, digest 00000000000000000000000000000078, go on in s8
         2 ask n1 to promise e3 for s8
         3 await 1 answers, 0 are here",
    );
}

#[test]
fn without_a_mark_the_second_segment_is_dropped() {
    expect(
        &RoundView { second: Some(segment(8, None, 1, 1)), ..begun(1, 1, &[answer(120)]) },
        "r4
         1 commit: seal s7 [@100, @120) in e3, digest 00000000000000000000000000000078",
    );
}

#[test]
fn the_lint_finds_what_is_unsafe() {
    let view = RoundView { second: Some(segment(8, None, 3, 2)), ..begun(3, 2, &[answer(120), answer(130)]) };
    let safe = plan(&view);
    let [Step::Seal { sealed, .. }] = safe.steps.as_slice() else { panic!("{safe}") };
    let with = |change: &dyn Fn(&mut SealedSegment)| {
        let mut sealed = sealed.clone();
        change(&mut sealed);
        let steps = vec![Step::Seal { sealed, goes_on: None, open: None }];
        lint(&view, &Plan { range: view.range, steps })
    };
    assert_eq!(with(&|_| ()), []);
    assert_eq!(with(&|sealed| sealed.end = Offset(120)), [Unsafe::BelowAcknowledged { step: 1 }]);
    assert!(with(&|sealed| sealed.end = Offset(131)).contains(&Unsafe::AboveHeld { step: 1 }));
    assert_eq!(with(&|sealed| sealed.epoch = Epoch(2)), [Unsafe::NotBegun { step: 1 }]);
    let hole = Span { from: Offset(101), to: Offset(102), records_at_most: 1, cause: GapCause::Unreadable };
    assert!(with(&|sealed| sealed.holes.push(hole)).contains(&Unsafe::HoleTooLarge { step: 1 }));

    let one_answer = begun(3, 2, &[answer(120)]);
    assert_eq!(lint(&one_answer, &safe)[0], Unsafe::BelowAcknowledged { step: 1 });
    let not_begun = RoundView { begun: false, ..view.clone() };
    assert!(lint(&not_begun, &safe).contains(&Unsafe::NotBegun { step: 1 }));
    let goes_on = Some(SegmentId(8));
    let steps = vec![Step::Seal { sealed: sealed.clone(), goes_on, open: None }];
    assert_eq!(lint(&view, &Plan { range: view.range, steps }), [Unsafe::NoMark { step: 1 }]);
    let steps = vec![Step::BeginSeal { segment: SegmentId(7), epoch: Epoch(3), reason: SealReason::Lost }];
    assert_eq!(lint(&view, &Plan { range: view.range, steps }), [Unsafe::EpochNotNew { step: 1 }]);
}

fn any_answer() -> impl Strategy<Value = SealAnswer> {
    let spans = prop::collection::btree_set(100u64..116, 0..5);
    (100u64..116, spans, any::<bool>()).prop_map(|(end, bounds, marked)| {
        let bounds: Vec<u64> = bounds.into_iter().filter(|bound| *bound <= end).collect();
        let spans = bounds.chunks_exact(2).map(|pair| Span {
            from: Offset(pair[0]),
            to: Offset(pair[1]),
            records_at_most: pair[1] - pair[0],
            cause: if pair[0] % 2 == 0 { GapCause::Interrupted } else { GapCause::Unreadable },
        });
        let mark = Rolled { segment: SegmentId(7), end: Offset(end), digest: Digest(1), successor: SegmentId(8) };
        SealAnswer { unreadable: spans.collect(), mark: marked.then_some(mark), ..answer(end) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn every_plan_is_safe(
        replicas in 1u8..5,
        all: bool,
        answers in prop::collection::btree_map((1u32..5).prop_map(NodeId), any_answer(), 0..5),
        (is_begun, damage_wait_over, has_second) in any::<(bool, bool, bool)>(),
        goal in prop::sample::select(vec![Goal::Rest, Goal::GoOn, Goal::Split, Goal::Merge]),
        promised in prop::option::of((0u64..9).prop_map(Epoch)),
    ) {
        let quorum = if all { replicas } else { replicas / 2 + 1 };
        let answers = answers.into_iter().filter(|(node, _)| node.0 <= u32::from(replicas)).collect();
        let second = has_second.then(|| segment(8, None, replicas, quorum));
        let view = RoundView {
            begun: is_begun, answers, damage_wait_over, goal, second, promised, ..begun(replicas, quorum, &[])
        };
        let plan = plan(&view);
        prop_assert_eq!(lint(&view, &plan), vec![], "{}", plan);
        prop_assert!(!plan.steps.is_empty());
    }
}

fn fence(producer: u64, epoch: u32) -> Fence {
    Fence { producer: ProducerId(producer), epoch: ProducerEpoch(epoch), seen_ms: 5 }
}

#[test]
fn a_split_is_committed_with_the_end_and_with_all_that_any_copy_knows_of_producers() {
    let knows = |end, fences: &[Fence]| SealAnswer { fences: fences.to_vec(), ..answer(end) };
    let answers = [knows(120, &[fence(1, 2), fence(4, 3)]), knows(110, &[fence(4, 2)]), knows(130, &[fence(9, 2)])];
    expect(
        &RoundView { goal: Goal::Split, ..begun(3, 2, &answers) },
        "r4
         1 commit: seal s7 [@100, @120) in e3, digest 00000000000000000000000000000078, split with 3 fences, open both on n1",
    );
}

#[test]
fn a_rolled_tail_is_sealed_to_its_second_segment_before_it_splits() {
    let mark = Rolled { segment: SegmentId(7), end: Offset(120), digest: Digest(1), successor: SegmentId(8) };
    let marked = SealAnswer { mark: Some(mark), ..answer(120) };
    expect(
        &RoundView { second: Some(segment(8, None, 1, 1)), goal: Goal::Split, ..begun(1, 1, &[marked]) },
        "r4
         1 commit: seal s7 [@100, @120) in e3, digest 00000000000000000000000000000078, go on in s8
         2 ask n1 to promise e3 for s8
         3 await 1 answers, 0 are here",
    );
}

#[test]
fn ranges_merge_only_when_the_end_of_each_is_known() {
    let held = |range, fences: &[Fence]| {
        let answers = [SealAnswer { fences: fences.to_vec(), ..answer(120) }];
        let view = RoundView { range: RangeId(range), goal: Goal::Merge, ..begun(1, 1, &answers) };
        assert_eq!(lint(&view, &plan(&view)), []);
        plan(&view)
    };
    let (low, high) = (held(4, &[fence(1, 2), fence(7, 3)]), held(5, &[fence(7, 2), fence(8, 2)]));
    let waiting = plan(&RoundView { range: RangeId(5), goal: Goal::Merge, ..begun(1, 1, &[]) });
    assert_eq!((merge(&low, &waiting), merge(&waiting, &high)), (None, None));
    let Some(step @ Step::Merge { .. }) = merge(&low, &high) else { panic!("both ends are known") };
    let end = "s7 [@100, @120) in e3, digest 00000000000000000000000000000078";
    assert_eq!(step.to_string(), format!("commit: seal r4 {end} and r5 {end}, merge with 3 fences, open on n1"));
    let Step::Merge { fences, .. } = step else { unreachable!() };
    assert_eq!(fences, [fence(1, 2), fence(7, 3), fence(8, 2)], "of each producer the greatest epoch");
}
