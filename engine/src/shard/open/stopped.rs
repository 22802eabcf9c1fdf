//! Starts that are stopped in the middle, by a kill or by a power cut, one after the other and each with other journals.
//!
//! A kill leaves what was not synced in the page cache: the next start sees it, and must not take it for durable.

use super::bench::{Disk, config, fresh, read_disk};
use super::superblocks::Superblocks;
use super::tests::busy;
use super::{RecoverError, recover};
use crate::api::config::EngineConfig;
use crate::segment::test_store::{Dice, TestStore};
use crate::types::ProcessLife;
use crate::types::limits::BLOCK;

fn rings(shards: u16, journal_files: u16, blocks: u64) -> EngineConfig {
    EngineConfig { journal_files, journal_file_bytes: blocks * BLOCK as u64, ..config(shards) }
}

/// A start that is stopped in its change `at`. Returns whether it came to its end before that.
fn stops(store: &mut TestStore, config: &EngineConfig, generation: u64, at: u64) -> bool {
    (store.changes, store.crash_at) = (0, Some(at));
    match recover(store, config, fresh(generation)) {
        Ok(_) => true,
        Err(RecoverError::Store(_)) => false,
        Err(error) => panic!("the start that was to be stopped in change {at}: {error}"),
    }
}

/// A start that nothing stops: it finds all of `disk`.
fn starts(store: &mut TestStore, config: &EngineConfig, generation: u64, disk: &Disk, when: &str) {
    let recovered = recover(store, config, fresh(generation)).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(&read_disk(store, &recovered), disk, "{when}");
}

#[test]
fn what_a_killed_start_has_made_outlasts_a_power_cut_after_the_next() {
    let mut before = TestStore::default();
    let disk = busy(&mut before).durable;
    let more = config(2);
    for at in 0.. {
        let mut stopped = before.clone();
        let done = stops(&mut stopped, &more, 901, at);
        stopped.kill();
        for seed in 0..8 {
            let (mut store, when) = (stopped.clone(), format!("killed in change {at}, seed {seed}"));
            starts(&mut store, &more, 902, &disk, &when);
            store.power_cut(&mut Dice(seed * 1_000 + at));
            starts(&mut store, &more, 903, &disk, &when);
        }
        if done {
            assert!(at > 20, "{at} changes");
            break;
        }
    }
}

#[test]
fn starts_that_are_stopped_one_after_the_other_each_with_other_journals_lose_nothing() {
    let mut before = TestStore::default();
    let disk = busy(&mut before).durable;
    let [two, one] = [rings(2, 2, 8), rings(1, 3, 16)];
    let end = |store: &mut TestStore, dice: &mut Dice| if dice.coin() { store.kill() } else { store.power_cut(dice) };
    for first in 0.. {
        let mut stopped = before.clone();
        if stops(&mut stopped, &two, 901, first) {
            break;
        }
        for second in 0.. {
            let (mut store, mut dice) = (stopped.clone(), Dice(first * 1_000 + second));
            let when = format!("stopped in change {first}, then in change {second}");
            end(&mut store, &mut dice);
            let done = stops(&mut store, &one, 902, second);
            end(&mut store, &mut dice);
            starts(&mut store, &two, 903, &disk, &when);
            store.power_cut(&mut dice);
            starts(&mut store, &one, 904, &disk, &when);
            if done {
                break;
            }
        }
    }
}

#[test]
fn a_superblock_that_a_kill_left_in_the_page_cache_and_one_that_a_power_cut_tears_are_never_all_there_is() {
    let mut before = TestStore::default();
    busy(&mut before);
    let write = |store: &mut TestStore, at: u64| {
        let mut superblocks = Superblocks::read(store).unwrap();
        let mut superblock = superblocks.found.unwrap();
        superblock.start_counter = ProcessLife(superblock.start_counter.0 + 1);
        (store.changes, store.crash_at) = (0, Some(at));
        superblocks.write(store, superblock).is_ok()
    };
    for (first, second) in (0..10).flat_map(|first| (0..10).map(move |second| (first, second))) {
        for seed in 0..16 {
            let mut store = before.clone();
            write(&mut store, first);
            store.kill();
            write(&mut store, second);
            store.power_cut(&mut Dice(seed * 100 + first * 10 + second));
            let read = Superblocks::read(&mut store);
            let whole = read.as_ref().is_ok_and(|superblocks| superblocks.found.is_some());
            assert!(whole, "killed in change {first}, cut in change {second}, seed {seed}: {read:?}");
        }
    }
}
