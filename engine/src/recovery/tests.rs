use super::*;
use crate::segment::test_store::{Dice, TestStore};
use crate::types::limits::BLOCK;
use crate::types::{ClusterId, DiskId, Generation};

fn config() -> EngineConfig {
    EngineConfig {
        shards: 2,
        journal_file_bytes: 16 * BLOCK as u64,
        metadata_file_bytes: 1 << 20,
        ..Default::default()
    }
}

fn open(store: &mut TestStore, generation: u64) -> Result<RecoveredNode, RecoverNodeError> {
    let fresh = Fresh { cluster: ClusterId(1), disk: DiskId(2), generation: Generation(generation) };
    recover_node(store, &config(), fresh)
}

#[test]
fn a_crash_at_any_change_of_an_opening_leaves_a_directory_that_opens() {
    let mut running = TestStore::default();
    open(&mut running, 1).unwrap();
    for before in [TestStore::default(), running] {
        let mut whole = before.clone();
        whole.changes = 0;
        open(&mut whole, 900).unwrap();
        for at in 0..whole.changes {
            for seed in 0..4 {
                let mut store = before.clone();
                (store.changes, store.crash_at) = (0, Some(at));
                assert!(open(&mut store, 901).is_err());
                let mut dice = Dice(at * 100 + seed);
                store.power_cut(&mut dice);
                (store.changes, store.crash_at) = (0, Some(dice.next() % whole.changes));
                if open(&mut store, 902).is_err() {
                    store.power_cut(&mut dice);
                }
                store.crash_at = None;
                if let Err(error) = open(&mut store, 903) {
                    panic!("crash at {at}, seed {seed}: {error}");
                }
            }
        }
    }
}
