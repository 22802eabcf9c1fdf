//! The controller of a node: the metadata group's member here, and whoever acts for it. One task on shard 0.
//!
//! ```text
//!  Event::Request, Event::Message -- proposal --> log (written, proved) --> apply --> what it means is told to shards and clients
//! ```
//! Invariants: nothing is told before the change behind it is committed; of one range at most one change is under way; whatever a
//! message says, what is done follows from the committed state, so that a late or repeated one changes nothing. A crash at any
//! point forgets only proposals that nobody was told of: the next life reads the state and goes on from there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::command::Commands;
use super::delete::Deletions;
use super::event::Event;
use super::log::{Log, Written};
use super::open::{RecoveredMetadata, log_start};
use super::request::{Asker, ProducerIds};
use super::reshape::Reshapes;
use super::round::Work;
use super::snapshots::Snapshots;
use crate::api::config::EngineConfig;
use crate::metadata::consensus::{Entry, LogIndex};
use crate::metadata::snapshot::encode;
use crate::metadata::{Change, Consensus, State};
use crate::shard::event::{Failed, FileResult, FileToken};
use crate::types::time::SECOND_NS;
use crate::types::{
    AlignedBuffer, ClusterId, Generator, NodeId, Now, Offset, ProcessLife, RangeId, SegmentId, ShardId,
};

/// How often the retention clock is moved on. It is added to the log, so not often: what it measures are days.
const RETENTION_TICK_NS: u64 = 600 * SECOND_NS;

/// The state machine of a node's controller.
#[derive(Debug)]
pub struct Controller {
    pub(super) config: EngineConfig,
    pub(super) node: NodeId,
    pub(super) life: ProcessLife,
    pub(super) state: State,
    pub(super) consensus: Consensus,
    pub(super) log: Log,
    pub(super) snapshots: Snapshots,
    /// The log has no room before a snapshot is made.
    is_full: bool,
    pub(super) random: Generator,
    /// Above every segment id that was given or proposed.
    pub(super) next_segment: SegmentId,
    /// This life is committed as the node's newest; before that nothing is done in its name.
    pub(super) started: bool,
    is_announced: bool,
    /// By shard: recovery is done there.
    pub(super) ready: Vec<bool>,
    pub(super) work: BTreeMap<RangeId, Work>,
    /// Ranges with a segment of an earlier life, to be sealed when there is time.
    pub(super) unsettled: VecDeque<RangeId>,
    /// Those that are being sealed for no other reason.
    pub(super) settling: BTreeSet<RangeId>,
    /// When which range is to be looked at again.
    pub(super) timers: BTreeSet<(u64, RangeId)>,
    /// Who waits for which change.
    pub(super) askers: BTreeMap<LogIndex, Asker>,
    pub(super) producers: ProducerIds,
    pub(super) deletions: Deletions,
    pub(super) reshapes: Reshapes,
    /// Spans, by their first offsets, whose `Holes` is proposed.
    pub(super) unreadable: BTreeSet<(RangeId, SegmentId, Offset)>,
    ticked_ns: Option<u64>,
    cluster: ClusterId,
}

impl Controller {
    /// The controller of `node` in this `life` of its process. `random_seed` seeds all that is drawn here, such as segment seeds.
    #[must_use]
    pub fn open(
        recovered: RecoveredMetadata,
        config: EngineConfig,
        (node, life, cluster): (NodeId, ProcessLife, ClusterId),
        random_seed: u64,
    ) -> Self {
        let RecoveredMetadata { state, seed, ring, snapshots } = recovered;
        Self {
            consensus: Consensus::alone(LogIndex(state.applied())),
            log: Log::new(seed, ring),
            snapshots: Snapshots::new(snapshots),
            is_full: false,
            random: Generator::new(random_seed),
            next_segment: state.next().segment,
            started: false,
            is_announced: false,
            ready: vec![false; usize::from(config.shards)],
            work: BTreeMap::new(),
            unsettled: VecDeque::new(),
            settling: BTreeSet::new(),
            timers: BTreeSet::new(),
            askers: BTreeMap::new(),
            producers: ProducerIds::default(),
            deletions: Deletions::default(),
            reshapes: Reshapes::default(),
            unreadable: BTreeSet::new(),
            ticked_ns: None,
            config,
            node,
            life,
            state,
            cluster,
        }
    }

    /// The committed state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The cluster that the node belongs to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Takes one event and adds what is to be done.
    pub fn step(&mut self, now: Now, event: Event, commands: &mut Commands) {
        let now_ns = now.monotonic_ns;
        self.announce(now_ns);
        match event {
            Event::Request { to, deadline_ns, request } => self.request(now_ns, to, deadline_ns, request, commands),
            Event::Message(message) => self.message(now_ns, message, commands),
            Event::GroupWritten { buffer, outcome } => self.group_written(now_ns, buffer, outcome, commands),
            Event::FileDone { token, outcome } => self.file_done(now_ns, token, outcome, commands),
            Event::Timer => {}
        }
        self.run_timers(now_ns, commands);
        self.settle_some(now_ns, commands);
        self.tick(now_ns);
        self.write(now_ns, commands);
    }

    /// When `Event::Timer` is wanted, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let range = self.timers.first().map(|(at, _)| *at);
        let tick = self.ticked_ns.filter(|_| !self.log.has_failed()).map(|at| at + RETENTION_TICK_NS);
        [range, tick, self.snapshots.next_deadline()].into_iter().flatten().min()
    }

    /// Proposes a change.
    pub(super) fn propose(&mut self, change: Change) -> LogIndex {
        self.consensus.propose(change)
    }

    /// A segment id that was never given.
    pub(super) fn draw_segment(&mut self) -> SegmentId {
        let segment = self.next_segment.max(self.state.next().segment);
        self.next_segment = SegmentId(segment.0 + 1);
        segment
    }

    pub(super) fn shard_of(&self, range: RangeId) -> ShardId {
        range.shard(self.config.shards)
    }

    pub(super) fn is_ready(&self, shard: ShardId) -> bool {
        self.ready.get(usize::from(shard.0)).copied().unwrap_or(false)
    }

    /// The first thing in a life: what an earlier one may still have under way is superseded.
    fn announce(&mut self, now_ns: u64) {
        if !self.is_announced {
            self.is_announced = true;
            self.ticked_ns = Some(now_ns);
            let (node, life, shards) = (self.node, self.life, self.config.shards);
            self.propose(Change::NodeStarted { node, life, shards });
        }
    }

    fn tick(&mut self, now_ns: u64) {
        let Some(last) = self.ticked_ns else { return };
        let passed = now_ns.saturating_sub(last);
        if passed >= RETENTION_TICK_NS && !self.log.has_failed() {
            self.ticked_ns = Some(now_ns);
            // Never more than twice the interval: a machine that slept does not age its data by its sleep.
            let ms = passed.min(2 * RETENTION_TICK_NS) / crate::types::time::MILLISECOND_NS;
            self.propose(Change::RetentionTick { ms });
        }
    }

    fn write(&mut self, now_ns: u64, commands: &mut Commands) {
        self.is_full = !self.log.begin(&mut self.consensus, commands);
        let (next, ring_bytes) = (self.log.next(), self.log.ring_bytes());
        // Only when nothing is in flight is the state all that lies before the next group.
        let is_due = self.snapshots.is_due(next, ring_bytes, self.is_full, now_ns);
        if is_due && self.log.is_idle() {
            let bytes = encode(&self.state, &log_start(self.log.generation(), next));
            self.snapshots.begin(bytes, next, commands);
        }
    }

    fn group_written(
        &mut self,
        now_ns: u64,
        buffer: Box<AlignedBuffer>,
        outcome: Result<(), Failed>,
        commands: &mut Commands,
    ) {
        match self.log.written(buffer, outcome, commands) {
            Written::Proving => {}
            Written::Committed => {
                for entry in self.consensus.logged() {
                    self.committed(now_ns, &entry, commands);
                }
            }
            Written::Failed => {
                tracing::error!(?outcome, "the metadata journal cannot be written; nothing is changed any more");
                for entry in self.consensus.abandon() {
                    self.abandoned(entry.index, commands);
                }
                self.abandon_producers(commands);
                self.reshapes.abandon(commands);
            }
        }
    }

    /// A change is committed: apply it, and tell what it means.
    fn committed(&mut self, now_ns: u64, entry: &Entry, commands: &mut Commands) {
        let outcome = self.state.apply(&entry.change);
        match &entry.change {
            Change::NodeStarted { .. } => {
                outcome.expect("recovery has seen that this life is newer");
                self.started = true;
                self.adopt_all(now_ns, commands);
            }
            Change::BeginSeal { range, .. }
            | Change::Sealed { range, .. }
            | Change::Open { range, .. }
            | Change::Prepare { range, .. }
            | Change::Rolled { range, .. } => {
                self.range_changed(now_ns, *range, &entry.change, outcome, commands);
            }
            Change::Split { range, sealed, .. } => {
                self.reshape_committed(now_ns, &[(*range, sealed)], outcome, commands);
            }
            Change::Merge { parents: [(low, lower), (high, upper)], .. } => {
                self.reshape_committed(now_ns, &[(*low, lower), (*high, upper)], outcome, commands);
            }
            Change::Holes { range, segment, holes } => self.holes_committed(*range, *segment, holes, commands),
            Change::CreateTopic { .. } | Change::ProducerEpoch { .. } => {
                self.answer(entry.index, &outcome, commands);
            }
            Change::ProducerBlock { first, count, .. } => {
                self.block_given(outcome.is_ok().then_some((*first, *count)), commands);
            }
            Change::DeleteTopic { topic } => match outcome {
                Ok(_) => self.topic_deleted(entry.index, *topic, commands),
                Err(_) if self.deleted_before(entry.index, *topic) => {}
                Err(_) => self.answer(entry.index, &outcome, commands),
            },
            Change::RangeGone { range } => self.deletions.gone(*range),
            Change::RetentionTick { .. } => {}
        }
    }

    fn file_done(
        &mut self,
        now_ns: u64,
        token: FileToken,
        outcome: Result<FileResult, Failed>,
        commands: &mut Commands,
    ) {
        let outcome = outcome.map(|_| ());
        if let Err(failed) = outcome {
            tracing::warn!(errno = failed.errno, "a metadata snapshot could not be written or removed");
        }
        if let Some(mark) = self.snapshots.file_done(token, outcome, now_ns, commands) {
            self.log.release(mark);
        }
    }

    fn run_timers(&mut self, now_ns: u64, commands: &mut Commands) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now_ns) {
            let (_, range) = self.timers.pop_first().expect("just seen");
            self.drive(now_ns, range, commands);
        }
    }
}

#[cfg(test)]
mod tests;
