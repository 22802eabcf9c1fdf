//! The one function that changes the state: total (every change has an outcome in every state), deterministic, without a clock.
//!
//! A refused change leaves the state as it was, but for the count of applied entries. Refusal is how a late proposal ends: what
//! was decided from a view that has been superseded meanwhile does nothing.

mod reshape;

use thiserror::Error;

use super::change::{Change, SealReason};
use super::range_chain::{Misfit, RangeChain};
use super::state::{AutoSplit, Deleted, FIRST_EPOCH, Node, Range, RangeLoad, RangeStatus, Sealing, State, Topic};
use crate::replica::message::{RollCause, SealedSegment, SegmentOpen, Span};
use crate::types::limits::{TOPIC_NAME_BYTES_MAX, TOPIC_RANGES_MAX};
use crate::types::{
    Epoch, KeySpan, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, SegmentId, TopicId,
};

/// What a change that was taken has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    Node(NodeId),
    /// A new topic.
    Topic(TopicId),
    /// A topic is no more.
    TopicDeleted(TopicId),
    Range(RangeId),
    /// Ranges were sealed, and these took their place, ascending by span.
    Reshaped,
    Producer(ProducerId),
    Clock,
}

/// Why a change was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    #[error("the topic name is not allowed")]
    BadTopicName,
    #[error("a topic of this name exists: {topic}")]
    TopicExists { topic: TopicId },
    #[error("topic {topic} is not known")]
    UnknownTopic { topic: TopicId },
    #[error("{ranges} is not a power of two up to {most}")]
    BadRangeCount { ranges: u32, most: u32 },
    #[error("no node is named to open the ranges")]
    NoHome,
    #[error("node {node} is not known")]
    UnknownNode { node: NodeId },
    #[error("a node has at least one shard")]
    NoShards,
    #[error("range {range} is not known")]
    UnknownRange { range: RangeId },
    #[error("range {range} is sealed")]
    RangeSealed { range: RangeId },
    #[error("the range is in epoch {current}")]
    StaleEpoch { current: Epoch },
    #[error("the node's process is now {current}")]
    StaleLife { current: ProcessLife },
    #[error("the span of range {range} is a single hash")]
    OneHash { range: RangeId },
    #[error("the topic has {most} ranges already")]
    TooManyRanges { most: u32 },
    #[error("ranges {low} and {high} are not the lower and the upper half of one span")]
    NotBuddies { low: RangeId, high: RangeId },
    #[error("the fences do not ascend by producer")]
    BadFences,
    #[error("{found} first segments do not fit {children} children")]
    BadOpens { found: usize, children: usize },
    #[error("a seal round is under way")]
    Sealing,
    #[error("no seal round is under way on {segment}")]
    NotSealing { segment: SegmentId },
    #[error("segment ids below {next} have been given")]
    SegmentGiven { next: SegmentId },
    #[error("{quorum} of {replicas} copies is no majority")]
    BadQuorum { replicas: u8, quorum: u8 },
    #[error("the chain does not take it: {0}")]
    Misfit(#[from] Misfit),
    #[error("producer {producer} was never given")]
    UnknownProducer { producer: ProducerId },
    #[error("the producer is in epoch {current:?}")]
    ProducerFenced { current: ProducerEpoch },
    #[error("the next producer id is {next}")]
    BadBlock { next: ProducerId },
}

impl State {
    /// Applies the next entry of the log.
    ///
    /// # Errors
    /// Why the change has no effect; the entry counts as applied all the same.
    pub fn apply(&mut self, change: &Change) -> Result<Applied, Rejected> {
        self.applied += 1;
        match change {
            Change::NodeStarted { node, life, shards } => self.node_started(*node, *life, *shards),
            Change::CreateTopic { .. } => self.create_topic(change),
            Change::BeginSeal { range, segment, epoch, reason } => self.begin_seal(*range, *segment, *epoch, *reason),
            Change::Sealed { range, sealed, goes_on, open } => self.sealed(*range, sealed, *goes_on, open.as_ref()),
            Change::Open { range, open } => self.open(*range, open),
            Change::Prepare { range, after, open } => self.prepare(*range, *after, open),
            Change::Rolled { range, sealed, successor, cause } => self.rolled(*range, sealed, *successor, *cause),
            Change::ProducerEpoch { producer, epoch } => self.raise_producer(*producer, *epoch),
            Change::ProducerBlock { node, first, count } => self.give_block(*node, *first, *count),
            Change::RetentionTick { ms } => {
                self.retention_ms = self.retention_ms.saturating_add(*ms);
                Ok(Applied::Clock)
            }
            Change::Split { range, sealed, fences, opens } => self.split(*range, sealed, fences, opens),
            Change::Merge { parents, fences, open } => self.merge(parents, fences, open.as_slice()),
            Change::Holes { range, segment, holes } => self.add_holes(*range, *segment, holes),
            Change::DeleteTopic { topic } => self.delete_topic(*topic),
            Change::RangeGone { range } => match self.deleted.remove(range) {
                Some(_) => Ok(Applied::Range(*range)),
                None => Err(Rejected::UnknownRange { range: *range }),
            },
        }
    }

    fn node_started(&mut self, node: NodeId, life: ProcessLife, shards: u16) -> Result<Applied, Rejected> {
        if shards == 0 {
            return Err(Rejected::NoShards);
        }
        if let Some(known) = self.nodes.get(&node).filter(|known| known.life >= life) {
            return Err(Rejected::StaleLife { current: known.life });
        }
        self.nodes.insert(node, Node { life, shards });
        Ok(Applied::Node(node))
    }

    fn create_topic(&mut self, change: &Change) -> Result<Applied, Rejected> {
        let Change::CreateTopic { name, keyspace_version, batch_bytes_max, ranges, homes, auto_split } = change else {
            unreachable!("called for this kind only");
        };
        if !is_topic_name(name) {
            return Err(Rejected::BadTopicName);
        }
        if let Some(topic) = self.names.get(name) {
            return Err(Rejected::TopicExists { topic: *topic });
        }
        let most = TOPIC_RANGES_MAX;
        let spans = KeySpan::divide(*ranges).filter(|_| *ranges <= most);
        let spans = spans.ok_or(Rejected::BadRangeCount { ranges: *ranges, most })?;
        if let Some(ranges_max) = auto_split.filter(|ranges_max| ranges_max < ranges || *ranges_max > most) {
            return Err(Rejected::BadRangeCount { ranges: ranges_max, most });
        }
        if homes.is_empty() {
            return Err(Rejected::NoHome);
        }
        if let Some(node) = homes.iter().find(|home| !self.nodes.contains_key(home)) {
            return Err(Rejected::UnknownNode { node: *node });
        }
        let topic = self.next.topic;
        self.next.topic = TopicId(topic.0 + 1);
        let mut ids = Vec::with_capacity(spans.len());
        for (span, home) in spans.into_iter().zip(homes.iter().cycle()) {
            let id = self.next.range;
            self.next.range = RangeId(id.0 + 1);
            ids.push(id);
            let range = Range {
                topic,
                span,
                epoch: FIRST_EPOCH,
                status: RangeStatus::Active,
                parents: Vec::new(),
                home: *home,
                trimmed: Offset::ZERO,
                chain: RangeChain::default(),
                sealing: None,
            };
            self.ranges.insert(id, range);
        }
        self.names.insert(name.clone(), topic);
        if let Some(ranges_max) = *auto_split {
            self.auto_splits.insert(topic, AutoSplit { ranges_min: *ranges, ranges_max });
        }
        let (name, keyspace_version, batch_bytes_max) = (name.clone(), *keyspace_version, *batch_bytes_max);
        self.topics.insert(topic, Topic { name, keyspace_version, batch_bytes_max, ranges: ids });
        Ok(Applied::Topic(topic))
    }

    /// What is left of a topic is which of its ranges their holders have still to be told of.
    fn delete_topic(&mut self, topic: TopicId) -> Result<Applied, Rejected> {
        let Topic { name, ranges, .. } = self.topics.remove(&topic).ok_or(Rejected::UnknownTopic { topic })?;
        self.names.remove(&name);
        self.auto_splits.remove(&topic);
        for range in ranges {
            let state = self.ranges.remove(&range).expect("a topic's ranges are known");
            self.fences.remove(&range);
            self.loads.remove(&range);
            self.deleted.insert(range, Deleted { topic, home: state.home });
        }
        Ok(Applied::TopicDeleted(topic))
    }

    fn begin_seal(
        &mut self,
        range: RangeId,
        segment: SegmentId,
        epoch: Epoch,
        reason: SealReason,
    ) -> Result<Applied, Rejected> {
        let state = self.active(range)?;
        if epoch <= state.epoch {
            return Err(Rejected::StaleEpoch { current: state.epoch });
        }
        if state.chain.open().is_none_or(|open| open.segment != segment) {
            return Err(Misfit::NotOpen { segment }.into());
        }
        state.epoch = epoch;
        state.sealing = Some(Sealing { segment, reason });
        Ok(Applied::Range(range))
    }

    fn sealed(
        &mut self,
        range: RangeId,
        sealed: &SealedSegment,
        goes_on: bool,
        open: Option<&SegmentOpen>,
    ) -> Result<Applied, Rejected> {
        if let Some(open) = open {
            self.check_open(open)?;
        }
        let state = self.active(range)?;
        let segment = sealed.segment;
        if sealed.epoch != state.epoch || open.is_some_and(|open| open.epoch != state.epoch) {
            return Err(Rejected::StaleEpoch { current: state.epoch });
        }
        let sealing = state.sealing.filter(|sealing| sealing.segment == segment);
        let sealing = sealing.ok_or(Rejected::NotSealing { segment })?;
        let mark = state.chain.mark();
        let done = state.chain.seal(sealed.clone(), goes_on).and_then(|()| match open {
            Some(open) => state.chain.open_next(*open),
            None => Ok(()),
        });
        if let Err(misfit) = done {
            state.chain.restore(mark);
            return Err(misfit.into());
        }
        // The round goes on in the second segment of the tail, in the same epoch.
        let second = state.chain.open().filter(|_| goes_on).map(|open| open.segment);
        state.sealing = second.map(|segment| Sealing { segment, ..sealing });
        self.forget_fences(range);
        if let Some(open) = open {
            self.opened(range, open);
        }
        Ok(Applied::Range(range))
    }

    fn open(&mut self, range: RangeId, open: &SegmentOpen) -> Result<Applied, Rejected> {
        self.check_open(open)?;
        let state = self.active(range)?;
        if open.epoch != state.epoch {
            return Err(Rejected::StaleEpoch { current: state.epoch });
        }
        state.chain.open_next(*open)?;
        self.opened(range, open);
        Ok(Applied::Range(range))
    }

    fn prepare(&mut self, range: RangeId, after: SegmentId, open: &SegmentOpen) -> Result<Applied, Rejected> {
        self.check_open(open)?;
        let state = self.active(range)?;
        if open.epoch != state.epoch {
            return Err(Rejected::StaleEpoch { current: state.epoch });
        }
        if state.sealing.is_some() {
            return Err(Rejected::Sealing);
        }
        state.chain.prepare(after, *open)?;
        self.next.segment = SegmentId(open.segment.0 + 1);
        Ok(Applied::Range(range))
    }

    fn rolled(
        &mut self,
        range: RangeId,
        sealed: &SealedSegment,
        successor: SegmentId,
        cause: RollCause,
    ) -> Result<Applied, Rejected> {
        let state = self.active(range)?;
        if state.sealing.is_some() {
            return Err(Rejected::Sealing);
        }
        if sealed.epoch != state.epoch {
            return Err(Rejected::StaleEpoch { current: state.epoch });
        }
        if state.chain.prepared().is_none_or(|prepared| prepared.segment != successor) {
            return Err(Misfit::NotPrepared { segment: successor }.into());
        }
        state.chain.seal(sealed.clone(), true)?;
        let topic = state.topic;
        self.forget_fences(range);
        if self.auto_splits.contains_key(&topic) {
            self.note_load(range, cause);
        }
        Ok(Applied::Range(range))
    }

    /// Of any range: what is sealed rots too.
    fn add_holes(&mut self, range: RangeId, segment: SegmentId, holes: &[Span]) -> Result<Applied, Rejected> {
        let state = self.ranges.get_mut(&range).ok_or(Rejected::UnknownRange { range })?;
        state.chain.add_holes(segment, holes)?;
        Ok(Applied::Range(range))
    }

    fn raise_producer(&mut self, producer: ProducerId, epoch: ProducerEpoch) -> Result<Applied, Rejected> {
        let current = self.producer_epoch(producer).ok_or(Rejected::UnknownProducer { producer })?;
        if current.0.checked_add(1) != Some(epoch.0) {
            return Err(Rejected::ProducerFenced { current });
        }
        self.producers.insert(producer, epoch);
        Ok(Applied::Producer(producer))
    }

    fn give_block(&mut self, node: NodeId, first: ProducerId, count: u64) -> Result<Applied, Rejected> {
        if !self.nodes.contains_key(&node) {
            return Err(Rejected::UnknownNode { node });
        }
        let next = self.next.producer;
        let after = first.0.checked_add(count).filter(|_| first == next && count > 0);
        self.next.producer = ProducerId(after.ok_or(Rejected::BadBlock { next })?);
        Ok(Applied::Producer(first))
    }

    fn active(&mut self, range: RangeId) -> Result<&mut Range, Rejected> {
        let state = self.ranges.get_mut(&range).ok_or(Rejected::UnknownRange { range })?;
        match state.status {
            RangeStatus::Active => Ok(state),
            RangeStatus::Sealed { .. } => Err(Rejected::RangeSealed { range }),
        }
    }

    /// What an open must be, whatever its range.
    fn check_open(&self, open: &SegmentOpen) -> Result<(), Rejected> {
        let node = open.primary;
        let current = self.nodes.get(&node).ok_or(Rejected::UnknownNode { node })?.life;
        if open.life != current {
            return Err(Rejected::StaleLife { current });
        }
        if open.segment < self.next.segment {
            return Err(Rejected::SegmentGiven { next: self.next.segment });
        }
        let (replicas, quorum) = (open.replicas, open.quorum);
        if quorum > replicas || quorum <= replicas / 2 {
            return Err(Rejected::BadQuorum { replicas, quorum });
        }
        Ok(())
    }

    /// Rolls of one reason in a row count; a roll of the other begins anew, and one that somebody asked for says nothing.
    fn note_load(&mut self, range: RangeId, cause: RollCause) {
        let RangeLoad { full, aged } = self.load(range);
        let load = match cause {
            RollCause::Full => RangeLoad { full: full.saturating_add(1), aged: 0 },
            RollCause::Age => RangeLoad { full: 0, aged: aged.saturating_add(1) },
            RollCause::Asked => return,
        };
        self.loads.insert(range, load);
    }

    /// Once a segment of its own is sealed of which a record is left, a range's producer table is there: it was written before that. One
    /// that is a hole and nothing else may have left no table.
    fn forget_fences(&mut self, range: RangeId) {
        let is_left = |sealed: &SealedSegment| {
            let lost: u64 = sealed.holes.iter().map(|hole| hole.to.0 - hole.from.0).sum();
            lost < sealed.end.0 - sealed.base.0
        };
        if self.ranges.get(&range).is_some_and(|state| state.chain.sealed().iter().any(is_left)) {
            self.fences.remove(&range);
        }
    }

    fn opened(&mut self, range: RangeId, open: &SegmentOpen) {
        self.next.segment = SegmentId(open.segment.0 + 1);
        self.ranges.get_mut(&range).expect("a range that was just changed").home = open.primary;
    }
}

/// Whether a topic may be called so: 1 to 249 of letters, digits, `.`, `_` and `-`, and neither `.` nor `..`.
#[must_use]
pub fn is_topic_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= TOPIC_NAME_BYTES_MAX && name.bytes().all(allowed) && !matches!(name, "." | "..")
}

#[cfg(test)]
mod tests;
