//! What clients ask of the metadata group. Reads are answered at once, from what is applied: alone, that is the newest. Changes
//! are answered when they are committed.

use std::collections::VecDeque;

use super::command::{Command, Commands};
use super::controller::Controller;
use crate::api::error::Refusal;
use crate::api::request::{ControlRequest, ReplyTo};
use crate::api::response::Response;
use crate::metadata::apply::is_topic_name;
use crate::metadata::consensus::LogIndex;
use crate::metadata::{Applied, Change, Rejected};
use crate::types::keyspace::KEYSPACE_VERSION;
use crate::types::limits::TOPIC_RANGES_MAX;
use crate::types::{ProducerEpoch, ProducerId, Run};

/// Requests that may wait for their changes at one time.
const WAITING_MAX: usize = 1024;
/// What a client waits before it asks again, in ms.
const OVERLOADED_DELAY_MS: u32 = 50;
/// Producer ids that are asked for at once.
const PRODUCER_BLOCK: u64 = 1024;

/// Who waits for a change.
pub(super) type Asker = ReplyTo;

/// The producer ids that this process may give, and who waits for more.
#[derive(Debug, Default)]
pub(super) struct ProducerIds {
    next: u64,
    /// Exclusive.
    end: u64,
    is_asked: bool,
    waiting: VecDeque<ReplyTo>,
}

impl Controller {
    pub(super) fn request(
        &mut self,
        now_ns: u64,
        to: ReplyTo,
        deadline_ns: u64,
        request: ControlRequest,
        commands: &mut Commands,
    ) {
        if now_ns >= deadline_ns {
            refuse(to, Refusal::DeadlinePassed, commands);
            return;
        }
        match request {
            ControlRequest::ListTopics => {
                let response = Response::Topics(self.state.topic_views());
                commands.push(Command::Reply { to, response });
            }
            ControlRequest::Routes { topic } => {
                let response = self.routes(&topic).unwrap_or(Response::Refused(Refusal::UnknownTopic));
                commands.push(Command::Reply { to, response });
            }
            ControlRequest::CreateTopic { name, ranges, auto_split } => {
                if let Err(refusal) = self.take().and_then(|()| self.create_topic(to, name, ranges, auto_split)) {
                    refuse(to, refusal, commands);
                }
            }
            ControlRequest::DeleteTopic { name, topic } => {
                if let Err(refusal) = self.take().and_then(|()| self.delete_topic(to, &name, topic)) {
                    refuse(to, refusal, commands);
                }
            }
            ControlRequest::Lineage { topic, after } => {
                let response = self.lineage(&topic, after).unwrap_or(Response::Refused(Refusal::UnknownTopic));
                commands.push(Command::Reply { to, response });
            }
            ControlRequest::SplitRange { topic, range } => {
                let done = self.take().and_then(|()| self.split_range(now_ns, to, &topic, range, commands));
                answer_done(to, done, commands);
            }
            ControlRequest::MergeRanges { topic, ranges } => {
                let done = self.take().and_then(|()| self.merge_ranges(now_ns, to, &topic, ranges, commands));
                answer_done(to, done, commands);
            }
            ControlRequest::OpenProducer { replaces: None } => match self.take() {
                Ok(()) => {
                    self.producers.waiting.push_back(to);
                    self.give_producers(commands);
                }
                Err(refusal) => refuse(to, refusal, commands),
            },
            ControlRequest::OpenProducer { replaces: Some((producer, epoch)) } => {
                if let Err(refusal) = self.take().and_then(|()| self.replace(to, producer, epoch)) {
                    refuse(to, refusal, commands);
                }
            }
        }
    }

    /// Whether one more request may wait for a change.
    fn take(&self) -> Result<(), Refusal> {
        if self.log.has_failed() {
            return Err(Refusal::WriteFailed);
        }
        if self.askers.len() + self.producers.waiting.len() + self.deletions.waiting() + self.reshapes.waiting()
            >= WAITING_MAX
        {
            return Err(Refusal::Overloaded { delay_ms: OVERLOADED_DELAY_MS });
        }
        Ok(())
    }

    fn routes(&self, name: &str) -> Option<Response> {
        let id = self.state.find_topic(name)?;
        Some(Response::Routes { topic: self.state.topic_view(id)?, routes: self.state.routes(id)? })
    }

    fn create_topic(&mut self, to: ReplyTo, name: String, ranges: u32, auto_split: Option<u32>) -> Result<(), Refusal> {
        // What is plainly wrong need not go through the log.
        if !is_topic_name(&name) {
            return Err(Refusal::BadTopicName);
        }
        let is_bounded = auto_split.is_none_or(|most| (ranges..=TOPIC_RANGES_MAX).contains(&most));
        if !ranges.is_power_of_two() || ranges > TOPIC_RANGES_MAX || !is_bounded {
            return Err(Refusal::BadRangeCount { most: TOPIC_RANGES_MAX });
        }
        if self.state.find_topic(&name).is_some() {
            return Err(Refusal::TopicExists);
        }
        let index = self.propose(Change::CreateTopic {
            name,
            keyspace_version: KEYSPACE_VERSION,
            batch_bytes_max: self.config.batch_bytes_max,
            ranges,
            homes: vec![self.node],
            auto_split,
        });
        self.askers.insert(index, to);
        Ok(())
    }

    /// Fences the producer's earlier holder.
    fn replace(&mut self, to: ReplyTo, producer: ProducerId, epoch: ProducerEpoch) -> Result<(), Refusal> {
        let current = self.state.producer_epoch(producer).ok_or(Refusal::UnknownProducer)?;
        let next = epoch.0.checked_add(1).filter(|_| current == epoch);
        let next = next.ok_or(Refusal::ProducerFenced { epoch: current, run: Run(0) })?;
        let index = self.propose(Change::ProducerEpoch { producer, epoch: ProducerEpoch(next) });
        self.askers.insert(index, to);
        Ok(())
    }

    /// Gives ids to those who wait, and asks for more if there are none.
    fn give_producers(&mut self, commands: &mut Commands) {
        let ids = &mut self.producers;
        while ids.next < ids.end
            && let Some(to) = ids.waiting.pop_front()
        {
            let producer = ProducerId(ids.next);
            ids.next += 1;
            let response = Response::Producer { producer, epoch: ProducerEpoch::FIRST };
            commands.push(Command::Reply { to, response });
        }
        if !ids.waiting.is_empty() && !ids.is_asked {
            ids.is_asked = true;
            let (node, first) = (self.node, self.state.next().producer);
            self.propose(Change::ProducerBlock { node, first, count: PRODUCER_BLOCK });
        }
    }

    /// A block of ids was given to this node, or refused.
    pub(super) fn block_given(&mut self, block: Option<(ProducerId, u64)>, commands: &mut Commands) {
        self.producers.is_asked = false;
        if let Some((first, count)) = block {
            (self.producers.next, self.producers.end) = (first.0, first.0 + count);
        }
        self.give_producers(commands);
    }

    /// The change that somebody waits for is committed.
    pub(super) fn answer(&mut self, index: LogIndex, outcome: &Result<Applied, Rejected>, commands: &mut Commands) {
        let response = match *outcome {
            Ok(Applied::Topic(topic)) => {
                let ranges = self.state.topic(topic).map(|topic| topic.ranges.clone()).unwrap_or_default();
                for range in ranges {
                    self.adopt(range, commands);
                }
                Response::Topic(self.state.topic_view(topic).expect("a topic that was just created"))
            }
            Ok(Applied::Producer(producer)) => {
                let epoch = self.state.producer_epoch(producer).expect("a producer that was just opened");
                Response::Producer { producer, epoch }
            }
            Ok(Applied::Node(_) | Applied::Range(_) | Applied::Reshaped | Applied::Clock) => {
                unreachable!("nobody asks for these")
            }
            Ok(Applied::TopicDeleted(_)) => unreachable!("answered when its ranges have stopped"),
            Err(rejected) => Response::Refused(refusal_of(rejected)),
        };
        if let Some(to) = self.askers.remove(&index) {
            commands.push(Command::Reply { to, response });
        }
    }

    /// A change may or may not be in the log, which cannot be written any more.
    pub(super) fn abandoned(&mut self, index: LogIndex, commands: &mut Commands) {
        if let Some(to) = self.askers.remove(&index) {
            refuse(to, Refusal::WriteFailed, commands);
        }
    }

    /// No more ids will be given.
    pub(super) fn abandon_producers(&mut self, commands: &mut Commands) {
        for to in self.producers.waiting.drain(..) {
            refuse(to, Refusal::WriteFailed, commands);
        }
    }
}

fn refuse(to: ReplyTo, refusal: Refusal, commands: &mut Commands) {
    commands.push(Command::Reply { to, response: Response::Refused(refusal) });
}

/// Answers what was done already, or why it cannot be; `None` is answered later.
fn answer_done(to: ReplyTo, done: Result<Option<Response>, Refusal>, commands: &mut Commands) {
    match done {
        Ok(None) => {}
        Ok(Some(response)) => commands.push(Command::Reply { to, response }),
        Err(refusal) => refuse(to, refusal, commands),
    }
}

/// What a client is told of a change that was refused.
fn refusal_of(rejected: Rejected) -> Refusal {
    match rejected {
        Rejected::BadTopicName => Refusal::BadTopicName,
        Rejected::TopicExists { .. } => Refusal::TopicExists,
        Rejected::UnknownTopic { .. } => Refusal::UnknownTopic,
        Rejected::BadRangeCount { most, .. } => Refusal::BadRangeCount { most },
        Rejected::UnknownProducer { .. } => Refusal::UnknownProducer,
        Rejected::ProducerFenced { current } => Refusal::ProducerFenced { epoch: current, run: Run(0) },
        Rejected::NoHome
        | Rejected::UnknownNode { .. }
        | Rejected::NoShards
        | Rejected::UnknownRange { .. }
        | Rejected::RangeSealed { .. }
        | Rejected::StaleEpoch { .. }
        | Rejected::StaleLife { .. }
        | Rejected::Sealing
        | Rejected::NotSealing { .. }
        | Rejected::SegmentGiven { .. }
        | Rejected::BadQuorum { .. }
        | Rejected::Misfit(_)
        | Rejected::BadBlock { .. }
        | Rejected::OneHash { .. }
        | Rejected::TooManyRanges { .. }
        | Rejected::NotBuddies { .. }
        | Rejected::BadFences
        | Rejected::BadOpens { .. } => Refusal::BadRequest,
    }
}
