//! From a key hash to the range that takes it.
//!
//! ```text
//! routes as last told   | A            | C      | D      |
//! held back             |      |  P             |        |      P is sealed and not yet settled: its keys wait there
//! table                 | A    |  P             | D      |
//! ```
//! **Invariant**: the table holds each hash exactly once, or is empty: no routes are known yet.

use sealog_engine::api::response::Route;
use sealog_engine::types::{KeyHash, KeySpan, RangeId};

use super::cursor::is_partition;

/// The routes of a topic, and the table made of them. `slot` is whatever the owner counts its ranges by.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    /// Active ranges, ascending by span, a partition.
    routes: Vec<Route>,
    /// First hash of each part, ascending, with the slot that takes it.
    firsts: Vec<u64>,
    slots: Vec<usize>,
}

impl Routing {
    /// Takes all routes of a topic. `false` if they are no partition of the keyspace, and nothing is changed.
    pub(crate) fn replace(&mut self, mut routes: Vec<Route>) -> bool {
        routes.sort_by_key(|r| r.span.first());
        if !is_partition(routes.iter().map(|r| r.span)) {
            return false;
        }
        self.routes = routes;
        true
    }

    /// Takes some routes that are newer than what is known: they take the place of all that their spans touch. `false` if what
    /// results is no partition (a part of the keyspace is not covered any more), and nothing is changed.
    pub(crate) fn update(&mut self, newer: &[Route]) -> bool {
        let touches = |a: KeySpan, b: KeySpan| a.covers(b) || b.covers(a);
        let stays = |r: &&Route| newer.iter().all(|n| !touches(r.span, n.span));
        let routes = self.routes.iter().filter(stays).chain(newer).copied().collect();
        self.replace(routes)
    }

    /// The route of an active range.
    pub(crate) fn route(&self, range: RangeId) -> Option<&Route> {
        self.routes.iter().find(|r| r.range == range)
    }

    /// The active ranges.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Makes the table anew: `slot_of` gives each active range's slot; the spans in `held` stay with the slots there.
    pub(crate) fn rebuild(&mut self, slot_of: impl Fn(RangeId) -> usize, held: &[(KeySpan, usize)]) {
        let mut parts: Vec<(u64, usize)> = self.routes.iter().map(|r| (r.span.first().0, slot_of(r.range))).collect();
        for (span, slot) in held {
            let (first, last) = (span.first().0, span.last().0);
            // What begins behind the span goes on as it was.
            if let Some(next) = last.checked_add(1)
                && let Some(before) = parts.iter().rfind(|p| p.0 <= next).copied()
            {
                parts.push((next, before.1));
            }
            parts.retain(|p| p.0 < first || p.0 > last);
            parts.push((first, *slot));
            parts.sort_by_key(|p| p.0);
            parts.dedup_by_key(|p| p.0);
        }
        parts.sort_by_key(|p| p.0);
        self.firsts = parts.iter().map(|p| p.0).collect();
        self.slots = parts.iter().map(|p| p.1).collect();
    }

    /// The slot that takes a hash; `None` before any routes are known.
    #[inline]
    pub(crate) fn slot(&self, hash: KeyHash) -> Option<usize> {
        let behind = self.firsts.partition_point(|f| *f <= hash.0);
        behind.checked_sub(1).map(|at| self.slots[at])
    }
}

#[cfg(test)]
mod tests {
    use sealog_engine::types::{Epoch, NodeId, ShardId};

    use super::*;

    fn route(range: u64, span: KeySpan) -> Route {
        Route { range: RangeId(range), span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) }
    }

    fn slot_of(range: RangeId) -> usize {
        usize::try_from(range.0).unwrap()
    }

    fn quarters() -> (Routing, Vec<KeySpan>) {
        let spans = KeySpan::divide(4).unwrap();
        let mut routing = Routing::default();
        assert!(routing.replace(spans.iter().zip(1..).map(|(s, i)| route(i, *s)).collect()));
        routing.rebuild(slot_of, &[]);
        (routing, spans)
    }

    fn slots(routing: &Routing, spans: &[KeySpan]) -> Vec<usize> {
        spans.iter().flat_map(|s| [s.first(), s.last()]).map(|h| routing.slot(h).unwrap()).collect()
    }

    #[test]
    fn each_hash_goes_to_the_range_of_its_span() {
        let (routing, spans) = quarters();
        assert_eq!(slots(&routing, &spans), [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(Routing::default().slot(KeyHash(0)), None);
    }

    #[test]
    fn routes_with_a_gap_are_not_taken() {
        let (mut routing, spans) = quarters();
        assert!(!routing.replace(vec![route(9, spans[0])]));
        assert!(!routing.update(&[route(9, spans[1].halves().unwrap().0)]));
        routing.rebuild(slot_of, &[]);
        assert_eq!(slots(&routing, &spans), [1, 1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn the_children_of_a_split_take_the_place_of_their_parent() {
        let (mut routing, spans) = quarters();
        let (low, high) = spans[1].halves().unwrap();
        assert!(routing.update(&[route(8, low), route(9, high)]));
        routing.rebuild(slot_of, &[]);
        assert_eq!(slots(&routing, &[spans[0], low, high, spans[2]]), [1, 1, 8, 8, 9, 9, 3, 3]);
        assert!(routing.route(RangeId(2)).is_none() && routing.route(RangeId(8)).is_some());
    }

    #[test]
    fn a_merged_range_takes_both_places_but_what_is_held_stays() {
        let (mut routing, spans) = quarters();
        let upper = KeySpan::ALL.halves().unwrap().1;
        assert!(routing.update(&[route(7, upper)]));
        routing.rebuild(slot_of, &[(spans[2], 3)]);
        assert_eq!(slots(&routing, &spans), [1, 1, 2, 2, 3, 3, 7, 7]);
        routing.rebuild(slot_of, &[(spans[3], 4)]);
        assert_eq!(slots(&routing, &spans), [1, 1, 2, 2, 7, 7, 4, 4]);
        routing.rebuild(slot_of, &[(KeySpan::ALL, 5)]);
        assert_eq!(slots(&routing, &spans), [5; 8]);
    }
}
