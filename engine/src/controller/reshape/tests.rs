use super::super::testing::World;
use super::*;
use crate::api::request::ControlRequest;
use crate::format::checksum::Digest;
use crate::replica::message::{Fence, Rolled, SealAnswer, ToController};
use crate::types::{Epoch, ProducerEpoch, ProducerId, SegmentId, ShardId};

const R1: RangeId = RangeId(1);
const R2: RangeId = RangeId(2);

fn split(range: RangeId) -> ControlRequest {
    ControlRequest::SplitRange { topic: "a".to_owned(), range }
}

fn merge_of(one: RangeId, other: RangeId) -> ControlRequest {
    ControlRequest::MergeRanges { topic: "a".to_owned(), ranges: [one, other] }
}

fn promised(range: RangeId, segment: u64, epoch: u64, end: u64) -> ToController {
    let (unreadable, mark) = (Vec::new(), None);
    let fences = vec![Fence { producer: ProducerId(1), epoch: ProducerEpoch(2), seen_ms: 0 }];
    let answer = SealAnswer { end: Offset(end), digest: Digest(u128::from(end)), unreadable, mark, fences };
    ToController::Promised { range, segment: SegmentId(segment), epoch: Epoch(epoch), answer }
}

/// A topic `a` of so many ranges on two shards, each with an open segment, whose number is the range's; and some producers.
fn opened(ranges: u32) -> World {
    let mut world = World::founded(2);
    world.create_topic("a", ranges);
    for range in 1..=u64::from(ranges) {
        world.say(ToController::NeedOpen { range: RangeId(range) });
    }
    world.ask(9, ControlRequest::OpenProducer { replaces: None });
    world.settle();
    world.look();
    world
}

#[test]
fn a_split_is_answered_when_its_children_are_committed_and_told() {
    let mut world = opened(1);
    world.ask(1, split(R1));
    world.ask(2, split(R1));
    world.expect(
        "log: begin to seal r1 s1 in e2 (Split)
         log: proof
         tell shard-1: seal r1 s1 in e2",
    );
    world.say(promised(R1, 1, 2, 10));
    world.expect(
        "log: split r1 s1 [@0, @10) in e2 p1 from 2, open s2 at @0 in e1 by life-1 and s3 at @0 in e1 by life-1
         log: proof
         tell shard-0: adopt r2 in e1 end @0 sealed [] open [] p1 from 2
         tell shard-0: open r2 s2 at @0 in e1 by life-1
         tell shard-1: adopt r3 in e1 end @0 sealed [] open [] p1 from 2
         tell shard-1: open r3 s3 at @0 in e1 by life-1
         tell shard-1: retired r1 s1 [@0, @10) in e2 for r2 r3
         reply 1: r2 0000000000000000/1 of [r1] to [], r3 8000000000000000/1 of [r1] to []
         reply 2: r2 0000000000000000/1 of [r1] to [], r3 8000000000000000/1 of [r1] to []",
    );
    // A range is split once.
    world.ask(3, split(R1));
    world.expect("reply 3: r2 0000000000000000/1 of [r1] to [], r3 8000000000000000/1 of [r1] to []");
    // What its shard still wants is answered by what is committed.
    world.say(ToController::NeedOpen { range: R1 });
    world.expect("tell shard-1: adopt r1 in e2 end @10 sealed [s1 [@0, @10)] open [] then r2 r3");
}

#[test]
fn a_range_that_rests_is_opened_before_it_is_split() {
    let mut world = World::founded(1);
    world.create_topic("a", 1);
    world.look();
    world.ask(1, split(R1));
    world.expect(
        "log: open r1 s1 at @0 in e1 by life-1
         log: proof
         tell shard-0: open r1 s1 at @0 in e1 by life-1
         log: begin to seal r1 s1 in e2 (Split)
         log: proof
         tell shard-0: seal r1 s1 in e2",
    );
}

#[test]
fn a_rolled_tail_splits_behind_its_second_segment() {
    let mut world = opened(1);
    world.say(ToController::NeedSuccessor { range: R1, segment: SegmentId(1) });
    world.settle();
    world.look();
    world.ask(1, split(R1));
    world.settle();
    world.look();
    let ToController::Promised { answer, .. } = promised(R1, 1, 2, 10) else { unreachable!() };
    let mark = Rolled { segment: SegmentId(1), end: Offset(10), digest: Digest(10), successor: SegmentId(2) };
    let answer = SealAnswer { mark: Some(mark), ..answer };
    world.say(ToController::Promised { range: R1, segment: SegmentId(1), epoch: Epoch(2), answer });
    world.expect(
        "log: seal r1 s1 [@0, @10) in e2, goes on
         log: proof
         tell shard-1: sealed r1 s1 [@0, @10) in e2
         tell shard-1: seal r1 s2 in e2",
    );
    world.say(promised(R1, 2, 2, 14));
    world.settle();
    assert!(world.look().contains("log: split r1 s2 [@10, @14) in e2"));
}

#[test]
fn a_merge_is_committed_when_both_ends_are_known() {
    let mut world = opened(2);
    world.ask(1, merge_of(R2, R1));
    world.expect(
        "log: begin to seal r1 s1 in e2 (Merge); begin to seal r2 s2 in e2 (Merge)
         log: proof
         tell shard-1: seal r1 s1 in e2
         tell shard-0: seal r2 s2 in e2",
    );
    world.say(promised(R2, 2, 2, 20));
    // Nothing is opened meanwhile, whoever asks.
    world.say(ToController::NeedOpen { range: R2 });
    world.expect("");
    world.say(promised(R1, 1, 2, 10));
    world.expect(
        "log: merge r1 s1 [@0, @10) in e2 and r2 s2 [@0, @20) in e2 p1 from 2, open s3 at @0 in e1 by life-1
         log: proof
         tell shard-1: adopt r3 in e1 end @0 sealed [] open [] p1 from 2
         tell shard-1: open r3 s3 at @0 in e1 by life-1
         tell shard-1: retired r1 s1 [@0, @10) in e2 for r3
         tell shard-0: retired r2 s2 [@0, @20) in e2 for r3
         reply 1: r3 0000000000000000/0 of [r1 r2] to []",
    );
    world.ask(2, merge_of(R1, R2));
    world.expect("reply 2: r3 0000000000000000/0 of [r1 r2] to []");
}

#[test]
fn a_merge_whose_other_end_does_not_come_in_time_is_given_up_and_both_go_on() {
    let mut world = opened(2);
    world.ask(1, merge_of(R1, R2));
    world.settle();
    world.say(promised(R1, 1, 2, 10));
    world.settle();
    world.look();
    world.now.monotonic_ns += MERGE_WAIT_NS;
    world.step(super::super::Event::Timer);
    world.expect(
        "reply 1: refused: the merge was given up: an end of the ranges could not be fixed in time; both go on as they were
         tell shard-0: seal r2 s2 in e2
         log: seal r1 s1 [@0, @10) in e2, open s3 at @10 in e2 by life-1
         log: proof
         tell shard-1: sealed r1 s1 [@0, @10) in e2
         tell shard-1: open r1 s3 at @10 in e2 by life-1",
    );
    world.say(promised(R2, 2, 2, 20));
    world.expect(
        "log: seal r2 s2 [@0, @20) in e2, open s4 at @20 in e2 by life-1
         log: proof
         tell shard-0: sealed r2 s2 [@0, @20) in e2
         tell shard-0: open r2 s4 at @20 in e2 by life-1",
    );
}

#[test]
fn what_cannot_be_split_or_merged_says_why() {
    let mut world = opened(4);
    world.ask(1, split(RangeId(9)));
    world.ask(2, ControlRequest::SplitRange { topic: "b".to_owned(), range: R1 });
    world.ask(3, merge_of(R2, RangeId(3)));
    world.ask(4, merge_of(R1, R1));
    world.ask(5, split(R1));
    world.ask(6, merge_of(R1, R2));
    world.ask(7, merge_of(RangeId(3), RangeId(4)));
    world.ask(8, split(RangeId(4)));
    world.settle();
    let lines = world.look();
    for expected in [
        "reply 1: refused: no such range here",
        "reply 2: refused: no such topic",
        "reply 3: refused: the ranges are not the lower and the upper half of one span",
        "reply 4: refused: the ranges are not the lower and the upper half of one span",
        "reply 6: refused: the range is being split or merged in another way",
        "reply 8: refused: the range is being split or merged in another way",
    ] {
        assert!(lines.lines().any(|line| line == expected), "{expected}\n{lines}");
    }
}

#[test]
fn a_split_that_had_begun_is_ended_by_the_next_life() {
    let mut world = opened(1);
    world.ask(1, split(R1));
    world.settle();
    let mut world = world.restart().unwrap();
    world.ready();
    world.look();
    world.say(promised(R1, 1, 2, 10));
    world.settle();
    let lines = world.look();
    assert!(lines.starts_with("log: split r1 s1 [@0, @10) in e2 p1 from 2, open s2"), "{lines}");
    assert!(!lines.contains("reply"), "who asked is gone");
    world.ask(2, split(R1));
    world.expect("reply 2: r2 0000000000000000/1 of [r1] to [], r3 8000000000000000/1 of [r1] to []");
}

#[test]
fn a_merge_goes_on_in_the_next_life_if_both_rounds_had_begun() {
    let mut world = opened(2);
    world.ask(1, merge_of(R1, R2));
    world.settle();
    let mut world = world.restart().unwrap();
    world.ready();
    world.look();
    world.say(promised(R1, 1, 2, 10));
    world.say(promised(R2, 2, 2, 20));
    world.settle();
    assert!(world.look().starts_with("log: merge r1 s1 [@0, @10) in e2 and r2 s2 [@0, @20) in e2"));
}

#[test]
fn a_merge_of_which_one_round_had_begun_is_given_up_by_the_next_life() {
    let mut world = World::founded(2);
    world.create_topic("a", 2);
    world.say(ToController::NeedOpen { range: R1 });
    world.settle();
    world.ask(1, merge_of(R1, R2));
    // The round of the first, and that the second is open; the round of that is not written.
    assert!(world.perform_one() && world.perform_one());
    assert!(world.look().contains("begin to seal r1 s1 in e2 (Merge); open r2 s2"));
    let mut world = world.restart().unwrap();
    world.ready();
    world.look();
    world.say(promised(R1, 1, 2, 10));
    world.settle();
    assert!(world.look().starts_with("log: seal r1 s1 [@0, @10) in e2\n"));
}

#[test]
fn children_whose_shard_is_not_ready_are_told_when_it_is() {
    let mut world = opened(1);
    world.ask(1, split(R1));
    world.settle();
    let mut world = world.restart().unwrap();
    world.say(ToController::Ready { shard: ShardId(1) });
    world.settle();
    world.say(promised(R1, 1, 2, 10));
    world.settle();
    world.look();
    world.say(ToController::Ready { shard: ShardId(0) });
    // What is open in this life is told when somebody writes, and not as what an earlier one left.
    world.expect("tell shard-0: adopt r2 in e1 end @0 sealed [] open [] p1 from 2");
    world.say(ToController::NeedOpen { range: R2 });
    world.expect("tell shard-0: open r2 s2 at @0 in e1 by life-2");
}

#[test]
fn who_waits_for_a_split_is_told_when_the_topic_is_deleted() {
    let mut world = opened(1);
    world.ask(1, split(R1));
    world.settle();
    world.look();
    world.ask(2, ControlRequest::DeleteTopic { name: "a".to_owned(), topic: None });
    world.say(promised(R1, 1, 2, 10));
    world.settle();
    let lines = world.look();
    assert!(lines.contains("reply 1: refused: no such range here"), "{lines}");
}

#[test]
fn who_waits_is_told_when_the_metadata_can_be_written_no_more() {
    let mut world = opened(1);
    world.writes_left = Some(1);
    world.ask(1, split(R1));
    world.settle();
    let lines = world.look();
    assert!(lines.contains("reply 1: refused: a write to this shard's disk has failed"), "{lines}");
}

#[test]
fn a_topics_lineage_is_told_by_id_and_in_parts() {
    let mut world = opened(1);
    world.ask(1, split(R1));
    world.settle();
    world.say(promised(R1, 1, 2, 10));
    world.settle();
    world.look();
    let list = |after| ControlRequest::Lineage { topic: "a".to_owned(), after: RangeId(after) };
    world.ask(2, list(0));
    world.ask(3, list(2));
    world.expect(
        "reply 2: r1 0000000000000000/0 of [] to [r2 r3], r2 0000000000000000/1 of [r1] to [], r3 8000000000000000/1 of [r1] to []
         reply 3: r3 8000000000000000/1 of [r1] to []",
    );
    let topic = world.controller.state().find_topic("a").unwrap();
    let (part, more) = world.controller.state().lineage(topic, RangeId(0), 2).unwrap();
    assert_eq!((part.len(), more), (2, true));
}
