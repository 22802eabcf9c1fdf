//! Rolls that a client asks for.

use super::*;
use crate::api::response::{RangeDescription, RangeRolled};

impl Rig {
    /// Asks for a roll as a client does: again where it is refused for a while. Gives what it is told when nothing is under way.
    fn roll(&mut self) -> Response {
        for _ in 0..10 {
            let mut told = self.ask(ShardRequest::Roll { range: RANGE });
            self.give(Event::Flush);
            self.settle();
            told.append(&mut self.replies);
            told.retain(|told| !matches!(told, Response::Stored(_)));
            let [told] = &told[..] else { panic!("one answer: {told:?}") };
            if *told != Response::Refused(Refusal::Opening { delay_ms: 1 }) {
                return told.clone();
            }
        }
        panic!("refused again and again");
    }
}

#[test]
fn rolls_that_are_asked_for_end_their_segments_and_what_is_read_goes_on_across_them() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    let nothing = |end| Response::Rolled(RangeRolled { end: Offset(end), segments: None });
    let described =
        |end, segments| Response::Described(RangeDescription { start: Offset(0), end: Offset(end), segments });
    assert_eq!(rig.roll(), nothing(0));
    for round in 0..20 {
        for sequence in 3 * round..3 * (round + 1) {
            rig.produce(sequence, &value(sequence, 100));
        }
        let before = rig.shard.ranges[0].replica.open_segment().expect("one is open");
        let Response::Rolled(RangeRolled { end, segments: Some((sealed, open)) }) = rig.roll() else {
            panic!("it holds records")
        };
        assert_eq!((end, sealed), (Offset(3 * (round + 1)), before));
        assert_eq!(rig.shard.ranges[0].replica.open_segment(), Some(open));
        assert_eq!(rig.roll(), nothing(end.0), "nothing has come since");
        let segments = u32::try_from(round).unwrap() + 2;
        assert_eq!(rig.ask(ShardRequest::Describe { range: RANGE }), [described(end.0, segments)]);
    }
    assert_eq!(rig.shard.counters().rolls, 20);
    let values = rig.read_all();
    assert_eq!(values, (0..60).map(|sequence| value(sequence, 100)).collect::<Vec<_>>());
    rig.give(Event::Stopping);
    assert_eq!(rig.read_all(), values, "from files too");
}

#[test]
fn a_roll_is_answered_behind_what_it_seals_and_never_where_its_mark_is_not_durable() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    rig.produce(0, b"one");
    let opening = Response::Refused(Refusal::Opening { delay_ms: 1 });
    assert_eq!(rig.ask(ShardRequest::Roll { range: RANGE }), [opening], "a successor is prepared first");
    assert_eq!(rig.ask(ShardRequest::Roll { range: RANGE }), []);
    rig.produce(1, b"into the successor");
    rig.give(Event::Flush);
    rig.settle();
    let stored = || Response::Stored(Stored { records: 1, repeat: false });
    let segments = Some((SegmentId(2), SegmentId(3)));
    let rolled = Response::Rolled(RangeRolled { end: Offset(1), segments });
    assert_eq!(std::mem::take(&mut rig.replies), [stored(), rolled, stored()]);

    let opening = Response::Refused(Refusal::Opening { delay_ms: 1 });
    assert_eq!(rig.ask(ShardRequest::Roll { range: RANGE }), [opening]);
    assert_eq!(rig.ask(ShardRequest::Roll { range: RANGE }), []);
    rig.give(Event::Flush);
    rig.durable(Err(Failed { errno: 5 }));
    let failed = Response::Refused(Refusal::WriteFailed);
    assert_eq!(std::mem::take(&mut rig.replies), std::slice::from_ref(&failed));
    assert_eq!(rig.ask(ShardRequest::Roll { range: RANGE }), [failed]);
}

#[test]
fn a_range_that_is_not_there_is_neither_rolled_nor_described() {
    let mut rig = Rig::new(1 << 20);
    let range = RangeId(9);
    for request in [ShardRequest::Roll { range }, ShardRequest::Describe { range }] {
        assert_eq!(rig.ask(request), [Response::Refused(Refusal::UnknownRange)]);
    }
}
