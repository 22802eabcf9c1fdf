use super::super::testing::{FILE_BYTES, MemoryStore, NODE, World, start};
use super::*;
use crate::format::checksum::checksum;
use crate::journal::DamageCause;
use crate::types::Generator;

/// A directory in which a cluster was founded and topics were created, with no snapshot since.
fn used() -> (MemoryStore, State) {
    let mut world = World::founded(1);
    for topic in 0..6 {
        world.create_topic(&format!("topic-{topic}"), 2);
    }
    (world.store.clone(), world.controller.state().clone())
}

fn recover(store: &mut MemoryStore, life: u64) -> Result<State, RecoverMetadataError> {
    recover_metadata(store, &start(life, false)).map(|recovered| recovered.state)
}

fn snapshots(store: &MemoryStore) -> Vec<DataFile> {
    store.names().into_iter().filter(|name| matches!(name, DataFile::MetadataSnapshot { .. })).collect()
}

#[test]
fn founding_survives_a_power_cut_after_any_call() {
    for calls in 0.. {
        let mut random = Generator::new(calls);
        let mut store = MemoryStore::default();
        store.calls_left = Some(usize::try_from(calls).unwrap());
        let done = recover_metadata(&mut store, &start(1, true)).is_ok();
        store.lose_power(&mut random);
        let again = if done { start(2, false) } else { start(1, true) };
        assert_eq!(recover_metadata(&mut store, &again).map(|recovered| recovered.state), Ok(State::default()));
        if done {
            break;
        }
    }
}

#[test]
fn what_a_killed_founding_has_made_outlasts_a_power_cut_after_the_next_start() {
    for calls in 0.. {
        let mut stopped = MemoryStore::default();
        stopped.calls_left = Some(calls);
        let done = recover_metadata(&mut stopped, &start(1, true)).is_ok();
        stopped.calls_left = None;
        for seed in 0..8 {
            let (mut store, mut random) = (stopped.clone(), Generator::new(seed));
            recover_metadata(&mut store, &start(2, !done)).unwrap();
            store.lose_power(&mut random);
            assert_eq!(recover(&mut store, 3), Ok(State::default()), "killed after {calls} calls, seed {seed}");
        }
        if done {
            break;
        }
    }
}

#[test]
fn a_start_survives_power_cuts_after_any_call() {
    let (used, state) = used();
    for seed in 0..300 {
        let mut random = Generator::new(seed);
        let mut store = used.clone();
        let mut life = 2;
        for _ in 0..4 {
            store.calls_left = Some(usize::try_from(random.draw() % 30).unwrap());
            // The superblock names the generation only after the metadata has begun it.
            let start = MetadataStart { running: None, ..start(life, false) };
            let _ = recover_metadata(&mut store, &start);
            store.lose_power(&mut random);
            life += 1;
        }
        let start = MetadataStart { running: None, ..start(life, false) };
        let recovered = recover_metadata(&mut store, &start).map(|recovered| recovered.state);
        assert_eq!(recovered, Ok(state.clone()), "seed {seed}");
    }
}

#[test]
fn a_damaged_snapshot_is_replaced_by_the_other() {
    let (used, state) = used();
    for (index, file) in snapshots(&used).into_iter().enumerate() {
        let mut store = used.clone();
        store.bytes_mut(file)[70] ^= 1;
        assert_eq!(recover(&mut store, 2), Ok(state.clone()), "{index}");
    }
}

#[test]
fn with_no_readable_snapshot_the_node_refuses_and_changes_nothing() {
    let (mut store, _) = used();
    for file in snapshots(&store) {
        store.bytes_mut(file)[70] ^= 1;
    }
    let before = store.contents();
    assert!(matches!(recover(&mut store, 2), Err(RecoverMetadataError::NoneReadable { index: 2, .. })));
    assert_eq!(store.contents(), before);

    for file in snapshots(&store) {
        store.remove(file).unwrap();
    }
    let before = store.contents();
    assert_eq!(recover(&mut store, 2), Err(RecoverMetadataError::NoSnapshot));
    assert_eq!(store.contents(), before);
}

#[test]
fn a_snapshot_of_a_later_build_is_refused_and_nothing_is_changed() {
    let (mut store, _) = used();
    let newest = *snapshots(&store).last().unwrap();
    let bytes = store.bytes_mut(newest);
    bytes[8] = 9;
    let sum = checksum(0, &bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    let before = store.contents();
    let refused = recover(&mut store, 2).unwrap_err();
    assert!(refused.is_newer(), "{refused}");
    assert_eq!(store.contents(), before);
}

/// Every block of the log, damaged whole: what was answered is never lost in silence.
#[test]
fn a_damaged_log_is_refused_and_never_shortened() {
    let (used, state) = used();
    let mut refused = 0;
    for file in (0..METADATA_FILES).map(|file| DataFile::MetadataJournal { file }) {
        for block in 0..usize::try_from(FILE_BYTES).unwrap() / BLOCK {
            let mut store = used.clone();
            store.bytes_mut(file)[block * BLOCK..][..BLOCK].fill(0x5a);
            let before = store.contents();
            match recover(&mut store, 2) {
                // A block that holds nothing, or the proof of the last group: then the group itself is whole.
                Ok(recovered) => assert_eq!(recovered, state, "{file} {block}"),
                Err(RecoverMetadataError::Damaged(_)) => {
                    refused += 1;
                    assert_eq!(store.contents(), before);
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert_eq!(refused, 1 + 7 + 6, "the first group, seven of changes, and the proofs of all but the last");
}

#[test]
fn a_log_that_cannot_be_read_to_its_end_is_refused() {
    let (mut store, _) = used();
    let file = DataFile::MetadataJournal { file: 1 };
    store.unreadable.push((file, 0..BLOCK));
    assert!(matches!(recover(&mut store, 2), Err(RecoverMetadataError::Unreadable { .. })));
}

#[test]
fn a_torn_last_group_was_told_to_nobody_and_is_dropped() {
    let mut world = World::founded(1);
    world.create_topic("a", 1);
    let told = world.controller.state().clone();
    let position = usize::try_from(world.controller.log.next().position.0).unwrap();
    world
        .ask(9, crate::api::request::ControlRequest::CreateTopic { name: "b".to_owned(), ranges: 1, auto_split: None });
    assert!(world.perform_one());
    let mut store = world.store.clone();
    // The body, behind header and directory.
    store.bytes_mut(DataFile::MetadataJournal { file: 0 })[position + 110] ^= 1;
    assert_eq!(recover(&mut store, 2), Ok(told));
}

#[test]
fn a_generation_that_ran_and_lost_its_first_group_is_damaged() {
    let mut store = MemoryStore::default();
    recover_metadata(&mut store, &start(1, true)).unwrap();
    store.bytes_mut(DataFile::MetadataJournal { file: 0 })[..BLOCK].fill(0);
    let mut never_ran = store.clone();
    let unnamed = MetadataStart { running: None, ..start(2, false) };
    assert!(recover_metadata(&mut never_ran, &unnamed).is_ok());
    let refused = recover(&mut store, 2);
    assert!(
        matches!(refused, Err(RecoverMetadataError::Damaged(Damage { cause: DamageCause::FirstMissing, .. }))),
        "{refused:?}"
    );
}

#[test]
fn a_missing_journal_file_is_refused() {
    let (mut store, _) = used();
    store.remove(DataFile::MetadataJournal { file: 1 }).unwrap();
    assert_eq!(recover(&mut store, 2), Err(RecoverMetadataError::JournalFiles));
}

#[test]
fn metadata_of_a_cluster_is_not_founded_over() {
    let (mut store, _) = used();
    for life in 2..4 {
        let before = store.contents();
        let refused = recover_metadata(&mut store, &start(1, true)).map(|_| ());
        assert_eq!(refused, Err(RecoverMetadataError::NotFresh { applied: 7 }));
        assert_eq!(store.contents(), before);
        // In the first life only the log holds the changes; after a restart the snapshots do.
        recover(&mut store, life).unwrap();
    }
}

#[test]
fn a_disk_that_was_rolled_back_is_refused() {
    let (mut store, _) = used();
    let again = MetadataStart { life: ProcessLife(1), ..start(2, false) };
    let refused = recover_metadata(&mut store, &again).map(|_| ());
    let (known, given) = (ProcessLife(1), ProcessLife(1));
    assert_eq!(refused, Err(RecoverMetadataError::RolledBack { known, given }));
    assert_eq!(start(2, false).node, NODE);
}
