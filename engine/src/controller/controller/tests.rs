use super::super::testing::World;
use crate::api::request::ControlRequest;
use crate::api::response::GapCause;
use crate::controller::Event;
use crate::format::checksum::Digest;
use crate::replica::message::{RollCause, Rolled, SealAnswer, Span, ToController};
use crate::types::time::SECOND_NS;
use crate::types::{Epoch, Generator, Offset, ProducerEpoch, ProducerId, RangeId, SegmentId, ShardId};

const R1: RangeId = RangeId(1);

fn need_open() -> ToController {
    ToController::NeedOpen { range: R1 }
}

fn promised(segment: u64, epoch: u64, answer: SealAnswer) -> ToController {
    ToController::Promised { range: R1, segment: SegmentId(segment), epoch: Epoch(epoch), answer }
}

fn holds(end: u64) -> SealAnswer {
    SealAnswer {
        end: Offset(end),
        digest: Digest(u128::from(end)),
        unreadable: Vec::new(),
        mark: None,
        fences: Vec::new(),
    }
}

fn mark(segment: u64, end: u64, successor: u64) -> Rolled {
    let (segment, successor) = (SegmentId(segment), SegmentId(successor));
    Rolled { segment, end: Offset(end), digest: Digest(u128::from(end)), successor }
}

fn filling(segment: u64) -> ToController {
    ToController::NeedSuccessor { range: R1, segment: SegmentId(segment) }
}

fn rolled(mark: Rolled) -> ToController {
    ToController::Rolled { range: R1, mark, cause: RollCause::Full }
}

/// A topic of one range whose first segment is open, on one shard.
fn opened() -> World {
    let mut world = World::founded(1);
    world.create_topic("a", 1);
    world.say(need_open());
    world.settle();
    world.look();
    world
}

/// The same after a restart; the shard is ready, and the background has begun to seal.
fn restarted(world: World) -> World {
    let mut world = world.restart().unwrap();
    world.ready();
    world
}

#[test]
fn a_life_is_committed_before_anything_is_told_in_it() {
    let mut world = World::founded(2);
    world.expect("log: n1 started as life-1 with 2\n log: proof");
    world.create_topic("a", 1);
    let mut world = world.restart().unwrap();
    world.say(ToController::Ready { shard: ShardId(1) });
    world.say(ToController::Ready { shard: ShardId(0) });
    world.expect(
        "log: n1 started as life-2 with 2
         log: proof
         tell shard-1: adopt r1 in e1 end @0 sealed [] open []",
    );
}

#[test]
fn a_topic_is_told_to_its_shards_and_then_to_its_client() {
    let mut world = World::founded(2);
    world.look();
    world.create_topic("a", 4);
    world.expect(
        "log: create a of 4
         log: proof
         tell shard-1: adopt r1 in e1 end @0 sealed [] open []
         tell shard-0: adopt r2 in e1 end @0 sealed [] open []
         tell shard-1: adopt r3 in e1 end @0 sealed [] open []
         tell shard-0: adopt r4 in e1 end @0 sealed [] open []
         reply 1: t1 a of 4",
    );
    world.ask(2, ControlRequest::Routes { topic: "a".to_owned() });
    world.ask(3, ControlRequest::Routes { topic: "b".to_owned() });
    world.ask(4, ControlRequest::ListTopics);
    world.expect(
        "reply 2: a: r1 0000000000000000/2 n1 shard-1, r2 4000000000000000/2 n1 shard-0, r3 8000000000000000/2 n1 shard-1, r4 c000000000000000/2 n1 shard-0
         reply 3: refused: no such topic
         reply 4: a",
    );
}

#[test]
fn a_topic_that_cannot_be_is_refused() {
    let mut world = World::founded(1);
    world.look();
    let create = |name: &str, ranges| ControlRequest::CreateTopic { name: name.to_owned(), ranges, auto_split: None };
    world.ask(1, create("a/b", 1));
    world.ask(2, create("a", 3));
    // Both of one name are under way before either is committed.
    world.ask(3, create("a", 1));
    world.ask(4, create("a", 2));
    world.settle();
    world.ask(5, create("a", 1));
    world.expect(
        "reply 1: refused: the topic name is not allowed: 1 to 249 of letters, digits, '.', '_' and '-'
         reply 2: refused: ranges must be a power of two, at most 4096
         log: create a of 1
         log: proof
         tell shard-0: adopt r1 in e1 end @0 sealed [] open []
         reply 3: t1 a of 1
         log: create a of 2
         log: proof
         reply 4: refused: a topic of this name exists
         reply 5: refused: a topic of this name exists",
    );
}

#[test]
fn a_request_that_comes_after_its_deadline_is_not_done() {
    let mut world = World::founded(1);
    world.look();
    let request = ControlRequest::CreateTopic { name: "a".to_owned(), ranges: 1, auto_split: None };
    world.step(Event::Request { to: super::super::testing::client(1), deadline_ns: 1, request });
    world.expect("reply 1: refused: the deadline has passed");
}

#[test]
fn the_first_segment_opens_at_the_first_produce() {
    let mut world = World::founded(1);
    world.create_topic("a", 1);
    world.look();
    world.say(need_open());
    world.say(need_open());
    world.expect(
        "log: open r1 s1 at @0 in e1 by life-1
         log: proof
         tell shard-0: open r1 s1 at @0 in e1 by life-1",
    );
    world.say(need_open());
    world.expect("tell shard-0: open r1 s1 at @0 in e1 by life-1");
}

#[test]
fn many_changes_travel_in_one_group() {
    let mut world = World::founded(1);
    world.create_topic("a", 4);
    world.look();
    for range in 1..=4 {
        world.say(ToController::NeedOpen { range: RangeId(range) });
    }
    world.expect(
        "log: open r1 s1 at @0 in e1 by life-1
         log: proof
         tell shard-0: open r1 s1 at @0 in e1 by life-1
         log: open r2 s2 at @0 in e1 by life-1; open r3 s3 at @0 in e1 by life-1; open r4 s4 at @0 in e1 by life-1
         log: proof
         tell shard-0: open r2 s2 at @0 in e1 by life-1
         tell shard-0: open r3 s3 at @0 in e1 by life-1
         tell shard-0: open r4 s4 at @0 in e1 by life-1",
    );
}

#[test]
fn a_roll_goes_on_in_the_prepared_successor_and_only_then_is_the_next_prepared() {
    let mut world = opened();
    world.say(filling(1));
    world.say(filling(1));
    world.expect(
        "log: prepare r1 s2 at later in e1 by life-1 after s1
         log: proof
         tell shard-0: prepared r1 s2 at later in e1 by life-1 after s1",
    );
    world.say(filling(1));
    world.expect("tell shard-0: prepared r1 s2 at later in e1 by life-1 after s1");
    // The successor fills before the roll is reported.
    world.say(filling(2));
    world.expect("");
    world.say(rolled(mark(1, 10, 2)));
    world.say(rolled(mark(1, 10, 2)));
    world.expect(
        "log: roll r1 s1 [@0, @10) into s2
         log: proof
         tell shard-0: sealed r1 s1 [@0, @10) in e1
         log: prepare r1 s3 at later in e1 by life-1 after s2
         log: proof
         tell shard-0: prepared r1 s3 at later in e1 by life-1 after s2",
    );
    // Late.
    world.say(rolled(mark(1, 10, 2)));
    world.say(filling(1));
    world.expect("tell shard-0: sealed r1 s1 [@0, @10) in e1");
}

#[test]
fn a_restart_seals_in_the_background_and_opens_nothing() {
    let mut world = restarted(opened());
    world.expect(
        "log: n1 started as life-2 with 1
         log: proof
         tell shard-0: adopt r1 in e1 end @0 sealed [] open [s1 at @0 in e1 by life-1]
         log: begin to seal r1 s1 in e2 (Restart)
         log: proof
         tell shard-0: seal r1 s1 in e2",
    );
    let (from, to, cause) = (Offset(8), Offset(10), GapCause::Interrupted);
    let unreadable = vec![Span { from, to, records_at_most: 2, cause }];
    world.say(promised(1, 2, SealAnswer { unreadable, ..holds(10) }));
    world.expect(
        "log: seal r1 s1 [@0, @10) hole [@8, @10) in e2
         log: proof
         tell shard-0: sealed r1 s1 [@0, @10) in e2",
    );
    world.say(need_open());
    world.expect(
        "log: open r1 s2 at @10 in e2 by life-2
         log: proof
         tell shard-0: open r1 s2 at @10 in e2 by life-2",
    );
}

#[test]
fn a_produce_that_waits_for_the_seal_gets_the_next_segment_with_it() {
    let mut world = restarted(opened());
    world.look();
    world.say(need_open());
    world.say(promised(1, 2, holds(10)));
    world.expect(
        "log: seal r1 s1 [@0, @10) in e2, open s2 at @10 in e2 by life-2
         log: proof
         tell shard-0: sealed r1 s1 [@0, @10) in e2
         tell shard-0: open r1 s2 at @10 in e2 by life-2",
    );
}

#[test]
fn an_empty_segment_is_sealed_and_leaves_no_trace() {
    let mut world = restarted(opened());
    world.say(promised(1, 2, holds(0)));
    world.settle();
    world.look();
    let mut world = restarted(world);
    world.expect(
        "log: n1 started as life-3 with 1
         log: proof
         tell shard-0: adopt r1 in e2 end @0 sealed [] open []",
    );
}

#[test]
fn a_refused_promise_is_asked_for_again_above_what_was_promised() {
    let mut world = restarted(opened());
    world.look();
    let refused =
        |promised| ToController::PromiseRefused { range: R1, segment: SegmentId(1), promised: Epoch(promised) };
    world.say(refused(2));
    world.expect("");
    world.say(refused(7));
    world.say(refused(7));
    world.expect(
        "log: begin to seal r1 s1 in e8 (Restart)
         log: proof
         tell shard-0: seal r1 s1 in e8",
    );
    // An answer to the earlier epoch is late.
    world.say(promised(1, 2, holds(10)));
    world.say(refused(7));
    world.expect("");
    world.say(promised(1, 8, holds(10)));
    world.expect(
        "log: seal r1 s1 [@0, @10) in e8
         log: proof
         tell shard-0: sealed r1 s1 [@0, @10) in e8",
    );
}

#[test]
fn a_restart_in_the_middle_of_a_roll_goes_on_behind_the_mark() {
    let mut world = opened();
    world.say(filling(1));
    world.settle();
    let mut world = restarted(world);
    world.look();
    world.say(promised(1, 2, SealAnswer { mark: Some(mark(1, 10, 2)), ..holds(10) }));
    world.expect(
        "log: seal r1 s1 [@0, @10) in e2, goes on
         log: proof
         tell shard-0: sealed r1 s1 [@0, @10) in e2
         tell shard-0: seal r1 s2 in e2",
    );
    world.say(need_open());
    world.say(promised(2, 2, holds(13)));
    world.expect(
        "log: seal r1 s2 [@10, @13) in e2, open s3 at @13 in e2 by life-2
         log: proof
         tell shard-0: sealed r1 s2 [@10, @13) in e2
         tell shard-0: open r1 s3 at @13 in e2 by life-2",
    );
}

#[test]
fn a_successor_that_no_mark_reaches_is_dropped() {
    let mut world = opened();
    world.say(filling(1));
    world.settle();
    let mut world = restarted(world);
    world.look();
    world.say(promised(1, 2, holds(10)));
    world.say(need_open());
    world.expect(
        "log: seal r1 s1 [@0, @10) in e2
         log: proof
         tell shard-0: sealed r1 s1 [@0, @10) in e2
         log: open r1 s3 at @10 in e2 by life-2
         log: proof
         tell shard-0: open r1 s3 at @10 in e2 by life-2",
    );
}

#[test]
fn a_living_primary_may_ask_for_its_own_seal() {
    let mut world = opened();
    world.say(ToController::NeedSeal { range: R1, segment: SegmentId(1), urgent: false });
    world.expect(
        "log: begin to seal r1 s1 in e2 (Asked)
         log: proof
         tell shard-0: seal r1 s1 in e2",
    );
    // Its roll comes too late: the mark is in its answer.
    world.say(rolled(mark(1, 10, 2)));
    world.say(promised(1, 2, holds(10)));
    world.settle();
    world.look();
    world.say(ToController::NeedSeal { range: R1, segment: SegmentId(1), urgent: true });
    world.say(ToController::NeedSeal { range: R1, segment: SegmentId(9), urgent: true });
    world.expect(
        "tell shard-0: sealed r1 s1 [@0, @10) in e2
         tell shard-0: adopt r1 in e2 end @10 sealed [s1 [@0, @10)] open []",
    );
}

#[test]
fn late_messages_change_nothing() {
    let mut world = opened();
    world.say(promised(1, 1, holds(10)));
    world.say(promised(1, 2, holds(10)));
    world.say(rolled(mark(1, 10, 2)));
    world.say(rolled(mark(5, 10, 6)));
    world.say(filling(9));
    world.say(ToController::NeedOpen { range: RangeId(77) });
    world.say(filling(0));
    world.expect("");
    world.say(ToController::Ready { shard: ShardId(0) });
    world.say(ToController::Ready { shard: ShardId(9) });
    world.expect("tell shard-0: adopt r1 in e1 end @0 sealed [] open []");
}

#[test]
fn a_replica_that_does_not_answer_is_asked_again() {
    let mut world = restarted(opened());
    world.look();
    assert_eq!(world.controller.next_deadline(), Some(1 + SECOND_NS));
    world.now.monotonic_ns += SECOND_NS;
    world.step(Event::Timer);
    world.expect("tell shard-0: seal r1 s1 in e2");
    assert_eq!(world.controller.next_deadline(), Some(1 + 2 * SECOND_NS));
}

#[test]
fn a_round_of_an_earlier_life_goes_on_in_its_epoch() {
    let mut world = restarted(restarted(opened()));
    world.expect(
        "log: n1 started as life-3 with 1
         log: proof
         tell shard-0: adopt r1 in e2 end @0 sealed [] open [s1 at @0 in e1 by life-1]
         tell shard-0: seal r1 s1 in e2",
    );
    world.say(promised(1, 2, holds(3)));
    world.expect(
        "log: seal r1 s1 [@0, @3) in e2
         log: proof
         tell shard-0: sealed r1 s1 [@0, @3) in e2",
    );
}

/// The proof alone is missing: nobody was told, but what is found whole counts.
#[test]
fn a_change_that_is_found_at_the_next_start_counts_whether_or_not_it_was_told() {
    let mut world = World::founded(1);
    world.create_topic("a", 1);
    world.say(need_open());
    assert!(world.perform_one());
    assert!(!world.look().contains("tell shard-0: open"));
    let mut world = restarted(world);
    world.expect(
        "log: n1 started as life-2 with 1
         log: proof
         tell shard-0: adopt r1 in e1 end @0 sealed [] open [s1 at @0 in e1 by life-1]
         log: begin to seal r1 s1 in e2 (Restart)
         log: proof
         tell shard-0: seal r1 s1 in e2",
    );
    // Committed with the next open, and the process ends before either is told.
    world.say(need_open());
    world.say(promised(1, 2, holds(4)));
    assert!(world.perform_one() && world.perform_one());
    let mut world = restarted(world);
    world.expect(
        "log: n1 started as life-3 with 1
         log: proof
         tell shard-0: adopt r1 in e2 end @4 sealed [s1 [@0, @4)] open [s2 at @4 in e2 by life-2]
         log: begin to seal r1 s2 in e3 (Restart)
         log: proof
         tell shard-0: seal r1 s2 in e3",
    );
    // It never held anything: it is gone, and its id is not given again.
    world.say(need_open());
    world.say(promised(2, 3, holds(4)));
    world.expect(
        "log: seal r1 s2 [@4, @4) in e3, open s3 at @4 in e3 by life-3
         log: proof
         tell shard-0: sealed r1 s2 [@4, @4) in e3
         tell shard-0: open r1 s3 at @4 in e3 by life-3",
    );
}

#[test]
fn background_seals_are_paced_and_urgent_ones_are_not() {
    let mut world = World::founded(1);
    world.create_topic("a", 256);
    for range in 1..=256 {
        world.say(ToController::NeedOpen { range: RangeId(range) });
    }
    world.settle();
    let mut world = restarted(world);
    let asked = |world: &mut World| world.look().matches("tell shard-0: seal r").count();
    assert_eq!(asked(&mut world), 64);
    let answer = |range| ToController::Promised {
        range: RangeId(range),
        segment: SegmentId(range),
        epoch: Epoch(2),
        answer: holds(5),
    };
    world.say(answer(1));
    world.say(answer(2));
    world.settle();
    assert_eq!(asked(&mut world), 2);
    world.say(ToController::NeedOpen { range: RangeId(200) });
    world.settle();
    assert_eq!(asked(&mut world), 1);
}

#[test]
fn producer_ids_come_from_a_block_and_are_fenced_when_opened_again() {
    let mut world = World::founded(1);
    world.look();
    let open = |replaces| ControlRequest::OpenProducer { replaces };
    let first = (ProducerId(1), ProducerEpoch(1));
    world.ask(1, open(None));
    world.ask(2, open(None));
    world.expect(
        "log: give n1 1024 from p1
         log: proof
         reply 1: p1 in 1
         reply 2: p2 in 1",
    );
    // Both name the same epoch: one of them is fenced.
    world.ask(3, open(Some(first)));
    world.ask(4, open(Some(first)));
    world.settle();
    world.ask(5, open(Some(first)));
    world.ask(6, open(Some((ProducerId(5000), ProducerEpoch(1)))));
    world.expect(
        "log: raise p1 to 2
         log: proof
         reply 3: p1 in 2
         log: raise p1 to 2
         log: proof
         reply 4: refused: a later instance of this producer has written here
         reply 5: refused: a later instance of this producer has written here
         reply 6: refused: nothing is known of this producer here, and its sequence is not 0",
    );
    // A new life never gives what an earlier one may have given.
    let mut world = world.restart().unwrap();
    world.ask(7, open(None));
    world.expect(
        "log: n1 started as life-2 with 1; give n1 1024 from p1025
         log: proof
         reply 7: p1025 in 1",
    );
}

#[test]
fn after_a_failed_write_nothing_more_is_promised_and_reading_goes_on() {
    let mut world = opened();
    world.writes_left = Some(1);
    let create = |name: &str| ControlRequest::CreateTopic { name: name.to_owned(), ranges: 1, auto_split: None };
    world.ask(1, create("b"));
    world.ask(2, create("c"));
    world.settle();
    world.ask(3, create("d"));
    world.ask(4, ControlRequest::ListTopics);
    world.say(filling(1));
    world.expect(
        "log: create b of 1
         reply 1: refused: a write to this shard's disk has failed; it takes no more
         reply 2: refused: a write to this shard's disk has failed; it takes no more
         reply 3: refused: a write to this shard's disk has failed; it takes no more
         reply 4: a",
    );
}

#[test]
fn the_retention_clock_goes_on_by_what_has_passed_but_not_by_a_sleep() {
    let mut world = opened();
    world.now.monotonic_ns += 599 * SECOND_NS;
    world.step(Event::Timer);
    world.expect("");
    world.now.monotonic_ns += SECOND_NS;
    world.step(Event::Timer);
    world.expect("log: tick 600000\n log: proof");
    world.now.monotonic_ns += 86_400 * SECOND_NS;
    world.step(Event::Timer);
    world.expect("log: tick 1200000\n log: proof");
    assert_eq!(world.controller.state().retention_ms(), 1_800_000);
}

#[test]
fn the_log_goes_round_behind_snapshots() {
    let mut world = World::founded(1);
    for round in 0..200 {
        world.create_topic(&format!("topic-{round}"), 1);
    }
    assert!(world.controller.log.next().position.0 > 4 * super::super::testing::FILE_BYTES);
    let told = world.controller.state().clone();
    let mut names = world.store.names();
    names.retain(|name| matches!(name, crate::api::port::DataFile::MetadataSnapshot { .. }));
    assert_eq!(names.len(), 2);
    let world = world.restart().unwrap();
    assert_eq!(*world.controller.state(), told);
}

#[test]
fn a_snapshot_that_fails_is_tried_again_and_the_log_waits_for_room() {
    let mut world = World::founded(1);
    let mut created = 0;
    world.fail_files = true;
    while !world.controller.is_full && created < 500 {
        created += 1;
        world.create_topic(&format!("topic-{created}"), 1);
        world.now.monotonic_ns += SECOND_NS;
    }
    world.look();
    world.ask(2, ControlRequest::ListTopics);
    assert!(world.look().starts_with("reply 2: topic-1"), "reading goes on");
    let told = world.controller.state().clone();
    world.settle();
    assert_eq!(*world.controller.state(), told, "nothing is overwritten that may be needed");
    world.fail_files = false;
    world.now.monotonic_ns += SECOND_NS;
    world.step(Event::Timer);
    world.settle();
    assert!(world.controller.state().applied() > told.applied());
    let told = world.controller.state().clone();
    assert_eq!(*world.restart().unwrap().controller.state(), told);
}

/// Power fails at every point of a run that creates topics, opens, rolls and seals; what was told is still so afterwards, and the
/// node goes on.
#[test]
fn whatever_was_told_survives_a_power_cut_at_any_point() {
    for seed in 0..400u64 {
        let mut random = Generator::new(seed);
        let mut world = opened();
        let mut operations = random.draw() % 120;
        let mut topic = 0;
        while operations > 0 {
            match random.draw() % 6 {
                0 => {
                    topic += 1;
                    world.ask(
                        topic,
                        ControlRequest::CreateTopic { name: format!("t-{topic}"), ranges: 2, auto_split: None },
                    );
                }
                1 => world.say(need_open()),
                2 => world.say(filling(world.controller.next_segment.0 - 1)),
                3 => {
                    let chain = &world.controller.state().range(R1).unwrap().chain;
                    if let (Some(open), Some(prepared)) = (chain.open(), chain.prepared()) {
                        let end = open.base.unwrap().0 + 5;
                        world.say(rolled(mark(open.segment.0, end, prepared.segment.0)));
                    }
                }
                4 => world.ask(0, ControlRequest::OpenProducer { replaces: None }),
                _ => {}
            }
            for _ in 0..random.draw() % 4 {
                world.perform_one();
                operations = operations.saturating_sub(1);
            }
        }
        let told = world.controller.state().clone();
        world.lose_power(&mut random);
        let mut world = restarted(world);
        let state = world.controller.state();
        assert!(state.applied() > told.applied(), "seed {seed}");
        for view in told.topic_views() {
            assert_eq!(state.find_topic(&view.name), Some(view.topic), "seed {seed}");
        }
        assert!(state.next().producer >= told.next().producer && state.next().segment >= told.next().segment);
        let (before, after) = (&told.range(R1).unwrap().chain, &state.range(R1).unwrap().chain);
        assert!(after.sealed().starts_with(before.sealed()), "seed {seed}");
        assert!(after.end() >= before.end(), "seed {seed}");
        world.say(need_open());
        world.settle();
        let open = world.controller.state().range(R1).unwrap().chain.open().copied();
        if let Some(open) = open.filter(|open| open.life.0 < world.life) {
            let epoch = world.controller.state().range(R1).unwrap().epoch.0;
            world.say(promised(open.segment.0, epoch, holds(open.base.unwrap().0 + 1)));
            world.settle();
        }
        let open = world.controller.state().range(R1).unwrap().chain.open().copied();
        assert!(open.is_some_and(|open| open.life.0 == world.life), "seed {seed}: {}", world.look());
    }
}
