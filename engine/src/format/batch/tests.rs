use proptest::prelude::*;

use super::*;
use crate::format::checksum::{Digest, checksum};
use crate::format::entry::{EntryKind, SegmentSeed, entry_bytes, read_entry, write_entry, write_pad};
use crate::format::record::{RecordFault, RecordKey};
use crate::format::verdict::Verdict;
use crate::types::{Epoch, KeyHash, KeySpan, Offset, ProducerEpoch, ProducerId, Run, SegmentId, Sequence};

const MAX: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Made {
    key: Option<Vec<u8>>,
    hash: u64,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    timestamp_ms: u64,
}

impl Made {
    fn key(&self) -> RecordKey<'_> {
        self.key.as_deref().map_or(RecordKey::Keyless(KeyHash(self.hash)), RecordKey::Key)
    }

    fn headers(&self) -> Vec<(&[u8], &[u8])> {
        self.headers.iter().map(|(n, v)| (&n[..], &v[..])).collect()
    }

    fn push(&self, builder: &mut BatchBuilder) -> Result<(), BatchFull> {
        builder.push(self.key(), self.value.as_deref(), &self.headers(), self.timestamp_ms)
    }
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn record() -> impl Strategy<Value = Made> {
    let headers = prop::collection::vec((bytes(9), bytes(9)), 0..3);
    let timestamp = prop_oneof![1_700_000_000_000u64..1_700_000_100_000, any::<u64>()];
    (prop::option::of(bytes(20)), any::<u64>(), prop::option::of(bytes(300)), headers, timestamp)
        .prop_map(|(key, hash, value, headers, timestamp_ms)| Made { key, hash, value, headers, timestamp_ms })
}

fn stamp() -> Stamp {
    Stamp { producer: ProducerId(7), epoch: ProducerEpoch(2), run: Run(1), sequence: Sequence(5), last: true }
}

fn build(records: &[Made]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(MAX);
    for record in records {
        record.push(&mut builder).unwrap();
    }
    builder.finish(stamp()).to_vec()
}

fn simple(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(MAX);
    for (i, value) in values.iter().enumerate() {
        builder.push(RecordKey::Key(b"key"), Some(value), &[], 1_000 + i as u64).unwrap();
    }
    builder.finish(stamp()).to_vec()
}

fn seal(bytes: &mut [u8]) {
    let sum = checksum(0, &bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

fn seed() -> SegmentSeed {
    SegmentSeed::new(SegmentId(3), 99)
}

fn place_at(offset: u64) -> Place {
    Place { segment: SegmentId(3), offset: Offset(offset), epoch: Epoch(4), append_time_ms: 5_000 }
}

fn placed(batch: &[u8], offset: u64, before: Digest) -> (Vec<u8>, Digest) {
    let batch = BatchRef::verify(batch, MAX).unwrap();
    let mut out = vec![0xee; entry_length(batch.bytes().len())];
    let digest = place(&mut out, seed(), place_at(offset), before, batch);
    (out, digest)
}

proptest! {
    #[test]
    fn records_read_back_as_they_were_pushed(records in prop::collection::vec(record(), 1..20)) {
        let bytes = build(&records);
        let batch = BatchRef::verify(&bytes, MAX).unwrap();
        prop_assert_eq!(batch.walk(KeySpan::ALL), Ok(()));
        prop_assert_eq!(batch.record_count() as usize, records.len());
        prop_assert_eq!(Some(batch.timestamp_ms_min()), records.iter().map(|r| r.timestamp_ms).min());
        prop_assert_eq!(Some(batch.timestamp_ms_max()), records.iter().map(|r| r.timestamp_ms).max());
        prop_assert_eq!(Some(batch.key_hash_min()), records.iter().map(|r| r.key().hash()).min());
        prop_assert_eq!(Some(batch.key_hash_max()), records.iter().map(|r| r.key().hash()).max());
        for (read, made) in batch.records().zip(&records) {
            let read = read.unwrap();
            prop_assert_eq!(read.key, made.key());
            prop_assert_eq!(read.value, made.value.as_deref());
            prop_assert_eq!(read.timestamp_ms, made.timestamp_ms);
            prop_assert_eq!(read.headers.collect::<Vec<_>>(), made.headers());
        }
    }

    #[test]
    fn a_builder_never_exceeds_its_bound(records in prop::collection::vec(record(), 1..40), max in 100usize..2_000) {
        let mut builder = BatchBuilder::new(max);
        for record in &records {
            let before = builder.count();
            let fits = builder.would_fit(record.key(), record.value.as_deref(), &record.headers(), record.timestamp_ms);
            prop_assert_eq!(record.push(&mut builder).is_ok(), fits);
            prop_assert_eq!(builder.count(), before + u32::from(fits));
        }
        if !builder.is_empty() {
            let bound = builder.bytes_bound();
            let length = builder.finish(stamp()).len();
            prop_assert!(length <= bound && bound <= max, "{} {} {}", length, bound, max);
        }
    }

    #[test]
    fn a_flipped_bit_in_a_batch_is_seen(records in prop::collection::vec(record(), 1..5), at: prop::sample::Index, bit in 0u8..8) {
        let mut bytes = build(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(BatchRef::verify(&bytes, MAX).is_err());
    }

    #[test]
    fn a_flipped_bit_in_an_entry_is_seen(records in prop::collection::vec(record(), 1..5), at: prop::sample::Index, bit in 0u8..8) {
        let (mut bytes, _) = placed(&build(&records), 10, Digest(1));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(PlacedBatch::verify(&bytes, seed()).is_err());
    }

    #[test]
    fn any_records_under_a_right_checksum_are_judged(mut bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0u32..9) {
        let mut batch = simple(&[b"x"]);
        batch.truncate(BATCH_HEADER_BYTES);
        batch.append(&mut bytes);
        let length = u32::try_from(batch.len()).unwrap();
        batch[4..8].copy_from_slice(&length.to_le_bytes());
        batch[40..44].copy_from_slice(&count.to_le_bytes());
        seal(&mut batch);
        if let Ok(batch) = BatchRef::verify(&batch, MAX) {
            let _ = batch.walk(KeySpan::ALL);
            let _ = batch.records().count();
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = BatchRef::verify(&bytes, MAX);
        let _ = PlacedBatch::verify(&bytes, seed());
        let _ = PlacedBatch::verify_as_reader(&bytes, MAX);
        let _ = PlacedBatch::trust(&bytes);
        let _ = ReaderBatches::new(&bytes, MAX).count();
    }
}

#[test]
fn a_batch_with_a_wrong_length_is_refused() {
    let bytes = simple(&[b"one"]);
    let claimed = u32::try_from(bytes.len()).unwrap();
    let short = bytes.len() - 1;
    assert_eq!(BatchRef::verify(&bytes[..short], MAX).unwrap_err(), BatchError::Length { claimed, found: short });
    assert_eq!(BatchRef::verify(b"", MAX).unwrap_err(), BatchError::Length { claimed: 0, found: 0 });
    let max = bytes.len() - 1;
    assert_eq!(BatchRef::verify(&bytes, max).unwrap_err(), BatchError::TooLarge { length: bytes.len(), max });
}

#[test]
fn a_header_that_this_build_does_not_know_is_refused_with_its_name() {
    let altered = |at: usize, byte: u8| {
        let mut bytes = simple(&[b"one"]);
        bytes[at] = byte;
        seal(&mut bytes);
        BatchRef::verify(&bytes, MAX).map(|_| ())
    };
    assert!(matches!(altered(8, 2), Err(BatchError::Newer(n)) if n.what == "batch" && n.found == 2));
    assert!(matches!(altered(9, 2), Err(BatchError::Newer(n)) if n.what == "running digest"));
    assert!(matches!(altered(14, 2), Err(BatchError::Newer(n)) if n.what == "keyspace"));
    assert_eq!(altered(8, 0), Err(BatchError::Header));
    assert_eq!(altered(10, 8 | 3), Err(BatchError::Codec { found: 3 }));
    assert_eq!(altered(10, 16), Err(BatchError::Header));
    assert_eq!(altered(12, 1), Err(BatchError::Header));
    assert_eq!(altered(40, 0), Err(BatchError::Header));
    assert_eq!(altered(41, 1), Err(BatchError::Header));
    assert_eq!(altered(44, 1), Err(BatchError::Header));
    assert_eq!(altered(79, 0), Err(BatchError::Header));
}

#[test]
fn what_a_reader_would_refuse_is_refused_by_the_walk() {
    let walk = |alter: &dyn Fn(&mut Vec<u8>), span: KeySpan| {
        let mut bytes = simple(&[b"one", b"two"]);
        alter(&mut bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        seal(&mut bytes);
        BatchRef::verify(&bytes, MAX).unwrap().walk(span)
    };
    let hash = KeyHash::of(b"key");
    let lower_half = KeySpan::ALL.halves().unwrap();
    let (inside, outside) = if lower_half.0.contains(hash) { lower_half } else { (lower_half.1, lower_half.0) };
    let fault = |index, fault| Err(RecordError { index, fault });
    assert_eq!(walk(&|_| (), inside), Ok(()));
    assert_eq!(walk(&|_| (), outside), fault(0, RecordFault::HashSpan(hash)));
    assert_eq!(walk(&|b| b[64..72].fill(0), inside), Ok(()));
    assert_eq!(walk(&|b| b[64..80].fill(0), inside), fault(0, RecordFault::HashBounds(hash)));
    assert_eq!(walk(&|b| b[56..64].copy_from_slice(&1_000u64.to_le_bytes()), inside), fault(1, RecordFault::Timestamp));
    assert_eq!(walk(&|b| b.push(0), inside), fault(2, RecordFault::Trailing(1)));
    assert_eq!(walk(&|b| b[40] = 1, inside), fault(1, RecordFault::Trailing(11)));
    assert_eq!(walk(&|b| b[40] = 3, inside), fault(2, RecordFault::Truncated));
}

#[test]
fn a_finished_batch_may_be_given_another_stamp() {
    let mut builder = BatchBuilder::new(MAX);
    for timestamp_ms in [9, 5, 7] {
        builder.push(RecordKey::Key(b"k"), None, &[], timestamp_ms).unwrap();
    }
    let first = builder.finish(stamp()).to_vec();
    let second = builder.finish(Stamp { sequence: Sequence(6), ..stamp() }).to_vec();
    assert_eq!(first[48..], second[48..]);
    assert_eq!(BatchRef::verify(&second, MAX).unwrap().sequence(), Sequence(6));
    builder.clear();
    builder.push(RecordKey::Key(b"k"), None, &[], 1).unwrap();
    assert_eq!(BatchRef::verify(builder.finish(stamp()), MAX).unwrap().record_count(), 1);
}

#[test]
fn a_batch_knows_how_it_lies_to_a_span() {
    let mut builder = BatchBuilder::new(MAX);
    builder.push(RecordKey::Keyless(KeyHash(5)), None, &[], 1).unwrap();
    builder.push(RecordKey::Keyless(KeyHash(1 << 62)), None, &[], 1).unwrap();
    let batch = BatchRef::verify(builder.finish(stamp()), MAX).unwrap();
    let (low, high) = KeySpan::ALL.halves().unwrap();
    assert_eq!(batch.overlap(low), Overlap::Whole);
    assert_eq!(batch.overlap(high), Overlap::Nothing);
    assert_eq!(batch.overlap(low.halves().unwrap().0), Overlap::Part);
}

#[test]
fn a_placed_batch_carries_its_place_and_continues_the_digest() {
    let start = Digest::start(SegmentId(3), Offset(10), b"");
    let (first, digest) = placed(&simple(&[b"one", b"two"]), 10, start);
    let (second, _) = placed(&simple(&[b"three"]), 12, digest);
    let read = PlacedBatch::verify(&first, seed()).unwrap();
    assert_eq!((read.place(), read.end(), read.digest()), (place_at(10), Offset(12), digest));
    assert!(read.continues(start) && !read.continues(digest));
    assert!(PlacedBatch::verify(&second, seed()).unwrap().continues(digest));
}

#[test]
fn the_batch_of_another_segment_does_not_verify_but_a_reader_can_read_it() {
    let (bytes, _) = placed(&simple(&[b"one"]), 10, Digest(1));
    let other = SegmentSeed::new(SegmentId(4), 99);
    assert_eq!(PlacedBatch::verify(&bytes, other).unwrap_err(), PlacedError::Entry(Verdict::Unreadable));
    assert_eq!(PlacedBatch::verify_as_reader(&bytes, MAX).unwrap().end(), Offset(11));
    assert!(PlacedBatch::verify_as_reader(&bytes, 80).is_err());
}

#[test]
fn a_changed_placement_is_seen_even_under_a_right_header() {
    let (mut bytes, _) = placed(&simple(&[b"one"]), 10, Digest(1));
    bytes[24] ^= 1;
    assert!(read_entry(&bytes, seed()).is_ok());
    assert_eq!(PlacedBatch::verify(&bytes, seed()).unwrap_err(), PlacedError::Placement);
}

#[test]
fn a_reader_passes_over_entries_that_are_no_batches() {
    let (first, digest) = placed(&simple(&[b"one"]), 10, Digest(1));
    let (second, _) = placed(&simple(&[b"two"]), 11, digest);
    let mut mark = vec![0; entry_bytes(3)];
    write_entry(&mut mark, EntryKind::RollMark, seed(), b"abc");
    let mut pad = vec![0; 64];
    write_pad(&mut pad, seed());
    let all = [first.clone(), mark, pad, second.clone()].concat();
    let ends: Vec<_> = ReaderBatches::new(&all, MAX).map(|b| b.unwrap().end().0).collect();
    assert_eq!(ends, [11, 12]);
    let cut = &all[..all.len() - 8];
    let mut batches = ReaderBatches::new(cut, MAX);
    assert!(batches.next().unwrap().is_ok());
    assert_eq!(batches.next().unwrap().unwrap_err(), PlacedError::Entry(Verdict::Torn));
    assert!(batches.next().is_none());
}
