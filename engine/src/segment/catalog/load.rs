//! Reads a catalog back from the files of one generation.
//!
//! The newest snapshot from which an unbroken chain of deltas leads to the newest delta that verifies. What stands behind that does not
//! verify, so it is an unfinished checkpoint, whose groups the journal still has; should it have been a finished one that rotted, the
//! journal's groups from the older mark on are gone or still there, and its replay tells which.

use std::collections::BTreeMap;

use thiserror::Error;

use super::file::{FileKind, FileView};
use super::record::Record;
use super::{Catalog, ChainId};
use crate::api::port::{DataFile, Store, StoreError};
use crate::format::upgrade::Newer;
use crate::format::verdict::DecodeError;
use crate::types::{Generation, ShardId};

/// Why a catalog cannot be read.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// A file is of a version that this build does not know.
    #[error(transparent)]
    Newer(#[from] Newer),
    /// No snapshot of the generation leads to its newest delta.
    #[error(
        "the catalog of {shard}, generation {generation}: no snapshot leads unbroken to file {newest}; {broken} files do not verify"
    )]
    Broken {
        /// The shard.
        shard: ShardId,
        /// The generation.
        generation: Generation,
        /// Sequence of the newest file that verifies; 0 if none does.
        newest: u64,
        /// Files of the shard that do not verify.
        broken: usize,
    },
    /// Records that verify make no sense: only an error in a writer makes such.
    #[error("{file}: {error}")]
    Nonsense {
        /// The file.
        file: DataFile,
        /// What is wrong.
        error: DecodeError,
    },
    /// The device's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A catalog as it was found.
#[derive(Debug)]
pub struct LoadedCatalog {
    /// As at its last finished checkpoint.
    pub catalog: Catalog,
    /// Files that did not verify.
    pub broken: Vec<DataFile>,
}

/// The files that verify, by sequence.
#[derive(Default)]
struct Files {
    snapshots: BTreeMap<u64, Vec<u8>>,
    deltas: BTreeMap<u64, Vec<u8>>,
    broken: Vec<DataFile>,
}

/// Reads the catalog of a shard in a generation from `names`, which may hold files of other shards and generations. `None` if there is no
/// file of the shard at all.
///
/// # Errors
/// Why it cannot be read. Nothing is changed.
pub fn load(
    store: &mut dyn Store,
    names: &[DataFile],
    shard: ShardId,
    generation: Generation,
) -> Result<Option<LoadedCatalog>, CatalogError> {
    let mut files = Files::default();
    for &name in names {
        let (DataFile::CatalogSnapshot { shard: of, .. } | DataFile::CatalogDelta { shard: of, .. }) = name else {
            continue;
        };
        if of == shard {
            files.read(store, name, generation)?;
        }
    }
    if files.snapshots.is_empty() && files.deltas.is_empty() && files.broken.is_empty() {
        return Ok(None);
    }
    let last = |files: &BTreeMap<u64, Vec<u8>>| files.keys().next_back().copied().unwrap_or(0);
    let newest = last(&files.snapshots).max(last(&files.deltas));
    for &snapshot in files.snapshots.keys().rev() {
        if files.leads(snapshot, newest) {
            let catalog = files.assemble(snapshot, newest)?;
            return Ok(Some(LoadedCatalog { catalog, broken: files.broken }));
        }
    }
    Err(CatalogError::Broken { shard, generation, newest, broken: files.broken.len() })
}

impl Files {
    /// Reads one file. Those of other generations are passed over.
    fn read(&mut self, store: &mut dyn Store, name: DataFile, generation: Generation) -> Result<(), CatalogError> {
        let length = store.length(name)?.unwrap_or(0);
        let read = store.read(name, 0, usize::try_from(length).expect("a catalog fits memory"))?;
        match FileView::decode(&read.bytes[..read.length]) {
            Ok(view) if view.header.file() != name => self.broken.push(name),
            Ok(view) if view.header.generation != generation => {}
            Ok(view) => {
                let home = match view.header.kind {
                    FileKind::Snapshot => &mut self.snapshots,
                    FileKind::Delta => &mut self.deltas,
                };
                home.insert(view.header.sequence, read.bytes[..read.length].to_vec());
            }
            Err(DecodeError::Newer(newer)) => return Err(newer.into()),
            Err(_) => self.broken.push(name),
        }
        Ok(())
    }

    /// Whether deltas lead from a snapshot to `newest` without a gap.
    fn leads(&self, snapshot: u64, newest: u64) -> bool {
        let mut digest = view(&self.snapshots[&snapshot]).header.previous;
        (snapshot + 1..=newest).all(|sequence| {
            let Some(bytes) = self.deltas.get(&sequence) else { return false };
            let delta = view(bytes);
            let continues = delta.header.previous == digest;
            digest = delta.digest;
            continues
        })
    }

    fn assemble(&self, snapshot: u64, newest: u64) -> Result<Catalog, CatalogError> {
        let first = view(&self.snapshots[&snapshot]);
        let id =
            ChainId { shard: first.header.shard, shards: first.header.shards, generation: first.header.generation };
        let mut catalog = Catalog::new(id, newest);
        catalog.digest = first.header.previous;
        let chain = self.deltas.range(snapshot + 1..).map(|(_, bytes)| view(bytes));
        for file in std::iter::once(first).chain(chain) {
            if file.header.kind == FileKind::Delta {
                catalog.digest = file.digest;
            }
            Record::decode_all(file.records, |record| catalog.apply(record)).map_err(|error| match error {
                DecodeError::Newer(newer) => newer.into(),
                error @ (DecodeError::Length { .. }
                | DecodeError::Magic { .. }
                | DecodeError::Checksum { .. }
                | DecodeError::Value { .. }) => CatalogError::Nonsense { file: file.header.file(), error },
            })?;
        }
        catalog.dirty = super::Dirty::default();
        catalog.snapshots = self.snapshots.keys().copied().collect();
        let deltas = self.deltas.values().map(|bytes| view(bytes).header.file());
        catalog.files = self.snapshots.values().map(|bytes| view(bytes).header.file()).chain(deltas).collect();
        catalog.snapshot_bytes = self.snapshots[&snapshot].len() as u64;
        catalog.delta_bytes = self.deltas.range(snapshot + 1..).map(|(_, bytes)| bytes.len() as u64).sum();
        Ok(catalog)
    }
}

fn view(bytes: &[u8]) -> FileView<'_> {
    FileView::decode(bytes).expect("it was verified when it was read")
}
