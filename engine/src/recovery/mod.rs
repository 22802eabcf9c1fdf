//! Opens a node's data directory at start: shards and metadata as one, so that nothing is changed before everything was judged.
//!
//! ```text
//!  examine journals and catalogs   reads only; refuses what is newer, damaged or not ours
//!  metadata                        reads, refuses; then begins a new generation of its log
//!  finish                          tails into segments, new catalogs, superblocks, first groups
//! ```
//! Crash after the metadata has begun its generation and before the superblocks name it: the next start reads the metadata of that
//! generation, and the shards of the older one; both hold all that was acknowledged.

use thiserror::Error;

use crate::api::config::EngineConfig;
use crate::api::port::Store;
use crate::controller::open::{MetadataStart, RecoverMetadataError, RecoveredMetadata, recover_metadata};
use crate::shard::open::{Fresh, RecoverError, RecoveredShard, examine};
use crate::types::{ClusterId, DiskId, NodeId, ProcessLife};

/// A data directory that is open for this life.
#[derive(Debug)]
pub struct RecoveredNode {
    pub cluster: ClusterId,
    pub disk: DiskId,
    pub node: NodeId,
    pub life: ProcessLife,
    /// The directory was empty: a cluster of one was founded.
    pub founded: bool,
    pub metadata: RecoveredMetadata,
    /// In the order of their ids.
    pub shards: Vec<RecoveredShard>,
}

/// Why a data directory cannot be opened. Unless a write failed, nothing was changed that any later start depends on.
#[derive(Debug, Error)]
pub enum RecoverNodeError {
    #[error(transparent)]
    Shards(#[from] RecoverError),
    #[error(transparent)]
    Metadata(#[from] RecoverMetadataError),
}

impl RecoverNodeError {
    /// Whether the directory is of a format that this build does not know, or damaged in a way that it does not repair: the
    /// process ends with exit code 78.
    #[must_use]
    pub fn is_format(&self) -> bool {
        match self {
            Self::Shards(RecoverError::Store(_)) | Self::Metadata(RecoverMetadataError::Store(_)) => false,
            Self::Shards(_) | Self::Metadata(_) => true,
        }
    }
}

/// Opens the directory behind `store`.
///
/// # Errors
/// Why it cannot be opened.
///
/// # Panics
/// If the configuration was not checked.
pub fn recover_node(
    store: &mut dyn Store,
    config: &EngineConfig,
    fresh: Fresh,
) -> Result<RecoveredNode, RecoverNodeError> {
    let examined = examine(store, fresh)?;
    let start = MetadataStart {
        founding: examined.founds(),
        running: examined.running(),
        generation: examined.generation(),
        node: examined.node(),
        life: examined.life(),
        file_bytes: config.metadata_file_bytes,
    };
    let metadata = recover_metadata(store, &start)?;
    let recovered = examined.finish(store, config)?;
    Ok(RecoveredNode {
        cluster: recovered.cluster,
        disk: recovered.disk,
        node: recovered.node,
        life: recovered.life,
        founded: recovered.founded,
        metadata,
        shards: recovered.shards,
    })
}

#[cfg(test)]
mod tests;
