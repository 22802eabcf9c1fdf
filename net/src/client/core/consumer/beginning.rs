//! What a consumer learns before it reads: where to begin, and where to stop.
//!
//! ```text
//!   routes --> active ranges --> the bounds of each: where to stop, and where to begin if that is there
//!          \-> lineage, page by page --> ranges without parents --> the bounds of each: where to begin
//! ```
//! The lineage is asked for by who begins at the earliest record or at a time: a range that was split or merged keeps its records, and
//! every record of its keys in what took its place is newer.
//!
//! **Invariants**: a topic never gets another range without parents, so that what is learnt page by page fits together, whatever is split or
//! merged meanwhile; of a page only those are kept; a range that was active when the routes came counts as active at the start, also if
//! it is sealed when its bounds are asked for.

use std::collections::{BTreeMap, BTreeSet};

use sealog_engine::api::request::{ControlRequest, ShardRequest};
use sealog_engine::api::response::{RangeLineage, TopicView};
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{KeySpan, Now, Offset, RangeId};

use super::answers::ASK_AGAIN_MS;
use super::parts::Part;
use super::{Ask, Consumer, End, Event, Start, TAG_BOUNDS, TAG_LINEAGE};
use crate::client::core::cursor::is_partition;
use crate::client::core::links::{LinkId, Links};
use crate::wire::frame::BodyError;
use crate::wire::{client, control};

/// What is learnt of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bounded {
    span: KeySpan,
    link: LinkId,
    ask: Ask,
    bounds: Option<(Offset, Offset)>,
    /// It was active when the routes came.
    active: bool,
    /// Reading begins here.
    begins: bool,
}

/// The question for the lineage.
#[derive(Debug)]
struct Lineage {
    ask: Ask,
    /// Ranges up to this one, inclusive, are known.
    after: RangeId,
    /// Those without parents.
    oldest: BTreeMap<RangeId, KeySpan>,
    /// Active ranges that no page has named yet.
    missing: BTreeSet<RangeId>,
}

/// What is to be known before reading begins; of it then the ends to stop at.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    bounded: BTreeMap<RangeId, Bounded>,
    /// Until it has come to its end.
    lineage: Option<Lineage>,
}

impl Beginning {
    /// A connection is gone, and all answers that were awaited over it.
    pub(super) fn lost(&mut self, now: Now, link: LinkId) {
        for bounded in self.bounded.values_mut().filter(|bounded| bounded.link == link) {
            bounded.ask.lost(now);
        }
        if let Some(lineage) = self.lineage.as_mut().filter(|_| link == Links::FIRST) {
            lineage.ask.lost(now);
        }
    }

    /// All questions.
    pub(super) fn asks(&self) -> impl Iterator<Item = Ask> {
        self.bounded.values().map(|bounded| bounded.ask).chain(self.lineage.iter().map(|lineage| lineage.ask))
    }

    pub(super) fn bounds_again(&mut self, range: RangeId, at_ns: u64) {
        if let Some(bounded) = self.bounded.get_mut(&range) {
            bounded.ask = Ask::Due { at_ns };
        }
    }

    pub(super) fn lineage_again(&mut self, at_ns: u64) {
        if let Some(lineage) = &mut self.lineage {
            lineage.ask = Ask::Due { at_ns };
        }
    }

    /// The end that a range had at the start, exclusive, if it was active then.
    pub(super) fn end_of(&self, range: RangeId) -> Option<Offset> {
        let bounded = self.bounded.get(&range).filter(|bounded| bounded.active)?;
        bounded.bounds.map(|(_, end)| end)
    }

    /// Where reading of a range begins, inclusive, as was learnt at the start.
    fn start_of(&self, range: RangeId) -> Option<Offset> {
        self.bounded.get(&range).and_then(|bounded| bounded.bounds).map(|(start, _)| start)
    }

    fn is_complete(&self) -> bool {
        self.lineage.is_none() && self.bounded.values().all(|bounded| bounded.bounds.is_some())
    }

    /// The places of the ranges in which reading begins, ascending by span.
    fn places(&self, latest: bool) -> Vec<(KeySpan, RangeId, Offset)> {
        let place = |(range, bounded): (&RangeId, &Bounded)| {
            let (start, end) = bounded.bounds.expect("all bounds have come");
            (bounded.span, *range, if latest { end } else { start })
        };
        let mut places: Vec<_> = self.bounded.iter().filter(|(_, bounded)| bounded.begins).map(place).collect();
        places.sort_by_key(|(span, ..)| span.first());
        places
    }
}

impl Consumer {
    /// Routes are known for the first time: learns what must be learnt before reading begins.
    pub(super) fn prepare(&mut self, now: Now) {
        let due = Ask::Due { at_ns: now.monotonic_ns };
        let from_cursor = matches!(self.settings.start, Start::Cursor(_));
        if self.settings.end == End::Committed || !from_cursor {
            let begins = self.settings.start == Start::Latest;
            for route in self.routing.routes().to_vec() {
                let link = self.links.for_shard(route.node, route.shard);
                let bounded = Bounded { span: route.span, link, ask: due, bounds: None, active: true, begins };
                self.beginning.bounded.insert(route.range, bounded);
            }
        }
        if matches!(self.settings.start, Start::Earliest | Start::Time(_)) {
            let missing = self.beginning.bounded.keys().copied().collect();
            let (after, oldest) = (RangeId::default(), BTreeMap::new());
            self.beginning.lineage = Some(Lineage { ask: due, after, oldest, missing });
        }
        self.ask(now);
        self.begin_if_complete(now);
    }

    /// Sends the questions that are due.
    pub(super) fn ask_before_reading(&mut self, now: Now) {
        if let Some(lineage) = self.beginning.lineage.as_mut().filter(|lineage| lineage.ask.is_due(now))
            && self.links.is_up(Links::FIRST)
        {
            lineage.ask = Ask::Asked;
            let request = ControlRequest::Lineage { topic: self.settings.topic.clone(), after: lineage.after };
            let correlation = TAG_LINEAGE | lineage.after.0;
            control::append_request(self.links.outbound(Links::FIRST), correlation, 0, &request);
        }
        for (range, bounded) in &mut self.beginning.bounded {
            if bounded.ask.is_due(now) && self.links.is_up(bounded.link) {
                bounded.ask = Ask::Asked;
                let request = match self.settings.start {
                    Start::Time(timestamp_ms) => ShardRequest::Since { range: *range, timestamp_ms },
                    Start::Earliest | Start::Latest | Start::Cursor(_) => ShardRequest::Bounds { range: *range },
                };
                client::append_request(self.links.outbound(bounded.link), TAG_BOUNDS | range.0, 0, &request);
            }
        }
    }

    pub(super) fn bounds_are(&mut self, now: Now, range: RangeId, start: Offset, end: Offset) {
        if self.ready || self.ended {
            return;
        }
        if let Some(bounded) = self.beginning.bounded.get_mut(&range) {
            bounded.ask = Ask::Idle;
            bounded.bounds = Some((start, end));
        }
        self.begin_if_complete(now);
    }

    /// A page of the lineage: the ranges above `after`.
    pub(super) fn lineage_is(
        &mut self,
        now: Now,
        after: RangeId,
        ranges: &[RangeLineage],
        more: bool,
    ) -> Result<(), BodyError> {
        let asked = |lineage: &&mut Lineage| lineage.ask == Ask::Asked && lineage.after == after;
        let Some(lineage) = self.beginning.lineage.as_mut().filter(asked) else { return Ok(()) };
        if !ranges.is_sorted_by_key(|range| range.route.range) || ranges.iter().any(|r| r.route.range <= after) {
            return Err(BodyError::Value { field: "lineage.ranges" });
        }
        for range in ranges {
            lineage.missing.remove(&range.route.range);
            if range.parents.is_empty() {
                lineage.oldest.insert(range.route.range, range.route.span);
            }
        }
        if let Some(last) = ranges.last().filter(|_| more) {
            lineage.after = last.route.range;
            lineage.ask = Ask::Due { at_ns: now.monotonic_ns };
            self.ask(now);
            return Ok(());
        }
        if !lineage.missing.is_empty() {
            // This is the lineage of another topic that has the name since: the routes tell.
            let at_ns = now.monotonic_ns + ASK_AGAIN_MS * MILLISECOND_NS;
            lineage.after = RangeId::default();
            lineage.oldest.clear();
            lineage.ask = Ask::Due { at_ns };
            self.next_check_ns = self.next_check_ns.min(at_ns);
            self.want_routes(now.monotonic_ns);
            self.ask(now);
            return Ok(());
        }
        let oldest = std::mem::take(&mut lineage.oldest);
        self.begin_at(now, oldest)
    }

    /// The lineage is known, and with it the ranges to begin at.
    fn begin_at(&mut self, now: Now, oldest: BTreeMap<RangeId, KeySpan>) -> Result<(), BodyError> {
        let mut spans: Vec<KeySpan> = oldest.values().copied().collect();
        spans.sort_by_key(|span| span.first());
        if !is_partition(spans) {
            return Err(BodyError::Value { field: "lineage.ranges" });
        }
        self.beginning.lineage = None;
        for (range, span) in oldest {
            let ask = Ask::Due { at_ns: now.monotonic_ns };
            // Of a range that is not active the node itself knows best where it is.
            let unknown = Bounded { span, link: Links::FIRST, ask, bounds: None, active: false, begins: true };
            self.beginning.bounded.entry(range).or_insert(unknown).begins = true;
        }
        self.ask(now);
        self.begin_if_complete(now);
        Ok(())
    }

    /// Once everything is known reading begins.
    fn begin_if_complete(&mut self, now: Now) {
        let (Some(welcome), Some(TopicView { topic, .. })) = (self.links.welcome(), &self.topic) else { return };
        if !self.beginning.is_complete() {
            return;
        }
        let places = match &self.settings.start {
            Start::Cursor(cursor) => {
                if let Err(error) = cursor.belongs_to(welcome.cluster, *topic) {
                    self.events.push_back(Event::BadCursor(error));
                    return;
                }
                cursor.entries().iter().map(|e| (e.span, e.range, e.next)).collect()
            }
            start @ (Start::Earliest | Start::Latest | Start::Time(_)) => {
                self.beginning.places(*start == Start::Latest)
            }
        };
        let from_ms = match self.settings.start {
            Start::Time(ms) => Some(ms),
            Start::Earliest | Start::Latest | Start::Cursor(_) => None,
        };
        self.parts = places
            .into_iter()
            .map(|(span, range, next)| {
                let part = self.new_part(span, range, next, self.stop_of(range));
                Part { from_ms, sought: true, ..part }
            })
            .collect();
        self.ready = true;
        self.events.push_back(Event::Ready);
        self.fetch_all(now);
    }

    /// A part that takes the place of others, at the beginning of its range or, if none of them has met a record that is not earlier
    /// than `from_ms`, where such records begin.
    pub(super) fn following_part(&mut self, span: KeySpan, range: RangeId, from_ms: Option<u64>) -> Part {
        // A time was looked for at the start in what was active then.
        let known = from_ms.and_then(|_| self.beginning.start_of(range));
        let part = self.new_part(span, range, known.unwrap_or_default(), self.stop_of(range));
        Part { from_ms, sought: known.is_some(), ..part }
    }
}
