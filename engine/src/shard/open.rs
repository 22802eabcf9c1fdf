//! Opens a data directory: reads what an earlier life left, and begins a new life on it. Straight-line code; every call of the store
//! may be the last before a crash.
//!
//! ```text
//!  examine   superblock -> catalogs of its generation -> every journal from its live mark to its end       reads only
//!  finish    (1) tails into segment files, synced, and their folders
//!            (2) a catalog for each shard of the new generation, synced, and their folder
//!            (3) both superblock copies: new generation, starting
//!            (4) journals: surplus files away, missing ones made, folder synced; the first group of each, synced
//!            (5) both superblock copies: running
//!            (6) catalogs of other generations away
//! ```
//! - Crash after (1), before (2) is durable: nothing names the bytes of (1); the old catalogs and journals give the same again.
//! - Crash after (2), before (3): the superblock names the old generation; the new catalogs are of another, and passed over.
//! - Crash within (3): the copy with the greater sequence counts. If it is the new one, the new catalogs hold all; if it is torn, the
//!   other is the old one, and its catalogs and journals are untouched.
//! - Crash after (3), before (5): the journals of a starting generation hold nothing, whatever lies in their files.
//! - What a start finds may be in the page cache alone, if it was a kill that stopped the one before. So (3) syncs the copy of the
//!   superblock that counts before it touches the other, and (4) syncs every journal file, also one that is there already.
//! - Crash after (5): every journal has its first group; one without is damaged. What (6) left is of no generation that is named.
//!
//! The metadata is opened between `examine` and `finish`: then nothing is changed before everything was judged, and its first group is
//! there before the superblock says *running*.
//!
//! Invariant: until (3), every file that the old superblock leads to is as it was, but for bytes of segments behind their checkpoints.

#[cfg(test)]
mod bench;
mod content;
mod rings;
#[cfg(test)]
mod served;
#[cfg(test)]
mod stopped;
mod superblocks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use thiserror::Error;

use crate::api::config::EngineConfig;
use crate::api::port::{DataFile, Fill, Folder, Store, StoreError};
use crate::format::superblock::Phase;
use crate::format::upgrade::Newer;
use crate::journal::{Damage, Geometry, Mark, Position, Ring};
use crate::segment::catalog::{Catalog, CatalogError, ChainId, SegmentRecord, load};
use crate::segment::recover::EntryFault;
use crate::types::limits::IO_BYTES_MAX;
use crate::types::{AlignedBuffer, ClusterId, DiskId, Generation, NodeId, ProcessLife, SegmentId, ShardId};

use content::Content;
use superblocks::Superblocks;
pub(crate) use superblocks::read_copy as read_superblock_copy;

/// The node that founds a cluster.
const FOUNDER: NodeId = NodeId(1);

/// Random numbers for this start, drawn by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fresh {
    /// Of the cluster, if this start founds one.
    pub cluster: ClusterId,
    /// Of the directory, if it is empty.
    pub disk: DiskId,
    /// Of the generation of journals that begins with this start.
    pub generation: Generation,
}

/// Why a directory cannot be opened. Unless it is the device's error while writing, nothing has been changed.
#[derive(Debug, Error)]
pub enum RecoverError {
    /// Something is of a format that this build does not know: exit code 78.
    #[error(transparent)]
    Newer(#[from] Newer),
    /// The superblock asks for features that this build does not have: exit code 78.
    #[error("the data directory needs features that this build does not know: {bits:#x}")]
    UnknownFeatures {
        /// The unknown bits.
        bits: u64,
    },
    /// Both superblock copies are there and neither verifies, or one cannot be read and the other is not there.
    #[error("the superblock cannot be read")]
    SuperblockUnreadable,
    /// There is no superblock, and there is data.
    #[error("there is no superblock, but {file} holds data")]
    SuperblockLost {
        /// What is there.
        file: DataFile,
    },
    /// A catalog cannot be read.
    #[error(transparent)]
    Catalog(CatalogError),
    /// The superblock names a generation of which a shard has no catalog.
    #[error("{shard} has no catalog of generation {generation}")]
    CatalogMissing {
        /// The shard.
        shard: ShardId,
        /// The generation.
        generation: Generation,
    },
    /// A journal's files are not all there with one size.
    #[error("the journal files of {shard} are not all there with one size")]
    JournalFiles {
        /// The shard.
        shard: ShardId,
    },
    /// A journal does not hold what it held. Never cut: what was acknowledged may lie behind.
    #[error("the journal of {shard}: {damage}")]
    Damaged {
        /// The shard.
        shard: ShardId,
        /// What is known.
        damage: Damage,
    },
    /// A journal's end cannot be told, because of what the device cannot read.
    #[error("the journal of {shard} cannot be read behind group {sequence}")]
    JournalUnreadable {
        /// The shard.
        shard: ShardId,
        /// The first group that is not known.
        sequence: u64,
    },
    /// What a journal says of a segment verifies and cannot be: an error in the build that wrote it.
    #[error("the journal contradicts itself about {segment}: {fault}")]
    Contradiction {
        /// The segment.
        segment: SegmentId,
        /// In what.
        fault: EntryFault,
    },
    /// The device's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A directory that may be opened: all of it was read and judged, nothing was changed. What the journals hold is in memory.
#[derive(Debug)]
pub struct Examined {
    superblocks: Superblocks,
    life: ProcessLife,
    fresh: Fresh,
    content: Content,
}

/// A directory that is open.
#[derive(Debug)]
pub struct Recovered {
    pub cluster: ClusterId,
    pub disk: DiskId,
    pub node: NodeId,
    /// This life of the process: the start counter.
    pub life: ProcessLife,
    /// The living generation of journals.
    pub generation: Generation,
    /// Whether this start founded the cluster.
    pub founded: bool,
    /// In order.
    pub shards: Vec<RecoveredShard>,
}

/// What a shard begins with. Everything that the disk holds is in its catalog: segments of earlier lives with their ends, index and
/// producer table, promises, trims, and what may have been held and cannot be read.
#[derive(Debug)]
pub struct RecoveredShard {
    pub shard: ShardId,
    pub generation: Generation,
    /// Behind the first group.
    pub ring: Ring,
    pub catalog: Catalog,
}

/// `examine`, then `finish`, for a directory whose metadata is opened elsewhere or not at all.
///
/// # Errors
/// Why it cannot be opened.
pub fn recover(store: &mut dyn Store, config: &EngineConfig, fresh: Fresh) -> Result<Recovered, RecoverError> {
    examine(store, fresh)?.finish(store, config)
}

/// Reads and judges a directory. Changes nothing.
///
/// # Errors
/// Why it cannot be opened.
pub fn examine(store: &mut dyn Store, fresh: Fresh) -> Result<Examined, RecoverError> {
    let superblocks = Superblocks::read(store)?;
    let mut content = Content::default();
    let Some(found) = superblocks.found else {
        return Ok(Examined { superblocks, life: ProcessLife(1), fresh, content });
    };
    assert_ne!(found.generation, fresh.generation, "a generation is a new random number");
    let names = store.list(Folder::Catalog)?;
    let journals = store.list(Folder::Journal)?;
    for shard in (0..found.shards).map(ShardId) {
        let generation = found.generation;
        let loaded = load(store, &names, shard, generation).map_err(|error| match error {
            CatalogError::Newer(newer) => newer.into(),
            CatalogError::Store(error) => error.into(),
            error @ (CatalogError::Broken { .. } | CatalogError::Nonsense { .. }) => RecoverError::Catalog(error),
        })?;
        let catalog = loaded.ok_or(RecoverError::CatalogMissing { shard, generation })?.catalog;
        let live = catalog.live();
        content.take_catalog(catalog);
        if found.phase == Phase::Running {
            let first = Mark { sequence: live.sequence, position: Position(live.position), previous: live.previous };
            rings::replay_journal(store, &journals, shard, generation, first, &mut content)?;
        }
    }
    content.settle();
    let life = ProcessLife(found.start_counter.0 + 1);
    Ok(Examined { superblocks, life, fresh, content })
}

impl RecoverError {
    /// The process ends with exit code 78.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Newer(_) | Self::UnknownFeatures { .. })
    }
}

impl Examined {
    /// Whether there is no superblock: this start founds a cluster.
    #[must_use]
    pub fn founds(&self) -> bool {
        self.superblocks.found.is_none()
    }

    /// The generation that the superblock says to be running: its journals have their first groups.
    #[must_use]
    pub fn running(&self) -> Option<Generation> {
        let running = self.superblocks.found.filter(|found| found.phase == Phase::Running);
        running.map(|found| found.generation)
    }

    /// The segments that it holds, with all that the journals say of them; without the index and table of those that they say more of
    /// than a catalog.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentRecord> {
        self.content.segments()
    }

    /// The generation that begins with this start.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.fresh.generation
    }

    /// This node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.superblocks.found.map_or(FOUNDER, |found| found.node)
    }

    /// This life of its process.
    #[must_use]
    pub fn life(&self) -> ProcessLife {
        self.life
    }

    /// Begins the new life. The order of writes is that of the picture above.
    ///
    /// # Errors
    /// The device's. Opening the directory again then gives the same content.
    ///
    /// # Panics
    /// If the configuration was not checked.
    pub fn finish(mut self, store: &mut dyn Store, config: &EngineConfig) -> Result<Recovered, RecoverError> {
        let (generation, shards) = (self.fresh.generation, config.shards);
        self.content.write_tails(store)?;
        let catalogs = self.write_catalogs(store, shards)?;

        let cluster = self.superblocks.found.map_or(self.fresh.cluster, |found| found.cluster);
        let disk = self.superblocks.found.map_or(self.fresh.disk, |found| found.disk);
        let (node, founded) = (self.node(), self.founds());
        let mut superblock = superblocks::new_life(&self.superblocks, (cluster, disk, node), generation, shards);
        superblock.start_counter = self.life;
        // Crash between the two copies: the first counts, and needs nothing of the old generation; and while only the second is
        // old, nothing that the old one leads to is touched.
        self.superblocks.write(store, superblock)?;

        let geometry = Geometry::new(config.journal_files, config.journal_file_bytes);
        rings::make_files(store, shards, geometry)?;
        let mut rings = Vec::new();
        for shard in (0..shards).map(ShardId) {
            rings.push(rings::begin(store, shard, generation, geometry)?);
        }

        // Crash before this is durable: the generation is still starting, and holds nothing but its catalogs. Crash after it:
        // every journal has its first group.
        superblock.phase = Phase::Running;
        self.superblocks.write(store, superblock)?;
        remove_other_catalogs(store, &catalogs)?;

        let both = catalogs.into_iter().zip(rings);
        let shards = both
            .map(|((catalog, _), ring)| RecoveredShard { shard: catalog.id().shard, generation, ring, catalog })
            .collect();
        Ok(Recovered { cluster, disk, node, life: self.life, generation, founded, shards })
    }

    /// Makes the catalogs of the new generation durable, each with the name of its only file.
    fn write_catalogs(&mut self, store: &mut dyn Store, shards: u16) -> Result<Vec<(Catalog, DataFile)>, StoreError> {
        let names = store.list(Folder::Catalog)?;
        let mut catalogs: Vec<Catalog> = (0..shards)
            .map(ShardId)
            .map(|shard| {
                let id = ChainId { shard, shards, generation: self.fresh.generation };
                Catalog::new(id, next_sequence(&names, shard))
            })
            .collect();
        std::mem::take(&mut self.content).distribute(&mut catalogs);
        let mut written = Vec::new();
        for mut catalog in catalogs {
            let snapshot = catalog.snapshot();
            store.create(snapshot.file, snapshot.buffer.len() as u64, Fill::Allocated)?;
            write_whole(store, snapshot.file, &snapshot.buffer)?;
            catalog.snapshot_durable(snapshot.file);
            written.push((catalog, snapshot.file));
        }
        // Their names are durable before any superblock leads to them.
        store.sync_folder(Folder::Catalog)?;
        Ok(written)
    }
}

/// Writes a file from its beginning, in pieces that a device takes, and syncs it.
fn write_whole(store: &mut dyn Store, file: DataFile, buffer: &AlignedBuffer) -> Result<(), StoreError> {
    let mut position = 0;
    for piece in buffer.chunks(IO_BYTES_MAX) {
        let mut blocks = AlignedBuffer::zeroed(piece.len());
        blocks.copy_from_slice(piece);
        store.write(file, position, &blocks)?;
        position += piece.len() as u64;
    }
    store.sync(file)
}

/// Above every catalog file of the shard, so that a new name never replaces an old file.
fn next_sequence(names: &[DataFile], shard: ShardId) -> u64 {
    let mut next = 1;
    for name in names {
        if let DataFile::CatalogSnapshot { shard: of, sequence } | DataFile::CatalogDelta { shard: of, sequence } = name
            && *of == shard
        {
            next = next.max(sequence + 1);
        }
    }
    next
}

/// Nothing leads to them any more.
fn remove_other_catalogs(store: &mut dyn Store, catalogs: &[(Catalog, DataFile)]) -> Result<(), StoreError> {
    let kept: BTreeSet<DataFile> = catalogs.iter().map(|(_, file)| *file).collect();
    let mut changed = false;
    for name in store.list(Folder::Catalog)? {
        if !kept.contains(&name) {
            store.remove(name)?;
            changed = true;
        }
    }
    if changed {
        store.sync_folder(Folder::Catalog)?;
    }
    Ok(())
}
