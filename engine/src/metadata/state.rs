//! What is true of the cluster: the result of all changes applied, and of nothing else.
//!
//! Ordered maps throughout, so that two replicas that applied the same changes are equal byte for byte. Ids come from counters
//! that only grow: what is deleted is never given again.

use std::collections::BTreeMap;

use super::change::SealReason;
use super::codec::{Codec, DecodeError, Reader, fields};
use super::range_chain::RangeChain;
use crate::replica::message::Fence;
use crate::types::{
    Epoch, KeySpan, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, SegmentId, TopicId,
};

/// The epoch of a range that has just been created.
pub const FIRST_EPOCH: Epoch = Epoch(1);

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Entries of the log that have been applied, refused ones counted: the index of the next.
    pub(super) applied: u64,
    pub(super) next: NextIds,
    /// The committed retention clock, in ms.
    pub(super) retention_ms: u64,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) topics: BTreeMap<TopicId, Topic>,
    /// By name; derived from `topics`.
    pub(super) names: BTreeMap<String, TopicId>,
    pub(super) ranges: BTreeMap<RangeId, Range>,
    /// Ranges of deleted topics whose holders have not said yet that they have taken note.
    pub(super) deleted: BTreeMap<RangeId, Deleted>,
    /// What ranges that were split or merged from others know of producers, until a segment of their own is sealed, which holds it. None
    /// is empty; each ascends by producer.
    pub(super) fences: BTreeMap<RangeId, Vec<Fence>>,
    /// Topics that split and merge their ranges by themselves.
    pub(super) auto_splits: BTreeMap<TopicId, AutoSplit>,
    /// What the last rolls of active ranges of those say; of one that is not here they say nothing.
    pub(super) loads: BTreeMap<RangeId, RangeLoad>,
    /// Producers whose id was opened again. One that is not here and was given is in its first epoch.
    pub(super) producers: BTreeMap<ProducerId, ProducerEpoch>,
}

/// The ids to be given next. They only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextIds {
    pub topic: TopicId,
    pub range: RangeId,
    pub segment: SegmentId,
    pub producer: ProducerId,
}

/// A node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its newest process.
    pub life: ProcessLife,
    /// Shards of that.
    pub shards: u16,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    /// Version of the function from keys to hashes.
    pub keyspace_version: u8,
    /// Bytes of the largest batch.
    pub batch_bytes_max: u32,
    /// Its ranges, active and sealed, by id.
    pub ranges: Vec<RangeId>,
}

/// A range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub topic: TopicId,
    pub span: KeySpan,
    /// The newest epoch given.
    pub epoch: Epoch,
    pub status: RangeStatus,
    /// What it was split or merged from; empty for a range that its topic was created with.
    pub parents: Vec<RangeId>,
    /// Where its next segment is to be opened: the node of its last primary.
    pub home: NodeId,
    /// Below it, deleted by retention.
    pub trimmed: Offset,
    pub chain: RangeChain,
    /// The seal round that has begun and has not ended.
    pub sealing: Option<Sealing>,
}

/// A range of a deleted topic. That it stands here is the word by which its files are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// The topic that it belonged to.
    pub topic: TopicId,
    /// The node that holds its segments.
    pub home: NodeId,
}

/// How a topic that splits and merges its ranges by itself is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoSplit {
    /// It is never merged to fewer ranges: those that it was created with.
    pub ranges_min: u32,
    /// It is never split to more.
    pub ranges_max: u32,
}

/// What the last rolls of a range say of its load: rolls in a row for one reason; one of them is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RangeLoad {
    /// Its segments were full.
    pub full: u32,
    /// They were not, and old.
    pub aged: u32,
}

/// Whether a range takes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeStatus {
    Active,
    /// Its keys go to the successors.
    Sealed {
        successors: Vec<RangeId>,
    },
}

/// A seal round, as committed. Its epoch is the range's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealing {
    /// The segment that is being sealed; after a roll mark, the second of the tail.
    pub segment: SegmentId,
    pub reason: SealReason,
}

impl Default for State {
    fn default() -> Self {
        Self {
            applied: 0,
            next: NextIds {
                topic: TopicId(1),
                range: RangeId(1),
                segment: SegmentId(1),
                producer: ProducerId(ProducerId::NONE.0 + 1),
            },
            retention_ms: 0,
            nodes: BTreeMap::new(),
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            ranges: BTreeMap::new(),
            deleted: BTreeMap::new(),
            fences: BTreeMap::new(),
            auto_splits: BTreeMap::new(),
            loads: BTreeMap::new(),
            producers: BTreeMap::new(),
        }
    }
}

impl State {
    /// Entries of the log applied so far: the index of the next.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The ids to be given next.
    #[must_use]
    pub fn next(&self) -> NextIds {
        self.next
    }

    /// The committed retention clock, in ms.
    #[must_use]
    pub fn retention_ms(&self) -> u64 {
        self.retention_ms
    }

    /// A node.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    /// A topic.
    #[must_use]
    pub fn topic(&self, topic: TopicId) -> Option<&Topic> {
        self.topics.get(&topic)
    }

    /// A range.
    #[must_use]
    pub fn range(&self, range: RangeId) -> Option<&Range> {
        self.ranges.get(&range)
    }

    /// All ranges, by id.
    pub fn ranges(&self) -> impl Iterator<Item = (RangeId, &Range)> {
        self.ranges.iter().map(|(id, range)| (*id, range))
    }

    /// A range of a deleted topic whose holder has not said yet that it has taken note.
    #[must_use]
    pub fn deleted(&self, range: RangeId) -> Option<&Deleted> {
        self.deleted.get(&range)
    }

    /// All of them, by id.
    pub fn all_deleted(&self) -> impl Iterator<Item = (RangeId, &Deleted)> {
        self.deleted.iter().map(|(id, deleted)| (*id, deleted))
    }

    /// The bounds of a topic that splits and merges its ranges by itself.
    #[must_use]
    pub fn auto_split(&self, topic: TopicId) -> Option<AutoSplit> {
        self.auto_splits.get(&topic).copied()
    }

    /// What the last rolls of an active range say, if its topic splits and merges its ranges by itself.
    #[must_use]
    pub fn load(&self, range: RangeId) -> RangeLoad {
        self.loads.get(&range).copied().unwrap_or_default()
    }

    /// The epoch in which a producer's id now writes, or `None` if it was never given.
    #[must_use]
    pub fn producer_epoch(&self, producer: ProducerId) -> Option<ProducerEpoch> {
        if producer == ProducerId::NONE || producer >= self.next.producer {
            return None;
        }
        Some(self.producers.get(&producer).copied().unwrap_or(ProducerEpoch::FIRST))
    }

    /// Whether a state that was read, not made, agrees with itself.
    fn is_valid(&self) -> bool {
        let ranges_fit = self.ranges.iter().all(|(id, range)| {
            let last = range.chain.prepared().or_else(|| range.chain.open()).map(|open| open.segment);
            *id < self.next.range
                && range.chain.is_valid()
                && last.or_else(|| range.chain.last_sealed()).is_none_or(|segment| segment < self.next.segment)
                && self.topics.get(&range.topic).is_some_and(|topic| topic.ranges.binary_search(id).is_ok())
                && range.sealing.is_none_or(|s| range.chain.open().is_some_and(|open| open.segment == s.segment))
        });
        let topics_fit = self.topics.iter().all(|(id, topic)| {
            *id < self.next.topic
                && topic.ranges.is_sorted_by(|a, b| a < b)
                && topic.ranges.iter().all(|range| self.ranges.contains_key(range))
        });
        let deleted_fit = self.deleted.iter().all(|(id, deleted)| {
            *id < self.next.range
                && !self.ranges.contains_key(id)
                && deleted.topic < self.next.topic
                && !self.topics.contains_key(&deleted.topic)
        });
        let fences_fit = self.fences.iter().all(|(id, fences)| {
            self.ranges.contains_key(id)
                && !fences.is_empty()
                && fences.is_sorted_by(|a, b| a.producer < b.producer)
                && fences.iter().all(|fence| fence.producer < self.next.producer)
        });
        let loads_fit = self.auto_splits.keys().all(|topic| self.topics.contains_key(topic))
            && self.loads.keys().all(|id| {
                let range = self.ranges.get(id).filter(|range| range.status == RangeStatus::Active);
                range.is_some_and(|range| self.auto_splits.contains_key(&range.topic))
            });
        let keys_fit = self.topics.values().all(|topic| self.holds_each_key_once(topic));
        let producers_fit = self.producers.keys().all(|producer| *producer < self.next.producer);
        ranges_fit
            && topics_fit
            && deleted_fit
            && fences_fit
            && loads_fit
            && keys_fit
            && producers_fit
            && self.names.len() == self.topics.len()
    }
}

fields!(NextIds { topic, range, segment, producer });
fields!(Node { life, shards });
fields!(Topic { name, keyspace_version, batch_bytes_max, ranges });
fields!(Range { topic, span, epoch, status, parents, home, trimmed, chain, sealing });
fields!(Sealing { segment, reason });
fields!(Deleted { topic, home });
fields!(AutoSplit { ranges_min, ranges_max });
fields!(RangeLoad { full, aged });

impl Codec for RangeStatus {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Active => 1u8.put(out),
            Self::Sealed { successors } => {
                2u8.put(out);
                successors.put(out);
            }
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::get(from)? {
            1 => Ok(Self::Active),
            2 => Ok(Self::Sealed { successors: from.take()? }),
            _ => Err(from.malformed()),
        }
    }
}

impl State {
    /// The least version of a snapshot that can say it all: what an older build can read it is to go on reading.
    pub(super) fn version(&self) -> u32 {
        if !self.fences.is_empty() || !self.auto_splits.is_empty() {
            3
        } else if !self.deleted.is_empty() {
            2
        } else {
            1
        }
    }

    /// As it lies in a snapshot of its version.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        (self.applied, self.next, self.retention_ms).put(out);
        put_map(&self.nodes, out);
        put_map(&self.topics, out);
        put_map(&self.ranges, out);
        put_map(&self.producers, out);
        if self.version() >= 2 {
            put_map(&self.deleted, out);
        }
        if self.version() >= 3 {
            put_map(&self.fences, out);
            put_map(&self.auto_splits, out);
            put_map(&self.loads, out);
        }
    }

    /// From a snapshot of `version`.
    pub(super) fn get(from: &mut Reader<'_>, version: u32) -> Result<Self, DecodeError> {
        let (applied, next, retention_ms) = from.take()?;
        let nodes = get_map(from)?;
        let topics: BTreeMap<TopicId, Topic> = get_map(from)?;
        let names = topics.iter().map(|(id, topic)| (topic.name.clone(), *id)).collect();
        let (ranges, producers) = (get_map(from)?, get_map(from)?);
        let deleted = if version >= 2 { get_map(from)? } else { BTreeMap::new() };
        let (fences, auto_splits, loads) = if version >= 3 {
            (get_map(from)?, get_map(from)?, get_map(from)?)
        } else {
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new())
        };
        let state = Self {
            applied,
            next,
            retention_ms,
            nodes,
            topics,
            names,
            ranges,
            deleted,
            fences,
            auto_splits,
            loads,
            producers,
        };
        if state.is_valid() && state.version() == version { Ok(state) } else { Err(from.malformed()) }
    }
}

fn put_map<K: Codec, V: Codec>(map: &BTreeMap<K, V>, out: &mut Vec<u8>) {
    u64::try_from(map.len()).expect("a length fits 64 bits").put(out);
    for (key, value) in map {
        key.put(out);
        value.put(out);
    }
}

fn get_map<K: Codec + Ord, V: Codec>(from: &mut Reader<'_>) -> Result<BTreeMap<K, V>, DecodeError> {
    let length = u64::get(from)?;
    let mut map = BTreeMap::new();
    for _ in 0..length {
        let (key, value) = from.take()?;
        // Keys are written in order: one that is not above the last was not written by `put_map`.
        if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(from.malformed());
        }
        map.insert(key, value);
    }
    Ok(map)
}
