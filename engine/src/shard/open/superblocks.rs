//! The two copies of the superblock: reading both, and writing one after the other.

use crate::api::port::{DataFile, Fill, Folder, Store, StoreError};
use crate::format::superblock::{Features, Found, Phase, Superblock, choose};
use crate::shard::open::RecoverError;
use crate::types::limits::BLOCK;
use crate::types::{AlignedBuffer, ClusterId, DiskId, Generation, NodeId, ProcessLife};

/// What both copies say.
#[derive(Debug)]
pub(super) struct Superblocks {
    /// `None`: a cluster may be founded here.
    pub(super) found: Option<Superblock>,
    /// Sequence of each copy; `None` where there is no whole one.
    sequences: [Option<u64>; 2],
}

/// The superblock of a life that begins, its start counter aside.
pub(super) fn new_life(
    superblocks: &Superblocks,
    (cluster, disk, node): (ClusterId, DiskId, NodeId),
    generation: Generation,
    shards: u16,
) -> Superblock {
    Superblock {
        cluster,
        disk,
        node,
        generation,
        phase: Phase::Starting,
        shards,
        start_counter: ProcessLife(1),
        sequence: 0,
        features: superblocks.found.map_or(Features::KNOWN, |found| found.features),
    }
}

impl Superblocks {
    pub(super) fn read(store: &mut dyn Store) -> Result<Self, RecoverError> {
        let copies = [read_copy(store, 0)?, read_copy(store, 1)?];
        let sequences = copies.map(|copy| match copy {
            Found::Present(superblock) => Some(superblock.sequence),
            Found::Empty | Found::Unreadable | Found::Newer(_) | Found::UnknownFeatures { .. } => None,
        });
        let found = match choose(copies[0], copies[1]) {
            Found::Present(superblock) if superblock.may_write() => Some(superblock),
            Found::Present(superblock) => {
                return Err(RecoverError::UnknownFeatures { bits: superblock.features.may_read });
            }
            Found::Newer(newer) => return Err(newer.into()),
            Found::UnknownFeatures { bits } => return Err(RecoverError::UnknownFeatures { bits }),
            empty @ (Found::Empty | Found::Unreadable) => {
                judge_founding(store, empty == Found::Empty)?;
                None
            }
        };
        Ok(Self { found, sequences })
    }

    /// Writes both copies, the older first, with the next sequence. One of them is whole on the medium at any time: the newer is made
    /// durable before the older is touched, since it may have been read from the page cache alone, where a start that was killed
    /// before its sync has left it.
    pub(super) fn write(&mut self, store: &mut dyn Store, superblock: Superblock) -> Result<(), StoreError> {
        let sequence = self.sequences.into_iter().flatten().max().unwrap_or(0) + 1;
        let mut block = AlignedBuffer::zeroed(BLOCK);
        Superblock { sequence, ..superblock }.encode(&mut block);
        let order = if self.sequences[0] <= self.sequences[1] { [0, 1] } else { [1, 0] };
        if self.sequences[usize::from(order[1])].is_some() {
            store.sync(DataFile::Superblock { copy: order[1] })?;
            store.sync_folder(Folder::Root)?;
        }
        for copy in order {
            let file = DataFile::Superblock { copy };
            if store.length(file)? != Some(BLOCK as u64) {
                store.create(file, BLOCK as u64, Fill::Allocated)?;
            }
            store.write(file, 0, &block)?;
            store.sync(file)?;
            // Each time: a copy that an earlier start made may not have its name durable yet.
            store.sync_folder(Folder::Root)?;
            self.sequences[usize::from(copy)] = Some(sequence);
        }
        Ok(())
    }
}

/// Judges one copy.
pub(crate) fn read_copy(store: &mut dyn Store, copy: u8) -> Result<Found, StoreError> {
    let file = DataFile::Superblock { copy };
    if store.length(file)?.is_none() {
        return Ok(Found::Empty);
    }
    let read = store.read(file, 0, BLOCK)?;
    Ok(if read.unreadable.is_empty() { Found::decode(&read.bytes[..read.length]) } else { Found::Unreadable })
}

/// Without a whole superblock, a cluster may be founded only where an earlier founding may have stopped before its end: no journal
/// has a first group yet, which lies at the very beginning and comes before any other; and there is no segment.
fn judge_founding(store: &mut dyn Store, both_empty: bool) -> Result<(), RecoverError> {
    let lost = |file| {
        if both_empty { RecoverError::SuperblockLost { file } } else { RecoverError::SuperblockUnreadable }
    };
    for file in store.list(Folder::Journal)? {
        if !matches!(file, DataFile::Journal { file: 0, .. }) {
            continue;
        }
        let read = store.read(file, 0, BLOCK)?;
        if !read.unreadable.is_empty() || read.bytes.iter().any(|byte| *byte != 0) {
            return Err(lost(file));
        }
    }
    for byte in 0..=u8::MAX {
        if let Some(file) = store.list(Folder::SegmentsOf(byte))?.first() {
            return Err(lost(*file));
        }
    }
    Ok(())
}
