//! A data directory in memory that loses, as a power cut does, what was not synced: names, lengths and 512-byte sectors, each by
//! a throw of its own. For tests of recovery; the simulator has its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreAction, StoreError, StoreTarget};
use crate::types::AlignedBuffer;
use crate::types::limits::BLOCK;

const SECTOR: usize = 512;
const EIO: i32 = 5;

/// A small deterministic generator (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

#[derive(Clone, Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    dirty: BTreeSet<usize>,
}

/// The directory. Each call of [`Store`] that changes something counts; the one numbered `crash_at` is done in part, and it and
/// all later ones fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestStore {
    inodes: Vec<Inode>,
    names: BTreeMap<DataFile, usize>,
    names_durable: BTreeMap<DataFile, usize>,
    unreadable: BTreeSet<(DataFile, u64)>,
    pub(crate) changes: u64,
    pub(crate) crash_at: Option<u64>,
}

impl TestStore {
    /// The power fails: what was not synced stays or goes, sector by sector, name by name.
    pub(crate) fn power_cut(&mut self, dice: &mut Dice) {
        let all: BTreeSet<DataFile> = self.names.keys().chain(self.names_durable.keys()).copied().collect();
        for file in all {
            let (now, before) = (self.names.get(&file).copied(), self.names_durable.get(&file).copied());
            let stays = if now == before || dice.coin() { now } else { before };
            match stays {
                Some(inode) => {
                    self.names.insert(file, inode);
                    self.names_durable.insert(file, inode);
                }
                None => {
                    self.names.remove(&file);
                    self.names_durable.remove(&file);
                }
            }
        }
        for inode in &mut self.inodes {
            if inode.durable.len() != inode.current.len() && dice.coin() {
                inode.durable.resize(inode.current.len(), 0);
            }
            for sector in std::mem::take(&mut inode.dirty) {
                let at = sector * SECTOR;
                if at + SECTOR <= inode.durable.len() && dice.coin() {
                    let (durable, current) = (&mut inode.durable, &inode.current);
                    durable[at..at + SECTOR].copy_from_slice(&current[at..at + SECTOR]);
                }
            }
            inode.current.clone_from(&inode.durable);
        }
        self.crash_at = None;
        self.changes = 0;
    }

    /// The process is killed: what was not synced stays, and is no more durable than before.
    pub(crate) fn kill(&mut self) {
        self.crash_at = None;
        self.changes = 0;
    }

    /// Changes bytes under the process's feet, durably.
    pub(crate) fn rot(&mut self, file: DataFile, position: usize, change: impl FnOnce(&mut [u8])) {
        let inode = &mut self.inodes[self.names[&file]];
        change(&mut inode.current[position..]);
        inode.durable.clone_from(&inode.current);
    }

    /// The device can no longer give this block.
    pub(crate) fn make_unreadable(&mut self, file: DataFile, block: u64) {
        self.unreadable.insert((file, block));
    }

    /// Everything that would survive a power cut, to compare two states.
    pub(crate) fn image(&self) -> BTreeMap<DataFile, Vec<u8>> {
        self.names.iter().map(|(file, inode)| (*file, self.inodes[*inode].current.clone())).collect()
    }

    fn change(&mut self, action: StoreAction, file: StoreTarget, position: u64) -> Result<(), StoreError> {
        let n = self.changes;
        self.changes += 1;
        if self.crash_at.is_some_and(|at| n >= at) {
            return Err(StoreError { action, file, position, errno: EIO });
        }
        Ok(())
    }

    fn inode(&mut self, file: DataFile, action: StoreAction) -> Result<&mut Inode, StoreError> {
        let found = self.names.get(&file).copied();
        let missing = StoreError { action, file: StoreTarget::File(file), position: 0, errno: 2 };
        found.map(|i| &mut self.inodes[i]).ok_or(missing)
    }
}

impl Store for TestStore {
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError> {
        Ok(self.names.keys().copied().filter(|f| f.folder() == folder).collect())
    }

    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError> {
        Ok(self.names.get(&file).map(|i| self.inodes[*i].current.len() as u64))
    }

    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        let at = usize::try_from(position).expect("a small file");
        assert_eq!(at % BLOCK, 0, "reads begin on a block");
        let unreadable = self.unreadable.clone();
        let inode = self.inode(file, StoreAction::Read)?;
        let mut bytes = AlignedBuffer::zeroed(length);
        let given = inode.current.len().saturating_sub(at).min(length);
        bytes[..given].copy_from_slice(&inode.current[at.min(inode.current.len())..][..given]);
        let mut lost = Vec::new();
        for block in 0..bytes.len() / BLOCK {
            if unreadable.contains(&(file, position / BLOCK as u64 + block as u64)) {
                bytes[block * BLOCK..][..BLOCK].fill(0);
                lost.push(block * BLOCK..(block + 1) * BLOCK);
            }
        }
        Ok(ReadBytes { bytes, length: given, unreadable: lost })
    }

    fn create(&mut self, file: DataFile, bytes: u64, _fill: Fill) -> Result<(), StoreError> {
        assert_eq!(bytes % BLOCK as u64, 0, "files are whole blocks");
        let current = vec![0; usize::try_from(bytes).expect("a small file")];
        let outcome = self.change(StoreAction::Create, StoreTarget::File(file), 0);
        self.inodes.push(Inode { durable: Vec::new(), current, dirty: BTreeSet::new() });
        self.names.insert(file, self.inodes.len() - 1);
        outcome
    }

    fn write(&mut self, file: DataFile, position: u64, blocks: &AlignedBuffer) -> Result<(), StoreError> {
        let at = usize::try_from(position).expect("a small file");
        assert_eq!(at % BLOCK, 0, "writes begin on a block");
        let outcome = self.change(StoreAction::Write, StoreTarget::File(file), position);
        let inode = self.inode(file, StoreAction::Write)?;
        let end = at + blocks.len();
        if inode.current.len() < end {
            inode.current.resize(end, 0);
        }
        inode.current[at..end].copy_from_slice(blocks);
        inode.dirty.extend(at / SECTOR..end / SECTOR);
        outcome
    }

    fn sync(&mut self, file: DataFile) -> Result<(), StoreError> {
        self.change(StoreAction::Sync, StoreTarget::File(file), 0)?;
        let inode = self.inode(file, StoreAction::Sync)?;
        inode.durable.resize(inode.current.len(), 0);
        for sector in std::mem::take(&mut inode.dirty) {
            let at = sector * SECTOR;
            inode.durable[at..at + SECTOR].copy_from_slice(&inode.current[at..at + SECTOR]);
        }
        Ok(())
    }

    fn sync_folder(&mut self, folder: Folder) -> Result<(), StoreError> {
        self.change(StoreAction::Sync, StoreTarget::Folder(folder), 0)?;
        self.names_durable.retain(|file, _| file.folder() != folder);
        let now = self.names.iter().filter(|(file, _)| file.folder() == folder);
        self.names_durable.extend(now.map(|(file, inode)| (*file, *inode)));
        Ok(())
    }

    fn remove(&mut self, file: DataFile) -> Result<(), StoreError> {
        self.change(StoreAction::Remove, StoreTarget::File(file), 0)?;
        self.names.remove(&file);
        Ok(())
    }
}
