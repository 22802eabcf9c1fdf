//! A node that holds ranges as lists of entries, and answers routes, lineage, bounds, times and fetches.

use std::collections::BTreeMap;

use sealog_engine::api::error::Refusal;
use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};
use sealog_engine::api::response::{Fetched, Gap, GapCause, RangeLineage, Response, Route, TopicView};
use sealog_engine::format::batch::{BatchRef, Place, Stamp, entry_length, place};
use sealog_engine::format::entry::SegmentSeed;
use sealog_engine::format::record::RecordKey;
use sealog_engine::format::{BatchBuilder, Digest};
use sealog_engine::types::{ClusterId, Epoch, KeySpan, NodeId, Offset, RangeId, SegmentId, ShardId, TopicId};

use crate::session::{self, Inbound, SessionLimits};
use crate::wire::{Decoded, Kind, Welcome, decode};

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

#[derive(Clone)]
enum Piece {
    Entry { from: Offset, to: Offset, bytes: Vec<u8>, timestamp_ms: u64 },
    Gap(Gap),
}

impl Piece {
    fn to(&self) -> Offset {
        match self {
            Self::Entry { to, .. } => *to,
            Self::Gap(gap) => gap.to,
        }
    }
}

#[derive(Clone)]
struct Kept {
    span: KeySpan,
    start: Offset,
    end: Offset,
    pieces: Vec<Piece>,
    successors: Option<Vec<RangeId>>,
}

impl Kept {
    /// In the middle of what is earlier: where it begins exactly is the consumer's work.
    fn since(&self, earliest_ms: u64) -> Offset {
        let late = |piece: &&Piece| matches!(piece, Piece::Entry { timestamp_ms, .. } if *timestamp_ms >= earliest_ms);
        let from = match self.pieces.iter().find(late) {
            Some(Piece::Entry { from, .. }) => *from,
            Some(Piece::Gap(_)) | None => self.end,
        };
        Offset((from.0 / 2).max(self.start.0))
    }
}

#[derive(Clone, Default)]
pub(super) struct Node {
    ranges: BTreeMap<RangeId, Kept>,
    /// Fetches to be answered with a flipped bit.
    pub(super) damage: u32,
    /// Refusals for the next fetches.
    pub(super) refusals: Vec<Refusal>,
    /// Refusals for the next questions for bounds.
    pub(super) bounds_refusals: Vec<Refusal>,
    /// Refusals for the next questions for the lineage.
    pub(super) lineage_refusals: Vec<Refusal>,
    /// Refusals for the next questions for a time.
    pub(super) since_refusals: Vec<Refusal>,
    /// Ranges in one page of the lineage; 0: all.
    pub(super) lineage_max: usize,
    /// The ids behind which a page of the lineage was asked for.
    pub(super) pages: Vec<u64>,
    /// The fetches that were answered: range and offset.
    pub(super) fetched: Vec<(u64, u64)>,
    pub(super) silent: bool,
    /// Ranges that were made of others, and were sealed, say nothing about a time: they are asked only once reading has begun.
    pub(super) since_silent: bool,
    /// The topic is deleted; with its id, another has its name now.
    pub(super) deleted: Option<Option<TopicId>>,
    /// Pieces that one fetch gives at most; 0: all.
    pub(super) pieces_max: usize,
}

impl Node {
    pub(super) fn add_range(&mut self, id: u64, span: KeySpan) {
        let kept = Kept { span, start: Offset(0), end: Offset(0), pieces: vec![], successors: None };
        assert!(self.ranges.insert(RangeId(id), kept).is_none());
    }

    pub(super) fn seal(&mut self, id: u64, successors: &[u64]) {
        let successors = successors.iter().copied().map(RangeId).collect();
        self.ranges.get_mut(&RangeId(id)).unwrap().successors = Some(successors);
    }

    pub(super) fn active(&self) -> Vec<(u64, KeySpan)> {
        self.ranges.iter().filter(|(_, k)| k.successors.is_none()).map(|(id, k)| (id.0, k.span)).collect()
    }

    /// Appends a batch of records whose keys are their values; without a key where that does not belong to the range.
    pub(super) fn append(&mut self, id: u64, values: &[&str]) {
        let records: Vec<(&str, &str)> = values.iter().map(|v| (*v, *v)).collect();
        self.append_keyed(id, &records);
    }

    /// Appends a batch of records: key and value.
    pub(super) fn append_keyed(&mut self, id: u64, records: &[(&str, &str)]) {
        self.append_at(id, records, 1);
    }

    /// Appends a batch of records, key and value, of this time in ms.
    pub(super) fn append_at(&mut self, id: u64, records: &[(&str, &str)], timestamp_ms: u64) {
        let kept = self.ranges.get_mut(&RangeId(id)).unwrap();
        let mut builder = BatchBuilder::new(1 << 20);
        for (key, value) in records {
            let key = Some(RecordKey::Key(key.as_bytes())).filter(|k| kept.span.contains(k.hash()));
            let key = key.unwrap_or_else(|| RecordKey::Keyless(kept.span.first()));
            builder.push(key, Some(value.as_bytes()), &[], timestamp_ms).unwrap();
        }
        let batch = BatchRef::verify(builder.finish(Stamp::default()), 1 << 20).unwrap();
        let mut bytes = vec![0; entry_length(batch.bytes().len())];
        let at = Place { segment: SegmentId(1), offset: kept.end, epoch: Epoch(1), append_time_ms: 0 };
        place(&mut bytes, SegmentSeed::new(SegmentId(1), 1), at, Digest::default(), batch);
        let to = kept.end.plus(u64::from(batch.record_count()));
        kept.pieces.push(Piece::Entry { from: kept.end, to, bytes, timestamp_ms });
        kept.end = to;
    }

    pub(super) fn add_gap(&mut self, id: u64, offsets: u64, cause: GapCause) {
        let kept = self.ranges.get_mut(&RangeId(id)).unwrap();
        let to = kept.end.plus(offsets);
        kept.pieces.push(Piece::Gap(Gap { from: kept.end, to, records_at_most: offsets, cause }));
        kept.end = to;
    }

    pub(super) fn trim(&mut self, id: u64, start: u64) {
        self.ranges.get_mut(&RangeId(id)).unwrap().start = Offset(start);
    }

    fn route(&self, id: RangeId) -> Route {
        let span = self.ranges[&id].span;
        Route { range: id, span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) }
    }

    pub(super) fn answer(&mut self, requests: &[u8], out: &mut Vec<u8>) {
        let limits = SessionLimits { batch_bytes_max: 1 << 20, fetch_bytes_max: 1 << 20, connection_bytes_max: 1 };
        let mut rest = requests;
        while let Ok(Decoded::Frame { frame, length }) = decode(rest, u32::MAX) {
            rest = &rest[length..];
            if self.silent || frame.kind == Kind::Hello.number() {
                continue;
            }
            let Ok(Inbound::Request(request)) = session::read(&frame, &limits) else { panic!("a request") };
            if let Some(response) = self.respond(request) {
                session::append(out, frame.correlation, &response);
            }
        }
    }

    fn respond(&mut self, request: Request<'_>) -> Option<Response> {
        Some(match request {
            Request::Control(ControlRequest::Routes { .. }) if self.deleted == Some(None) => {
                Response::Refused(Refusal::UnknownTopic)
            }
            Request::Shard(_) if self.deleted.is_some() => Response::Refused(Refusal::UnknownRange),
            Request::Control(ControlRequest::Routes { .. }) => Response::Routes {
                topic: TopicView {
                    topic: self.deleted.flatten().unwrap_or(TopicId(1)),
                    name: "topic".into(),
                    ranges: 1,
                    keyspace_version: 1,
                    batch_bytes_max: 1 << 20,
                    auto_split: None,
                },
                routes: self.active().into_iter().map(|(id, _)| self.route(RangeId(id))).collect(),
            },
            Request::Shard(ShardRequest::Bounds { .. }) if !self.bounds_refusals.is_empty() => {
                Response::Refused(self.bounds_refusals.pop().expect("just seen"))
            }
            Request::Shard(ShardRequest::Bounds { range }) => {
                let kept = &self.ranges[&range];
                Response::Bounds { start: kept.start, end: kept.end }
            }
            Request::Shard(ShardRequest::Since { range, .. })
                if self.since_silent && self.ranges[&range].successors.is_some() && !self.parents(range).is_empty() =>
            {
                return None;
            }
            Request::Shard(ShardRequest::Since { .. }) if !self.since_refusals.is_empty() => {
                Response::Refused(self.since_refusals.pop().expect("just seen"))
            }
            Request::Shard(ShardRequest::Since { range, timestamp_ms }) => {
                let kept = &self.ranges[&range];
                Response::Bounds { start: kept.since(timestamp_ms), end: kept.end }
            }
            Request::Control(ControlRequest::Lineage { .. }) if self.deleted == Some(None) => {
                Response::Refused(Refusal::UnknownTopic)
            }
            Request::Control(ControlRequest::Lineage { .. }) if !self.lineage_refusals.is_empty() => {
                Response::Refused(self.lineage_refusals.pop().expect("just seen"))
            }
            Request::Control(ControlRequest::Lineage { after, .. }) => self.lineage(after),
            Request::Shard(ShardRequest::Fetch { range, offset, .. }) => self.fetch(range, offset),
            other => panic!("not expected: {other:?}"),
        })
    }

    fn lineage(&mut self, after: RangeId) -> Response {
        self.pages.push(after.0);
        let most = if self.lineage_max == 0 { usize::MAX } else { self.lineage_max };
        let lineage = |(id, kept): (&RangeId, &Kept)| RangeLineage {
            route: self.route(*id),
            parents: self.parents(*id),
            successors: kept.successors.clone().unwrap_or_default(),
        };
        let mut above = self.ranges.iter().filter(|(id, _)| **id > after);
        let ranges = above.by_ref().take(most).map(lineage).collect();
        Response::Lineage { ranges, more: above.next().is_some() }
    }

    fn parents(&self, child: RangeId) -> Vec<RangeId> {
        let is_parent = |kept: &Kept| kept.successors.iter().flatten().any(|successor| *successor == child);
        self.ranges.iter().filter(|(_, kept)| is_parent(kept)).map(|(id, _)| *id).collect()
    }

    fn fetch(&mut self, range: RangeId, offset: Offset) -> Response {
        if let Some(refusal) = self.refusals.pop() {
            return Response::Refused(refusal);
        }
        let kept = &self.ranges[&range];
        if offset < kept.start {
            return Response::Refused(Refusal::Expired { resume: kept.start });
        }
        assert!(offset <= kept.end, "a fetch beyond the end");
        self.fetched.push((range.0, offset.0));
        let mut fetched = Fetched { entries: vec![], next: offset, end: kept.end, gaps: vec![], successors: None };
        let most = if self.pieces_max == 0 { usize::MAX } else { self.pieces_max };
        for piece in kept.pieces.iter().filter(|p| p.to() > offset).take(most) {
            fetched.next = piece.to();
            match piece {
                Piece::Entry { from, bytes, .. } => {
                    assert!(*from < fetched.next);
                    fetched.entries.extend_from_slice(bytes);
                }
                Piece::Gap(gap) => fetched.gaps.push(*gap),
            }
        }
        if let Some(successors) = &kept.successors
            && fetched.next == kept.end
        {
            fetched.successors = Some(successors.iter().map(|id| self.route(*id)).collect());
        }
        if self.damage > 0 && !fetched.entries.is_empty() {
            self.damage -= 1;
            let last = fetched.entries.len() - 12;
            fetched.entries[last] ^= 1;
        }
        Response::Fetched(fetched)
    }
}
