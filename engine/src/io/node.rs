//! A node: recovers its data directory, then runs a shard on each core and the controller beside the first.
//!
//! ```text
//!  lock -> superblocks, metadata, journals, catalogs (blocking, one thread) -> a shard an executor, pinned -> ready
//! ```
//! What serves the network is given as a function that is called once on each executor: the engine does not know it.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};
use thiserror::Error;

use super::calibrate::{Calibration, SyncSetting, calibrate};
use super::controller_loop::ControllerLoop;
use super::cpu;
use super::files::Files;
use super::floor::FloorError;
use super::heartbeat;
use super::journal_writer::{JournalWriter, OpenJournalError, SyncWay};
use super::mesh::{self, Mesh};
use super::metrics::ShardMetrics;
use super::recorder::{RecordedStore, Recorder};
use super::shard_loop::{Parts, ShardLoop};
use super::store::{DirectoryLock, DiskStore, LockError, lock};
use super::wake_latency::{WakeLatency, WakeLatencyError};
use crate::api::config::{ConfigError, EngineConfig};
use crate::api::port::{DataFile, Replies, ShardService};
use crate::controller::controller::Controller;
use crate::controller::open::METADATA_FILES;
use crate::recovery::{RecoverNodeError, RecoveredNode, recover_node};
use crate::shard::Shard;
use crate::shard::open::{Fresh, RecoveredShard};
use crate::types::{ClusterId, DiskId, Generation, NodeId, ProcessLife, ShardId};

/// Memory that each of an executor's three rings registers.
const IO_MEMORY_BYTES: usize = 1 << 20;
/// Entries of an executor's rings.
const RING_DEPTH: usize = 256;

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The data directory; made if it is not there.
    pub data_dir: PathBuf,
    pub engine: EngineConfig,
    pub sync: SyncSetting,
    /// The core of each shard; `None` takes the first that this process may use.
    pub cpus: Option<Vec<usize>>,
    /// The longest time, in microseconds, that a sleeping core of this machine may take to wake while the node runs; `None` leaves it as
    /// it is.
    pub wake_latency_us: Option<u32>,
    /// Takes down what is asked of the disk, from before recovery on; for tests of power cuts.
    pub record: Option<Recorder>,
}

/// What a function that serves the network is told of its shard.
pub struct ShardContext {
    pub shard: ShardId,
    pub shards: u16,
    pub node: NodeId,
    pub cluster: ClusterId,
    pub config: EngineConfig,
    /// Where requests go.
    pub service: Rc<dyn ShardService>,
}

/// Serves the network on one shard's executor; called once there. Gives where answers go.
pub type Serve = Arc<dyn Fn(ShardContext) -> io::Result<Rc<dyn Replies>> + Send + Sync>;

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("the configuration cannot work: {0}")]
    Config(#[from] ConfigError),
    #[error("cannot make the data directory {}: {error}", path.display())]
    Directory { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Recover(#[from] RecoverNodeError),
    #[error("cannot measure the ways to sync: {0}")]
    Calibrate(#[from] FloorError),
    #[error("cannot see which cores this process may use: {0}")]
    Cores(io::Error),
    #[error(transparent)]
    WakeLatency(#[from] WakeLatencyError),
    #[error("{shards} shards need a core each, and {found} are there")]
    TooFewCores { shards: u16, found: usize },
    #[error("cannot start {shard} on core {cpu}: {cause}")]
    Executor { shard: ShardId, cpu: usize, cause: String },
    #[error("{shard}: {cause}")]
    Shard { shard: ShardId, cause: ShardStartError },
}

/// Why a shard did not start.
#[derive(Debug, Error)]
pub enum ShardStartError {
    #[error(transparent)]
    Journal(#[from] OpenJournalError),
    #[error("cannot set up its rings: {0}")]
    Rings(io::Error),
    #[error("cannot serve: {0}")]
    Serve(io::Error),
    #[error("its executor ended")]
    Ended,
}

/// A running node. Dropped, it goes on: `stop` ends it.
pub struct Node {
    executors: Vec<ExecutorJoinHandle<()>>,
    stops: Vec<flume::Sender<()>>,
    facts: NodeFacts,
    metrics: Vec<Arc<ShardMetrics>>,
    _wake_latency: Option<WakeLatency>,
    _lock: DirectoryLock,
}

/// What a node found out at its start.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub cluster: ClusterId,
    pub disk: DiskId,
    pub node: NodeId,
    pub life: ProcessLife,
    /// The directory was empty: a cluster of one was founded.
    pub founded: bool,
    pub calibration: Calibration,
    pub cpus: Vec<usize>,
}

impl Node {
    /// Recovers the data directory and starts the shards; returns when all of them serve.
    ///
    /// # Errors
    /// Why it cannot; nothing is left running.
    pub fn start(config: &NodeConfig, serve: &Serve) -> Result<Self, StartError> {
        config.engine.check()?;
        let root = &config.data_dir;
        std::fs::create_dir_all(root).map_err(|error| StartError::Directory { path: root.clone(), error })?;
        let lock = lock(root)?;
        let cpus = choose_cpus(config)?;
        let wake_latency = config.wake_latency_us.map(WakeLatency::bound).transpose()?;
        let mut store = DiskStore::new(root.clone());
        let recovered = match &config.record {
            None => recover_node(&mut store, &config.engine, fresh())?,
            Some(recorder) => {
                recover_node(&mut RecordedStore::new(&mut store, recorder.clone()), &config.engine, fresh())?
            }
        };
        let calibration = calibrate(root, config.sync, &cpus)?;
        let facts = NodeFacts {
            cluster: recovered.cluster,
            disk: recovered.disk,
            node: recovered.node,
            life: recovered.life,
            founded: recovered.founded,
            calibration,
            cpus,
        };
        let mut node = Self {
            executors: Vec::new(),
            stops: Vec::new(),
            facts,
            metrics: Vec::new(),
            _wake_latency: wake_latency,
            _lock: lock,
        };
        match node.spawn(config, recovered, serve) {
            Ok(()) => Ok(node),
            Err(error) => {
                node.stop();
                Err(error)
            }
        }
    }

    fn spawn(&mut self, config: &NodeConfig, recovered: RecoveredNode, serve: &Serve) -> Result<(), StartError> {
        let shards = config.engine.shards;
        let builder = mesh::builder(shards);
        let (started, starts) = flume::unbounded();
        let mut metadata = Some(recovered.metadata);
        for recovered in recovered.shards {
            let shard = recovered.shard;
            let cpu = self.facts.cpus[usize::from(shard.0)];
            let (stop, stopped) = flume::bounded(1);
            let metrics = Arc::new(ShardMetrics::default());
            let controller = metadata.take().map(|metadata| {
                let own = (self.facts.node, self.facts.life, self.facts.cluster);
                Controller::open(metadata, config.engine.clone(), own, random_u64())
            });
            let seat = Seat {
                recovered,
                controller,
                config: config.engine.clone(),
                way: self.facts.calibration.chosen,
                root: config.data_dir.clone(),
                journal: (0..config.engine.journal_files).map(|file| DataFile::Journal { shard, file }).collect(),
                metadata: (0..METADATA_FILES).map(|file| DataFile::MetadataJournal { file }).collect(),
                record: config.record.clone(),
                node: self.facts.node,
                cluster: self.facts.cluster,
                metrics: metrics.clone(),
                serve: serve.clone(),
                builder: builder.clone(),
                started: started.clone(),
                stopped,
            };
            let executor = LocalExecutorBuilder::new(Placement::Fixed(cpu))
                .name(&format!("shard-{}", shard.0))
                .io_memory(IO_MEMORY_BYTES)
                .ring_depth(RING_DEPTH)
                .preempt_timer(Duration::from_millis(10))
                .spawn(move || seat.run())
                .map_err(|error| StartError::Executor { shard, cpu, cause: error.to_string() })?;
            self.executors.push(executor);
            self.stops.push(stop);
            self.metrics.push(metrics);
        }
        drop(started);
        for _ in 0..shards {
            match starts.recv() {
                Ok((_, Ok(()))) => {}
                Ok((shard, Err(cause))) => return Err(StartError::Shard { shard, cause }),
                Err(flume::RecvError::Disconnected) => {
                    return Err(StartError::Shard { shard: ShardId(0), cause: ShardStartError::Ended });
                }
            }
        }
        Ok(())
    }

    /// What it found out at its start.
    #[must_use]
    pub fn facts(&self) -> &NodeFacts {
        &self.facts
    }

    /// The counters of each shard.
    #[must_use]
    pub fn metrics(&self) -> &[Arc<ShardMetrics>] {
        &self.metrics
    }

    /// Refuses new requests, answers what was taken, and ends all shards.
    pub fn stop(mut self) {
        for stop in self.stops.drain(..) {
            // A shard that has ended by itself hears nothing.
            let _ = stop.send(());
        }
        for executor in self.executors.drain(..) {
            if let Err(error) = executor.join() {
                tracing::error!(%error, "a shard's executor did not end well");
            }
        }
    }
}

/// All that one shard's executor is given.
struct Seat {
    recovered: RecoveredShard,
    controller: Option<Controller>,
    config: EngineConfig,
    way: SyncWay,
    root: PathBuf,
    journal: Vec<DataFile>,
    metadata: Vec<DataFile>,
    record: Option<Recorder>,
    node: NodeId,
    cluster: ClusterId,
    metrics: Arc<ShardMetrics>,
    serve: Serve,
    builder: mesh::Builder,
    started: flume::Sender<(ShardId, Result<(), ShardStartError>)>,
    stopped: flume::Receiver<()>,
}

impl Seat {
    async fn run(self) {
        heartbeat::start(&self.metrics);
        let (shard, started, stopped) = (self.recovered.shard, self.started.clone(), self.stopped.clone());
        match self.start().await {
            Ok(own) => {
                drop(started.send((shard, Ok(()))));
                drop(started);
                // Ends with the node: a sender that is gone is a stop, too.
                let _ = stopped.recv_async().await;
                own.drain().await;
            }
            Err(cause) => drop(started.send((shard, Err(cause)))),
        }
    }

    async fn start(self) -> Result<Rc<ShardLoop>, ShardStartError> {
        let (id, shards) = (self.recovered.shard, self.config.shards);
        let rings = ShardStartError::Rings;
        let controller = match self.controller {
            None => None,
            Some(controller) => {
                let journal = open_journal(self.way, &self.root, self.metadata, self.record.as_ref())?;
                let files = open_files(&self.root, self.record.as_ref()).map_err(rings)?;
                Some(ControllerLoop::new(controller, journal, files))
            }
        };
        let own = ShardLoop::new(Parts {
            id,
            shards,
            shard: Shard::open(self.recovered, &self.config),
            journal: open_journal(self.way, &self.root, self.journal, self.record.as_ref())?,
            files: open_files(&self.root, self.record.as_ref()).map_err(rings)?,
            controller,
            metrics: self.metrics,
        });
        let mesh = if shards == 1 { Mesh::alone() } else { Mesh::join(self.builder, id).await };
        let context = ShardContext {
            shard: id,
            shards,
            node: self.node,
            cluster: self.cluster,
            config: self.config,
            service: own.clone(),
        };
        let replies = (self.serve)(context).map_err(ShardStartError::Serve)?;
        own.start(mesh, replies).map_err(rings)?;
        Ok(own)
    }
}

fn open_journal(
    way: SyncWay,
    root: &Path,
    files: Vec<DataFile>,
    record: Option<&Recorder>,
) -> Result<JournalWriter, OpenJournalError> {
    let paths: Vec<PathBuf> = files.iter().map(|file| root.join(file.to_string())).collect();
    let mut journal = JournalWriter::open(way, &paths)?;
    if let Some(recorder) = record {
        journal.record(recorder.clone(), files);
    }
    Ok(journal)
}

fn open_files(root: &Path, record: Option<&Recorder>) -> io::Result<Files> {
    let mut files = Files::new(root)?;
    if let Some(recorder) = record {
        files.record(recorder.clone());
    }
    Ok(files)
}

fn choose_cpus(config: &NodeConfig) -> Result<Vec<usize>, StartError> {
    let shards = config.engine.shards;
    let cpus = match &config.cpus {
        Some(cpus) => cpus.clone(),
        None => cpu::list().map_err(StartError::Cores)?,
    };
    if cpus.len() < usize::from(shards) {
        return Err(StartError::TooFewCores { shards, found: cpus.len() });
    }
    Ok(cpus[..usize::from(shards)].to_vec())
}

/// Random identities for a directory that may be new, and for this life.
fn fresh() -> Fresh {
    Fresh { cluster: ClusterId(random_u128()), disk: DiskId(random_u128()), generation: Generation(random_u64()) }
}

fn random_u64() -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "half of it is wanted")]
    {
        random_u128() as u64
    }
}

fn random_u128() -> u128 {
    let mut bytes = [0; 16];
    // SAFETY: the buffer is valid for its length.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert!(usize::try_from(filled) == Ok(bytes.len()), "the kernel gives up to 256 random bytes at once");
    u128::from_le_bytes(bytes)
}
