#![allow(clippy::cast_possible_truncation, reason = "the tests count in small numbers")]

use proptest::prelude::*;

use super::*;
use crate::api::port::{Fill, Folder, Store};
use crate::format::checksum::{Digest, checksum};
use crate::format::golden::golden;
use crate::format::index::IndexEntry;
use crate::format::segment::{HoleCause, RollMark, Seal};
use crate::segment::appender::{Cut, Placed};
use crate::segment::samples::{empty_table, header};
use crate::segment::tally::Tally;
use crate::segment::test_store::{Dice, TestStore};

const ID: ChainId = ChainId { shard: ShardId(3), shards: 4, generation: Generation(77) };
/// The range of every sample segment.
const DELETED: RangeId = RangeId(7);

fn cut(position: u64, end: u64) -> Cut {
    let tally = Tally { batches: 1, records: end, bytes: position, timestamp_ms_min: 4, timestamp_ms_max: 5 };
    Cut { position, end: Offset(end), digest: Digest(9 << 100), tally }
}

fn hole(from: u64, to: u64) -> Hole {
    Hole { from: Offset(from), to: Offset(to), records_at_most: to - from, cause: HoleCause::Interrupted }
}

fn tail(entries: u64) -> Tail {
    let index = (0..entries).map(|i| IndexEntry::new(Offset(i), i, 4096 + i * 70_000)).collect();
    Tail { index, table: empty_table() }
}

fn record(segment: u64, state: SegmentState) -> SegmentRecord {
    let extents = vec![Extent { part: 0, start: 0, length: 8192 }, Extent { part: 1, start: 4096, length: 1 << 20 }];
    SegmentRecord { header: header(segment, 0), extents, checkpoint: cut(8192, 20), state }
}

fn states() -> Vec<SegmentState> {
    let seal = Seal { end: Offset(30), epoch: Epoch(5), digest: Digest(6) };
    let mark = RollMark { end: Offset(20), digest: Digest(1), successor: SegmentId(9), successor_table: Digest(2) };
    let sealed = |contents| SegmentState::Sealed { seal, holes: vec![hole(20, 30)], contents };
    vec![
        SegmentState::Open(tail(3)),
        SegmentState::Rolled { mark, tail: tail(0) },
        sealed(Contents::Catalog(tail(1))),
        sealed(Contents::Footer(Placed { position: 8192, length: 4096 })),
    ]
}

fn aligned(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer[..bytes.len()].copy_from_slice(bytes);
    buffer
}

fn write(store: &mut TestStore, file: &CatalogFile) {
    store.create(file.file, file.buffer.len() as u64, Fill::Allocated).unwrap();
    store.write(file.file, 0, &file.buffer).unwrap();
    store.sync(file.file).unwrap();
    store.sync_folder(Folder::Catalog).unwrap();
}

fn reload(store: &mut TestStore) -> Result<Catalog, CatalogError> {
    let names = store.list(Folder::Catalog)?;
    load(store, &names, ID.shard, ID.generation).map(|found| found.expect("there are files").catalog)
}

fn assert_same(found: &Catalog, expected: &Catalog) {
    assert_eq!(found.segments, expected.segments);
    assert_eq!(found.promises, expected.promises);
    assert_eq!(found.uncertain, expected.uncertain);
    assert_eq!(found.trims, expected.trims);
    assert_eq!(found.deletions, expected.deletions);
    assert_eq!((found.live, found.sequence, found.digest), (expected.live, expected.sequence, expected.digest));
}

/// A generation of a snapshot, deltas that each add segment `n` (their sequence) and a snapshot at each of `snapshots`.
fn chain(store: &mut TestStore, deltas: u64, snapshots: &[u64]) -> Catalog {
    let mut catalog = Catalog::new(ID, 100);
    write(store, &catalog.snapshot());
    for n in 101..=100 + deltas {
        catalog.put_segment(record(n, SegmentState::Open(tail(2))));
        catalog.promise(RangeId(1), Epoch(n));
        catalog.set_live(LiveMark { sequence: n, position: n * 4096, previous: n });
        write(store, &catalog.delta());
        if snapshots.contains(&n) {
            write(store, &catalog.snapshot());
        }
    }
    catalog
}

fn delta(sequence: u64) -> DataFile {
    DataFile::CatalogDelta { shard: ID.shard, sequence }
}

fn snapshot(sequence: u64) -> DataFile {
    DataFile::CatalogSnapshot { shard: ID.shard, sequence }
}

fn break_file(store: &mut TestStore, file: DataFile) {
    store.rot(file, 66, |bytes| bytes[0] ^= 1);
}

#[test]
fn all_that_it_knows_reads_back_from_snapshots_and_deltas() {
    let mut store = TestStore::default();
    let mut catalog = Catalog::new(ID, 7);
    for (segment, state) in (1..).zip(states()) {
        catalog.put_segment(record(segment, state));
    }
    catalog.promise(RangeId(4), Epoch(3));
    catalog.promise(RangeId(4), Epoch(2));
    catalog.trim(RangeId(4), Offset(11));
    catalog.set_uncertain(RangeId(7), SegmentId(1), vec![hole(20, 25), hole(30, 31)]);
    write(&mut store, &catalog.snapshot());
    assert_same(&reload(&mut store).unwrap(), &catalog);

    catalog.set_live(LiveMark { sequence: 8, position: 9, previous: 10 });
    for (segment, state) in (2..).zip(states()) {
        catalog.put_segment(record(segment, state));
    }
    catalog.remove_segment(SegmentId(4));
    catalog.promise(RangeId(5), Epoch(1));
    catalog.trim(RangeId(4), Offset(12));
    write(&mut store, &catalog.delta());
    assert!(catalog.is_clean());
    assert_same(&reload(&mut store).unwrap(), &catalog);
    assert_eq!(catalog.promises()[&RangeId(4)], Epoch(3));
    assert!(catalog.segment(SegmentId(4)).is_none());
}

#[test]
fn the_bytes_of_a_catalog_never_change() {
    let mut catalog = Catalog::new(ID, 7);
    for (segment, state) in (1..).zip(states()) {
        catalog.put_segment(record(segment, state));
    }
    catalog.promise(RangeId(4), Epoch(3));
    catalog.trim(RangeId(4), Offset(11));
    catalog.set_uncertain(RangeId(7), SegmentId(1), vec![hole(20, 25), hole(30, 31)]);
    let snapshot = catalog.snapshot();
    catalog.remove_segment(SegmentId(1));
    catalog.set_live(LiveMark { sequence: 8, position: 9, previous: 10 });
    let delta = catalog.delta();
    let mut store = TestStore::default();
    for (name, file) in [("catalog-snapshot", &snapshot), ("catalog-delta", &delta)] {
        let kept = aligned(&golden(name, &file.buffer));
        write(&mut store, &CatalogFile { file: file.file, buffer: Arc::new(kept) });
    }
    assert_same(&reload(&mut store).unwrap(), &catalog);
}

/// All that is known of range 7, the one of every sample segment, and promises and trims of another.
fn with_a_range() -> Catalog {
    let mut catalog = Catalog::new(ID, 7);
    for (segment, state) in (1..).zip(states()) {
        catalog.put_segment(record(segment, state));
    }
    for range in [4, DELETED.0] {
        catalog.promise(RangeId(range), Epoch(3));
        catalog.trim(RangeId(range), Offset(11));
    }
    catalog.set_uncertain(DELETED, SegmentId(1), vec![hole(20, 25)]);
    catalog
}

#[test]
fn of_a_deleted_range_only_its_files_are_known_and_when_they_are_gone_nothing() {
    let mut store = TestStore::default();
    let mut catalog = with_a_range();
    write(&mut store, &catalog.snapshot());
    // What was to go into the next delta does not come behind the deletion.
    catalog.put_segment(record(5, SegmentState::Open(tail(1))));
    catalog.promise(DELETED, Epoch(4));
    catalog.delete_range(DELETED);
    assert!(!catalog.is_clean());
    write(&mut store, &catalog.delta());
    let found = reload(&mut store).unwrap();
    assert_same(&found, &catalog);
    assert_eq!((found.segments().count(), found.all_uncertain().count()), (0, 0));
    assert_eq!(found.promises().keys().chain(found.trims().keys()).collect::<Vec<_>>(), [&RangeId(4), &RangeId(4)]);
    let files: Vec<DoomedFile> =
        (1..=5).flat_map(|segment| [(SegmentId(segment), 0), (SegmentId(segment), 1)]).collect();
    assert_eq!(found.deletions()[&DELETED], files);
    write(&mut store, &catalog.snapshot());
    assert_same(&reload(&mut store).unwrap(), &catalog);
    catalog.deletion_done(DELETED);
    write(&mut store, &catalog.delta());
    assert!(reload(&mut store).unwrap().deletions().is_empty());
}

#[test]
fn the_bytes_of_a_deletion_never_change() {
    let mut catalog = with_a_range();
    let first = catalog.snapshot();
    catalog.delete_range(DELETED);
    let deletion = catalog.delta();
    let mut store = TestStore::default();
    write(&mut store, &first);
    let kept = aligned(&golden("catalog-deletion", &deletion.buffer));
    write(&mut store, &CatalogFile { file: deletion.file, buffer: Arc::new(kept) });
    assert_same(&reload(&mut store).unwrap(), &catalog);
    catalog.deletion_done(DELETED);
    let done = catalog.delta();
    let kept = aligned(&golden("catalog-deletion-done", &done.buffer));
    write(&mut store, &CatalogFile { file: done.file, buffer: Arc::new(kept) });
    assert_same(&reload(&mut store).unwrap(), &catalog);
}

#[test]
fn uncertainty_lasts_until_a_committed_seal() {
    let mut store = TestStore::default();
    let mut catalog = Catalog::new(ID, 0);
    let [open, rolled, sealed, _] = states().try_into().unwrap();
    catalog.put_segment(record(1, open));
    catalog.set_uncertain(RangeId(7), SegmentId(1), vec![hole(20, 30)]);
    write(&mut store, &catalog.snapshot());
    catalog.put_segment(record(1, rolled));
    write(&mut store, &catalog.delta());
    assert_eq!(reload(&mut store).unwrap().uncertain(SegmentId(1)), [hole(20, 30)]);
    catalog.put_segment(record(1, sealed));
    write(&mut store, &catalog.delta());
    assert!(reload(&mut store).unwrap().uncertain(SegmentId(1)).is_empty());
}

#[test]
fn a_broken_last_delta_is_an_unfinished_checkpoint() {
    let mut store = TestStore::default();
    chain(&mut store, 5, &[]);
    break_file(&mut store, delta(105));
    let found = reload(&mut store).unwrap();
    assert_eq!(found.live().sequence, 104);
    assert!(found.segment(SegmentId(105)).is_none());
}

#[test]
fn a_broken_delta_before_a_whole_one_is_damage_unless_a_snapshot_passes_over_it() {
    let mut store = TestStore::default();
    chain(&mut store, 5, &[]);
    break_file(&mut store, delta(103));
    assert!(matches!(reload(&mut store), Err(CatalogError::Broken { newest: 105, broken: 1, .. })));

    let mut store = TestStore::default();
    let catalog = chain(&mut store, 5, &[103]);
    break_file(&mut store, delta(103));
    assert_same(&reload(&mut store).unwrap(), &catalog);
}

#[test]
fn a_missing_delta_is_damage() {
    let mut store = TestStore::default();
    chain(&mut store, 5, &[]);
    store.remove(delta(103)).unwrap();
    assert!(matches!(reload(&mut store), Err(CatalogError::Broken { newest: 105, broken: 0, .. })));
}

#[test]
fn a_broken_snapshot_is_made_good_by_the_older_one() {
    let mut store = TestStore::default();
    let mut catalog = chain(&mut store, 6, &[102, 104]);
    let mut gone = catalog.snapshot_durable(snapshot(100));
    gone.extend(catalog.snapshot_durable(snapshot(102)));
    assert_eq!(gone, []);
    gone.extend(catalog.snapshot_durable(snapshot(104)));
    assert_eq!(gone, [snapshot(100), delta(101), delta(102)]);
    gone.iter().for_each(|file| store.remove(*file).unwrap());
    assert_same(&reload(&mut store).unwrap(), &catalog);
    break_file(&mut store, snapshot(104));
    assert_same(&reload(&mut store).unwrap(), &catalog);
    break_file(&mut store, snapshot(102));
    assert!(matches!(reload(&mut store), Err(CatalogError::Broken { newest: 106, broken: 2, .. })));
}

#[test]
fn files_of_other_generations_and_shards_are_passed_over() {
    let mut store = TestStore::default();
    let catalog = chain(&mut store, 3, &[]);
    let mut later = Catalog::new(ChainId { generation: Generation(78), ..ID }, 200);
    write(&mut store, &later.snapshot());
    let mut other = Catalog::new(ChainId { shard: ShardId(0), ..ID }, 300);
    write(&mut store, &other.snapshot());
    assert_same(&reload(&mut store).unwrap(), &catalog);
    let names = store.list(Folder::Catalog).unwrap();
    assert!(load(&mut store, &names, ShardId(0), Generation(1)).unwrap().is_none());
}

#[test]
fn a_chain_is_not_continued_by_the_delta_of_another() {
    let mut store = TestStore::default();
    chain(&mut store, 3, &[]);
    let mut twin = TestStore::default();
    let mut catalog = chain(&mut twin, 2, &[]);
    catalog.promise(RangeId(99), Epoch(1));
    let stray = catalog.delta();
    catalog.promise(RangeId(98), Epoch(1));
    write(&mut store, &catalog.delta());
    drop(stray);
    assert!(matches!(reload(&mut store), Err(CatalogError::Broken { newest: 104, .. })));
}

#[test]
fn a_newer_catalog_is_refused_whatever_else_there_is() {
    let mut store = TestStore::default();
    chain(&mut store, 3, &[]);
    store.rot(delta(103), 8, |bytes| bytes[0] = 2);
    assert_eq!(reload(&mut store).unwrap().live().sequence, 102, "a version that rotted is damage");
    store.rot(delta(103), 0, |bytes| {
        let sum = checksum(0, &bytes[..60]).to_le_bytes();
        bytes[60..64].copy_from_slice(&sum);
    });
    assert!(matches!(reload(&mut store), Err(CatalogError::Newer(newer)) if newer.found == 2));
}

#[test]
fn a_record_of_a_kind_not_known_is_of_a_newer_build() {
    let mut store = TestStore::default();
    let mut catalog = Catalog::new(ID, 1);
    let file = catalog.snapshot();
    write(&mut store, &file);
    store.rot(file.file, 0, |bytes| {
        bytes[64] = 99;
        let length = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let sum = checksum(0, &bytes[64..64 + length]).to_le_bytes();
        bytes[56..60].copy_from_slice(&sum);
        let sum = checksum(0, &bytes[..60]).to_le_bytes();
        bytes[60..64].copy_from_slice(&sum);
    });
    assert!(matches!(reload(&mut store), Err(CatalogError::Newer(newer)) if newer.found == 99));
}

#[test]
fn an_unreadable_file_is_a_broken_one() {
    let mut store = TestStore::default();
    chain(&mut store, 3, &[]);
    store.make_unreadable(delta(103), 0);
    assert_eq!(reload(&mut store).unwrap().live().sequence, 102);
    store.make_unreadable(snapshot(100), 0);
    assert!(matches!(reload(&mut store), Err(CatalogError::Broken { .. })));
}

#[test]
fn a_position_is_found_in_its_file() {
    let record = record(1, SegmentState::Open(tail(0)));
    assert_eq!(record.locate(4096), Some((0, 4096, 4096)));
    assert_eq!(record.locate(8192), Some((1, 4096, 1 << 20)));
    assert_eq!(record.locate(8192 + (1 << 20)), None);
}

#[test]
fn a_snapshot_is_due_when_deltas_have_outgrown_the_last() {
    let mut catalog = Catalog::new(ID, 0);
    catalog.snapshot();
    while !catalog.snapshot_is_due() {
        catalog.put_segment(record(1, SegmentState::Open(tail(1_000))));
        catalog.delta();
    }
    assert!(catalog.sequence > 30);
    catalog.snapshot();
    assert!(!catalog.snapshot_is_due());
}

proptest! {
    #[test]
    fn a_power_cut_while_a_delta_or_snapshot_is_written_leaves_the_state_before_or_after(seed: u64, deltas in 1u64..6) {
        let mut store = TestStore::default();
        let mut catalog = chain(&mut store, deltas, &[102]);
        let before = reload(&mut store).unwrap();
        catalog.put_segment(record(500, SegmentState::Open(tail(200))));
        for file in [catalog.delta(), catalog.snapshot()] {
            store.create(file.file, file.buffer.len() as u64, Fill::Allocated).unwrap();
            store.write(file.file, 0, &file.buffer).unwrap();
        }
        store.power_cut(&mut Dice(seed));
        let found = reload(&mut store).unwrap();
        assert_same(&found, if found.sequence == catalog.sequence { &catalog } else { &before });
    }

    #[test]
    fn any_records_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..10) {
        let mut framed = vec![kind, 0, 0, 0];
        framed.extend((bytes.len() as u32).to_le_bytes());
        framed.extend(&bytes);
        let _ = Record::decode_all(&framed, |_| {});
        let _ = Record::decode_all(&bytes, |_| {});
    }
}
