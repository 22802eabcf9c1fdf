//! A shard as recovery hands it over: everything that the disk holds is in the catalog, and the journal begins a new generation.

use crate::journal::Ring;
use crate::segment::catalog::Catalog;
use crate::types::{Generation, ShardId};

/// What recovery found of one shard.
#[derive(Debug)]
pub struct RecoveredShard {
    pub shard: ShardId,
    /// Of the journal that this life writes.
    pub generation: Generation,
    /// Behind the generation's first group, which is durable.
    pub ring: Ring,
    /// As at that group.
    pub catalog: Catalog,
}
