//! A node of a few maps: ranges with logs and producer tables, splits and merges. Written without the engine's replica, so that a wrong
//! idea is not shared.

use std::collections::BTreeMap;

use sealog_engine::api::error::Refusal;
use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};
use sealog_engine::api::response::{ProducerSettled, Response, Route, Stored, TopicView};
use sealog_engine::format::batch::{BatchRef, Stamp};
use sealog_engine::types::{
    ClusterId, Epoch, KeyHash, KeySpan, NodeId, ProducerEpoch, ProducerId, RangeId, Run, Sequence, ShardId, TopicId,
};

use crate::wire::Welcome;

pub(super) fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0,
        cluster: ClusterId(1),
        node: NodeId(1),
        shards: 1,
        shard: ShardId(0),
        frame_bytes_max: 2 << 20,
        batch_bytes_max: 1 << 20,
        fetch_bytes_max: 1 << 20,
        connection_bytes_max: 1 << 26,
    }
}

pub(super) fn topic() -> TopicView {
    TopicView {
        topic: TopicId(1),
        name: "topic".into(),
        ranges: 1,
        keyspace_version: 1,
        batch_bytes_max: 1 << 20,
        auto_split: None,
    }
}

pub(super) fn route(range: u64, span: KeySpan) -> Route {
    Route { range: RangeId(range), span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) }
}

/// What the node does to produces just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Fine,
    Overloaded,
    Opening,
    StaleEpoch,
}

#[derive(Debug)]
struct Kept {
    span: KeySpan,
    epoch: Epoch,
    successors: Option<Vec<RangeId>>,
    last: Option<(ProducerEpoch, Run, Sequence)>,
    /// Hash and value of each record.
    log: Vec<(KeyHash, Vec<u8>)>,
}

/// An answer, and whether it waits for the disk: it may then come later, but not out of its range's order.
pub(super) struct Given {
    pub(super) response: Response,
    pub(super) later: bool,
}

pub(super) struct Node {
    ranges: BTreeMap<RangeId, Kept>,
    pub(super) mood: Mood,
}

impl Node {
    pub(super) fn new(parts: u32) -> Self {
        let spans = KeySpan::divide(parts).unwrap();
        let kept = |span| Kept { span, epoch: Epoch(1), successors: None, last: None, log: vec![] };
        Self { ranges: (1..).map(RangeId).zip(spans.into_iter().map(kept)).collect(), mood: Mood::Fine }
    }

    fn active(&self) -> Vec<RangeId> {
        self.ranges.iter().filter(|(_, k)| k.successors.is_none()).map(|(id, _)| *id).collect()
    }

    fn route(&self, id: RangeId) -> Route {
        Route { epoch: self.ranges[&id].epoch, ..route(id.0, self.ranges[&id].span) }
    }

    fn add(&mut self, span: KeySpan) -> RangeId {
        let id = RangeId(self.ranges.keys().map(|id| id.0).max().unwrap() + 1);
        self.ranges.insert(id, Kept { span, epoch: Epoch(1), successors: None, last: None, log: vec![] });
        id
    }

    /// Splits the active range of this number, or merges it with its buddy.
    pub(super) fn reshape(&mut self, pick: u64, split: bool) {
        let active = self.active();
        let id = active[usize::try_from(pick).unwrap() % active.len()];
        let span = self.ranges[&id].span;
        if split {
            let Some((low, high)) = span.halves() else { return };
            let children = vec![self.add(low), self.add(high)];
            self.ranges.get_mut(&id).unwrap().successors = Some(children);
        } else {
            let Some(buddy) = span.buddy() else { return };
            let Some(other) = active.iter().find(|a| self.ranges[a].span == buddy).copied() else { return };
            let parent = if span.first() < buddy.first() { span } else { buddy };
            let depth = span.depth() - 1;
            let child = self.add(KeySpan::new(parent.first(), depth).unwrap());
            for half in [id, other] {
                self.ranges.get_mut(&half).unwrap().successors = Some(vec![child]);
            }
        }
    }

    pub(super) fn fence(&mut self, pick: u64) {
        let active = self.active();
        let id = active[usize::try_from(pick).unwrap() % active.len()];
        let kept = self.ranges.get_mut(&id).unwrap();
        kept.epoch = kept.epoch.next();
    }

    pub(super) fn handle(&mut self, request: Request<'_>) -> Given {
        let now = |response| Given { response, later: false };
        match request {
            Request::Control(ControlRequest::OpenProducer { .. }) => {
                now(Response::Producer { producer: ProducerId(7), epoch: ProducerEpoch(1) })
            }
            Request::Control(ControlRequest::Routes { .. }) => {
                let routes = self.active().into_iter().map(|id| self.route(id)).collect();
                now(Response::Routes { topic: topic(), routes })
            }
            Request::Shard(ShardRequest::Settle { range, producer }) => match self.ranges.get(&range) {
                Some(Kept { successors: Some(_), last, .. }) => {
                    now(Response::Settled(ProducerSettled { producer, last: *last, doubtful: false }))
                }
                _ => now(Response::Refused(Refusal::NotPrimary { route: None })),
            },
            Request::Shard(ShardRequest::Produce { range, epoch, batch }) => match self.produce(range, epoch, batch) {
                Ok(stored) => Given { response: Response::Stored(stored), later: true },
                Err(refusal) => now(Response::Refused(refusal)),
            },
            other => panic!("not expected: {other:?}"),
        }
    }

    fn produce(&mut self, range: RangeId, epoch: Epoch, batch: &[u8]) -> Result<Stored, Refusal> {
        let kept = self.ranges.get(&range).ok_or(Refusal::UnknownRange)?;
        if let Some(successors) = &kept.successors {
            let successors = successors.iter().map(|id| self.route(*id)).collect();
            return Err(Refusal::Sealed { successors, last: kept.last });
        }
        match self.mood {
            Mood::Fine => {}
            Mood::Overloaded => return Err(Refusal::Overloaded { delay_ms: 20 }),
            Mood::Opening => return Err(Refusal::Opening { delay_ms: 5 }),
            Mood::StaleEpoch => return Err(Refusal::NotPrimary { route: None }),
        }
        if epoch != kept.epoch {
            return Err(Refusal::StaleEpoch { current: kept.epoch });
        }
        let batch = BatchRef::verify(batch, 1 << 20).expect("a batch that verifies");
        assert_eq!(batch.walk(kept.span), Ok(()), "records outside the range's span");
        let (stamp, records) = (batch.stamp(), batch.record_count());
        if Self::is_repeat(kept.last, &stamp)? {
            return Ok(Stored { records, repeat: true });
        }
        let kept = self.ranges.get_mut(&range).unwrap();
        kept.last = Some((stamp.epoch, stamp.run, stamp.sequence));
        kept.log.extend(batch.records().map(|r| r.unwrap()).map(|r| (r.key.hash(), r.value.unwrap().to_vec())));
        Ok(Stored { records, repeat: false })
    }

    fn is_repeat(last: Option<(ProducerEpoch, Run, Sequence)>, stamp: &Stamp) -> Result<bool, Refusal> {
        let Some((epoch, run, last)) = last else {
            return if stamp.sequence == Sequence(0) { Ok(false) } else { Err(Refusal::UnknownProducer) };
        };
        match (stamp.epoch, stamp.run).cmp(&(epoch, run)) {
            std::cmp::Ordering::Less => Err(Refusal::ProducerFenced { epoch, run }),
            std::cmp::Ordering::Greater if stamp.sequence == Sequence(0) => Ok(false),
            std::cmp::Ordering::Greater => Err(Refusal::OutOfOrder { expected: Sequence(0) }),
            std::cmp::Ordering::Equal if stamp.sequence <= last => Ok(true),
            std::cmp::Ordering::Equal if stamp.sequence == last.next() => Ok(false),
            std::cmp::Ordering::Equal => Err(Refusal::OutOfOrder { expected: last.next() }),
        }
    }

    /// All records in the order in which a reader of one hash gets them: ancestors have the smaller ids.
    pub(super) fn read(&self) -> Vec<(KeyHash, Vec<u8>)> {
        self.ranges.values().flat_map(|k| k.log.iter().cloned()).collect()
    }
}
