//! What a shard that was opened on an earlier life's segments tells of them before their end is committed, and after.

use super::bench::{Disk, config, lives, start};
use crate::api::error::Refusal;
use crate::api::request::{ReplyTo, ShardRequest};
use crate::api::response::Response;
use crate::replica::ProducerTable;
use crate::replica::message::{RangeView, SealedSegment, ToController, ToReplica};
use crate::segment::test_store::TestStore;
use crate::shard::command::Command;
use crate::shard::event::Event;
use crate::shard::samples;
use crate::shard::shard::Shard;
use crate::types::{Epoch, Now, Offset, RangeId, SegmentId, ShardId, TopicId};

const RANGE: RangeId = RangeId(1);
const SEGMENT: SegmentId = SegmentId(1);

/// What a shard says to others.
#[derive(Debug, PartialEq)]
enum Said {
    Tell(ToController),
    Reply(Response),
}

/// Gives the shard an event; its journal groups are durable at once.
fn give(shard: &mut Shard, event: Event<'_>) -> Vec<Said> {
    let now = Now { monotonic_ns: 1_000, wall_ms: 1 };
    let (mut commands, mut said) = (Vec::new(), Vec::new());
    shard.step(now, event, &mut commands);
    while !commands.is_empty() {
        for command in std::mem::take(&mut commands) {
            match command {
                Command::Tell(message) => said.push(Said::Tell(message)),
                Command::Reply { response, .. } => said.push(Said::Reply(response)),
                Command::WriteGroup { buffer, .. } => {
                    shard.step(now, Event::GroupWritten { buffer, outcome: Ok(()) }, &mut commands);
                }
                Command::File { operation, .. } => panic!("nothing here needs a file: {operation:?}"),
            }
        }
    }
    said
}

/// The committed state of a range whose only segment was opened in an earlier life.
fn unsettled() -> RangeView {
    let open = samples::open(SEGMENT.0, Some(Offset(0)), 1);
    samples::view(TopicId(1), RANGE, Offset(0), Vec::new(), vec![open])
}

#[test]
fn bounds_are_told_only_when_the_end_of_what_an_earlier_life_wrote_is_committed() {
    let mut store = TestStore::default();
    let mut life = lives(start(&mut store, 1, 100), &Disk::default()).remove(0);
    life.open(RANGE.0, SEGMENT.0, 0, ProducerTable::default());
    life.batch(SEGMENT.0, 4, 300);
    life.group(&mut store);
    let mut shard = Shard::open(start(&mut store, 1, 101).shards.remove(0), &config(1));
    let bounds = || Event::Request {
        to: ReplyTo { shard: ShardId(0), connection: 1, correlation: 0 },
        deadline_ns: u64::MAX,
        request: ShardRequest::Bounds { range: RANGE },
    };
    let opening = || Said::Reply(Response::Refused(Refusal::Opening { delay_ms: 1 }));
    assert_eq!(give(&mut shard, Event::Started), [Said::Tell(ToController::Ready { shard: ShardId(0) })]);
    assert_eq!(give(&mut shard, Event::Message(ToReplica::Adopt(unsettled()))), []);
    let need_seal = ToController::NeedSeal { range: RANGE, segment: SEGMENT, urgent: true };
    assert_eq!(give(&mut shard, bounds()), [Said::Tell(need_seal), opening()]);
    assert_eq!(give(&mut shard, bounds()), [opening()], "the seal was asked for once");
    let epoch = Epoch(2);
    let said = give(&mut shard, Event::Message(ToReplica::Seal { range: RANGE, segment: SEGMENT, epoch }));
    let [Said::Tell(ToController::Promised { answer, .. })] = &said[..] else { panic!("{said:?}") };
    assert_eq!(answer.end, Offset(4));
    assert_eq!(give(&mut shard, bounds()), [opening()], "promised and not committed");
    let (base, end, digest, holes) = (Offset(0), answer.end, answer.digest, Vec::new());
    let sealed = SealedSegment { segment: SEGMENT, base, end, digest, holes, epoch };
    assert_eq!(give(&mut shard, Event::Message(ToReplica::Sealed { range: RANGE, sealed })), []);
    let told = Response::Bounds { start: Offset(0), end: Offset(4) };
    assert_eq!(give(&mut shard, bounds()), [Said::Reply(told)]);
}
