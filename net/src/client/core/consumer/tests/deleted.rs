//! A topic that is deleted under its consumer.

use sealog_engine::api::error::Refusal;

use super::*;
use crate::client::core::Failure;
use crate::wire::refusal::Refused;

fn reading(change: impl FnOnce(&mut ConsumerSettings)) -> Pair {
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    node.append(1, &["a", "b"]);
    Pair::new(node, change)
}

fn failure(pair: &mut Pair) -> Option<Failure> {
    for _ in 0..20 {
        pair.exchange();
        pair.after_ms(200);
        while let Some(event) = pair.consumer.poll_event() {
            match event {
                Event::Failed(failure) => return Some(failure),
                Event::Ready => {}
                other => panic!("{other:?}"),
            }
        }
    }
    None
}

fn no_such_topic() -> Failure {
    Failure::Refused(Refused::from(Refusal::UnknownTopic))
}

#[test]
fn a_consumer_whose_topic_is_deleted_is_told_and_asks_no_more() {
    let mut pair = reading(|settings| settings.end = End::Never);
    assert_eq!(pair.read(4), ["a", "b"]);
    pair.node.deleted = Some(None);
    assert_eq!(failure(&mut pair), Some(no_such_topic()));
    pair.node.deleted = None;
    assert_eq!(pair.read(5), Vec::<String>::new());
    assert_eq!(failure(&mut pair), None);
}

#[test]
fn a_consumer_reads_nothing_of_another_topic_of_the_same_name() {
    let mut pair = reading(|settings| settings.end = End::Never);
    assert_eq!(pair.read(4), ["a", "b"]);
    pair.node.deleted = Some(Some(TopicId(2)));
    let replaced = Failure::Replaced { was: TopicId(1), now: TopicId(2) };
    assert_eq!(failure(&mut pair), Some(replaced));
    assert_eq!(pair.consumer.cursor().unwrap().topic(), TopicId(1));
}

#[test]
fn a_consumer_that_has_not_begun_when_its_topic_is_deleted_does_not_wait_for_ever() {
    let mut pair = reading(|_| {});
    // The routes have come, the bounds have not.
    pair.connect();
    pair.consumer.tick(pair.now);
    let requests = std::mem::take(pair.consumer.links().outbound(Links::FIRST));
    pair.node.answer(&requests, &mut pair.to_client);
    assert!(pair.give());
    pair.node.deleted = Some(None);
    assert_eq!(failure(&mut pair), Some(no_such_topic()));
}
