use sealog_engine::types::RangeId;

use super::*;
use crate::load::disturb::{Disturb, Done};
use crate::load::watch::Event;

const MS: u64 = 1_000_000;

/// Records each 10 us of the second from 1 s on, which take 1 ms each, those that `is_slow` says 3 ms.
fn samples(is_slow: impl Fn(u64) -> bool) -> Samples {
    let mut samples = Samples::new(100_000);
    for number in 0..100_000 {
        let intended_ns = 1_000 * MS + number * 10_000;
        samples.add(intended_ns, intended_ns + if is_slow(intended_ns) { 3 * MS } else { MS });
    }
    samples
}

#[test]
fn records_near_an_event_of_the_warm_up_are_near_but_it_does_not_count() {
    let at = |ms: u64| Span { begin_ns: ms * MS, end_ns: ms * MS };
    let event = |kind, ms| Event { kind, span: at(ms), count: 1, exact: true };
    let events = vec![
        event(EventKind::Roll, 950),
        event(EventKind::Roll, 1_500),
        event(EventKind::Checkpoint, 1_700),
        Event { count: 2, exact: false, ..event(EventKind::Roll, 1_500) },
    ];
    let mut watched = Watched::default();
    watched.events = events;
    let samples = samples(|ns| ns <= 1_050 * MS || ns.abs_diff(1_500 * MS) <= 100 * MS);
    let window = Span { begin_ns: 1_000 * MS, end_ns: 2_000 * MS };
    let found = Disturbance::new(&watched, window, &samples);
    assert_eq!((found.rolls, found.checkpoints, found.events_seen, found.dropped), (3, 1, 2, 0));
    assert_eq!(found.near.samples + found.others.samples, 100_000);
    assert!(found.near.samples.abs_diff(45_000) < 10, "50 ms, 200 ms and 200 ms of 1 s: {}", found.near.samples);
    assert!(found.ratio_p999.is_some_and(|ratio| (ratio - 3.0).abs() < 0.01), "{:?}", found.ratio_p999);
}

fn acted(what: Act, ms: Option<(u64, u64)>, error: Option<&str>) -> Acted {
    let span = ms.map(|(begin, end)| Span { begin_ns: begin * MS, end_ns: end * MS });
    let done = match what {
        Act::Roll => Done { ranges: 7, ..Done::default() },
        Act::Split => Done { ranges: 1, parents: vec![RangeId(1)], successors: vec![RangeId(2), RangeId(3)] },
        Act::Merge => Done { ranges: 2, parents: vec![RangeId(2), RangeId(3)], successors: vec![RangeId(4)] },
    };
    Acted { asked: Disturb { what, at_seconds: 0.9 }, span, done, error: error.map(str::to_owned) }
}

#[test]
fn a_stall_is_the_greatest_response_time_within_50_ms_of_an_act_from_its_begin_to_its_end() {
    let slow_at = |ms: u64| samples(move |intended_ns| intended_ns == ms * MS);
    let stall = |slow_ms| {
        let samples = slow_at(slow_ms);
        let told = Disturbed::new(acted(Act::Split, Some((1_400, 1_450)), None), 1_000 * MS, Some(&samples));
        assert_eq!((told.at_seconds, told.seconds, told.ranges, &told.error), (0.4, 0.05, 1, &None));
        assert_eq!((told.parents.join(" "), told.successors.join(" ")), ("r1".to_owned(), "r2 r3".to_owned()));
        assert!(told.near_p99_us.is_some_and(|us| (us - 1_000.0).abs() < 1.0), "{told:?}");
        told.stall_us.expect("records near it")
    };
    for (slow_ms, expected) in
        [(1_349, 1_000.0), (1_350, 3_000.0), (1_425, 3_000.0), (1_500, 3_000.0), (1_501, 1_000.0)]
    {
        let found = stall(slow_ms);
        assert!((found - expected).abs() < 2.0, "{slow_ms} ms: {found}");
    }
}

#[test]
fn an_act_that_was_not_done_has_no_stall_and_is_none_of_the_splits_and_merges() {
    let samples = samples(|_| false);
    let acts = [
        acted(Act::Merge, Some((1_100, 1_110)), Some("there is nothing to merge")),
        acted(Act::Split, None, Some("the load had ended")),
        acted(Act::Roll, Some((1_300, 1_310)), None),
    ];
    let mut watched = Watched::default();
    watched.note_acts(&acts);
    assert_eq!(watched.events, [], "a roll is seen at the node");
    let told: Vec<Disturbed> = acts.into_iter().map(|act| Disturbed::new(act, 1_000 * MS, Some(&samples))).collect();
    let seen: Vec<_> = told.iter().map(|act| (act.at_seconds, act.stall_us.is_some())).collect();
    assert_eq!(seen, [(0.1, false), (0.9, false), (0.3, true)]);
    assert_eq!(SplitsAndMerges::new(&watched, &told, &samples), None);
}

#[test]
fn records_near_any_split_or_merge_stand_against_all_others() {
    let samples = samples(|intended_ns| intended_ns.abs_diff(1_300 * MS) <= 20 * MS || intended_ns == 1_700 * MS);
    let acts = [
        acted(Act::Split, Some((1_300, 1_300)), None),
        acted(Act::Merge, Some((1_500, 1_510)), None),
        acted(Act::Split, Some((1_700, 1_700)), None),
    ];
    let mut watched = Watched::default();
    watched.note_acts(&acts);
    let told: Vec<Disturbed> = acts.into_iter().map(|act| Disturbed::new(act, 1_000 * MS, Some(&samples))).collect();
    let found = SplitsAndMerges::new(&watched, &told, &samples).expect("splits and merges");
    assert_eq!((found.splits, found.merges), (2, 1));
    assert!(found.near.samples.abs_diff(31_000) < 10, "100 ms, 110 ms and 100 ms of 1 s: {}", found.near.samples);
    assert_eq!(found.near.samples + found.others.samples, 100_000);
    let is_about = |us: Option<f64>, expected: f64| us.is_some_and(|us| (us - expected).abs() < 2.0);
    assert!(is_about(found.near.p99_us, 3_000.0) && is_about(found.others.p99_us, 1_000.0), "{found:?}");
    assert!(is_about(found.act_p99_max_us, 3_000.0), "of the first one alone");
    assert!(is_about(found.stall_median_us, 3_000.0) && is_about(found.stall_max_us, 3_000.0), "of 1, 3 and 3 ms");
    assert!(found.ratio_p99.is_some_and(|ratio| (ratio - 3.0).abs() < 0.01));
    let rolls_and_checkpoints = Disturbance::new(&watched, Span { begin_ns: 1_000 * MS, end_ns: 2_000 * MS }, &samples);
    assert_eq!(
        (rolls_and_checkpoints.near.samples, rolls_and_checkpoints.events_seen),
        (0, 0),
        "they are none of those"
    );
}
