//! The one node: its disk and clocks, which outlive its processes, and the process that runs, if one does.
//!
//! ```text
//!  connections --request--> service ----> Shard / Controller ::step ----> perform --> disk, queue, answers
//!                              ^                                              |
//!                              +------- Input, after its delay <--------------+
//! ```
//! The node performs the core's commands as `io` does on a real machine and decides nothing. What it adds is delay, and the order
//! in which things happen. Shards and the controller are given each event in a turn of their own.

mod perform;
mod service;
mod start;
mod torn;

pub use start::StartError;

use std::collections::{BTreeMap, BTreeSet};

use sealog_engine::api::EngineConfig;
use sealog_engine::api::request::{ControlRequest, ReplyTo, ShardRequest};
use sealog_engine::api::response::Response;
use sealog_engine::controller;
use sealog_engine::metadata::RangeStatus;
use sealog_engine::replica::message::{ToController, ToReplica};
use sealog_engine::shard;
use sealog_engine::shard::event::FileToken;
use sealog_engine::types::{ClusterId, DiskId, Epoch, Generation, Now, Offset, RangeId, SegmentId, ShardId};
use sealog_net::client::core::{Cursor, CursorEntry};
use sealog_net::session::Handshake;

use crate::check::lineage::Standing;
use crate::check::{Checks, Mode};
use crate::coverage::Coverage;
use crate::disk::{CutReport, Disk, Operation, Ticket};
use crate::faults::{Fault, Faults};
use crate::queue::{Clock, Queue};
use crate::random::Random;
use crate::trace::Trace;
use crate::world::Happening;

/// What happens to the process.
#[derive(Debug)]
pub enum Input {
    /// An operation of the disk is done.
    Disk {
        owner: Owner,
        ticket: Ticket,
        token: Option<FileToken>,
    },
    Shard {
        shard: ShardId,
        message: Mesh,
    },
    Controller(ToController),
    Control {
        to: ReplyTo,
        deadline_ns: u64,
        request: ControlRequest,
    },
    ShardTimer {
        shard: ShardId,
    },
    ControllerTimer,
}

/// What comes to a shard from another core.
#[derive(Debug)]
pub enum Mesh {
    Request { to: ReplyTo, deadline_ns: u64, request: OwnedRequest },
    Reply { to: ReplyTo, response: Response },
    Disconnected { to: ReplyTo },
    ToReplica(ToReplica),
}

/// A request that has left its receive buffer.
#[derive(Debug)]
pub enum OwnedRequest {
    Produce {
        range: RangeId,
        epoch: Epoch,
        batch: Vec<u8>,
    },
    /// One that borrows nothing.
    Other(ShardRequest<'static>),
}

/// Whose operation it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Shard(ShardId),
    Controller,
}

/// What the node needs of its surroundings to take a step.
pub struct Around<'a> {
    pub queue: &'a mut Queue<Happening>,
    pub faults: &'a mut Faults,
    pub trace: &'a mut Trace,
    pub coverage: &'a mut Coverage,
    pub checks: &'a mut Checks,
    /// Answers for connections, in the order given.
    pub answers: &'a mut Vec<(ReplyTo, Response)>,
    pub mode: Mode,
    pub crashes: u64,
}

/// One shard in its process.
struct ShardHost {
    shard: shard::Shard,
    /// Virtual time at which a timer waits in the queue.
    timer_ns: Option<u64>,
}

/// A running process.
struct Process {
    generation: Generation,
    shards: Vec<ShardHost>,
    controller: controller::Controller,
    controller_timer_ns: Option<u64>,
    handshake: Handshake,
    /// What is on its way between two cores arrives in order, but for messages of replicas and controller.
    mesh_ns: BTreeMap<(u16, u16), u64>,
    /// Requests to shards that have not been answered.
    asked: BTreeMap<ReplyTo, Asked>,
    /// Shards whose journal is being written, and the group that waits for that.
    writing: BTreeMap<ShardId, Option<Operation>>,
    /// Shards of which a journal group could not be made durable.
    failed: BTreeSet<ShardId>,
    events: u64,
}

/// A request to a shard that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Asked {
    range: RangeId,
    /// Of a fetch, where it begins; of a wish to roll, up to where readers had been given records by then.
    offset: Offset,
    /// A batch for a range that somebody had been told is sealed.
    to_sealed: bool,
}

/// The node.
pub struct Node {
    pub disk: Disk,
    pub clock: Clock,
    random: Random,
    config: EngineConfig,
    identity: Identity,
    /// Groups that were in flight when a process ended, until one has opened what they left.
    torn: Vec<torn::Torn>,
    /// Opened, and not begun.
    opened: Option<start::Opened>,
    process: Option<Process>,
    /// Lives so far: an input of an earlier one is dropped.
    incarnation: u64,
    shard_commands: shard::command::Commands,
    controller_commands: controller::command::Commands,
}

/// What is not counted at admission: producer tables, footers and roll marks.
const UNWRITTEN_SLACK: u64 = 512 << 10;

/// Drawn once for a data directory.
#[derive(Clone, Copy, Debug)]
struct Identity {
    cluster: ClusterId,
    disk: DiskId,
}

impl Node {
    /// A machine with an empty disk, and no process.
    #[must_use]
    pub fn new(mut random: Random, disk: Disk, config: EngineConfig) -> Self {
        let identity = Identity {
            cluster: ClusterId(u128::from(random.word()) << 64 | u128::from(random.word())),
            disk: DiskId(u128::from(random.word()) << 64 | u128::from(random.word())),
        };
        Self {
            disk,
            clock: Clock::default(),
            random,
            config,
            identity,
            torn: Vec::new(),
            opened: None,
            process: None,
            incarnation: 0,
            shard_commands: Vec::new(),
            controller_commands: Vec::new(),
        }
    }

    /// Whether a process runs or is being opened.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.opened.is_some() || self.process.is_some()
    }

    /// Whether a process runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Shards of the process that runs, or of the next.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.config.shards
    }

    /// The next process has so many shards.
    pub fn set_shards(&mut self, shards: u16) {
        self.config.shards = shards;
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Events that the process that runs has had.
    #[must_use]
    pub fn life_events(&self) -> u64 {
        self.process.as_ref().map_or(0, |process| process.events)
    }

    /// The number of the process that runs or ran last: inputs carry it.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The process ends, now.
    pub fn crash(&mut self, fault: Fault) -> CutReport {
        self.opened = None;
        let generation = self.process.take().map(|process| process.generation);
        let report = if fault == Fault::PowerCut { self.disk.cut_power() } else { self.disk.kill() };
        let torn = self.disk.take_torn().into_iter();
        self.torn.extend(torn.filter_map(|group| Some(torn::Torn { group, generation: generation? })));
        report
    }

    /// Bytes that the running process may have taken and not yet written to segments, and the bound of it.
    #[must_use]
    pub fn unwritten(&self) -> (u64, u64) {
        let bound = self.config.memory_bytes / 2 + UNWRITTEN_SLACK;
        (self.count(|counters| counters.unwritten_bytes), u64::from(self.config.shards) * bound)
    }

    /// Where the committed state of the running process says that a sealed segment ends, exclusive.
    #[must_use]
    pub fn sealed_end(&self, range: RangeId, segment: SegmentId) -> Option<Offset> {
        let range = self.process.as_ref()?.controller.state().range(range)?;
        range.chain.find_sealed(segment).map(|sealed| sealed.end)
    }

    /// The beginning of a topic: its ranges that were made of no others, as the committed state of the running process has them.
    #[must_use]
    pub fn beginning(&self, topic: &str) -> Option<Cursor> {
        let process = self.process.as_ref()?;
        let (state, cluster) = (process.controller.state(), process.controller.cluster());
        let topic = state.find_topic(topic)?;
        let ranges = state.topic(topic)?.ranges.iter().filter_map(|id| Some((*id, state.range(*id)?)));
        let roots = ranges.filter(|(_, range)| range.parents.is_empty());
        let entries = roots.map(|(id, range)| CursorEntry { span: range.span, range: id, next: Offset::ZERO });
        Some(Cursor::new(cluster, topic, entries.collect()).expect("a topic begins with each key once"))
    }

    /// What the committed state of the running process has of a range.
    #[must_use]
    pub fn standing(&self, range: RangeId) -> Option<Standing> {
        let range = self.process.as_ref()?.controller.state().range(range)?;
        let successors = match &range.status {
            RangeStatus::Active => Vec::new(),
            RangeStatus::Sealed { successors } => successors.clone(),
        };
        Some(Standing { successors, end: range.chain.end() })
    }

    /// Counters of all shards, summed by `of`.
    pub fn count(&self, of: impl Fn(&shard::counters::Counters) -> u64) -> u64 {
        self.process.as_ref().map_or(0, |process| process.shards.iter().map(|host| of(host.shard.counters())).sum())
    }

    fn now(&self, around: &Around<'_>) -> Now {
        self.clock.read(around.queue.now_ns())
    }
}

impl OwnedRequest {
    fn of(request: ShardRequest<'_>) -> Self {
        match request {
            ShardRequest::Produce { range, epoch, batch } => Self::Produce { range, epoch, batch: batch.to_vec() },
            ShardRequest::Fetch { range, offset, bytes_max, wait_ms } => {
                Self::Other(ShardRequest::Fetch { range, offset, bytes_max, wait_ms })
            }
            ShardRequest::Bounds { range } => Self::Other(ShardRequest::Bounds { range }),
            ShardRequest::Since { range, timestamp_ms } => Self::Other(ShardRequest::Since { range, timestamp_ms }),
            ShardRequest::Settle { range, producer } => Self::Other(ShardRequest::Settle { range, producer }),
            ShardRequest::Roll { range } => Self::Other(ShardRequest::Roll { range }),
            ShardRequest::Describe { range } => Self::Other(ShardRequest::Describe { range }),
        }
    }

    fn borrow(&self) -> ShardRequest<'_> {
        match self {
            Self::Produce { range, epoch, batch } => ShardRequest::Produce { range: *range, epoch: *epoch, batch },
            Self::Other(request) => *request,
        }
    }
}
