//! Messages and batches in, whole lists of commands out.

use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::{GapCause, RangeRolled, Response, Stored};
use crate::format::batch::Stamp;
use crate::format::checksum::Digest;
use crate::replica::message::{
    RangeView, RollCause, Rolled, SealAnswer, SealedSegment, SegmentOpen, Span, ToController, ToReplica,
};
use crate::replica::{Admission, Command, Due, ProducerTable, Replica, RollAdmission};
use crate::types::{
    Epoch, KeySpan, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, Run, SegmentId, Sequence, ShardId,
    TopicId,
};

const RANGE: RangeId = RangeId(5);

fn to(correlation: u64) -> ReplyTo {
    ReplyTo { shard: ShardId(0), connection: 1, correlation }
}

fn open(segment: u64, base: Option<u64>, epoch: u64) -> SegmentOpen {
    SegmentOpen {
        segment: SegmentId(segment),
        base: base.map(Offset),
        epoch: Epoch(epoch),
        seed: 9,
        predecessor: None,
        primary: NodeId(1),
        life: ProcessLife(1),
        replicas: 1,
        quorum: 1,
        batch_bytes_max: 1 << 20,
        retention_ms: 0,
    }
}

fn view(end: u64, open: Vec<SegmentOpen>) -> RangeView {
    RangeView {
        topic: TopicId(1),
        range: RANGE,
        span: KeySpan::ALL,
        epoch: Epoch(1),
        trimmed: Offset(0),
        end: Offset(end),
        sealed: Vec::new(),
        open,
        fences: Vec::new(),
        successors: None,
    }
}

fn sealed(segment: u64, base: u64, end: u64, epoch: u64) -> SealedSegment {
    SealedSegment {
        segment: SegmentId(segment),
        base: Offset(base),
        end: Offset(end),
        digest: Digest(7),
        holes: Vec::new(),
        epoch: Epoch(epoch),
    }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { producer: ProducerId(3), epoch: ProducerEpoch(0), run: Run(0), sequence: Sequence(sequence), last: false }
}

fn give(replica: &mut Replica, message: ToReplica) -> Vec<Command> {
    let mut commands = Vec::new();
    replica.message(message, &mut commands);
    commands
}

/// A replica with segment 1 open from offset 0 in epoch 1.
fn opened() -> Replica {
    let mut replica = Replica::recovered(RANGE, Epoch(0), ProducerTable::default());
    assert_eq!(give(&mut replica, ToReplica::Adopt(view(0, Vec::new()))), [Command::Wake]);
    let open = open(1, Some(0), 1);
    assert_eq!(give(&mut replica, ToReplica::Open { range: RANGE, open }), [Command::Begin { open, base: Offset(0) }]);
    replica
}

fn admit(replica: &mut Replica, epoch: u64, sequence: u64) -> Result<Admission, Refusal> {
    let segment = replica.admit_epoch(Epoch(epoch), ProducerId(3), &mut Vec::new())?;
    replica.admit_stamp(segment, &stamp(sequence))
}

fn take(replica: &mut Replica, sequence: u64, records: u32) {
    assert_eq!(admit(replica, 1, sequence), Ok(Admission::Take { segment: SegmentId(1) }));
    replica.take(&stamp(sequence), records, to(sequence));
}

fn durable(replica: &mut Replica, end: u64) -> Vec<Due> {
    let mut due = Vec::new();
    replica.durable(Offset(end), |d| due.push(d));
    due
}

fn stored(sequence: u64, records: u32) -> Due {
    Due { to: to(sequence), stored: Stored { records, repeat: false } }
}

#[test]
fn nothing_is_taken_before_the_committed_state_is_known_nor_without_an_open_segment() {
    let mut replica = Replica::recovered(RANGE, Epoch(0), ProducerTable::default());
    assert_eq!(admit(&mut replica, 1, 0), Err(Refusal::Opening { delay_ms: 1 }));
    give(&mut replica, ToReplica::Adopt(view(0, Vec::new())));
    let mut commands = Vec::new();
    for _ in 0..2 {
        let refused = replica.admit_epoch(Epoch(1), ProducerId(3), &mut commands);
        assert_eq!(refused, Err(Refusal::Opening { delay_ms: 1 }));
    }
    assert_eq!(commands, [Command::Tell(ToController::NeedOpen { range: RANGE })], "asked once");
}

#[test]
fn batches_are_acknowledged_in_order_and_only_below_the_durable_end() {
    let mut replica = opened();
    take(&mut replica, 0, 2);
    take(&mut replica, 1, 3);
    assert_eq!(durable(&mut replica, 0), []);
    assert_eq!(durable(&mut replica, 2), [stored(0, 2)]);
    assert_eq!(replica.committed(), Offset(2));
    assert_eq!(durable(&mut replica, 5), [stored(1, 3)]);
}

#[test]
fn a_repeat_waits_for_its_original() {
    let mut replica = opened();
    take(&mut replica, 0, 2);
    assert_eq!(admit(&mut replica, 1, 0), Ok(Admission::Repeat { end: Offset(2) }));
    assert_eq!(replica.repeat(Offset(2), 2, to(9)), None);
    let repeat = Due { to: to(9), stored: Stored { records: 2, repeat: true } };
    assert_eq!(durable(&mut replica, 2), [stored(0, 2), repeat]);
    assert_eq!(replica.repeat(Offset(2), 2, to(9)), Some(repeat));
}

#[test]
fn a_stale_epoch_is_refused_with_the_current_one() {
    let mut replica = opened();
    for stale in [0, 2] {
        assert_eq!(admit(&mut replica, stale, 0), Err(Refusal::StaleEpoch { current: Epoch(1) }));
    }
}

#[test]
fn from_the_receipt_of_a_seal_nothing_is_taken_and_the_promise_never_falls() {
    let mut replica = opened();
    take(&mut replica, 0, 2);
    let seal = |epoch| ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(epoch) };
    assert_eq!(give(&mut replica, seal(3)), [Command::Promise { segment: SegmentId(1), epoch: Epoch(3) }]);
    assert_eq!(admit(&mut replica, 1, 1), Err(Refusal::Opening { delay_ms: 1 }));
    assert_eq!(
        give(&mut replica, seal(2)),
        [Command::Tell(ToController::PromiseRefused { range: RANGE, segment: SegmentId(1), promised: Epoch(3) })]
    );
    let answer =
        SealAnswer { end: Offset(2), digest: Digest(7), unreadable: Vec::new(), mark: None, fences: Vec::new() };
    let mut commands = Vec::new();
    replica.promised_durable(SegmentId(1), Epoch(2), answer.clone(), &mut commands);
    assert_eq!(commands, [], "an answer in a superseded epoch is not given");
    replica.promised_durable(SegmentId(1), Epoch(3), answer.clone(), &mut commands);
    assert_eq!(
        commands,
        [Command::Tell(ToController::Promised { range: RANGE, segment: SegmentId(1), epoch: Epoch(3), answer })]
    );
}

#[test]
fn at_the_committed_end_each_waiting_produce_gets_a_definite_answer() {
    let mut replica = opened();
    take(&mut replica, 0, 2);
    take(&mut replica, 1, 3);
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    let end = sealed(1, 0, 2, 2);
    assert_eq!(
        give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: end.clone() }),
        [
            Command::Reply { to: to(0), response: Response::Stored(Stored { records: 2, repeat: false }) },
            Command::Reply { to: to(1), response: Response::Refused(Refusal::StaleEpoch { current: Epoch(2) }) },
            Command::Close(end.clone()),
            Command::Wake,
        ]
    );
    assert_eq!(give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: end }), [], "repeated");
    let seal = ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) };
    assert_eq!(give(&mut replica, seal), [], "late");
    let next = open(2, Some(2), 2);
    assert_eq!(
        give(&mut replica, ToReplica::Open { range: RANGE, open: next }),
        [Command::Begin { open: next, base: Offset(2) }]
    );
    assert_eq!(give(&mut replica, ToReplica::Open { range: RANGE, open: next }), [], "repeated");
}

#[test]
fn an_earlier_lifes_segment_is_sealed_before_anything_is_served_or_taken() {
    let mut replica = Replica::recovered(RANGE, Epoch(1), ProducerTable::default());
    give(&mut replica, ToReplica::Adopt(view(4, vec![open(1, Some(4), 1)])));
    let mut commands = Vec::new();
    assert!(!replica.settle_for_reader(Offset(3), &mut commands));
    assert!(replica.settle_for_reader(Offset(4), &mut commands));
    assert!(replica.settle_for_reader(Offset(4), &mut commands));
    assert_eq!(commands, [Command::Tell(ToController::NeedSeal { range: RANGE, segment: SegmentId(1), urgent: true })]);
    let hole = Span { from: Offset(5), to: Offset(7), records_at_most: 2, cause: GapCause::Interrupted };
    let end = SealedSegment { holes: vec![hole], ..sealed(1, 4, 7, 2) };
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    assert_eq!(
        give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: end.clone() }),
        [Command::Close(end), Command::Wake]
    );
    assert_eq!((replica.committed(), replica.assigned()), (Offset(7), Offset(7)));
}

#[test]
fn a_tail_that_was_rolled_is_served_and_opened_only_behind_its_second_segment() {
    let mut replica = Replica::recovered(RANGE, Epoch(0), ProducerTable::default());
    give(&mut replica, ToReplica::Adopt(view(0, vec![open(1, Some(0), 1), open(2, None, 1)])));
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    let mark = Rolled { segment: SegmentId(1), end: Offset(4), digest: Digest(7), successor: SegmentId(2) };
    let answer =
        SealAnswer { end: Offset(4), digest: Digest(7), unreadable: Vec::new(), mark: Some(mark), fences: Vec::new() };
    replica.promised_durable(SegmentId(1), Epoch(2), answer, &mut Vec::new());
    let first = sealed(1, 0, 4, 2);
    let commands = give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: first.clone() });
    assert_eq!(commands, [Command::Close(first), Command::Wake]);
    assert!(replica.settle_for_reader(Offset(4), &mut Vec::new()), "what lies in the second is not settled");
    assert!(!replica.settle_for_reader(Offset(3), &mut Vec::new()));
    let seal = ToReplica::Seal { range: RANGE, segment: SegmentId(2), epoch: Epoch(2) };
    assert_eq!(give(&mut replica, seal), [Command::Promise { segment: SegmentId(2), epoch: Epoch(2) }]);
    let second = sealed(2, 4, 6, 2);
    let commands = give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: second.clone() });
    assert_eq!(commands, [Command::Close(second), Command::Wake]);
    assert!(!replica.settle_for_reader(Offset(6), &mut Vec::new()));
    assert_eq!(replica.committed(), Offset(6));
}

#[test]
fn an_open_that_overtook_the_seal_before_it_is_asked_for_again() {
    let mut replica = Replica::recovered(RANGE, Epoch(0), ProducerTable::default());
    give(&mut replica, ToReplica::Adopt(view(0, vec![open(1, Some(0), 1)])));
    let ask = [Command::Tell(ToController::NeedOpen { range: RANGE })];
    let want = |replica: &mut Replica| {
        let mut commands = Vec::new();
        assert!(replica.admit_epoch(Epoch(1), ProducerId(3), &mut commands).is_err());
        commands
    };
    assert_eq!(want(&mut replica), ask);
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    let open = open(2, Some(4), 2);
    assert_eq!(give(&mut replica, ToReplica::Open { range: RANGE, open }), []);
    give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: sealed(1, 0, 4, 2) });
    assert_eq!(want(&mut replica), ask);
    assert_eq!(give(&mut replica, ToReplica::Open { range: RANGE, open }), [Command::Begin { open, base: Offset(4) }]);
}

#[test]
fn a_roll_goes_on_at_once_and_is_reported_when_the_full_segment_is_committed() {
    let mut replica = opened();
    take(&mut replica, 0, 2);
    let mut commands = Vec::new();
    replica.want_successor(&mut commands);
    replica.want_successor(&mut commands);
    assert_eq!(
        commands,
        [Command::Tell(ToController::NeedSuccessor { range: RANGE, segment: SegmentId(1) })],
        "asked once"
    );
    let next = open(2, None, 1);
    give(&mut replica, ToReplica::Prepared { range: RANGE, after: SegmentId(1), open: next });
    assert_eq!(replica.ready_successor(), Some(SegmentId(2)));
    commands.clear();
    replica.roll(SegmentId(1), Digest(7), RollCause::Full, &mut commands);
    assert_eq!(commands, [Command::Begin { open: next, base: Offset(2) }]);
    assert_eq!(admit(&mut replica, 1, 1), Ok(Admission::Take { segment: SegmentId(2) }));
    commands.clear();
    replica.report_roll(Offset(2), &mut commands);
    assert_eq!(commands, [], "the records before the mark are not committed");
    assert_eq!(durable(&mut replica, 2), [stored(0, 2)]);
    replica.report_roll(Offset(2), &mut commands);
    replica.report_roll(Offset(2), &mut commands);
    let mark = Rolled { segment: SegmentId(1), end: Offset(2), digest: Digest(7), successor: SegmentId(2) };
    assert_eq!(commands, [Command::Tell(ToController::Rolled { range: RANGE, mark, cause: RollCause::Full })], "once");
    commands.clear();
    replica.want_successor(&mut commands);
    assert_eq!(commands, [], "the one after next only when the roll is committed");
    let end = sealed(1, 0, 2, 1);
    assert_eq!(give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: end.clone() }), [Command::Close(end)]);
    replica.want_successor(&mut commands);
    assert_eq!(commands, [Command::Tell(ToController::NeedSuccessor { range: RANGE, segment: SegmentId(2) })]);
}

#[test]
fn a_retired_range_refuses_with_its_successors_and_the_producers_last_batch() {
    let mut replica = opened();
    take(&mut replica, 0, 2);
    durable(&mut replica, 2);
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    give(&mut replica, ToReplica::Retired { range: RANGE, sealed: sealed(1, 0, 2, 2), successors: Vec::new() });
    let last = Some((ProducerEpoch(0), Run(0), Sequence(0)));
    assert_eq!(admit(&mut replica, 1, 1), Err(Refusal::Sealed { successors: Vec::new(), last }));
}

#[test]
fn a_range_that_is_retired_is_readable_to_its_end_at_once_and_no_later_message_changes_that() {
    let mut replica = Replica::recovered(RANGE, Epoch(1), ProducerTable::default());
    let retired = || ToReplica::Retired { range: RANGE, sealed: sealed(1, 4, 7, 2), successors: Vec::new() };
    assert_eq!(give(&mut replica, retired()), [], "before the committed state is known it says nothing");
    give(&mut replica, ToReplica::Adopt(view(4, vec![open(1, Some(4), 1)])));
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    let commands = give(&mut replica, retired());
    assert_eq!(commands, [Command::Close(sealed(1, 4, 7, 2)), Command::Wake, Command::Wake]);
    assert_eq!((replica.committed(), replica.successors()), (Offset(7), Some(&[][..])));
    assert_eq!(give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: sealed(1, 4, 7, 2) }), []);
    give(&mut replica, retired());
    assert_eq!((replica.committed(), replica.successors()), (Offset(7), Some(&[][..])));
}

const OPENING: Refusal = Refusal::Opening { delay_ms: 1 };

/// A replica whose segment 1 holds two records and was rolled into segment 2 for the client `to(7)`; nothing of it is durable.
fn rolled_for_a_client() -> Replica {
    let mut replica = opened();
    take(&mut replica, 0, 2);
    let mut commands = Vec::new();
    for _ in 0..2 {
        assert_eq!(replica.admit_roll(true, &mut commands), Err(OPENING));
    }
    let need = Command::Tell(ToController::NeedSuccessor { range: RANGE, segment: SegmentId(1) });
    assert_eq!(commands, [need], "asked once");
    give(&mut replica, ToReplica::Prepared { range: RANGE, after: SegmentId(1), open: open(2, None, 1) });
    commands.clear();
    let (segment, successor) = (SegmentId(1), SegmentId(2));
    assert_eq!(replica.admit_roll(true, &mut commands), Ok(RollAdmission::Roll { segment, successor }));
    assert_eq!(commands, []);
    replica.roll(segment, Digest(7), RollCause::Full, &mut commands);
    replica.await_roll(to(7));
    replica
}

fn rolled(correlation: u64) -> Command {
    let segments = Some((SegmentId(1), SegmentId(2)));
    Command::Reply { to: to(correlation), response: Response::Rolled(RangeRolled { end: Offset(2), segments }) }
}

#[test]
fn a_roll_that_was_asked_for_is_answered_when_it_is_reported_and_whoever_asks_meanwhile_gets_the_same() {
    let mut replica = rolled_for_a_client();
    let mut commands = Vec::new();
    for (holds_records, correlation) in [(false, 8), (true, 9)] {
        assert_eq!(replica.admit_roll(holds_records, &mut commands), Ok(RollAdmission::UnderWay));
        replica.await_roll(to(correlation));
    }
    replica.report_roll(Offset(2), &mut commands);
    assert_eq!(commands, [], "the records before the mark are not committed");
    durable(&mut replica, 2);
    replica.report_roll(Offset(2), &mut commands);
    let mark = Rolled { segment: SegmentId(1), end: Offset(2), digest: Digest(7), successor: SegmentId(2) };
    let report = Command::Tell(ToController::Rolled { range: RANGE, mark, cause: RollCause::Full });
    assert_eq!(commands, [report, rolled(7), rolled(8), rolled(9)]);
    commands.clear();
    replica.report_roll(Offset(2), &mut commands);
    let end = sealed(1, 0, 2, 1);
    let closed = give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: end.clone() });
    assert_eq!((&commands[..], &closed[..]), (&[][..], &[Command::Close(end)][..]), "answered once");
}

#[test]
fn between_the_report_of_a_roll_and_its_commitment_only_what_has_come_since_waits_for_a_successor() {
    let mut replica = rolled_for_a_client();
    durable(&mut replica, 2);
    let mut commands = Vec::new();
    replica.report_roll(Offset(2), &mut commands);
    commands.clear();
    assert_eq!(replica.admit_roll(false, &mut commands), Ok(RollAdmission::Nothing { end: Offset(2) }));
    assert_eq!(replica.admit_roll(true, &mut commands), Err(OPENING));
    assert_eq!(commands, [], "no successor is prepared before the roll is committed");
    give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: sealed(1, 0, 2, 1) });
    assert_eq!(replica.admit_roll(true, &mut commands), Err(OPENING));
    assert_eq!(commands, [Command::Tell(ToController::NeedSuccessor { range: RANGE, segment: SegmentId(2) })]);
}

#[test]
fn where_no_open_segment_holds_a_record_there_is_nothing_to_roll() {
    let mut replica = opened();
    let mut commands = Vec::new();
    assert_eq!(replica.admit_roll(false, &mut commands), Ok(RollAdmission::Nothing { end: Offset(0) }));
    let mut resting = Replica::recovered(RANGE, Epoch(1), ProducerTable::default());
    assert_eq!(resting.admit_roll(false, &mut commands), Err(OPENING), "nothing is known yet");
    give(&mut resting, ToReplica::Adopt(view(4, Vec::new())));
    assert_eq!(resting.admit_roll(false, &mut commands), Ok(RollAdmission::Nothing { end: Offset(4) }));
    assert_eq!(commands, [], "no segment is opened for it");
}

#[test]
fn what_an_earlier_life_left_open_is_sealed_for_whoever_wants_it_rolled() {
    let mut replica = Replica::recovered(RANGE, Epoch(1), ProducerTable::default());
    give(&mut replica, ToReplica::Adopt(view(4, vec![open(1, Some(4), 1)])));
    let mut commands = Vec::new();
    assert_eq!(replica.admit_roll(false, &mut commands), Err(OPENING));
    assert_eq!(commands, [Command::Tell(ToController::NeedSeal { range: RANGE, segment: SegmentId(1), urgent: true })]);
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    assert_eq!(replica.admit_roll(false, &mut commands), Err(OPENING));
    give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: sealed(1, 4, 7, 2) });
    assert_eq!(replica.admit_roll(false, &mut commands), Ok(RollAdmission::Nothing { end: Offset(7) }));
}

#[test]
fn a_wish_to_roll_a_sealed_range_is_refused_with_its_successors() {
    let mut replica = opened();
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    give(&mut replica, ToReplica::Retired { range: RANGE, sealed: sealed(1, 0, 0, 2), successors: Vec::new() });
    let sealed = Refusal::Sealed { successors: Vec::new(), last: None };
    assert_eq!(replica.admit_roll(false, &mut Vec::new()), Err(sealed));
}

#[test]
fn who_asked_for_a_roll_that_fails_is_told_so() {
    let refused = |refusal| Command::Reply { to: to(7), response: Response::Refused(refusal) };
    let mut replica = rolled_for_a_client();
    let mut commands = Vec::new();
    replica.write_failed(&mut commands);
    assert_eq!(commands.last(), Some(&refused(Refusal::WriteFailed)));

    let mut replica = rolled_for_a_client();
    let commands = give(&mut replica, ToReplica::Deleted { range: RANGE });
    assert!(commands.contains(&refused(Refusal::UnknownRange)), "{commands:?}");

    // Another primary's seal came before the mark was durable on a quorum, and ends the segment elsewhere.
    let mut replica = rolled_for_a_client();
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    let commands = give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: sealed(1, 0, 1, 2) });
    assert!(commands.contains(&refused(Refusal::StaleEpoch { current: Epoch(2) })), "{commands:?}");

    // Another primary's seal found the mark, and the range goes on behind it.
    let mut replica = rolled_for_a_client();
    give(&mut replica, ToReplica::Seal { range: RANGE, segment: SegmentId(1), epoch: Epoch(2) });
    let mark = Rolled { segment: SegmentId(1), end: Offset(2), digest: Digest(7), successor: SegmentId(2) };
    let answer =
        SealAnswer { end: Offset(2), digest: Digest(7), unreadable: Vec::new(), mark: Some(mark), fences: Vec::new() };
    replica.promised_durable(SegmentId(1), Epoch(2), answer, &mut Vec::new());
    let commands = give(&mut replica, ToReplica::Sealed { range: RANGE, sealed: sealed(1, 0, 2, 2) });
    assert!(commands.contains(&rolled(7)), "{commands:?}");
}
