use super::super::command::Command;
use super::super::event::Event;
use super::super::open::RecoveredShard;
use super::*;
use crate::api::config::EngineConfig;
use crate::api::request::{ReplyTo, ShardRequest};
use crate::api::response::{Fetched, Gap, Response};
use crate::format::batch::Stamp;
use crate::format::segment::{RollMark, Seal};
use crate::journal::{Geometry, Ring};
use crate::replica::message::{SealAnswer, SegmentOpen, ToController, ToReplica};
use crate::segment::appender::Cut;
use crate::segment::catalog::{Catalog, ChainId, Tail};
use crate::segment::samples::{empty_table, header};
use crate::segment::tally::Tally;
use crate::shard::samples;
use crate::types::{Epoch, Generation, Now, ProducerEpoch, ProducerId, RangeId, Run, Sequence, ShardId, TopicId};

const RANGE: RangeId = RangeId(7);

/// A segment of an earlier life with records from `base` to `end`.
fn record(segment: u64, base: u64, end: u64, mark: Option<RollMark>) -> SegmentRecord {
    let tail = Tail { index: Vec::new(), table: empty_table() };
    let state = match mark {
        Some(mark) => SegmentState::Rolled { mark, tail },
        None => SegmentState::Open(tail),
    };
    let checkpoint = Cut { position: 8192, end: Offset(end), digest: Digest(segment.into()), tally: Tally::default() };
    SegmentRecord { header: header(segment, base), extents: Vec::new(), checkpoint, state }
}

fn hole(from: u64, to: u64) -> Hole {
    Hole { from: Offset(from), to: Offset(to), records_at_most: to - from, cause: HoleCause::Interrupted }
}

fn open(segment: u64, base: Option<u64>) -> SegmentOpen {
    samples::open(segment, base.map(Offset), segment)
}

fn sealed(segment: u64, base: u64, end: u64, holes: Vec<Span>) -> SealedSegment {
    let (base, end) = (Offset(base), Offset(end));
    SealedSegment { segment: SegmentId(segment), base, end, digest: Digest(9), holes, epoch: Epoch(5) }
}

fn view(end: u64, sealed: Vec<SealedSegment>, open: Vec<SegmentOpen>) -> RangeView {
    samples::view(TopicId(3), RANGE, Offset(end), sealed, open)
}

/// A shard whose disk holds what `fill` puts into the catalog, and that has been told `view`.
fn adopted(fill: impl FnOnce(&mut Catalog), view: RangeView) -> Shard {
    let config = EngineConfig::default();
    let generation = Generation(7);
    let mut catalog = Catalog::new(ChainId { shard: ShardId(0), shards: 1, generation }, 1);
    fill(&mut catalog);
    catalog.snapshot();
    let ring = Ring::new(Geometry::new(config.journal_files, config.journal_file_bytes));
    let mut shard = Shard::open(RecoveredShard { shard: ShardId(0), generation, ring, catalog }, &config);
    give(&mut shard, Event::Message(ToReplica::Adopt(view)));
    shard
}

/// Gives an event, and makes every group durable that comes of it.
fn give(shard: &mut Shard, event: Event<'_>) -> Vec<Command> {
    let mut commands = Vec::new();
    shard.step(Now::default(), event, &mut commands);
    let mut at = 0;
    while at < commands.len() {
        if matches!(commands[at], Command::WriteGroup { .. }) {
            let Command::WriteGroup { buffer, .. } = commands.remove(at) else { unreachable!("it was looked at") };
            shard.step(Now::default(), Event::GroupWritten { buffer, outcome: Ok(()) }, &mut commands);
        } else {
            at += 1;
        }
    }
    commands
}

fn seal(shard: &mut Shard, segment: u64) -> SealAnswer {
    let message = ToReplica::Seal { range: RANGE, segment: SegmentId(segment), epoch: Epoch(5) };
    for command in give(shard, Event::Message(message)) {
        if let Command::Tell(ToController::Promised { answer, .. }) = command {
            return answer;
        }
    }
    panic!("no promise was answered");
}

fn fetch(shard: &mut Shard, offset: u64) -> Fetched {
    let to = ReplyTo { shard: ShardId(0), connection: 1, correlation: 1 };
    let request = ShardRequest::Fetch { range: RANGE, offset: Offset(offset), bytes_max: 1 << 16, wait_ms: 0 };
    match give(shard, Event::Request { to, deadline_ns: u64::MAX, request }).pop() {
        Some(Command::Reply { response: Response::Fetched(fetched), .. }) => fetched,
        other => panic!("{other:?}"),
    }
}

fn gap(from: u64, to: u64) -> Gap {
    Gap { from: Offset(from), to: Offset(to), records_at_most: to - from, cause: GapCause::Interrupted }
}

#[test]
fn a_segment_whose_opening_is_uncertain_is_sealed_above_what_it_may_have_held() {
    let mark = RollMark { end: Offset(5), digest: Digest(1), successor: SegmentId(2), successor_table: Digest(8) };
    let fill = |catalog: &mut Catalog| {
        catalog.put_segment(record(1, 0, 5, Some(mark)));
        catalog.set_uncertain(RANGE, SegmentId(2), vec![hole(5, 9)]);
    };
    let mut shard = adopted(fill, view(5, vec![sealed(1, 0, 5, Vec::new())], vec![open(2, Some(5))]));
    let answer = seal(&mut shard, 2);
    let digest = Digest::start_from(SegmentId(2), Offset(5), Digest(8)).hole(Offset(5), Offset(9));
    let unreadable = vec![span_of(&hole(5, 9))];
    assert_eq!(
        answer,
        SealAnswer { end: Offset(9), digest, unreadable: unreadable.clone(), mark: None, fences: Vec::new() }
    );

    let message = ToReplica::Sealed { range: RANGE, sealed: sealed(2, 5, 9, unreadable.clone()) };
    give(&mut shard, Event::Message(message));
    let fetched = fetch(&mut shard, 6);
    assert_eq!((fetched.next, fetched.gaps), (Offset(9), vec![gap(5, 9)]));
    assert!(shard.catalog.uncertain(SegmentId(2)).is_empty());

    // The next life has no record of it, and is told of the hole.
    let both = vec![sealed(1, 0, 5, Vec::new()), sealed(2, 5, 9, unreadable)];
    let mut shard = adopted(|catalog| catalog.put_segment(record(1, 0, 5, Some(mark))), view(9, both, Vec::new()));
    assert_eq!(fetch(&mut shard, 5).gaps, vec![gap(5, 9)]);
}

#[test]
fn a_segment_with_an_uncertain_roll_is_sealed_above_its_successor_which_is_dropped() {
    let fill = |catalog: &mut Catalog| {
        catalog.put_segment(record(1, 0, 4, None));
        catalog.set_uncertain(RANGE, SegmentId(1), vec![hole(4, 8)]);
        catalog.set_uncertain(RANGE, SegmentId(2), vec![hole(5, 8)]);
    };
    let mut shard = adopted(fill, view(0, Vec::new(), vec![open(1, Some(0)), open(2, None)]));
    let answer = seal(&mut shard, 1);
    assert_eq!((answer.end, answer.mark), (Offset(8), None));
    let message = ToReplica::Sealed { range: RANGE, sealed: sealed(1, 0, 8, answer.unreadable) };
    give(&mut shard, Event::Message(message));
    for offset in 4..8 {
        let fetched = fetch(&mut shard, offset);
        assert_eq!((fetched.next, fetched.gaps), (Offset(8), vec![gap(4, 8)]), "{offset}");
    }
}

/// The payload of a table with one producer, whose last batch had the sequence 9.
fn table_of_one() -> Vec<u8> {
    let mut table = ProducerTable::default();
    let (epoch, run, sequence) = (ProducerEpoch(1), Run(0), Sequence(9));
    table.record(&Stamp { producer: ProducerId(3), epoch, run, sequence, last: false }, Offset(5), 0);
    let mut payload = Vec::new();
    table.encode(&mut payload);
    payload
}

/// What is stored of that producer, as the range settles it.
fn settled(shard: &mut Shard) -> Option<(ProducerEpoch, Run, Sequence)> {
    let to = ReplyTo { shard: ShardId(0), connection: 1, correlation: 1 };
    let request = ShardRequest::Settle { range: RANGE, producer: ProducerId(3) };
    match give(shard, Event::Request { to, deadline_ns: u64::MAX, request }).pop() {
        Some(Command::Reply { response: Response::Settled(settled), .. }) => settled.last,
        other => panic!("{other:?}"),
    }
}

fn retired(mut view: RangeView) -> RangeView {
    view.successors = Some(Vec::new());
    view
}

fn with_table(mut record: SegmentRecord) -> SegmentRecord {
    let tail = Tail { index: Vec::new(), table: table_of_one() };
    record.state = SegmentState::Sealed {
        seal: Seal { end: record.checkpoint.end, epoch: Epoch(5), digest: record.checkpoint.digest },
        holes: Vec::new(),
        contents: Contents::Catalog(tail),
    };
    record
}

#[test]
fn a_sealed_range_settles_its_producers_after_a_restart() {
    let fill = |catalog: &mut Catalog| catalog.put_segment(with_table(record(1, 0, 5, None)));
    let mut shard = adopted(fill, retired(view(5, vec![sealed(1, 0, 5, Vec::new())], Vec::new())));
    assert_eq!(settled(&mut shard), Some((ProducerEpoch(1), Run(0), Sequence(9))));
}

#[test]
fn a_table_that_a_roll_left_to_a_successor_without_records_is_found_there() {
    let footer = Contents::Footer(crate::segment::appender::Placed { position: 4096, length: 64 });
    let fill = |catalog: &mut Catalog| {
        let mut rolled = with_table(record(1, 0, 5, None));
        if let SegmentState::Sealed { contents, .. } = &mut rolled.state {
            *contents = footer;
        }
        catalog.put_segment(rolled);
        // Sealed where it began, it is of no chain any more.
        catalog.put_segment(with_table(record(2, 5, 5, None)));
    };
    let mut shard = adopted(fill, retired(view(5, vec![sealed(1, 0, 5, Vec::new())], Vec::new())));
    assert_eq!(settled(&mut shard), Some((ProducerEpoch(1), Run(0), Sequence(9))));
}
