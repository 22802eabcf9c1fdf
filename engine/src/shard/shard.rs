//! The shard: its state, and which file handles which event.
//!
//! ```text
//!  Request Produce -> admission -> replica (primary) -> appender, queue
//!  Flush, GroupWritten -> groups -> replica (progress) -> replies
//!  Request Fetch, FileDone -> fetch
//!  Request Roll -> roll -> replica (roll)
//!  Message -> obey (seal, open, close)
//!  GroupWritten, FileDone -> checkpoint
//!  Message, FileDone -> delete (of a topic's ranges)
//!  FileDone, Message -> damage (of what was read)
//! ```
//! Invariants: one journal group is written at most, and one waits at the writer; what is acknowledged is durable in the journal or in a segment under the
//! catalog; nothing is served above a range's committed end.

use std::collections::BTreeMap;

use crate::api::config::EngineConfig;
use crate::api::error::Refusal;
use crate::api::request::{ReplyTo, ShardRequest};
use crate::api::response::{ProducerSettled, RangeDescription, Response};
use crate::journal::Checkpoints;
use crate::replica;
use crate::replica::Replica;
use crate::replica::message::{ToController, ToReplica};
use crate::segment::catalog::Catalog;
use crate::segment::pool::ChunkPool;
use crate::shard::checkpoint::Checkpoint;
use crate::shard::command::{Command, Commands};
use crate::shard::counters::Counters;
use crate::shard::damage::Damages;
use crate::shard::delete::Deletions;
use crate::shard::event::{Event, FileToken};
use crate::shard::groups::Groups;
use crate::shard::open::RecoveredShard;
use crate::shard::range::{Fetch, Range, RangeSlot, TailSlot};
use crate::shard::reads::Reads;
use crate::shard::tail::Tail;
use crate::types::{Now, Offset, ProducerId, RangeId, ShardId};

/// One core's ranges, journal and files.
#[derive(Debug)]
pub struct Shard {
    pub(super) id: ShardId,
    pub(super) config: EngineConfig,
    pub(super) ranges: Vec<Range>,
    pub(super) by_range: BTreeMap<RangeId, RangeSlot>,
    pub(super) tails: Vec<Option<Tail>>,
    pub(super) pool: ChunkPool,
    pub(super) groups: Groups,
    pub(super) catalog: Catalog,
    pub(super) checkpoints: Checkpoints,
    pub(super) checkpoint: Checkpoint,
    pub(super) reads: Reads,
    /// When the first waiting fetch is due, on the monotonic clock.
    pub(super) next_fetch_ns: Option<u64>,
    pub(super) deletions: Deletions,
    pub(super) damages: Damages,
    pub(super) counters: Counters,
    /// What a replica wants done, while it is being done.
    pub(super) replica_commands: Vec<replica::Command>,
    pub(super) next_token: u64,
    /// Memory for an encoded producer table.
    pub(super) scratch: Vec<u8>,
}

impl Shard {
    /// A shard as recovery found it.
    #[must_use]
    pub fn open(recovered: RecoveredShard, config: &EngineConfig) -> Self {
        Self {
            id: recovered.shard,
            config: config.clone(),
            ranges: Vec::new(),
            by_range: BTreeMap::new(),
            tails: Vec::new(),
            pool: ChunkPool::new(config.memory_bytes / 2),
            groups: Groups::new(&recovered, config),
            checkpoints: Checkpoints::new(recovered.ring.geometry().bytes(), config.memory_bytes),
            deletions: Deletions::new(&recovered.catalog),
            damages: Damages::default(),
            catalog: recovered.catalog,
            checkpoint: Checkpoint::default(),
            reads: Reads::default(),
            next_fetch_ns: None,
            counters: Counters::default(),
            replica_commands: Vec::new(),
            next_token: 0,
            scratch: Vec::new(),
        }
    }

    /// Takes one event. Pure: the same state, `now` and event give the same commands. Never blocks, never fails.
    pub fn step(&mut self, now: Now, event: Event<'_>, commands: &mut Commands) {
        match event {
            Event::Started => {
                commands.push(Command::Tell(ToController::Ready { shard: self.id }));
                self.remove_files(commands);
            }
            Event::Request { to, deadline_ns, request } => self.request(now, to, deadline_ns, request, commands),
            Event::Flush => self.submit_group(now, commands),
            Event::Disconnected { to } => self.forget_connection(to),
            Event::GroupWritten { buffer, outcome } => {
                self.group_written(now, buffer, outcome, commands);
                self.advance_checkpoint(now, commands);
                self.submit_group(now, commands);
            }
            Event::FileDone { token, outcome } => {
                if self.reads.owns(token) {
                    self.read_done(token, outcome, commands);
                } else if self.deletions.owns(token) {
                    self.removal_done(outcome.map(|_| ()), commands);
                } else {
                    self.checkpoint_file_done(now, token, outcome, commands);
                    self.submit_group(now, commands);
                }
            }
            Event::Message(message) => {
                self.message(now, message, commands);
                self.submit_group(now, commands);
            }
            Event::Stopping => self.checkpoint_to_stop(now, commands),
            Event::Timer => {
                self.expire_fetches(now, commands);
                self.mark_idle(now, commands);
                self.operate_paced(now, commands);
            }
        }
    }

    /// When `Event::Timer` is due, on the monotonic clock in ns.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let marker = self.groups.marker_due_ns(&self.config);
        [marker, self.next_fetch_ns, self.next_paced_ns()].into_iter().flatten().min()
    }

    /// What it has counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether something has been taken and not answered.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.groups.is_busy() || self.ranges.iter().any(|range| range.replica.pending_count() > 0)
    }

    /// Whether something has been taken and not answered, or a checkpoint is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_answering() || self.checkpoint.is_busy()
    }

    fn request(&mut self, now: Now, to: ReplyTo, deadline_ns: u64, request: ShardRequest<'_>, commands: &mut Commands) {
        match request {
            ShardRequest::Produce { range, epoch, batch } => self.produce(now, to, range, epoch, batch, commands),
            ShardRequest::Fetch { range, offset, bytes_max, wait_ms } => {
                self.counters.fetches += 1;
                let until_ns = deadline_ns.min(now.monotonic_ns.saturating_add(u64::from(wait_ms) * 1_000_000));
                match self.find(range) {
                    Some(slot) => self.fetch(now, slot, Fetch { to, offset, bytes_max, until_ns }, commands),
                    None => refuse(to, Refusal::UnknownRange, commands),
                }
            }
            ShardRequest::Bounds { range } => self.bounds(now, to, range, None, commands),
            ShardRequest::Since { range, timestamp_ms } => self.bounds(now, to, range, Some(timestamp_ms), commands),
            ShardRequest::Settle { range, producer } => self.settle(to, range, producer, commands),
            ShardRequest::Roll { range } => self.roll_asked(now, to, range, commands),
            ShardRequest::Describe { range } => self.describe(now, to, range, commands),
        }
    }

    /// Where a range, or what is not earlier than a time of it, begins and ends.
    fn bounds(&mut self, now: Now, to: ReplyTo, range: RangeId, since_ms: Option<u64>, commands: &mut Commands) {
        let Some(slot) = self.find(range) else { return refuse(to, Refusal::UnknownRange, commands) };
        let response = match (self.ends(now, slot, commands), since_ms) {
            (Ok(_), Some(timestamp_ms)) => return self.since(slot, to, timestamp_ms, false, commands),
            (Ok((start, end)), None) => Response::Bounds { start, end },
            (Err(refusal), Some(_) | None) => Response::Refused(refusal),
        };
        commands.push(Command::Reply { to, response });
    }

    fn describe(&mut self, now: Now, to: ReplyTo, range: RangeId, commands: &mut Commands) {
        let Some(slot) = self.find(range) else { return refuse(to, Refusal::UnknownRange, commands) };
        let response = match self.ends(now, slot, commands) {
            Ok((start, end)) => {
                let segments = u32::try_from(self.ranges[slot.0].chain.len()).unwrap_or(u32::MAX);
                Response::Described(RangeDescription { start, end, segments })
            }
            Err(refusal) => Response::Refused(refusal),
        };
        commands.push(Command::Reply { to, response });
    }

    /// Where a range begins and ends. What an earlier life wrote counts, and is known only once its end is committed: that is
    /// asked for, and the question is to be asked again.
    fn ends(&mut self, now: Now, slot: RangeSlot, commands: &mut Commands) -> Result<(Offset, Offset), Refusal> {
        let replica = &mut self.ranges[slot.0].replica;
        let end = replica.committed();
        let is_unsettled = replica.settle_for_reader(end, &mut self.replica_commands);
        self.obey(now, slot, commands);
        if is_unsettled {
            return Err(Refusal::Opening { delay_ms: 1 });
        }
        Ok((self.ranges[slot.0].trimmed, end))
    }

    /// Only a sealed range's table is final.
    fn settle(&mut self, to: ReplyTo, range: RangeId, producer: ProducerId, commands: &mut Commands) {
        let Some(slot) = self.find(range) else { return refuse(to, Refusal::UnknownRange, commands) };
        let replica = &self.ranges[slot.0].replica;
        if replica.successors().is_none() {
            return refuse(to, Refusal::StaleEpoch { current: replica.epoch() }, commands);
        }
        let entry = replica.producers().get(producer);
        let settled = ProducerSettled {
            producer,
            last: entry.and_then(|entry| entry.last.map(|last| (entry.epoch, entry.run, last))),
            doubtful: entry.is_some_and(|entry| entry.doubtful),
        };
        commands.push(Command::Reply { to, response: Response::Settled(settled) });
    }

    fn message(&mut self, now: Now, message: ToReplica, commands: &mut Commands) {
        let range = message.range();
        if matches!(message, ToReplica::Deleted { .. }) {
            return self.delete_range(now, range, commands);
        }
        let slot = match (self.find(range), &message) {
            (Some(slot), _) => slot,
            // Told before it was deleted, and overtaken by that.
            (None, _) if self.deletions.has(range) => return,
            (None, ToReplica::Adopt(view)) => self.adopt_range(view),
            // Only a range that was adopted is spoken of; what is late for one that is gone changes nothing.
            (None, _) => return,
        };
        if let ToReplica::Holes { segment, holes, .. } = message {
            return self.take_holes(now, slot, segment, holes, commands);
        }
        self.ranges[slot.0].replica.message(message, &mut self.replica_commands);
        self.obey(now, slot, commands);
    }

    pub(super) fn find(&self, range: RangeId) -> Option<RangeSlot> {
        self.by_range.get(&range).copied()
    }

    pub(super) fn add_range(&mut self, replica: Replica) -> RangeSlot {
        let slot = RangeSlot(self.ranges.len());
        self.by_range.insert(replica.range(), slot);
        self.ranges.push(Range::new(replica));
        self.counters.ranges += 1;
        slot
    }

    pub(super) fn token(&mut self) -> FileToken {
        self.next_token += 1;
        FileToken(self.next_token)
    }

    pub(super) fn tail(&mut self, slot: TailSlot) -> &mut Tail {
        self.tails[slot.0].as_mut().expect("a tail in use")
    }
}

pub(super) fn refuse(to: ReplyTo, refusal: Refusal, commands: &mut Commands) {
    commands.push(Command::Reply { to, response: Response::Refused(refusal) });
}
