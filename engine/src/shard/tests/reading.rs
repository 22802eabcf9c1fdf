//! Reading history: indexes from footers, what is read ahead, and the search by time.

use super::*;

impl Rig {
    /// Where the records not earlier than a time begin, and where the range ends.
    fn since(&mut self, timestamp_ms: u64) -> (u64, u64) {
        self.replies.clear();
        let request = ShardRequest::Since { range: RANGE, timestamp_ms };
        self.give(Event::Request { to: TO, deadline_ns: u64::MAX, request });
        let replies = std::mem::take(&mut self.replies);
        let [Response::Bounds { start, end }] = replies[..] else { panic!("{replies:?}") };
        (start.0, end.0)
    }
}

#[test]
fn a_gap_is_told_by_the_fetch_that_first_reads_the_index_behind_it() {
    let mut rig = Rig::new(256 << 10);
    let (first, cause) = (SegmentId(2), GapCause::Forced);
    let hole = Span { from: Offset(0), to: Offset(3), records_at_most: 3, cause };
    rig.holes.insert(first, vec![hole]);
    rig.warm();
    rig.store(600, 6_000);
    let state = &rig.shard.catalog.segment(first).expect("it was stored").state;
    let in_footer = matches!(state, SegmentState::Sealed { contents: Contents::Footer(_), .. });
    assert!(in_footer, "its index is in memory: {state:?}");
    let gap = Gap { from: hole.from, to: hole.to, records_at_most: 3, cause };
    // The first reads the footer, the batches, and what follows them; the second has the index already, and what follows.
    for reads in [3, 1] {
        let before = rig.shard.counters().reads;
        let replies = rig.fetch(0, 0);
        let [Response::Fetched(fetched)] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!(rig.shard.counters().reads - before, reads);
        assert_eq!(fetched.gaps, [gap]);
        assert_eq!(values_of(fetched)[0], value(3, 6_000));
    }
}

fn one_fetched(replies: &[Response]) -> &Fetched {
    let [Response::Fetched(fetched)] = replies else { panic!("{replies:?}") };
    fetched
}

#[test]
fn what_a_reader_of_history_asks_for_next_has_been_read_when_it_asks() {
    let mut rig = Rig::new(256 << 10);
    rig.warm();
    rig.store(600, 6_000);
    let mut next = one_fetched(&rig.fetch(0, 0)).next;
    rig.holds_files = true;
    for _ in 0..3 {
        let replies = rig.fetch(next.0, 0);
        let fetched = one_fetched(&replies);
        assert_eq!(values_of(fetched)[0], value(next.0, 6_000));
        next = fetched.next;
        assert_eq!(rig.held.len(), 1, "what follows is being read");
        assert_eq!(rig.release_files(), [], "nobody waits for it");
    }
}

#[test]
fn a_fetch_of_what_is_being_read_ahead_waits_for_that_read_and_is_answered_once() {
    let mut rig = Rig::new(256 << 10);
    rig.warm();
    rig.store(600, 6_000);
    let next = one_fetched(&rig.fetch(0, 0)).next;
    rig.holds_files = true;
    let next = one_fetched(&rig.fetch(next.0, 0)).next;
    let read_next = rig.held.len();
    assert_eq!(rig.fetch(next.0, 0), [], "it waits");
    assert_eq!(rig.held.len(), read_next, "for what is being read already");
    let replies = rig.release_files();
    assert_eq!(values_of(one_fetched(&replies))[0], value(next.0, 6_000));
    assert_eq!(rig.held.len(), 1, "and what follows is read");
}

#[test]
fn a_search_by_time_leaves_out_no_record_and_begins_at_most_an_index_entry_too_early() {
    let mut rig = Rig::new(256 << 10);
    // They go back now and then, and one is far ahead of its neighbours.
    let timestamps: Vec<u64> = (0..600)
        .map(|i| match i {
            120 => 3_000,
            _ if i % 7 == 3 => 800 + i * 10,
            _ => 1_000 + i * 10,
        })
        .collect();
    rig.warm();
    rig.store_at(&timestamps, 6_000);
    assert!(rig.shard.counters().segments_closed >= 10, "the first segments have footers");
    for wanted in (0..7_200).step_by(37) {
        let (start, end) = rig.since(wanted);
        assert_eq!(end, 600);
        let first = timestamps.iter().position(|ms| *ms >= wanted).map_or(600, |first| first as u64);
        assert!(start <= first, "time {wanted}: {start} is behind the first at {first}");
        assert!(first - start <= 12, "time {wanted}: {start} is more than an index entry before {first}");
    }
}

#[test]
fn a_search_by_time_begins_in_front_of_a_hole_that_may_have_held_what_is_searched() {
    let mut rig = Rig::new(256 << 10);
    let first = SegmentId(2);
    // Entries of the index are 64 KiB apart: batches 0, 11, 22, ….
    let hole = Span { from: Offset(8), to: Offset(11), records_at_most: 3, cause: GapCause::Forced };
    rig.holes.insert(first, vec![hole]);
    rig.warm();
    rig.store_at(&(0..600).collect::<Vec<u64>>(), 6_000);
    assert_eq!(rig.since(12).0, 8);
    assert_eq!(rig.since(40).0, 33);
}

#[test]
fn a_search_by_time_reads_a_segment_from_its_start_if_its_footer_does_not_verify() {
    let mut rig = Rig::new(256 << 10);
    rig.warm();
    rig.store_at(&(0..600).collect::<Vec<u64>>(), 6_000);
    let file = DataFile::Segment { segment: SegmentId(2), part: 0 };
    let state = &rig.shard.catalog.segment(SegmentId(2)).expect("it was stored").state;
    let SegmentState::Sealed { contents: Contents::Footer(footer), .. } = state else { panic!("{state:?}") };
    let at = usize::try_from(footer.position).unwrap() + 100;
    rig.files.get_mut(&file).expect("it was made")[at] ^= 1;
    assert_eq!(rig.since(30), (0, 600));
}
