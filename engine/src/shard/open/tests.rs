#![allow(clippy::cast_possible_truncation, reason = "the tests count in small numbers")]

use proptest::prelude::*;

use super::bench::{Disk, Life, config, fresh, lives, read_disk, start, try_start};
use super::*;
use crate::format::checksum::{checksum, seed_of};
use crate::format::segment::{Hole, HoleCause};
use crate::replica::ProducerTable;
use crate::segment::test_store::{Dice, TestStore};
use crate::types::limits::BLOCK;
use crate::types::{Epoch, Offset, RangeId};

/// Shard 0 of a new directory of one shard.
fn new_life(store: &mut TestStore) -> Life {
    let recovered = start(store, 1, 100);
    assert!(recovered.founded);
    lives(recovered, &Disk::default()).remove(0)
}

/// A directory with a checkpoint, groups behind it, a roll, a seal, promises and a trim; durable.
pub(super) fn busy(store: &mut TestStore) -> Life {
    let mut life = new_life(store);
    life.open(1, 1, 0, ProducerTable::default());
    life.open(2, 2, 0, ProducerTable::default());
    life.promise(1, 4);
    life.group(store);
    (0..4).for_each(|i| life.batch(1, 1 + i, 300));
    life.batch(2, 2, 2_000);
    life.group(store);
    life.checkpoint(store);
    life.batch(1, 3, 400);
    life.batch(2, 1, 5_000);
    life.group(store);
    life.roll(1, 3);
    life.batch(3, 2, 100);
    life.trim(2, 1);
    life.group(store);
    life.seal(1);
    life.promise(2, 9);
    life.open(4, 4, 0, ProducerTable::default());
    life.batch(4, 7, 100);
    life.group(store);
    life
}

fn hole(from: u64, to: u64) -> Hole {
    Hole { from: Offset(from), to: Offset(to), records_at_most: to - from, cause: HoleCause::Interrupted }
}

/// Breaks the body of the group that lies there, but neither its front nor its repetition.
fn break_body(store: &mut TestStore, (file, body): (DataFile, usize)) {
    store.rot(file, body, |bytes| bytes[0] ^= 1);
}

#[test]
fn an_empty_directory_founds_a_cluster_of_one_and_is_it_from_then_on() {
    let mut store = TestStore::default();
    let first = start(&mut store, 2, 100);
    assert!(first.founded);
    assert_eq!((first.node, first.life, first.generation), (FOUNDER, ProcessLife(1), Generation(100)));
    let other = Fresh { cluster: ClusterId(1), disk: DiskId(2), generation: Generation(101) };
    let second = recover(&mut store, &config(2), other).unwrap();
    assert!(!second.founded);
    assert_eq!((second.cluster, second.disk, second.life), (first.cluster, first.disk, ProcessLife(2)));
    assert_eq!(read_disk(&mut store, &second), Disk::default());
}

#[test]
fn all_that_was_durable_is_there_whatever_the_number_of_shards() {
    let mut store = TestStore::default();
    let disk = busy(&mut store).durable;
    for (shards, generation) in [(1, 101), (3, 102), (2, 103), (7, 104), (1, 105)] {
        let recovered = start(&mut store, shards, generation);
        assert_eq!(read_disk(&mut store, &recovered), disk, "{shards} shards");
        assert_eq!(recovered.shards.len(), usize::from(shards));
    }
}

#[test]
fn what_several_shards_wrote_is_there_with_fewer_and_with_other_journals() {
    let mut store = TestStore::default();
    let mut all = lives(start(&mut store, 3, 100), &Disk::default());
    let mut disk = Disk::default();
    for (life, range) in all.iter_mut().zip([3, 1, 2]) {
        life.open(range, range, 0, ProducerTable::default());
        life.batch(range, 5, 700);
        life.promise(range, range);
        life.group(&mut store);
        disk.segments.append(&mut life.durable.segments.clone());
        disk.promises.append(&mut life.durable.promises.clone());
    }
    let other = EngineConfig { journal_files: 3, journal_file_bytes: 8 * BLOCK as u64, ..config(2) };
    let recovered = recover(&mut store, &other, fresh(101)).unwrap();
    assert_eq!(read_disk(&mut store, &recovered), disk);
    let journals = store.list(Folder::Journal).unwrap();
    assert_eq!(journals.len(), 6, "no other ring is left: {journals:?}");
    let recovered = start(&mut store, 1, 102);
    assert_eq!(read_disk(&mut store, &recovered), disk);
}

#[test]
fn lives_follow_each_other_and_each_keeps_what_the_earlier_wrote() {
    let mut store = TestStore::default();
    let mut disk = busy(&mut store).durable;
    for generation in 101..106 {
        let mut life = lives(start(&mut store, 1, generation), &disk).remove(0);
        life.open(generation, generation, 50, ProducerTable::default());
        life.batch(generation, 3, 900);
        life.group(&mut store);
        if generation % 2 == 0 {
            life.checkpoint(&mut store);
        }
        life.batch(generation, 2, 900);
        life.group(&mut store);
        disk = life.durable;
    }
    let recovered = start(&mut store, 1, 106);
    assert_eq!(read_disk(&mut store, &recovered), disk);
    assert_eq!(recovered.life, ProcessLife(7));
}

/// Opens `before` with a crash at each change, then again: the content must be `disk`. Gives how many changes an opening makes.
fn crash_everywhere(before: &TestStore, shards: u16, disk: &Disk) -> u64 {
    let mut whole = before.clone();
    whole.changes = 0;
    start(&mut whole, shards, 900);
    for at in 0..whole.changes {
        for seed in 0..6 {
            let mut store = before.clone();
            (store.changes, store.crash_at) = (0, Some(at));
            let error = try_start(&mut store, shards, 901).unwrap_err();
            assert!(matches!(error, RecoverError::Store(_)), "{error}");
            let mut dice = Dice(seed * 1_000 + at);
            store.power_cut(&mut dice);
            // A second crash on the way, and now and then another number of shards.
            (store.changes, store.crash_at) = (0, Some(dice.below(whole.changes)));
            let (generation, shards) = (902, if dice.coin() { shards } else { 2 });
            if try_start(&mut store, shards, generation).is_err() {
                store.power_cut(&mut dice);
            }
            store.crash_at = None;
            let recovered = match try_start(&mut store, shards, 903) {
                Ok(recovered) => recovered,
                Err(error) => panic!("crash at {at}, seed {seed}: {error}"),
            };
            assert_eq!(&read_disk(&mut store, &recovered), disk, "crash at {at}, seed {seed}");
        }
    }
    whole.changes
}

#[test]
fn a_crash_at_any_change_of_a_founding_leaves_a_directory_that_can_be_founded_or_opened() {
    let changes = crash_everywhere(&TestStore::default(), 2, &Disk::default());
    assert!(changes > 20);
}

#[test]
fn a_crash_at_any_change_of_a_restart_loses_nothing() {
    let mut store = TestStore::default();
    let disk = busy(&mut store).durable;
    assert!(crash_everywhere(&store, 1, &disk) > 15);
    assert!(crash_everywhere(&store, 3, &disk) > 20);
}

#[test]
fn a_crash_at_any_change_of_a_restart_keeps_an_uncertain_group_uncertain() {
    let mut store = TestStore::default();
    let mut life = busy(&mut store);
    let mut disk = life.durable.clone();
    life.batch(4, 5, 900);
    let at = life.group(&mut store);
    break_body(&mut store, at);
    disk.uncertain.insert(SegmentId(4), vec![hole(7, 12)]);
    crash_everywhere(&store, 1, &disk);
}

#[test]
fn an_uncertain_group_counts_as_held_until_a_committed_seal() {
    let mut store = TestStore::default();
    let mut life = busy(&mut store);
    let mut disk = life.durable.clone();
    life.batch(4, 5, 900);
    life.batch(3, 2, 900);
    life.batch(4, 1, 900);
    life.promise(4, 77);
    let at = life.group(&mut store);
    break_body(&mut store, at);
    disk.promises.insert(RangeId(4), Epoch(77));
    disk.uncertain.insert(SegmentId(4), vec![hole(7, 13)]);
    let base = disk.segments[&SegmentId(3)].end.0;
    disk.uncertain.insert(SegmentId(3), vec![hole(base, base + 2)]);
    for generation in [101, 102] {
        let recovered = start(&mut store, 1, generation);
        assert_eq!(read_disk(&mut store, &recovered), disk);
    }
    let mut life = lives(start(&mut store, 1, 103), &disk).remove(0);
    life.seal_found(4, 13, &[hole(7, 13)]);
    life.group(&mut store);
    let disk = life.durable;
    assert!(!disk.uncertain.contains_key(&SegmentId(4)));
    let recovered = start(&mut store, 1, 104);
    assert_eq!(read_disk(&mut store, &recovered), disk);
}

#[test]
fn an_uncertain_roll_counts_for_the_segment_that_rolled_and_for_its_successor() {
    let mut store = TestStore::default();
    let mut life = new_life(&mut store);
    life.open(1, 1, 0, ProducerTable::default());
    life.batch(1, 4, 100);
    life.group(&mut store);
    let mut disk = life.durable.clone();
    life.batch(1, 1, 100);
    life.roll(1, 2);
    life.batch(2, 3, 100);
    let at = life.group(&mut store);
    break_body(&mut store, at);
    disk.uncertain.insert(SegmentId(1), vec![hole(4, 8)]);
    disk.uncertain.insert(SegmentId(2), vec![hole(5, 8)]);
    let recovered = start(&mut store, 1, 101);
    assert_eq!(read_disk(&mut store, &recovered), disk);
}

#[test]
fn a_segment_whose_table_did_not_get_durable_holds_nothing() {
    let mut store = TestStore::default();
    let mut life = new_life(&mut store);
    life.open_only(1, 1, 0);
    life.group(&mut store);
    let recovered = start(&mut store, 1, 101);
    assert_eq!(read_disk(&mut store, &recovered), Disk::default());
}

#[test]
fn a_segment_whose_table_is_uncertain_is_kept_with_what_may_be_in_it() {
    let mut store = TestStore::default();
    let mut life = new_life(&mut store);
    life.open(1, 1, 20, ProducerTable::default());
    life.group(&mut store);
    life.open_only(2, 2, 30);
    life.group(&mut store);
    life.table_and_batch(2, 4);
    let at = life.group(&mut store);
    break_body(&mut store, at);
    for generation in [101, 102] {
        let recovered = start(&mut store, 1, generation);
        let catalog = &recovered.shards[0].catalog;
        let record = catalog.segment(SegmentId(2)).unwrap();
        assert_eq!((record.base(), record.checkpoint.end), (Offset(30), Offset(30)));
        assert_eq!(record.checkpoint.digest, life.digest_at_base(2));
        assert_eq!(catalog.uncertain(SegmentId(2)), [hole(30, 34)]);
    }
}

#[test]
fn a_group_that_was_proved_by_a_later_one_and_does_not_verify_is_refused_and_nothing_is_changed() {
    let mut store = TestStore::default();
    let mut life = busy(&mut store);
    life.batch(4, 1, 900);
    let broken = life.group(&mut store);
    life.batch(4, 1, 900);
    life.group(&mut store);
    break_body(&mut store, broken);
    let image = store.image();
    assert!(matches!(try_start(&mut store, 1, 101), Err(RecoverError::Damaged { .. })));
    assert_eq!(store.image(), image);
}

#[test]
fn the_last_group_that_a_marker_proves_is_refused_if_it_does_not_verify() {
    let mut store = TestStore::default();
    let mut life = busy(&mut store);
    life.batch(4, 1, 900);
    let broken = life.group(&mut store);
    life.marker(&mut store);
    break_body(&mut store, broken);
    let image = store.image();
    assert!(matches!(try_start(&mut store, 1, 101), Err(RecoverError::Damaged { .. })));
    assert_eq!(store.image(), image);
}

#[test]
fn a_block_that_cannot_be_read_is_not_the_end() {
    let mut store = TestStore::default();
    let mut life = busy(&mut store);
    life.batch(4, 1, 900);
    let (file, position) = life.group(&mut store);
    store.make_unreadable(file, (position / BLOCK) as u64);
    let image = store.image();
    assert!(try_start(&mut store, 1, 101).is_err());
    assert_eq!(store.image(), image);
}

#[test]
fn a_journal_without_its_first_group_is_damaged_and_not_empty() {
    let mut store = TestStore::default();
    new_life(&mut store);
    let first = DataFile::Journal { shard: ShardId(0), file: 0 };
    store.rot(first, 0, |bytes| bytes[..BLOCK].fill(0));
    assert!(matches!(try_start(&mut store, 1, 101), Err(RecoverError::Damaged { .. })));
    store.remove(first).unwrap();
    assert!(matches!(try_start(&mut store, 1, 101), Err(RecoverError::JournalFiles { .. })));
}

#[test]
fn what_is_newer_is_refused_and_nothing_is_changed() {
    let journal = DataFile::Journal { shard: ShardId(0), file: 0 };
    // The file, where its version lies, which bytes its checksum covers, and from what seed.
    let newer = [
        (DataFile::Superblock { copy: 1 }, 8, BLOCK - 4, 0),
        (DataFile::CatalogSnapshot { shard: ShardId(0), sequence: 1 }, 8, 60, 0),
        (journal, 4, 60, seed_of(100, 0)),
    ];
    for (file, version_at, covered, seed) in newer {
        let mut store = TestStore::default();
        new_life(&mut store);
        store.rot(file, 0, |bytes| {
            bytes[version_at] = 9;
            let sum = checksum(seed, &bytes[..covered]).to_le_bytes();
            bytes[covered..covered + 4].copy_from_slice(&sum);
        });
        let image = store.image();
        let error = try_start(&mut store, 1, 101).expect_err(&file.to_string());
        assert!(error.is_newer(), "{file}: {error}");
        assert_eq!(store.image(), image);
    }
}

#[test]
fn one_whole_superblock_is_enough_and_none_is_not_an_empty_directory() {
    let mut store = TestStore::default();
    let disk = busy(&mut store).durable;
    for copy in [0, 1] {
        let mut one = store.clone();
        one.rot(DataFile::Superblock { copy }, 100, |bytes| bytes[0] ^= 1);
        let recovered = start(&mut one, 1, 101);
        assert_eq!(read_disk(&mut one, &recovered), disk);
        let mut one = store.clone();
        one.remove(DataFile::Superblock { copy }).unwrap();
        let recovered = start(&mut one, 1, 101);
        assert_eq!(read_disk(&mut one, &recovered), disk);
    }
    let mut torn = store.clone();
    for copy in [0, 1] {
        torn.rot(DataFile::Superblock { copy }, 100, |bytes| bytes[0] ^= 1);
    }
    let image = torn.image();
    assert!(matches!(try_start(&mut torn, 1, 101), Err(RecoverError::SuperblockUnreadable)));
    assert_eq!(torn.image(), image);
    for copy in [0, 1] {
        store.remove(DataFile::Superblock { copy }).unwrap();
    }
    assert!(matches!(try_start(&mut store, 1, 101), Err(RecoverError::SuperblockLost { .. })));
}

#[test]
fn a_lost_catalog_is_refused() {
    let mut store = TestStore::default();
    busy(&mut store);
    for name in store.list(Folder::Catalog).unwrap() {
        store.remove(name).unwrap();
    }
    let image = store.image();
    assert!(matches!(try_start(&mut store, 1, 101), Err(RecoverError::CatalogMissing { .. })));
    assert_eq!(store.image(), image);
}

#[test]
fn an_unfinished_last_delta_is_made_good_by_the_journal() {
    let mut store = TestStore::default();
    let disk = busy(&mut store).durable;
    let delta = DataFile::CatalogDelta { shard: ShardId(0), sequence: 2 };
    store.rot(delta, 64, |bytes| bytes[0] ^= 1);
    let recovered = start(&mut store, 1, 101);
    assert_eq!(read_disk(&mut store, &recovered), disk);
}

#[derive(Clone, Debug)]
enum Step {
    Open { range: u64 },
    Batch { range: u64, records: u32, value_bytes: usize },
    Roll { range: u64 },
    Promise { range: u64 },
    Group,
    Checkpoint,
    Marker,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = 1u64..4;
    let step = prop_oneof![
        1 => range.clone().prop_map(|range| Step::Open { range }),
        8 => (range.clone(), 1u32..5, 0usize..3_000)
            .prop_map(|(range, records, value_bytes)| Step::Batch { range, records, value_bytes }),
        1 => range.clone().prop_map(|range| Step::Roll { range }),
        1 => range.prop_map(|range| Step::Promise { range }),
        4 => Just(Step::Group),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Marker),
    ];
    prop::collection::vec(step, 1..60)
}

/// The segment that takes a range's batches, by range; and how to make more.
#[derive(Default)]
struct Open {
    newest: std::collections::BTreeMap<u64, u64>,
    next: u64,
}

impl Open {
    fn step(&mut self, step: &Step, life: &mut Life, store: &mut TestStore) {
        let open = |newest: &Self, range: &u64| newest.newest.get(range).copied();
        match step {
            Step::Open { range } if open(self, range).is_none() => {
                self.next += 1;
                self.newest.insert(*range, self.next);
                life.open(*range, self.next, 0, ProducerTable::default());
            }
            Step::Batch { range, records, value_bytes } => {
                if let Some(segment) = open(self, range) {
                    life.batch(segment, *records, *value_bytes);
                }
            }
            Step::Roll { range } => {
                if let Some(segment) = open(self, range) {
                    self.next += 1;
                    self.newest.insert(*range, self.next);
                    life.roll(segment, self.next);
                }
            }
            Step::Promise { range } => life.promise(*range, self.next + 1),
            Step::Checkpoint => {
                life.group(store);
                life.checkpoint(store);
            }
            Step::Marker => {
                life.group(store);
                life.marker(store);
            }
            Step::Open { .. } | Step::Group => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn after_a_power_cut_every_synced_group_is_there_and_the_last_is_there_or_uncertain_or_gone(
        steps in steps(),
        seed: u64,
        shards in 1u16..4,
    ) {
        let mut store = TestStore::default();
        let mut life = new_life(&mut store);
        let mut open = Open::default();
        for step in &steps {
            open.step(step, &mut life, &mut store);
            // Groups stay small against the ring of 128 blocks, and never fill it.
            life.group(&mut store);
            if life.ring.free_bytes() < 80 * BLOCK as u64 {
                life.checkpoint(&mut store);
            }
        }
        for step in steps.iter().rev().take(3) {
            if !matches!(step, Step::Checkpoint | Step::Marker) {
                open.step(step, &mut life, &mut store);
            }
        }
        life.write_group(&mut store);
        store.power_cut(&mut Dice(seed));
        let recovered = start(&mut store, shards, 101);
        let found = read_disk(&mut store, &recovered);
        if !found.uncertain.is_empty() {
            for (segment, spans) in &found.uncertain {
                let taken = life.taken.segments.values().map(|known| known.end).max().unwrap();
                prop_assert!(spans.iter().all(|span| span.from < span.to && span.to <= taken), "{segment}");
            }
            let certain = Disk { promises: life.durable.promises.clone(), uncertain: Default::default(), ..found };
            prop_assert_eq!(certain, life.durable);
        } else if found != life.taken {
            let promises = found.promises.clone();
            prop_assert!(promises == life.durable.promises || promises == life.taken.promises);
            prop_assert_eq!(Disk { promises: life.durable.promises.clone(), ..found }, life.durable);
        }
        let again = start(&mut store, 1, 102);
        let again = read_disk(&mut store, &again);
        let recovered = start(&mut store, 2, 103);
        prop_assert_eq!(again, read_disk(&mut store, &recovered));
    }
}

#[test]
fn what_journals_say_of_a_deleted_range_does_not_come_back() {
    let mut store = TestStore::default();
    let mut life = busy(&mut store);
    // Its promise and its trim, batches in a checkpointed segment, a roll, a seal, and a segment that no catalog has.
    life.delete_range(&mut store, 1);
    let doomed = DataFile::Segment { segment: SegmentId(1), part: 0 };
    for (shards, generation) in [(1, 101), (3, 102), (1, 103)] {
        let recovered = start(&mut store, shards, generation);
        assert_eq!(read_disk(&mut store, &recovered), life.durable);
        let of_shard = |shard: &RecoveredShard| shard.catalog.deletions().clone().into_iter().collect::<Vec<_>>();
        let deletions: Vec<_> = recovered.shards.iter().flat_map(of_shard).collect();
        assert_eq!(deletions, [(RangeId(1), vec![(SegmentId(1), 0)])]);
        let holder = RangeId(1).shard(shards);
        assert!(!recovered.shards[usize::from(holder.0)].catalog.deletions().is_empty(), "its shard removes them");
        assert!(store.length(doomed).unwrap().is_some(), "not at a start");
    }
}

#[test]
fn an_uncertain_last_group_leaves_nothing_of_a_deleted_range() {
    let mut store = TestStore::default();
    let mut life = new_life(&mut store);
    life.open(1, 1, 0, ProducerTable::default());
    life.open(2, 2, 0, ProducerTable::default());
    life.group(&mut store);
    life.checkpoint(&mut store);
    life.delete_range(&mut store, 1);
    life.promise(1, 9);
    life.batch(1, 3, 100);
    life.batch(2, 2, 100);
    let at = life.group(&mut store);
    break_body(&mut store, at);
    let recovered = start(&mut store, 1, 101);
    let catalog = &recovered.shards[0].catalog;
    assert_eq!(catalog.all_uncertain().map(|(segment, _, _)| segment).collect::<Vec<_>>(), [SegmentId(2)]);
    assert!(catalog.promises().is_empty());
}
