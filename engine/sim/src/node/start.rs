//! A process starts: the directory is examined and opened as the daemon does it, every call of the store being one in which the
//! machine may stop.

use std::collections::{BTreeMap, BTreeSet};

use sealog_engine::api::port::Store;
use sealog_engine::controller::{Controller, MetadataStart, RecoverMetadataError, recover_metadata};
use sealog_engine::shard::Shard;
use sealog_engine::shard::event::Event;
use sealog_engine::shard::open::{Fresh, RecoverError, Recovered, examine};
use sealog_engine::types::{Generation, ShardId};
use sealog_net::session::{Handshake, NodeIdentity, SessionLimits};
use thiserror::Error;

use super::torn::MayHold;
use super::{Around, Node, Process, ShardHost};
use crate::check::Checks;
use crate::random::Random;

/// Why a process does not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Data(#[from] RecoverError),
    #[error(transparent)]
    Metadata(#[from] RecoverMetadataError),
}

impl StartError {
    /// Whether the disk had no room: a supervisor tries again.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let errno = match self {
            Self::Data(RecoverError::Store(error)) | Self::Metadata(RecoverMetadataError::Store(error)) => error.errno,
            Self::Data(_) | Self::Metadata(_) => return false,
        };
        errno == crate::disk::ENOSPC
    }

    /// Whether it names damage that one copy does not survive, and for which a build without repair refuses.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            Self::Data(RecoverError::Contradiction { .. })
                | Self::Metadata(
                    RecoverMetadataError::Entry { .. }
                        | RecoverMetadataError::Gap { .. }
                        | RecoverMetadataError::RolledBack { .. }
                )
        )
    }
}

/// A directory that is open, and no shard yet.
pub(super) struct Opened {
    recovered: Recovered,
    controller: Controller,
}

impl Node {
    /// Opens what the disk holds for a new process. Returns how long that took, in ns: then it is to `begin`.
    ///
    /// # Errors
    /// It refuses to start, or the machine stopped in a call to the store.
    pub fn open(&mut self, checks: &mut Checks) -> Result<u64, StartError> {
        self.config.check().expect("the configuration can work");
        let fresh = Fresh {
            cluster: self.identity.cluster,
            disk: self.identity.disk,
            generation: Generation(self.random.word()),
        };
        let held: Vec<_> = self.torn.iter().flat_map(|torn| torn.may_hold(&self.disk)).collect();
        let opened = open(&mut self.disk, &self.config, fresh, &mut self.random);
        let spent_ns = self.disk.take_spent_ns();
        self.opened = Some(opened?);
        // What it found it now knows for ever.
        self.torn.clear();
        for MayHold { range, offset, end, digest } in held {
            checks.one_history.may_hold(range, offset, end, digest);
        }
        self.incarnation += 1;
        Ok(spent_ns)
    }

    /// The process begins with what was opened, if nothing has ended it since.
    pub fn begin(&mut self, around: &mut Around<'_>, incarnation: u64) {
        if incarnation != self.incarnation {
            return;
        }
        let Some(Opened { recovered, controller }) = self.opened.take() else { return };
        self.clock.restart(around.queue.now_ns(), self.random.below(1 << 40));
        let identity = NodeIdentity { cluster: recovered.cluster, node: recovered.node, shards: self.config.shards };
        let life = recovered.life;
        let shards = recovered
            .shards
            .into_iter()
            .map(|shard| ShardHost { shard: Shard::open(shard, &self.config), timer_ns: None })
            .collect();
        self.process = Some(Process {
            generation: recovered.generation,
            shards,
            controller,
            controller_timer_ns: None,
            handshake: Handshake { identity, limits: SessionLimits::from(&self.config) },
            mesh_ns: BTreeMap::new(),
            asked: BTreeMap::new(),
            writing: BTreeMap::new(),
            failed: BTreeSet::new(),
            events: 0,
        });
        around.trace.say(around.queue.now_ns(), || format!("---- {life} with {} shards", self.config.shards));
        around.checks.one_history.restarted();
        for shard in (0..self.config.shards).map(ShardId) {
            self.step_shard(around, shard, Event::Started);
        }
    }
}

fn open(
    store: &mut dyn Store,
    config: &sealog_engine::api::EngineConfig,
    fresh: Fresh,
    random: &mut Random,
) -> Result<Opened, StartError> {
    let examined = examine(store, fresh)?;
    let metadata = MetadataStart {
        founding: examined.founds(),
        running: examined.running(),
        generation: examined.generation(),
        node: examined.node(),
        life: examined.life(),
        file_bytes: config.metadata_file_bytes,
    };
    let metadata = recover_metadata(store, &metadata)?;
    let recovered = examined.finish(store, config)?;
    let identity = (recovered.node, recovered.life, recovered.cluster);
    let controller = Controller::open(metadata, config.clone(), identity, random.word());
    Ok(Opened { recovered, controller })
}
