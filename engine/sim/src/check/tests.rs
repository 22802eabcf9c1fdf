use sealog_engine::api::response::{Gap, GapCause, RangeRolled};
use sealog_engine::types::{Offset, RangeId, SegmentId};

use super::nothing_silent::{Given, NothingSilent};
use super::*;
use crate::history::{History, Sent, Shape, key_bytes};

const RANGE: RangeId = RangeId(1);

/// One writer's records of key 0 in topic 0, the n-th sent at `10 n` and stored at `10 n + 5`.
fn history(records: u32) -> History {
    let mut history = History::default();
    let writer = history.add_writer();
    send(&mut history, writer, records);
    history
}

fn send(history: &mut History, writer: u32, records: u32) {
    for number in 0..records {
        let sent_ns = 10 * u64::from(number);
        let sent = Sent {
            topic: 0,
            key: Some(0),
            shape: Shape::Named,
            identity: None,
            value_bytes: 16,
            sent_ns,
            deadline_ns: sent_ns + 1000,
            fate: Fate::Waiting,
            settled_ns: 0,
            read_ns: None,
        };
        let id = history.send(writer, sent);
        history.settle(id, Fate::Stored, sent_ns + 5);
    }
}

fn id(writer: u32, number: u32) -> RecordId {
    RecordId { writer, number }
}

/// Lets a new pass read these records.
fn read(history: &mut History, ids: &[RecordId]) -> Result<Pass, Violation> {
    let mut pass = Pass::new(1, 0, 10_000);
    let (mut once, mut ordered) = (once::Once::default(), ordered::Ordered::default());
    for id in ids {
        let value = history.get(*id).map_or_else(|| vec![0; 16], |sent| sent.value(*id));
        let id = once.read(history, &mut pass, Some(&key_bytes(0)), &value, 20_000)?;
        ordered.read(history, &mut pass, id)?;
    }
    Ok(pass)
}

fn gap(from: u64, to: u64, cause: GapCause) -> Gap {
    Gap { from: Offset(from), to: Offset(to), records_at_most: to - from, cause }
}

fn given(asked: u64, batches: &[(u64, u64)], gaps: &[Gap], next: u64, end: u64) -> Result<(), Violation> {
    let batches: Vec<_> = batches.iter().map(|(from, to)| (Offset(*from), Offset(*to))).collect();
    let given =
        Given { range: RANGE, asked: Offset(asked), batches: &batches, gaps, next: Offset(next), end: Offset(end) };
    NothingSilent::default().given(&given, Mode::Within, 1)
}

#[test]
fn a_stored_record_that_a_later_reading_does_not_have_is_lost() {
    let mut history = history(3);
    let pass = read(&mut history, &[id(0, 0), id(0, 2)]).unwrap();
    let mut durable = durable::Durable::default();
    assert!(matches!(
        durable.pass_ended(&history, &pass, Mode::Within),
        Err(Violation::Lost { id: RecordId { writer: 0, number: 1 }, .. })
    ));
    assert!(matches!(
        durable.pass_ended(&history, &pass, Mode::Beyond),
        Err(Violation::LostBeyondGaps { missing: 1, told: 0, .. })
    ));
    let mut told = read(&mut history, &[id(0, 0), id(0, 2)]).unwrap();
    told.gap_records = 1;
    durable.pass_ended(&history, &told, Mode::Beyond).unwrap();
}

#[test]
fn a_record_that_was_read_and_never_acknowledged_may_not_vanish_either() {
    let mut history = History::default();
    let writer = history.add_writer();
    let sent = Sent { fate: Fate::Waiting, ..*self::history(1).get(id(0, 0)).unwrap() };
    history.send(writer, sent);
    let pass = Pass::new(2, 0, 100);
    let mut durable = durable::Durable::default();
    durable.pass_ended(&history, &pass, Mode::Within).unwrap();
    history.mark_read(id(0, 0), 50);
    assert!(matches!(durable.pass_ended(&history, &pass, Mode::Within), Err(Violation::Lost { .. })));
}

#[test]
fn a_record_that_comes_twice_or_that_nobody_sent_is_found() {
    let mut history = history(2);
    assert!(matches!(read(&mut history, &[id(0, 0), id(0, 0)]), Err(Violation::Twice { .. })));
    assert!(matches!(read(&mut history, &[id(0, 7)]), Err(Violation::NeverSent { .. })));
    let mut pass = Pass::new(1, 0, 0);
    let value = history.get(id(0, 1)).unwrap().value(id(0, 1));
    let other_key = once::Once::default().read(&mut history, &mut pass, Some(&key_bytes(9)), &value, 0);
    assert!(matches!(other_key, Err(Violation::NeverSent { .. })));
}

#[test]
fn a_record_told_as_not_stored_must_not_be_read() {
    let mut history = History::default();
    let writer = history.add_writer();
    let sent = Sent { fate: Fate::Waiting, ..*self::history(1).get(id(0, 0)).unwrap() };
    let id = history.send(writer, sent);
    let mut once = once::Once::default();
    once.settled(&mut history, id, Fate::NotStored, 5).unwrap();
    assert!(matches!(read(&mut history, &[id]), Err(Violation::NotStoredButRead { .. })));
    assert!(matches!(once.settled(&mut history, id, Fate::Stored, 6), Err(Violation::SettledTwice { .. })));
}

#[test]
fn one_writers_records_of_a_key_in_another_order_are_found() {
    let mut history = history(3);
    read(&mut history, &[id(0, 0), id(0, 1), id(0, 2)]).unwrap();
    assert!(matches!(read(&mut history, &[id(0, 1), id(0, 0)]), Err(Violation::Reordered { .. })));
}

#[test]
fn a_record_behind_one_that_was_sent_after_its_acknowledgement_is_found() {
    let mut history = history(3);
    let other = history.add_writer();
    send(&mut history, other, 3);
    // (0,0) was stored at 5, (1,1) sent at 10; (0,0) and (1,0) were under way together.
    read(&mut history, &[id(1, 0), id(0, 0), id(1, 1)]).unwrap();
    assert!(matches!(read(&mut history, &[id(1, 1), id(0, 0)]), Err(Violation::Inverted { .. })));
}

#[test]
fn offsets_that_are_neither_given_nor_told_are_found() {
    given(0, &[(0, 3), (3, 5)], &[], 5, 9).unwrap();
    given(4, &[(3, 5)], &[], 5, 5).unwrap();
    given(0, &[(0, 3), (5, 6)], &[gap(3, 5, GapCause::Interrupted)], 6, 6).unwrap();
    given(5, &[], &[], 5, 5).unwrap();
    assert!(matches!(given(0, &[(0, 3), (5, 6)], &[], 6, 6), Err(Violation::Skipped { .. })));
    assert!(matches!(given(0, &[(1, 3)], &[], 3, 6), Err(Violation::Skipped { .. })));
    assert!(matches!(given(0, &[(0, 3)], &[], 4, 6), Err(Violation::WrongNext { .. })));
    assert!(matches!(given(0, &[(0, 3)], &[], 3, 2), Err(Violation::BeyondCommitted { .. })));
    assert!(matches!(given(0, &[], &[], 0, 2), Err(Violation::Stalled { .. })));
    assert!(matches!(given(0, &[], &[gap(0, 2, GapCause::Unreadable)], 2, 2), Err(Violation::GapWithoutFault { .. })));
}

#[test]
fn a_range_that_serves_something_else_at_an_offset_is_found() {
    let mut history = one_history::OneHistory::default();
    history.batch(RANGE, Offset(0), Offset(3), 7).unwrap();
    history.batch(RANGE, Offset(5), Offset(6), 9).unwrap();
    history.batch(RANGE, Offset(0), Offset(3), 7).unwrap();
    assert!(matches!(history.batch(RANGE, Offset(0), Offset(3), 8), Err(Violation::Divergent { .. })));
    assert!(matches!(history.batch(RANGE, Offset(2), Offset(4), 7), Err(Violation::Overlapping { .. })));
    history.gap(RANGE, &gap(3, 5, GapCause::Interrupted), Mode::Within).unwrap();
    assert!(matches!(history.batch(RANGE, Offset(3), Offset(5), 7), Err(Violation::ServedFromHole { .. })));
    assert!(matches!(
        history.gap(RANGE, &gap(4, 6, GapCause::Interrupted), Mode::Within),
        Err(Violation::HoleOverRead { .. })
    ));
    history.end(RANGE, Offset(6)).unwrap();
    assert!(matches!(history.end(RANGE, Offset(5)), Err(Violation::EndWentBack { .. })));
}

#[test]
fn an_offset_that_may_have_been_stored_and_is_given_again_is_found() {
    let mut history = one_history::OneHistory::default();
    history.may_hold(RANGE, Offset(3), Offset(5), 7);
    history.batch(RANGE, Offset(3), Offset(5), 7).unwrap();
    let mut history = one_history::OneHistory::default();
    history.may_hold(RANGE, Offset(3), Offset(5), 7);
    history.batch(RANGE, Offset(0), Offset(3), 1).unwrap();
    assert!(matches!(history.batch(RANGE, Offset(3), Offset(4), 7), Err(Violation::GivenAgain { .. })));
}

#[test]
fn a_roll_that_leaves_out_what_was_read_or_is_not_where_it_was_said_to_be_is_found() {
    let mut history = one_history::OneHistory::default();
    history.batch(RANGE, Offset(0), Offset(3), 7).unwrap();
    history.batch(RANGE, Offset(3), Offset(5), 7).unwrap();
    let rolled = |end, segment| RangeRolled {
        end: Offset(end),
        segments: (segment > 0).then_some((SegmentId(segment), SegmentId(segment + 1))),
    };
    let shown = history.shown(RANGE);
    assert_eq!(shown, Offset(5));
    for answer in [rolled(5, 0), rolled(5, 1), rolled(5, 1)] {
        history.rolled(RANGE, shown, &answer).unwrap();
    }
    assert!(matches!(history.rolled(RANGE, shown, &rolled(3, 0)), Err(Violation::RolledBelow { .. })));
    assert!(matches!(history.rolled(RANGE, Offset(3), &rolled(4, 2)), Err(Violation::RolledWithin { .. })));
    assert!(matches!(history.rolled(RANGE, shown, &rolled(6, 1)), Err(Violation::RolledTwice { .. })));
    assert_eq!(history.rolls_stand(|_, _| Some(Offset(5))).unwrap(), 1);
    for found in [None, Some(Offset(4))] {
        assert!(matches!(history.rolls_stand(|_, _| found), Err(Violation::RollUndone { .. })));
    }
}

#[test]
fn a_call_that_ends_after_its_deadline_is_found() {
    let mut progress = progress::Progress::default();
    let slack_ns = progress::SLACK_MS * 1_000_000;
    progress.ended("a call", 100, 100 + slack_ns).unwrap();
    assert!(matches!(progress.ended("a call", 100, 101 + slack_ns), Err(Violation::Late { .. })));
}

#[test]
fn memory_above_its_bound_is_found() {
    let mut memory = memory::Memory::default();
    memory.sample("bytes", 10, 10).unwrap();
    assert!(matches!(memory.sample("bytes", 11, 10), Err(Violation::Memory { .. })));
    assert_eq!(memory.most, [("bytes", 11)]);
}
