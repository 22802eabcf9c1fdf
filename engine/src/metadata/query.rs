//! Questions to the state. None changes it.

use super::state::{Deleted, Range, RangeStatus, State, Topic};
use crate::api::response::{RangeLineage, Route, TopicView};
use crate::replica::message::RangeView;
use crate::types::KeySpan;
use crate::types::{NodeId, ProcessLife, RangeId, ShardId, TopicId};

impl State {
    /// The topic of this name.
    #[must_use]
    pub fn find_topic(&self, name: &str) -> Option<TopicId> {
        self.names.get(name).copied()
    }

    /// A topic as clients see it.
    #[must_use]
    pub fn topic_view(&self, id: TopicId) -> Option<TopicView> {
        let topic = self.topics.get(&id)?;
        let ranges = u32::try_from(self.active_ranges(topic).count()).expect("a topic has fewer than 2^32 ranges");
        Some(TopicView {
            topic: id,
            name: topic.name.clone(),
            ranges,
            keyspace_version: topic.keyspace_version,
            batch_bytes_max: topic.batch_bytes_max,
            auto_split: self.auto_split(id).map(|bounds| bounds.ranges_max),
        })
    }

    /// All topics, by name.
    #[must_use]
    pub fn topic_views(&self) -> Vec<TopicView> {
        self.names.values().filter_map(|topic| self.topic_view(*topic)).collect()
    }

    /// Where the active ranges of a topic are, by key span: together they hold each key exactly once.
    #[must_use]
    pub fn routes(&self, topic: TopicId) -> Option<Vec<Route>> {
        let topic = self.topics.get(&topic)?;
        let mut routes: Vec<Route> = self.active_ranges(topic).map(|(id, range)| self.route_of(id, range)).collect();
        routes.sort_by_key(|route| route.span.first());
        Some(routes)
    }

    /// Where a range is.
    #[must_use]
    pub fn route(&self, range: RangeId) -> Option<Route> {
        self.ranges.get(&range).map(|state| self.route_of(range, state))
    }

    /// The committed state of a range, as its replica wants it.
    #[must_use]
    pub fn range_view(&self, range: RangeId) -> Option<RangeView> {
        let state = self.ranges.get(&range)?;
        let successors = match &state.status {
            RangeStatus::Active => None,
            RangeStatus::Sealed { successors } => {
                Some(successors.iter().filter_map(|successor| self.route(*successor)).collect())
            }
        };
        Some(RangeView {
            topic: state.topic,
            range,
            span: state.span,
            epoch: state.epoch,
            trimmed: state.trimmed,
            end: state.chain.end(),
            sealed: state.chain.sealed().to_vec(),
            open: state.chain.open().into_iter().chain(state.chain.prepared()).copied().collect(),
            fences: self.fences.get(&range).cloned().unwrap_or_default(),
            successors,
        })
    }

    /// The ranges that a shard of a node holds, by id.
    pub fn ranges_of(&self, node: NodeId, shard: ShardId) -> impl Iterator<Item = (RangeId, &Range)> {
        let shards = self.nodes.get(&node).map_or(1, |node| node.shards);
        self.ranges().filter(move |(id, range)| range.home == node && id.shard(shards) == shard)
    }

    /// The ranges of deleted topics that a shard of a node is still to be told of, by id.
    pub fn deleted_of(&self, node: NodeId, shard: ShardId) -> impl Iterator<Item = RangeId> {
        let shards = self.nodes.get(&node).map_or(1, |node| node.shards);
        let held = move |(id, deleted): &(RangeId, &Deleted)| deleted.home == node && id.shard(shards) == shard;
        self.all_deleted().filter(held).map(|(id, _)| id)
    }

    /// Whether a segment's primary can still append: its process is the node's newest.
    #[must_use]
    pub fn is_current(&self, node: NodeId, life: ProcessLife) -> bool {
        self.nodes.get(&node).is_some_and(|known| known.life == life)
    }

    /// What a topic's ranges were made of and became, by id: at most `most` of those above `after` (exclusive), and whether there are
    /// more.
    #[must_use]
    pub fn lineage(&self, topic: TopicId, after: RangeId, most: usize) -> Option<(Vec<RangeLineage>, bool)> {
        let topic = self.topics.get(&topic)?;
        let from = topic.ranges.partition_point(|range| *range <= after);
        let mut left = topic.ranges[from..].iter();
        let ranges = left.by_ref().take(most).filter_map(|range| self.range_lineage(*range)).collect();
        Some((ranges, left.next().is_some()))
    }

    /// What a range was made of and became.
    #[must_use]
    pub fn range_lineage(&self, range: RangeId) -> Option<RangeLineage> {
        let state = self.ranges.get(&range)?;
        let successors = match &state.status {
            RangeStatus::Active => Vec::new(),
            RangeStatus::Sealed { successors } => successors.clone(),
        };
        Some(RangeLineage { route: self.route_of(range, state), parents: state.parents.clone(), successors })
    }

    /// Ranges of a topic that take records.
    #[must_use]
    pub fn active_count(&self, topic: TopicId) -> usize {
        self.topics.get(&topic).map_or(0, |topic| self.active_ranges(topic).count())
    }

    /// The active range of a topic that has exactly this span.
    #[must_use]
    pub fn active_with_span(&self, topic: TopicId, span: KeySpan) -> Option<RangeId> {
        let topic = self.topics.get(&topic)?;
        self.active_ranges(topic).find(|(_, range)| range.span == span).map(|(id, _)| id)
    }

    /// Whether a topic's active ranges hold every key exactly once.
    pub(super) fn holds_each_key_once(&self, topic: &Topic) -> bool {
        let mut spans: Vec<KeySpan> = self.active_ranges(topic).map(|(_, range)| range.span).collect();
        spans.sort_by_key(|span| span.first());
        let mut next = Some(0);
        for span in spans {
            if next != Some(span.first().0) {
                return false;
            }
            next = span.last().0.checked_add(1);
        }
        next.is_none()
    }

    fn active_ranges<'a>(&'a self, topic: &'a Topic) -> impl Iterator<Item = (RangeId, &'a Range)> {
        let ranges = topic.ranges.iter().filter_map(|id| Some((*id, self.ranges.get(id)?)));
        ranges.filter(|(_, range)| range.status == RangeStatus::Active)
    }

    fn route_of(&self, id: RangeId, range: &Range) -> Route {
        let node = range.chain.open().map_or(range.home, |open| open.primary);
        let shards = self.nodes.get(&node).map_or(1, |node| node.shards);
        Route { range: id, span: range.span, epoch: range.epoch, node, shard: id.shard(shards) }
    }
}
