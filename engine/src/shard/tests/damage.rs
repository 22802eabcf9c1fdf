//! What rots in a segment's file becomes a gap, and everything else is read.

use super::*;
use crate::format::entry::{EntryKind, SegmentSeed, read_entry};
use crate::types::limits::BLOCK;

/// Bytes of a value: some eleven batches lie between two entries of the index.
const BYTES: usize = 6_000;

impl Rig {
    /// 600 batches of one record each in many segments of which all but the last are in their files.
    fn with_history() -> Self {
        let mut rig = Self::new(256 << 10);
        rig.warm();
        rig.store(600, BYTES);
        rig.told.clear();
        rig
    }

    fn file(segment: u64) -> DataFile {
        DataFile::Segment { segment: SegmentId(segment), part: 0 }
    }

    /// Where the entry of the batch with `offset` begins and ends in the file of its segment.
    fn batch_at(&self, segment: u64, offset: u64) -> std::ops::Range<usize> {
        let record = self.shard.catalog.segment(SegmentId(segment)).expect("it was stored");
        let seed = SegmentSeed::new(SegmentId(segment), record.header.random);
        let (bytes, mut at) = (&self.files[&Self::file(segment)], BLOCK);
        let mut next = record.base().0;
        loop {
            let entry = read_entry(&bytes[at..], seed).expect("the file is whole");
            let end = at + entry.bytes.len();
            if entry.kind == EntryKind::Batch {
                if next == offset {
                    return at..end;
                }
                next += 1;
            }
            at = end;
        }
    }

    fn rot(&mut self, segment: u64, at: usize) {
        self.files.get_mut(&Self::file(segment)).expect("it was made")[at] ^= 0x20;
    }

    /// All records from `offset` on, by their sequences, and the gaps between.
    fn read_from(&mut self, mut offset: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
        let (mut read, mut gaps) = (Vec::new(), Vec::new());
        for _ in 0..10_000 {
            let mut replies = self.fetch(offset, 0);
            let fetched = match replies.pop() {
                Some(Response::Fetched(fetched)) => fetched,
                Some(Response::Refused(Refusal::Judging { .. })) => continue,
                other => panic!("{other:?}"),
            };
            if fetched.next.0 == offset {
                return (read, gaps);
            }
            gaps.extend(fetched.gaps.iter().map(|gap| (gap.from.0, gap.to.0)));
            let sequence = |value: &Vec<u8>| u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
            read.extend(values_of(&fetched).iter().map(sequence).filter(|sequence| *sequence >= offset));
            offset = fetched.next.0;
        }
        panic!("it comes to no end");
    }

    /// Everything but `lost` is read, and `lost` is told as a gap.
    fn expect_lost(&mut self, lost: &[std::ops::Range<u64>]) {
        let (read, gaps) = self.read_from(0);
        let is_lost = |sequence: &u64| lost.iter().any(|lost| lost.contains(sequence));
        assert_eq!(read, (0..600).filter(|sequence| !is_lost(sequence)).collect::<Vec<_>>());
        assert_eq!(gaps, lost.iter().map(|lost| (lost.start, lost.end)).collect::<Vec<_>>());
    }

    fn base(&self, segment: u64) -> u64 {
        self.shard.catalog.segment(SegmentId(segment)).expect("it was stored").base().0
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_batch_of_a_sealed_segment_is_a_gap_of_that_batch_alone() {
    let rig = Rig::with_history();
    let lost = rig.base(3) + 20;
    let batch = rig.batch_at(3, lost);
    let at = [0, 5, 9, 15, 16, 40, 100, batch.len() - 1];
    for (number, at) in at.into_iter().enumerate() {
        let mut rig = Rig::with_history();
        rig.rot(3, batch.start + at);
        let found = rig.shard.counters().damage_found;
        assert!(matches!(rig.fetch(lost, 0)[..], [Response::Refused(Refusal::Judging { .. })]), "{number}");
        assert_eq!(rig.shard.counters().damage_found, found + 1);
        rig.expect_lost(std::slice::from_ref(&(lost..lost + 1)));
        assert_eq!(rig.told.len(), 1, "told once");
    }
}

#[test]
fn batches_that_are_gone_one_behind_the_other_are_one_gap_and_those_apart_are_two() {
    let mut rig = Rig::with_history();
    let base = rig.base(4);
    for batch in [3, 4, 5, 30].map(|lost| rig.batch_at(4, base + lost)) {
        rig.files.get_mut(&Rig::file(4)).expect("it was made")[batch].fill(0);
    }
    rig.expect_lost(&[base + 3..base + 6, base + 30..base + 31]);
}

#[test]
fn what_is_gone_at_the_end_of_a_segment_is_a_gap_up_to_its_end() {
    let mut rig = Rig::with_history();
    let (base, next) = (rig.base(4), rig.base(5));
    let from = rig.batch_at(4, base + 33).start;
    rig.files.get_mut(&Rig::file(4)).expect("it was made")[from..].fill(0xa5);
    rig.expect_lost(std::slice::from_ref(&(base + 33..next)));
}

#[test]
fn a_block_that_the_device_cannot_read_takes_the_batches_in_it_and_no_others() {
    let mut rig = Rig::with_history();
    let lost = rig.base(5) + 7;
    let batch = rig.batch_at(5, lost);
    let block = (batch.start + 100) / BLOCK * BLOCK;
    rig.unreadable.push((Rig::file(5), block));
    let is_hit = |rig: &Rig, offset: u64| {
        let batch = rig.batch_at(5, offset);
        batch.start < block + BLOCK && block < batch.end
    };
    let (first, last) = (if is_hit(&rig, lost - 1) { lost - 1 } else { lost }, lost + 1);
    let last = if is_hit(&rig, last) { last + 1 } else { last };
    rig.expect_lost(std::slice::from_ref(&(first..last)));
}

#[test]
fn a_reader_that_begins_behind_a_gap_reads_on_though_the_index_leads_in_front_of_it() {
    let mut rig = Rig::with_history();
    let lost = rig.base(3) + 4;
    rig.rot(3, rig.batch_at(3, lost).start + 50);
    let (read, gaps) = rig.read_from(lost + 2);
    assert_eq!((read[0], gaps.len()), (lost + 2, 0), "what is behind it is whole, and nothing of it is missing");
    assert_eq!(read.len() as u64, 600 - lost - 2);
    // The place is forgotten with the life, the hole is not.
    let piece = rig.shard.ranges[0].piece_of(SegmentId(3)).expect("it is there");
    rig.shard.ranges[0].chain[piece].places.clear();
    rig.told.clear();
    rig.expect_lost(std::slice::from_ref(&(lost..lost + 1)));
    assert!(rig.told.len() <= 1, "{:?}", rig.told);
}

#[test]
fn bytes_that_verify_when_they_are_read_again_are_no_damage() {
    let mut rig = Rig::with_history();
    let offset = rig.base(3) + 4;
    let at = rig.batch_at(3, offset).start + 50;
    rig.rot(3, at);
    rig.holds_files = true;
    assert_eq!(rig.fetch(offset, 0), []);
    rig.release_files();
    while rig.held.is_empty() {
        rig.fetch(offset, 0);
        rig.release_files();
    }
    rig.rot(3, at);
    rig.holds_files = false;
    rig.release_files();
    rig.expect_lost(&[]);
    assert_eq!(rig.told, []);
}

#[test]
fn without_its_footer_a_segment_is_read_from_its_start() {
    let mut rig = Rig::with_history();
    let state = &rig.shard.catalog.segment(SegmentId(3)).expect("it was stored").state;
    let SegmentState::Sealed { contents: Contents::Footer(footer), .. } = state else { panic!("{state:?}") };
    let at = usize::try_from(footer.position).unwrap() + 100;
    rig.rot(3, at);
    rig.expect_lost(&[]);
}

#[test]
fn damage_in_a_segment_that_still_takes_records_is_sealed_first() {
    let mut rig = Rig::new(64 << 20);
    rig.warm();
    rig.store(600, BYTES);
    assert!(rig.shard.counters().checkpoints > 0 && rig.shard.counters().rolls == 0);
    rig.told.clear();
    rig.rot(2, rig.batch_at(2, 5).start + 50);
    // The index leads there from the segment's start, where memory has nothing any more.
    for _ in 0..3 {
        rig.fetch(5, 0);
    }
    let wanted = ToController::NeedSeal { range: RANGE, segment: SegmentId(2), urgent: true };
    assert!(rig.told.contains(&wanted), "{:?}", rig.told);
    rig.give(Event::Message(ToReplica::Seal { range: RANGE, segment: SegmentId(2), epoch: Epoch(2) }));
    rig.give(Event::Flush);
    rig.settle();
    let digest = rig.shard.tails.iter().flatten().next().expect("a tail").appender.digest();
    let sealed = SealedSegment {
        segment: SegmentId(2),
        base: Offset(0),
        end: Offset(600),
        digest,
        holes: Vec::new(),
        epoch: Epoch(2),
    };
    rig.give(Event::Message(ToReplica::Sealed { range: RANGE, sealed }));
    rig.settle();
    rig.expect_lost(std::slice::from_ref(&(5..6)));
    let open = samples::open(9, Some(Offset(600)), 9);
    rig.give(Event::Message(ToReplica::Open { range: RANGE, open: SegmentOpen { epoch: Epoch(2), ..open } }));
    assert_eq!(rig.shard.ranges[0].replica.open_segment(), Some(SegmentId(9)), "and producing goes on");
}
