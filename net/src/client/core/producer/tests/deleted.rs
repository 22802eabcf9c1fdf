//! A topic that is deleted under its producer.

use sealog_engine::api::response::TopicView;
use sealog_engine::types::TopicId;

use super::*;
use crate::client::core::Failure;
use crate::client::core::producer::SendError;
use crate::wire::refusal::Refused;

/// Three records: one whose answer was lost with its connection, one that is refused, and one behind it.
fn refused() -> (Bench, u64) {
    let mut bench = Bench::ready(|_| {});
    bench.send(&["lost"]);
    assert_eq!(bench.produced().len(), 1);
    bench.cut();
    bench.after_ms(200);
    bench.connect();
    let again = bench.produced();
    bench.send(&["refused", "behind"]);
    bench.produced();
    bench.refuse(&again[0], Refusal::UnknownRange);
    bench.after_ms(100);
    let asked = bench.requests();
    let [(correlation, Inbound::Request(Request::Control(ControlRequest::Routes { .. })))] = &asked[..] else {
        panic!("routes are asked for: {asked:?}")
    };
    (bench, *correlation)
}

/// What was told, and why it cannot go on.
fn told(bench: &mut Bench) -> (Vec<(u64, Outcome)>, Option<Failure>) {
    let mut done = vec![];
    while let Some(event) = bench.producer.poll_event() {
        match event {
            Event::Done { first, count, outcome, .. } => {
                done.extend((first..first + u64::from(count)).map(|token| (token, outcome)));
            }
            Event::Failed(failure) => return (done, Some(failure)),
            Event::Ready { .. } => panic!("it is not ready again"),
        }
    }
    (done, None)
}

#[test]
fn when_the_topic_is_gone_every_record_is_told_at_once_and_what_may_be_stored_is_unknown() {
    let (mut bench, routes) = refused();
    bench.answer(routes, &Response::Refused(Refusal::UnknownTopic));
    let (done, failure) = told(&mut bench);
    assert_eq!(failure, Some(Failure::Refused(Refused::from(Refusal::UnknownTopic))));
    // The answers to the other two may still be on their way.
    assert_eq!(done, [(0, Outcome::Unknown), (1, Outcome::Unknown), (2, Outcome::Unknown)]);
    assert_eq!(bench.producer.in_flight(), 0);
    let record = Record { key: Some(b"key"), value: Some(b"more"), ..Record::default() };
    assert_eq!(bench.producer.send(bench.now, &record), Err(SendError::NotReady));
    bench.after_ms(5_000);
    assert_eq!((bench.requests().len(), told(&mut bench)), (0, (vec![], None)));
}

#[test]
fn what_was_never_sent_is_known_not_to_be_stored() {
    let mut bench = Bench::ready(|settings| settings.linger_us = 50_000);
    bench.send(&["first"]);
    let first = bench.produced();
    bench.refuse(&first[0], Refusal::UnknownRange);
    bench.send(&["second"]);
    bench.after_ms(100);
    let (routes, _) = bench.requests().remove(0);
    bench.answer(routes, &Response::Refused(Refusal::UnknownTopic));
    let (done, failure) = told(&mut bench);
    assert!(failure.is_some());
    assert_eq!(done, [(0, Outcome::NotStored), (1, Outcome::NotStored)]);
}

#[test]
fn nothing_is_written_to_another_topic_of_the_same_name() {
    let (mut bench, routes) = refused();
    let topic = TopicView { topic: TopicId(9), ..node::topic() };
    bench.answer(routes, &Response::Routes { topic, routes: vec![node::route(8, KeySpan::ALL)] });
    let (done, failure) = told(&mut bench);
    assert_eq!(failure, Some(Failure::Replaced { was: TopicId(1), now: TopicId(9) }));
    assert_eq!((done.len(), bench.requests().len()), (3, 0));
    assert_eq!(bench.producer.topic(), Some(TopicId(1)));
    bench.after_ms(5_000);
    assert_eq!(bench.requests().len(), 0);
}
