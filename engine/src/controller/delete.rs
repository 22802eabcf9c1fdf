//! Deletes topics: a committed change first, then every shard that holds a range of it is told.
//!
//! ```text
//!  DeleteTopic --> committed --> Deleted to each shard --> Stopped from all: answered
//!                                                     \--> Noted from one: RangeGone committed, it is told no more
//! ```
//! Answered only when nothing of the topic is served any more: whoever has the answer and asks afterwards is told that there is no such
//! range. A shard that is not ready serves nothing, and is told when it is; so nobody waits for it.
//!
//! Crash before the change is committed: nothing has happened. Crash after it: the state names the ranges until their shards' catalogs
//! do, so that the next life tells them again.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{Command, Commands};
use super::controller::Controller;
use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::Response;
use crate::metadata::Change;
use crate::metadata::consensus::LogIndex;
use crate::replica::message::ToReplica;
use crate::types::{RangeId, TopicId};

/// Deletions that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    stopping: BTreeMap<TopicId, Stopping>,
    /// Ranges whose `RangeGone` is proposed.
    leaving: BTreeSet<RangeId>,
}

/// A topic whose deletion is committed.
#[derive(Debug)]
struct Stopping {
    /// Who asked, and asked again.
    askers: Vec<ReplyTo>,
    /// Ranges that have not said yet that they have stopped. Not empty.
    ranges: BTreeSet<RangeId>,
}

impl Deletions {
    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.stopping.values().map(|stopping| stopping.askers.len()).sum()
    }

    /// The state names a range no more, or the change was refused.
    pub(super) fn gone(&mut self, range: RangeId) {
        self.leaving.remove(&range);
    }
}

impl Controller {
    pub(super) fn delete_topic(&mut self, to: ReplyTo, name: &str, meant: Option<TopicId>) -> Result<(), Refusal> {
        // Asked again while its ranges stop: answered with the first.
        if let Some(stopping) = meant.and_then(|topic| self.deletions.stopping.get_mut(&topic)) {
            stopping.askers.push(to);
            return Ok(());
        }
        let topic = self.state.find_topic(name).filter(|topic| meant.is_none_or(|meant| meant == *topic));
        let topic = topic.ok_or(Refusal::UnknownTopic)?;
        let index = self.propose(Change::DeleteTopic { topic });
        self.askers.insert(index, to);
        Ok(())
    }

    /// A deletion is committed.
    pub(super) fn topic_deleted(&mut self, index: LogIndex, topic: TopicId, commands: &mut Commands) {
        let of_topic = self.state.all_deleted().filter(|(_, deleted)| deleted.topic == topic);
        let ranges: Vec<RangeId> = of_topic.map(|(range, _)| range).collect();
        let mut stopping =
            Stopping { askers: self.askers.remove(&index).into_iter().collect(), ranges: BTreeSet::new() };
        for range in ranges {
            self.forget_work(range);
            self.reshaped_or_gone(range, commands);
            if self.is_ready(self.shard_of(range)) {
                stopping.ranges.insert(range);
                self.tell(ToReplica::Deleted { range }, commands);
            }
        }
        if stopping.ranges.is_empty() {
            stopping.answer(topic, commands);
        } else {
            self.deletions.stopping.insert(topic, stopping);
        }
    }

    /// A deletion is refused: the topic was deleted while it was under way. If its ranges still stop, it is answered with the first.
    pub(super) fn deleted_before(&mut self, index: LogIndex, topic: TopicId) -> bool {
        let Some(stopping) = self.deletions.stopping.get_mut(&topic) else { return false };
        stopping.askers.extend(self.askers.remove(&index));
        true
    }

    /// What was to be done about a range is not to be done any more.
    pub(super) fn forget_work(&mut self, range: RangeId) {
        self.work.remove(&range);
        self.settling.remove(&range);
    }

    /// A range takes and serves nothing any more.
    pub(super) fn range_stopped(&mut self, range: RangeId, commands: &mut Commands) {
        let found = self.deletions.stopping.iter_mut().find(|(_, stopping)| stopping.ranges.contains(&range));
        let Some((topic, stopping)) = found.map(|(topic, stopping)| (*topic, stopping)) else { return };
        stopping.ranges.remove(&range);
        if stopping.ranges.is_empty()
            && let Some(stopping) = self.deletions.stopping.remove(&topic)
        {
            stopping.answer(topic, commands);
        }
    }

    /// A shard's catalog knows of the deletion of a range.
    pub(super) fn range_noted(&mut self, range: RangeId, commands: &mut Commands) {
        // What was written down has stopped, should that word be late.
        self.range_stopped(range, commands);
        let is_named = self.state.deleted(range).is_some() && !self.log.has_failed();
        if is_named && self.deletions.leaving.insert(range) {
            self.propose(Change::RangeGone { range });
        }
    }
}

impl Stopping {
    fn answer(self, topic: TopicId, commands: &mut Commands) {
        for to in self.askers {
            commands.push(Command::Reply { to, response: Response::TopicDeleted { topic } });
        }
    }
}

#[cfg(test)]
mod tests;
