use super::super::testing::World;
use crate::api::request::ControlRequest;
use crate::replica::message::ToController;
use crate::types::{RangeId, ShardId, TopicId};

const R1: RangeId = RangeId(1);
const R2: RangeId = RangeId(2);

fn delete(topic: Option<u64>) -> ControlRequest {
    ControlRequest::DeleteTopic { name: "a".to_owned(), topic: topic.map(TopicId) }
}

/// A topic `a` of two ranges on two shards.
fn created() -> World {
    let mut world = World::founded(2);
    world.create_topic("a", 2);
    world.look();
    world
}

fn stopped(world: &mut World, range: RangeId) {
    world.say(ToController::Stopped { range });
}

fn noted(world: &mut World, range: RangeId) {
    world.say(ToController::Noted { range });
}

#[test]
fn a_deletion_is_answered_when_it_is_committed_and_every_range_has_stopped() {
    let mut world = created();
    world.ask(2, delete(None));
    world.expect(
        "log: delete t1
         log: proof
         tell shard-1: deleted r1
         tell shard-0: deleted r2",
    );
    stopped(&mut world, R1);
    stopped(&mut world, R1);
    world.ask(3, delete(Some(1)));
    world.expect("");
    stopped(&mut world, R2);
    world.expect(
        "reply 2: deleted t1
         reply 3: deleted t1",
    );
}

#[test]
fn a_topic_that_is_not_there_or_not_the_one_that_is_meant_is_not_deleted() {
    let mut world = created();
    world.ask(2, delete(Some(7)));
    world.ask(3, ControlRequest::DeleteTopic { name: "b".to_owned(), topic: None });
    world.expect(
        "reply 2: refused: no such topic
         reply 3: refused: no such topic",
    );
    world.ask(4, delete(None));
    world.ask(5, delete(None));
    world.expect(
        "log: delete t1
         log: proof
         tell shard-1: deleted r1
         tell shard-0: deleted r2
         log: delete t1
         log: proof",
    );
    // Both are answered when nothing of it is served any more.
    stopped(&mut world, R1);
    stopped(&mut world, R2);
    world.expect(
        "reply 4: deleted t1
         reply 5: deleted t1",
    );
}

#[test]
fn the_name_is_free_at_once_for_another_topic() {
    let mut world = created();
    world.ask(2, delete(None));
    world.settle();
    world.look();
    world.create_topic("a", 1);
    world.expect(
        "log: create a of 1
         log: proof
         tell shard-1: adopt r3 in e1 end @0 sealed [] open []
         reply 1: t2 a of 1",
    );
    world.ask(3, ControlRequest::Routes { topic: "a".to_owned() });
    let routes = world.look();
    assert!(routes.starts_with("reply 3: a: r3 "), "{routes}");
}

#[test]
fn what_a_range_asked_for_before_it_was_deleted_comes_to_nothing() {
    let mut world = created();
    world.say(ToController::NeedOpen { range: R1 });
    world.ask(2, delete(None));
    world.settle();
    world.look();
    world.say(ToController::NeedOpen { range: R1 });
    world.say(ToController::NeedOpen { range: R2 });
    world.expect("");
    assert!(world.controller.work.is_empty());
}

#[test]
fn a_shard_is_told_again_in_every_life_until_it_has_noted_it() {
    let mut world = created();
    world.ask(2, delete(None));
    world.settle();
    noted(&mut world, R1);
    noted(&mut world, R1);
    world.settle();
    let log = world.look();
    assert!(log.contains("log: r1 is gone\n"), "{log}");
    let mut world = world.restart().unwrap();
    world.ready();
    world.expect(
        "log: n1 started as life-2 with 2
         log: proof
         tell shard-0: deleted r2",
    );
    stopped(&mut world, R2);
    noted(&mut world, R2);
    world.settle();
    let mut world = world.restart().unwrap();
    world.ready();
    world.expect(
        "log: n1 started as life-3 with 2
         log: proof",
    );
    assert!(world.controller.state().all_deleted().next().is_none());
}

#[test]
fn nobody_waits_for_a_shard_that_is_not_ready_and_serves_nothing() {
    let world = created();
    let mut world = world.restart().unwrap();
    world.say(ToController::Ready { shard: ShardId(0) });
    world.settle();
    world.look();
    world.ask(2, delete(None));
    world.settle();
    stopped(&mut world, R2);
    world.expect(
        "log: delete t1
         log: proof
         tell shard-0: deleted r2
         reply 2: deleted t1",
    );
    world.say(ToController::Ready { shard: ShardId(1) });
    world.expect("tell shard-1: deleted r1");
}

#[test]
fn a_deletion_that_cannot_be_written_is_not_said_to_be_done() {
    let mut world = created();
    world.writes_left = Some(1);
    world.ask(2, delete(None));
    world.settle();
    let lines = world.look();
    assert!(lines.ends_with("reply 2: refused: a write to this shard's disk has failed; it takes no more"), "{lines}");
}
