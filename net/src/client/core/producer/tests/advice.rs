//! What the producer does with each advice, step by step.

use sealog_engine::api::error::{Outcome, Refusal};
use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};
use sealog_engine::api::response::{ProducerSettled, Response};
use sealog_engine::types::{Epoch, KeyHash, KeySpan, ProducerEpoch, ProducerId, RangeId, Run, Sequence};

use super::node::{route, topic};
use super::{Bench, Seen};
use crate::client::core::Client;
use crate::client::core::producer::{Record, SendError};
use crate::session::Inbound;

fn sequences(seen: &[Seen]) -> Vec<(u32, u64)> {
    seen.iter().map(|s| (s.stamp.run.0, s.stamp.sequence.0)).collect()
}

fn halves() -> (KeySpan, KeySpan) {
    let (low, high) = KeySpan::ALL.halves().unwrap();
    if low.contains(KeyHash::of(b"key")) { (low, high) } else { (high, low) }
}

#[test]
fn records_of_one_turn_share_a_batch_and_later_ones_follow_in_sequence() {
    let mut bench = Bench::ready(|s| s.one_record_a_batch = false);
    bench.send(&["a", "b"]);
    bench.send(&["c"]);
    let seen = bench.produced();
    assert_eq!(sequences(&seen), [(0, 0), (0, 1)]);
    assert_eq!(seen[0].values, [b"a", b"b"]);
    bench.store(&seen[0]);
    bench.store(&seen[1]);
    assert_eq!(bench.done(), [(0, Outcome::Stored), (1, Outcome::Stored), (2, Outcome::Stored)]);
    assert_eq!(bench.producer.in_flight(), 0);
}

#[test]
fn a_lingering_batch_waits_its_time() {
    let mut bench = Bench::ready(|s| (s.one_record_a_batch, s.linger_us) = (false, 2_000));
    bench.send(&["a"]);
    assert_eq!(bench.produced(), []);
    bench.after_ms(1);
    bench.send(&["b"]);
    assert_eq!(bench.produced(), []);
    bench.after_ms(1);
    assert_eq!(bench.produced()[0].values, [b"a", b"b"]);
}

#[test]
fn what_is_sent_again_after_a_cut_is_the_same_to_the_byte_and_in_order() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b", "c"]);
    let before = bench.produced();
    bench.cut();
    bench.after_ms(50);
    bench.connect();
    let again = bench.produced();
    assert_eq!(sequences(&again), [(0, 0), (0, 1), (0, 2)]);
    for (a, b) in before.iter().zip(&again) {
        assert_eq!(a.batch, b.batch);
        assert_ne!(a.correlation, b.correlation);
    }
}

#[test]
fn after_a_delay_everything_from_the_refused_batch_on_is_sent_again() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b", "c"]);
    let seen = bench.produced();
    bench.refuse(&seen[1], Refusal::Overloaded { delay_ms: 40 });
    bench.refuse(&seen[2], Refusal::OutOfOrder { expected: Sequence(1) });
    bench.store(&seen[0]);
    bench.send(&["d"]);
    bench.after_ms(20);
    assert_eq!(bench.produced(), []);
    bench.after_ms(40);
    assert_eq!(sequences(&bench.produced()), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(bench.done(), [(0, Outcome::Stored)]);
}

#[test]
fn a_range_that_is_refused_again_and_again_is_tried_ever_later_and_with_one_batch_until_one_is_stored() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b", "c"]);
    let mut seen = bench.produced();
    let mut waits = vec![];
    for tried in [3, 3, 3, 1, 1] {
        assert_eq!(seen.len(), tried);
        for batch in &seen {
            bench.refuse(batch, Refusal::Opening { delay_ms: 2 });
        }
        let mut waited_ms = 0;
        seen = vec![];
        while seen.is_empty() {
            bench.after_ms(1);
            waited_ms += 1;
            seen = bench.produced();
        }
        waits.push(waited_ms);
    }
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]) && waits[4] <= 40, "{waits:?}");
    assert_eq!(sequences(&seen), [(0, 0)]);
    bench.store(&seen[0]);
    assert_eq!(sequences(&bench.produced()), [(0, 1), (0, 2)]);
}

#[test]
fn unknown_producer_behind_an_unsettled_batch_is_only_out_of_order() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b"]);
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::Opening { delay_ms: 10 });
    bench.refuse(&seen[1], Refusal::UnknownProducer);
    bench.after_ms(20);
    assert_eq!(sequences(&bench.produced()), [(0, 0), (0, 1)]);
    assert_eq!(bench.done(), []);
}

#[test]
fn a_forgotten_producer_begins_its_next_run_with_what_is_not_stored() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a"]);
    let first = bench.produced();
    bench.store(&first[0]);
    bench.send(&["b", "c"]);
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::UnknownProducer);
    assert_eq!(bench.produced(), [], "the answer to c is awaited");
    bench.refuse(&seen[1], Refusal::UnknownProducer);
    let again = bench.produced();
    assert_eq!(sequences(&again), [(1, 0), (1, 1)]);
    assert_eq!(again[0].values, [b"b"]);
    assert_eq!(bench.done(), [(0, Outcome::Stored)]);
}

#[test]
fn a_stale_epoch_is_mended_from_the_refusal_alone() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a"]);
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::StaleEpoch { current: Epoch(4) });
    let requests = bench.requests();
    let [(_, Inbound::Request(Request::Shard(ShardRequest::Produce { epoch, .. })))] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(*epoch, Epoch(4));
}

#[test]
fn a_lost_primary_is_looked_for_and_found() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b"]);
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::NotPrimary { route: None });
    bench.refuse(&seen[1], Refusal::NotPrimary { route: None });
    let requests = bench.requests();
    let [(correlation, Inbound::Request(Request::Control(ControlRequest::Routes { .. })))] = &requests[..] else {
        panic!("{requests:?}")
    };
    let routes = vec![sealog_engine::api::response::Route { epoch: Epoch(2), ..route(1, KeySpan::ALL) }];
    bench.answer(*correlation, &Response::Routes { topic: topic(), routes });
    bench.after_ms(20);
    assert_eq!(sequences(&bench.produced()), [(0, 0), (0, 1)]);
}

#[test]
fn a_refusal_for_ever_ends_its_record_and_the_rest_goes_on_in_the_next_run() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b", "c"]);
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::BatchTooLarge { most: 1 });
    assert_eq!(bench.done(), [(0, Outcome::NotStored)]);
    bench.refuse(&seen[1], Refusal::UnknownProducer);
    assert_eq!(bench.produced(), []);
    bench.refuse(&seen[2], Refusal::UnknownProducer);
    assert_eq!(sequences(&bench.produced()), [(1, 0), (1, 1)]);
}

#[test]
fn a_refusal_of_unknown_outcome_ends_its_record_as_unknown() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a"]);
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::WriteFailed);
    assert_eq!(bench.done(), [(0, Outcome::Unknown)]);
    bench.send(&["b"]);
    assert_eq!(sequences(&bench.produced()), [(1, 0)]);
}

#[test]
fn a_sent_record_is_unknown_at_its_deadline_and_an_unsent_one_not_stored() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a"]);
    bench.after_ms(500);
    bench.send(&["b"]);
    let seen = bench.produced();
    bench.after_ms(500);
    assert_eq!(bench.done(), [(0, Outcome::Unknown)]);
    bench.send(&["c"]);
    assert_eq!(bench.produced(), [], "b may be stored in the old run, so c waits");
    bench.store(&seen[1]);
    assert_eq!(bench.done(), [(1, Outcome::Stored)]);
    assert_eq!(sequences(&bench.produced()), [(1, 0)]);
    bench.cut();
    bench.send(&["d"]);
    bench.after_ms(2_000);
    assert_eq!(bench.done(), [(2, Outcome::Unknown), (3, Outcome::NotStored)]);
}

#[test]
fn a_record_that_was_refused_until_its_deadline_is_not_stored() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a"]);
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::Overloaded { delay_ms: 5_000 });
    bench.after_ms(1_000);
    assert_eq!(bench.done(), [(0, Outcome::NotStored)]);
}

#[test]
fn a_seal_settles_everything_and_the_rest_begins_at_0_in_the_child() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b", "c"]);
    let seen = bench.produced();
    let (with_key, other) = halves();
    let last = Some((ProducerEpoch(3), Run(0), Sequence(0)));
    bench.refuse(&seen[1], Refusal::Sealed { successors: vec![route(2, with_key), route(3, other)], last });
    assert_eq!(bench.done(), [(0, Outcome::Stored)]);
    let again = bench.produced();
    assert_eq!(sequences(&again), [(0, 0), (0, 1)]);
    assert!(again.iter().all(|s| s.range == RangeId(2)));
    assert_eq!((&again[0].values[0][..], &again[1].values[0][..]), (&b"b"[..], &b"c"[..]));
    bench.refuse(&seen[2], Refusal::Sealed { successors: vec![], last });
    assert_eq!(bench.produced(), []);
}

#[test]
fn what_a_later_instance_has_written_to_a_sealed_range_says_nothing_of_answers_that_were_lost_before() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a"]);
    bench.produced();
    bench.cut();
    bench.after_ms(50);
    bench.connect();
    bench.send(&["b"]);
    let seen = bench.produced();
    let (with_key, other) = halves();
    let last = Some((ProducerEpoch(4), Run(0), Sequence(7)));
    for batch in seen.iter().rev() {
        bench.refuse(batch, Refusal::Sealed { successors: vec![route(2, with_key), route(3, other)], last });
    }
    let done = bench.done();
    assert_eq!(done[0], (0, Outcome::Unknown), "it may have been stored before the other came");
    assert!(done[1..].iter().all(|(_, outcome)| *outcome == Outcome::Unknown));
}

#[test]
fn answers_lost_to_a_range_that_is_gone_are_settled_and_later_records_wait() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a", "b"]);
    bench.produced();
    bench.cut();
    bench.after_ms(50);
    bench.connect();
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::UnknownRange);
    let [(routes_asked, _)] = bench.requests()[..] else { panic!("routes are asked for") };
    let (with_key, other) = halves();
    let routes = vec![route(2, with_key), route(3, other)];
    bench.answer(routes_asked, &Response::Routes { topic: topic(), routes });
    bench.refuse(&seen[1], Refusal::UnknownRange);
    let requests = bench.requests();
    let [(settle, Inbound::Request(Request::Shard(ShardRequest::Settle { range: RangeId(1), .. })))] = requests[..]
    else {
        panic!("{requests:?}")
    };
    bench.send(&["c"]);
    assert_eq!(bench.produced(), []);
    let last = Some((ProducerEpoch(3), Run(0), Sequence(0)));
    let settled = ProducerSettled { producer: ProducerId(7), last, doubtful: false };
    bench.answer(settle, &Response::Settled(settled));
    assert_eq!(bench.done(), [(0, Outcome::Stored)]);
    let again = bench.produced();
    assert_eq!(sequences(&again), [(0, 0), (0, 1)]);
    assert_eq!((&again[0].values[0][..], &again[1].values[0][..]), (&b"b"[..], &b"c"[..]));
}

#[test]
fn what_cannot_be_settled_is_unknown_and_the_rest_goes_on() {
    let mut bench = Bench::ready(|_| ());
    bench.send(&["a"]);
    bench.produced();
    bench.cut();
    bench.after_ms(50);
    bench.connect();
    let seen = bench.produced();
    bench.refuse(&seen[0], Refusal::UnknownRange);
    let [(routes_asked, _)] = bench.requests()[..] else { panic!("routes are asked for") };
    let (with_key, other) = halves();
    bench.answer(routes_asked, &Response::Routes { topic: topic(), routes: vec![route(2, with_key), route(3, other)] });
    let [(settle, _)] = bench.requests()[..] else { panic!("it is settled") };
    bench.answer(settle, &Response::Refused(Refusal::UnknownTopic));
    assert_eq!(bench.done(), [(0, Outcome::Unknown)]);
    bench.send(&["b"]);
    assert_eq!(sequences(&bench.produced()), [(0, 0)]);
}

#[test]
fn no_more_is_taken_than_may_be_under_way() {
    let mut bench = Bench::ready(|s| s.records_in_flight = 2);
    bench.send(&["a", "b"]);
    let record = Record { key: Some(b"key"), value: Some(b"c"), ..Record::default() };
    assert_eq!(bench.producer.send(bench.now, &record), Err(SendError::Full));
    let seen = bench.produced();
    bench.store(&seen[0]);
    assert_eq!(bench.producer.send(bench.now, &record), Ok(2));
}

#[test]
fn a_record_that_fits_no_batch_is_not_taken() {
    let mut bench = Bench::ready(|_| ());
    let value = vec![0; 1 << 20];
    let record = Record { key: Some(b"key"), value: Some(&value), ..Record::default() };
    assert!(matches!(bench.producer.send(bench.now, &record), Err(SendError::TooLarge { most: 1_048_576, .. })));
    assert_eq!(bench.producer.in_flight(), 0);
    bench.send(&["a"]);
    assert_eq!(sequences(&bench.produced()), [(0, 0)]);
}

#[test]
fn without_routes_or_identity_nothing_is_taken() {
    let mut bench = Bench::new(|_| ());
    let record = Record { key: Some(b"key"), value: Some(b"c"), ..Record::default() };
    assert_eq!(bench.producer.send(bench.now, &record), Err(SendError::NotReady));
    bench.connect();
    assert_eq!(bench.requests().len(), 2);
    bench.cut();
    bench.after_ms(50);
    bench.connect();
    assert_eq!(bench.requests().len(), 2, "both are asked again");
}

#[test]
fn a_keyless_record_keeps_its_hash_when_it_is_sent_again() {
    let mut bench = Bench::ready(|_| ());
    bench.producer.send(bench.now, &Record { value: Some(b"v"), ..Record::default() }).unwrap();
    bench.producer.turn(bench.now);
    let first = bench.produced();
    bench.cut();
    bench.after_ms(50);
    bench.connect();
    assert_eq!(bench.produced()[0].batch, first[0].batch);
    assert!(bench.producer.next_ns().is_some());
}
