//! Deleted: once it is said that a topic is deleted, nothing of it is served, and in the end no file of it is left.

use std::collections::{BTreeMap, BTreeSet};

use sealog_engine::api::port::DataFile;
use sealog_engine::api::response::{RangeLineage, Route};
use sealog_engine::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use sealog_engine::types::{RangeId, TopicId};

use super::Violation;

/// The checker.
#[derive(Default)]
pub struct Deleted {
    /// Answers about ranges of deleted topics, and files looked at when there were such.
    pub checked: u64,
    /// Whose the ranges are that clients have been told of.
    topics: BTreeMap<RangeId, TopicId>,
    gone: BTreeSet<TopicId>,
}

impl Deleted {
    /// A client was told where the ranges of a topic are.
    ///
    /// # Errors
    /// The topic is deleted.
    pub fn routes(&mut self, topic: TopicId, routes: &[Route]) -> Result<(), Violation> {
        self.topics.extend(routes.iter().map(|route| (route.range, topic)));
        if self.gone.contains(&topic) { Err(Violation::RoutedDeleted { topic }) } else { Ok(()) }
    }

    /// A client was told what ranges were made of: those of a range of a topic are of that topic.
    pub fn lineage(&mut self, ranges: &[RangeLineage]) {
        for RangeLineage { route, parents, .. } in ranges {
            if let Some(topic) = parents.iter().find_map(|parent| self.topics.get(parent).copied()) {
                self.topics.insert(route.range, topic);
            }
        }
    }

    /// The topic of a range, if a client was told of it.
    #[must_use]
    pub fn topic_of(&self, range: RangeId) -> Option<TopicId> {
        self.topics.get(&range).copied()
    }

    /// Somebody was told that a topic is deleted.
    pub fn gone(&mut self, topic: TopicId) {
        self.gone.insert(topic);
    }

    /// Topics that are.
    #[must_use]
    pub fn topics_gone(&self) -> u64 {
        self.gone.len() as u64
    }

    /// A request about a range was answered; `served`: with anything but a refusal.
    ///
    /// # Errors
    /// Its topic is deleted.
    pub fn answered(&mut self, range: RangeId, served: bool) -> Result<(), Violation> {
        let Some(topic) = self.topics.get(&range).filter(|topic| self.gone.contains(topic)) else { return Ok(()) };
        self.checked += 1;
        if served { Err(Violation::ServedDeleted { range, topic: *topic }) } else { Ok(()) }
    }

    /// The file of a deleted topic that the disk still has, if it has one.
    pub fn file_left<'a>(&mut self, files: impl Iterator<Item = (DataFile, &'a [u8])>) -> Option<(DataFile, TopicId)> {
        let mut left = None;
        for (file, bytes) in files.filter(|(file, _)| matches!(file, DataFile::Segment { .. })) {
            self.checked += u64::from(!self.gone.is_empty());
            let header = bytes.get(..SEGMENT_HEADER_BYTES).and_then(|bytes| SegmentHeader::decode(bytes).ok());
            if let Some(topic) = header.map(|header| header.topic).filter(|topic| self.gone.contains(topic)) {
                left = Some((file, topic));
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use sealog_engine::types::{Epoch, KeySpan, NodeId, ShardId};

    use super::*;

    #[test]
    fn what_is_served_of_a_deleted_topic_is_a_violation_and_a_refusal_is_none() {
        let mut deleted = Deleted::default();
        let (range, topic) = (RangeId(4), TopicId(2));
        let route = Route { range, span: KeySpan::ALL, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) };
        assert!(deleted.routes(topic, &[route]).is_ok() && deleted.answered(range, true).is_ok());
        deleted.gone(topic);
        assert!(deleted.answered(range, false).is_ok() && deleted.answered(RangeId(5), true).is_ok());
        assert!(matches!(deleted.answered(range, true), Err(Violation::ServedDeleted { .. })));
        assert!(matches!(deleted.routes(topic, &[route]), Err(Violation::RoutedDeleted { .. })));
        assert_eq!((deleted.checked, deleted.topics_gone()), (2, 1));
    }
}
