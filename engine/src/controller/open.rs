//! The metadata at start: read the newest snapshot and the log behind it, then begin a new generation of the log.
//!
//! ```text
//!  (a) write two snapshots of the state as it is, which name the new generation; sync them and the folder
//!  (b) remove all older snapshots; sync the folder
//!  (c) write and sync the first group of the new generation
//! ```
//! Crash in (a): the older snapshots and the log of the older generation are untouched, and read again; a snapshot that was torn
//! does not verify. Crash in (b) or before (c): the new snapshots hold everything, and their generation has no group. So a
//! group of a generation is only ever written when no snapshot of another is left: falling back from a damaged snapshot can
//! never lose what was answered.
//!
//! What cannot be read is refused, and nothing is deleted. The only group that may be missing is the very last if its body does
//! not verify: each group is proved by an empty one before anything in it is acted upon, so nobody was told of it.

use std::collections::VecDeque;

use thiserror::Error;

use crate::api::port::{DataFile, Fill, Folder, Store, StoreError};
use crate::format::journal::{GroupKind, JournalSeed, METADATA_JOURNAL};
use crate::format::upgrade::Newer;
use crate::journal::{
    Damage, End, FileImage, Geometry, GroupView, JournalImage, Mark, Position, Ring, compose_empty, replay,
};
use crate::metadata::snapshot::{decode, encode};
use crate::metadata::{Change, DecodeError, LogStart, Snapshot, SnapshotError, State};
use crate::types::limits::{BLOCK, IO_BYTES_MAX, round_up_to_block};
use crate::types::{AlignedBuffer, Generation, NodeId, ProcessLife};

/// Files of the metadata journal's ring.
pub const METADATA_FILES: u16 = 2;
/// Snapshots that are kept: the newest, and one to fall back to with the log since.
pub(super) const SNAPSHOTS_KEPT: usize = 2;

/// What the superblock says of the metadata, and what this start is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataStart {
    /// There is no superblock: this start founds a cluster. With one, metadata that cannot be found is lost, not new.
    pub founding: bool,
    /// The generation that the superblock says to be running: its journals have their first groups.
    pub running: Option<Generation>,
    /// The generation that begins with this start; never used before.
    pub generation: Generation,
    /// This process.
    pub node: NodeId,
    pub life: ProcessLife,
    /// Bytes of a file of the journal when it is made; whole blocks. It keeps its size for ever.
    pub file_bytes: u64,
}

/// The metadata of a node that may start.
#[derive(Debug)]
pub struct RecoveredMetadata {
    pub(super) state: State,
    pub(super) seed: JournalSeed,
    /// Behind the first group of the new generation.
    pub(super) ring: Ring,
    /// The snapshots that there are, oldest first, and where the log goes on behind each.
    pub(super) snapshots: VecDeque<(u64, Mark)>,
}

/// The metadata cannot be read: the node does not start, and nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecoverMetadataError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process ends with exit code 78.
    #[error(transparent)]
    Newer(#[from] Newer),
    #[error("the directory holds no metadata snapshot")]
    NoSnapshot,
    #[error("no metadata snapshot can be read; the newest, {index}: {cause}")]
    NoneReadable { index: u64, cause: SnapshotError },
    #[error("the metadata journal's {METADATA_FILES} files are not all there with one size")]
    JournalFiles,
    #[error("the metadata journal: {0}")]
    Damaged(Damage),
    #[error("the metadata journal cannot be read behind group {sequence}")]
    Unreadable { sequence: u64 },
    #[error("entry {index} of the metadata log verifies and is {cause}")]
    Entry { index: u64, cause: DecodeError },
    #[error("the metadata log goes on with entry {found} where {expected} belongs")]
    Gap { expected: u64, found: u64 },
    #[error("the directory has no superblock and metadata of a cluster: {applied} changes")]
    NotFresh { applied: u64 },
    #[error("the disk is older than its metadata: this would be {given}, and {known} has run")]
    RolledBack { known: ProcessLife, given: ProcessLife },
}

impl RecoverMetadataError {
    /// Written by a later build: exit code 78.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Newer(_))
    }
}

impl RecoveredMetadata {
    /// The committed state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }
}

/// Reads the metadata of a group of one and begins a new generation of its log. Blocking.
///
/// # Errors
/// Why the node cannot start. Unless it is the store's error, nothing has been changed.
pub fn recover_metadata(
    store: &mut dyn Store,
    start: &MetadataStart,
) -> Result<RecoveredMetadata, RecoverMetadataError> {
    let listed = list_snapshots(store)?;
    let state = if start.founding {
        found(store, &listed)?;
        make_journal(store, start.file_bytes)?;
        State::default()
    } else {
        read_state(store, &listed, start.running)?
    };
    if let Some(known) = state.node(start.node).map(|node| node.life).filter(|known| *known >= start.life) {
        return Err(RecoverMetadataError::RolledBack { known, given: start.life });
    }
    let geometry = geometry(store)?;
    begin_generation(store, state, start.generation, geometry, &listed)
}

/// Reads the committed state and changes nothing. `running` is the generation that the superblock says to be running.
///
/// # Errors
/// Why it cannot be read.
pub fn read_metadata(store: &mut dyn Store, running: Option<Generation>) -> Result<State, RecoverMetadataError> {
    let listed = list_snapshots(store)?;
    read_state(store, &listed, running)
}

/// Makes the journal's files, unless an earlier founding has. Those are kept: it may have got to its snapshots, and a crash while they
/// are replaced would leave snapshots without the journal that a later founding looks for behind them. They are synced all the same:
/// that founding may have been killed between making a file and syncing it, and then only the page cache has it.
fn make_journal(store: &mut dyn Store, file_bytes: u64) -> Result<(), RecoverMetadataError> {
    match geometry(store) {
        Ok(_) => {}
        Err(RecoverMetadataError::JournalFiles) => {
            for file in 0..METADATA_FILES {
                store.create(DataFile::MetadataJournal { file }, file_bytes, Fill::Zeroed)?;
            }
        }
        Err(error) => return Err(error),
    }
    for file in 0..METADATA_FILES {
        store.sync(DataFile::MetadataJournal { file })?;
    }
    Ok(store.sync_folder(Folder::Metadata)?)
}

/// Indexes of the snapshots that there are, ascending.
fn list_snapshots(store: &mut dyn Store) -> Result<Vec<u64>, RecoverMetadataError> {
    let mut indexes: Vec<u64> = Vec::new();
    for file in store.list(Folder::Metadata)? {
        if let DataFile::MetadataSnapshot { index } = file {
            indexes.push(index);
        }
    }
    indexes.sort_unstable();
    Ok(indexes)
}

/// A cluster may be founded here: nothing, or what an earlier founding left before it had a superblock.
fn found(store: &mut dyn Store, listed: &[u64]) -> Result<(), RecoverMetadataError> {
    for index in listed {
        match read_snapshot(store, *index)? {
            // The journal is made before the first snapshot, so it is there to be read.
            Ok(snapshot) => {
                let applied = read_log(store, snapshot, None)?.applied();
                if applied > 0 {
                    return Err(RecoverMetadataError::NotFresh { applied });
                }
            }
            Err(SnapshotError::Newer(newer)) => return Err(newer.into()),
            // Each founding that was cut short may have torn what it wrote, and nothing came before. That no shard has begun its
            // journal, so that nobody was ever answered here, is judged by who says that this is a founding.
            Err(_) => {}
        }
    }
    Ok(())
}

const FIRST_SNAPSHOT: u64 = 1;

fn read_state(
    store: &mut dyn Store,
    listed: &[u64],
    running: Option<Generation>,
) -> Result<State, RecoverMetadataError> {
    let newest = *listed.last().ok_or(RecoverMetadataError::NoSnapshot)?;
    let mut first_cause = None;
    let mut snapshot = None;
    for index in listed.iter().rev() {
        match read_snapshot(store, *index)? {
            Ok(read) => {
                snapshot = Some(read);
                break;
            }
            Err(SnapshotError::Newer(newer)) => return Err(newer.into()),
            Err(cause) => {
                first_cause.get_or_insert(cause);
            }
        }
    }
    match (snapshot, first_cause) {
        (Some(snapshot), _) => read_log(store, snapshot, running),
        (None, Some(cause)) => Err(RecoverMetadataError::NoneReadable { index: newest, cause }),
        (None, None) => unreachable!("at least one was tried"),
    }
}

fn read_snapshot(store: &mut dyn Store, index: u64) -> Result<Result<Snapshot, SnapshotError>, RecoverMetadataError> {
    let file = DataFile::MetadataSnapshot { index };
    let bytes = store.length(file)?.unwrap_or_default();
    let read = store.read(file, 0, usize::try_from(bytes).expect("a snapshot fits memory"))?;
    // What could not be read stands there as zeros, and does not verify.
    Ok(decode(&read.bytes[..read.length]))
}

fn geometry(store: &mut dyn Store) -> Result<Geometry, RecoverMetadataError> {
    let mut sizes = Vec::new();
    for file in 0..METADATA_FILES {
        sizes.push(store.length(DataFile::MetadataJournal { file })?.unwrap_or_default());
    }
    let bytes = sizes[0];
    if bytes == 0 || !bytes.is_multiple_of(BLOCK as u64) || sizes.iter().any(|size| *size != bytes) {
        return Err(RecoverMetadataError::JournalFiles);
    }
    Ok(Geometry::new(METADATA_FILES, bytes))
}

/// Applies what the log holds behind a snapshot.
fn read_log(
    store: &mut dyn Store,
    snapshot: Snapshot,
    running: Option<Generation>,
) -> Result<State, RecoverMetadataError> {
    let length = usize::try_from(geometry(store)?.file_bytes()).expect("a journal file fits memory");
    let mut read = Vec::new();
    for file in 0..METADATA_FILES {
        read.push(store.read(DataFile::MetadataJournal { file }, 0, length)?);
    }
    let images: Vec<FileImage<'_>> =
        read.iter().map(|file| FileImage { bytes: &file.bytes[..], unreadable: &file.unreadable }).collect();
    let image = JournalImage::new(&images).ok_or(RecoverMetadataError::JournalFiles)?;
    let Snapshot { mut state, log } = snapshot;
    let first = mark_of(&log);
    let mut entries = Ok(());
    let replayed = replay(&image, JournalSeed::new(log.generation, METADATA_JOURNAL), first, |group| {
        if entries.is_ok() {
            entries = apply_group(&mut state, group);
        }
    });
    match replayed.last {
        // An uncertain group was proved by nobody: it was never acted on.
        End::Stopped | End::Certain | End::Uncertain(_) => {}
        End::Newer(newer) => return Err(newer.into()),
        End::Unknown(_) => return Err(RecoverMetadataError::Unreadable { sequence: replayed.end.sequence }),
        End::Damaged(damage) => {
            // The start that wrote the snapshot did not get to the first group.
            let never_begun = damage.cause == crate::journal::DamageCause::FirstMissing;
            if !never_begun || running == Some(log.generation) {
                return Err(RecoverMetadataError::Damaged(damage));
            }
        }
    }
    entries.map(|()| state)
}

fn apply_group(state: &mut State, group: &GroupView<'_>) -> Result<(), RecoverMetadataError> {
    for (entry, body) in group.entries() {
        let (expected, found) = (state.applied(), entry.first().0);
        if found != expected {
            return Err(RecoverMetadataError::Gap { expected, found });
        }
        match Change::decode(body) {
            // Refused then, refused now.
            Ok(change) => drop(state.apply(&change)),
            Err(DecodeError::Newer(newer)) => return Err(newer.into()),
            Err(cause @ DecodeError::Malformed { .. }) => {
                return Err(RecoverMetadataError::Entry { index: expected, cause });
            }
        }
    }
    Ok(())
}

fn begin_generation(
    store: &mut dyn Store,
    state: State,
    generation: Generation,
    geometry: Geometry,
    listed: &[u64],
) -> Result<RecoveredMetadata, RecoverMetadataError> {
    let bytes = encode(&state, &log_start(generation, Mark::BEGIN));
    let first = listed.last().map_or(FIRST_SNAPSHOT, |last| last + 1);
    let mut snapshots = VecDeque::new();
    for index in (first..).take(SNAPSHOTS_KEPT) {
        write_snapshot(store, index, &bytes)?;
        snapshots.push_back((index, Mark::BEGIN));
    }
    store.sync_folder(Folder::Metadata)?;
    for index in listed {
        store.remove(DataFile::MetadataSnapshot { index: *index })?;
    }
    store.sync_folder(Folder::Metadata)?;

    let seed = JournalSeed::new(generation, METADATA_JOURNAL);
    let mut ring = Ring::new(geometry);
    let slot = ring.slot(BLOCK as u64).expect("a new ring has room");
    let mut block = AlignedBuffer::zeroed(BLOCK);
    let group = compose_empty(GroupKind::First, seed, slot, &mut block);
    let (file, position) = geometry.locate(slot.position);
    let file = DataFile::MetadataJournal { file };
    store.write(file, position, &block)?;
    store.sync(file)?;
    ring.take(slot, group.length as u64, group.digest);
    Ok(RecoveredMetadata { state, seed, ring, snapshots })
}

fn write_snapshot(store: &mut dyn Store, index: u64, bytes: &[u8]) -> Result<(), RecoverMetadataError> {
    let file = DataFile::MetadataSnapshot { index };
    store.create(file, round_up_to_block(bytes.len()) as u64, Fill::Allocated)?;
    for (chunk, position) in bytes.chunks(IO_BYTES_MAX).zip((0..).step_by(IO_BYTES_MAX)) {
        store.write(file, position, &aligned(chunk))?;
    }
    Ok(store.sync(file)?)
}

/// A copy that begins on a block, padded with zeros.
pub(super) fn aligned(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer[..bytes.len()].copy_from_slice(bytes);
    buffer
}

pub(super) fn log_start(generation: Generation, mark: Mark) -> LogStart {
    LogStart { generation, sequence: mark.sequence, position: mark.position.0, previous: mark.previous }
}

fn mark_of(log: &LogStart) -> Mark {
    Mark { sequence: log.sequence, position: Position(log.position), previous: log.previous }
}

#[cfg(test)]
mod tests;
