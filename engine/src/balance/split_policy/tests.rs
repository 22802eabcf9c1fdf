use std::fmt::Write as _;

use super::*;
use crate::format::checksum::Digest;
use crate::metadata::{Change, SealReason};
use crate::replica::message::{RollCause, SealedSegment, SegmentOpen};
use crate::types::{Epoch, NodeId, Offset, ProcessLife, SegmentId};

/// A log of rolls, and what is wished after each.
struct Log {
    state: State,
    text: String,
}

fn opening(segment: SegmentId, base: Option<Offset>, epoch: Epoch, predecessor: Option<SegmentId>) -> SegmentOpen {
    SegmentOpen {
        segment,
        base,
        epoch,
        seed: 0,
        predecessor,
        primary: NodeId(1),
        life: ProcessLife(1),
        replicas: 1,
        quorum: 1,
        batch_bytes_max: 1 << 20,
        retention_ms: 0,
    }
}

impl Log {
    /// A topic of so many ranges, each with an open segment.
    fn new(ranges: u32, auto_split: Option<u32>) -> Self {
        let mut log = Self { state: State::default(), text: String::new() };
        log.apply(&Change::NodeStarted { node: NodeId(1), life: ProcessLife(1), shards: 1 });
        log.apply(&Change::CreateTopic {
            name: "a".to_owned(),
            keyspace_version: 1,
            batch_bytes_max: 1 << 20,
            ranges,
            homes: vec![NodeId(1)],
            auto_split,
        });
        for range in 1..=u64::from(ranges) {
            log.open(range);
        }
        log
    }

    fn apply(&mut self, change: &Change) {
        self.state.apply(change).unwrap_or_else(|rejected| panic!("{change:?}: {rejected}"));
    }

    fn open(&mut self, range: u64) {
        let state = self.state.range(RangeId(range)).unwrap();
        let (base, epoch, last) = (state.chain.end(), state.epoch, state.chain.last_sealed());
        let open = opening(self.state.next().segment, Some(base), epoch, last);
        self.apply(&Change::Open { range: RangeId(range), open });
    }

    /// The range rolls, and what is wished then goes into the text.
    fn roll(&mut self, range: u64, cause: RollCause) {
        let id = RangeId(range);
        let state = self.state.range(id).unwrap();
        let (open, epoch) = (*state.chain.open().unwrap(), state.epoch);
        let (segment, base) = (open.segment, open.base.unwrap());
        let successor = self.state.next().segment;
        let prepared = opening(successor, None, epoch, Some(segment));
        self.apply(&Change::Prepare { range: id, after: segment, open: prepared });
        let sealed = SealedSegment { segment, base, end: base.plus(1), digest: Digest(0), holes: Vec::new(), epoch };
        self.apply(&Change::Rolled { range: id, sealed, successor, cause });
        let wish = match decide(&self.state, id) {
            None => String::new(),
            Some(Wish::Split { range }) => format!(" -> split {range}"),
            Some(Wish::Merge { low, high }) => format!(" -> merge {low} {high}"),
        };
        writeln!(self.text, "{id} {cause:?}{wish}").unwrap();
    }

    /// A range is sealed and split, as committed.
    fn split(&mut self, range: u64) {
        let id = RangeId(range);
        let state = self.state.range(id).unwrap();
        let (open, epoch) = (*state.chain.open().unwrap(), state.epoch.next());
        let (segment, base) = (open.segment, open.base.unwrap());
        self.apply(&Change::BeginSeal { range: id, segment, epoch, reason: SealReason::Split });
        assert_eq!(decide(&self.state, id), None, "it is under way");
        let sealed = SealedSegment { segment, base, end: base, digest: Digest(0), holes: Vec::new(), epoch };
        self.apply(&Change::Split { range: id, sealed, fences: Vec::new(), opens: Vec::new() });
        assert_eq!(decide(&self.state, id), None, "it is sealed");
    }

    fn expect(&self, expected: &str) {
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(self.text.lines().collect::<Vec<_>>(), expected, "\n{}", self.text);
    }
}

use RollCause::{Age, Asked, Full};

#[test]
fn three_full_segments_in_a_row_split_a_range() {
    let mut log = Log::new(1, Some(4));
    for cause in [Full, Full, Age, Full, Full, Asked, Full, Full] {
        log.roll(1, cause);
    }
    log.expect(
        "r1 Full
         r1 Full
         r1 Age
         r1 Full
         r1 Full
         r1 Asked
         r1 Full -> split r1
         r1 Full -> split r1",
    );
}

#[test]
fn halves_that_are_idle_both_are_merged_and_one_alone_is_not() {
    let mut log = Log::new(1, Some(4));
    log.split(1);
    log.open(2);
    log.open(3);
    for (range, cause) in [(2, Age), (2, Age), (2, Age), (3, Age), (3, Age), (3, Full), (3, Age), (3, Age), (3, Age)] {
        log.roll(range, cause);
    }
    log.expect(
        "r2 Age
         r2 Age
         r2 Age
         r3 Age
         r3 Age
         r3 Full
         r3 Age
         r3 Age
         r3 Age -> merge r2 r3",
    );
}

#[test]
fn what_was_split_begins_to_count_anew() {
    let mut log = Log::new(1, Some(8));
    (0..3).for_each(|_| log.roll(1, Full));
    log.split(1);
    log.open(2);
    (0..3).for_each(|_| log.roll(2, Full));
    log.expect(
        "r1 Full
         r1 Full
         r1 Full -> split r1
         r2 Full
         r2 Full
         r2 Full -> split r2",
    );
}

#[test]
fn a_topic_stays_within_its_bounds() {
    let mut log = Log::new(2, Some(2));
    (0..4).for_each(|_| log.roll(1, Full));
    for range in [1, 2] {
        (0..4).for_each(|_| log.roll(range, Age));
    }
    assert!(!log.text.contains("->"), "{}", log.text);
}

#[test]
fn a_topic_that_does_not_look_after_itself_is_left_alone() {
    let mut log = Log::new(2, None);
    (0..9).for_each(|_| log.roll(1, Full));
    for range in [1, 2] {
        (0..9).for_each(|_| log.roll(range, Age));
    }
    assert!(!log.text.contains("->"), "{}", log.text);
    assert_eq!(log.state.load(RangeId(1)), RangeLoad::default(), "nothing is kept of it");
}
