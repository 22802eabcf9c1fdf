use super::super::testing::World;
use crate::api::response::GapCause;
use crate::format::checksum::Digest;
use crate::replica::message::{RollCause, Rolled, Span, ToController};
use crate::types::{Offset, RangeId, SegmentId};

const R1: RangeId = RangeId(1);

fn unreadable(segment: u64, from: u64, to: u64) -> ToController {
    let (from, to) = (Offset(from), Offset(to));
    let span = Span { from, to, records_at_most: to.since(from), cause: GapCause::Unreadable };
    ToController::Unreadable { range: R1, segment: SegmentId(segment), span }
}

/// A range whose first segment is sealed at 10, and whose second is open.
fn rolled() -> World {
    let mut world = World::founded(1);
    world.create_topic("a", 1);
    world.say(ToController::NeedOpen { range: R1 });
    world.settle();
    world.say(ToController::NeedSuccessor { range: R1, segment: SegmentId(1) });
    world.settle();
    let mark = Rolled { segment: SegmentId(1), end: Offset(10), digest: Digest(1), successor: SegmentId(2) };
    world.say(ToController::Rolled { range: R1, mark, cause: RollCause::Full });
    world.settle();
    world.look();
    world
}

#[test]
fn what_cannot_be_read_is_told_as_a_hole_when_it_is_committed() {
    let mut world = rolled();
    world.say(unreadable(1, 3, 5));
    world.say(unreadable(1, 3, 5));
    world.expect(
        "log: holes of r1 s1: [@3, @5)
         log: proof
         tell shard-0: holes of r1 s1: [@3, @5)",
    );
    world.say(unreadable(1, 4, 7));
    world.expect(
        "log: holes of r1 s1: [@4, @7)
         log: proof
         tell shard-0: holes of r1 s1: [@3, @7)",
    );
    // Known already: it is told again, and nothing is committed.
    world.say(unreadable(1, 5, 6));
    world.expect("tell shard-0: holes of r1 s1: [@3, @7)");
}

#[test]
fn only_a_sealed_segment_has_holes() {
    let mut world = rolled();
    world.say(unreadable(2, 10, 12));
    world.say(unreadable(9, 0, 1));
    world.expect("");
}

#[test]
fn a_span_outside_of_its_segment_is_refused_and_what_is_known_is_told() {
    let mut world = rolled();
    world.say(unreadable(1, 8, 12));
    world.settle();
    let lines = world.look();
    assert!(lines.starts_with("log: holes of r1 s1: [@8, @12)\nlog: proof\ntell shard-0: holes of r1 s1:"), "{lines}");
    let view = world.controller.state().range_view(R1).unwrap();
    assert_eq!(view.sealed[0].holes, []);
}

#[test]
fn the_next_life_knows_of_a_hole() {
    let mut world = rolled();
    world.say(unreadable(1, 3, 5));
    world.settle();
    let mut world = world.restart().unwrap();
    world.ready();
    let state = world.controller.state();
    let holes = &state.range_view(R1).unwrap().sealed[0].holes;
    assert_eq!((holes[0].from, holes[0].to), (Offset(3), Offset(5)));
}
