//! Lineage: each key belongs to one active range, a range that was said to be sealed stays so, at the same end and with the same
//! successors, takes no further record, and what a split or merge was said to have made is there in the end.

use std::collections::BTreeMap;

use sealog_engine::api::response::{RangeLineage, Route};
use sealog_engine::types::{KeySpan, Offset, RangeId};

use super::Violation;

/// What was told of one range.
#[derive(Default)]
struct Told {
    span: Option<KeySpan>,
    parents: Option<Vec<RangeId>>,
    /// Of a sealed range.
    successors: Option<Vec<RangeId>>,
    /// Where a sealed range ends, exclusive.
    end: Option<Offset>,
}

/// What the committed state has of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Empty while it is active.
    pub successors: Vec<RangeId>,
    /// Of its last sealed segment, exclusive.
    pub end: Offset,
}

/// The checker.
#[derive(Default)]
pub struct Lineage {
    /// Answers about ranges that had been told to be sealed, and answers about all ranges of a topic.
    pub checked: u64,
    /// Produce requests to ranges that had been told to be sealed.
    pub refused: u64,
    ranges: BTreeMap<RangeId, Told>,
}

impl Lineage {
    /// Whether anybody was told that a range is sealed.
    #[must_use]
    pub fn is_sealed(&self, range: RangeId) -> bool {
        self.ranges.get(&range).is_some_and(|told| told.successors.is_some())
    }

    /// A client was told which ranges of a topic are active.
    ///
    /// # Errors
    /// A key has none or two, or one of them is sealed.
    pub fn routes(&mut self, routes: &[Route]) -> Result<(), Violation> {
        self.checked += 1;
        let mut spans: Vec<(KeySpan, RangeId)> = routes.iter().map(|route| (route.span, route.range)).collect();
        spans.sort_by_key(|(span, _)| span.first());
        let begins = spans.first().is_some_and(|(span, _)| span.first() == KeySpan::ALL.first());
        let ends = spans.last().is_some_and(|(span, _)| span.last() == KeySpan::ALL.last());
        let meet = spans.windows(2).all(|pair| pair[0].0.last().0.checked_add(1) == Some(pair[1].0.first().0));
        if !(begins && ends && meet) {
            return Err(Violation::NoPartition { ranges: spans.into_iter().map(|(_, range)| range).collect() });
        }
        for (span, range) in spans {
            if self.is_sealed(range) {
                return Err(Violation::SealedIsActive { range });
            }
            self.span(range, span)?;
        }
        Ok(())
    }

    /// A client was told what ranges were made of and became.
    ///
    /// # Errors
    /// It was told otherwise before, or the spans do not add up.
    pub fn lineage(&mut self, ranges: &[RangeLineage]) -> Result<(), Violation> {
        for RangeLineage { route, parents, successors } in ranges {
            let range = route.range;
            self.span(range, route.span)?;
            let told = self.ranges.entry(range).or_default();
            if told.parents.get_or_insert_with(|| parents.clone()) != parents {
                return Err(Violation::LineageChanged { range });
            }
            if told.successors.is_some() && successors.is_empty() {
                return Err(Violation::SealedIsActive { range });
            }
            if !successors.is_empty() {
                self.sealed(range, successors.clone())?;
            }
            for parent in parents {
                self.born(*parent, range, route.span)?;
            }
        }
        Ok(())
    }

    /// Somebody was told that a range is sealed, and what took its place.
    ///
    /// # Errors
    /// It was told otherwise before.
    pub fn sealed(&mut self, range: RangeId, successors: Vec<RangeId>) -> Result<(), Violation> {
        let told = self.ranges.entry(range).or_default();
        self.checked += u64::from(told.successors.is_some());
        let was = told.successors.get_or_insert_with(|| successors.clone());
        if *was != successors { Err(Violation::LineageChanged { range }) } else { Ok(()) }
    }

    /// As [`sealed`](Self::sealed), with the spans of the successors.
    ///
    /// # Errors
    /// It was told otherwise before, or the spans do not add up.
    pub fn succeeded(&mut self, range: RangeId, successors: &[Route]) -> Result<(), Violation> {
        for route in successors {
            self.span(route.range, route.span)?;
            self.born(range, route.range, route.span)?;
        }
        self.sealed(range, successors.iter().map(|route| route.range).collect())
    }

    /// A range that was split or merged is one half or the double of what it was made of.
    fn born(&self, parent: RangeId, child: RangeId, span: KeySpan) -> Result<(), Violation> {
        let Some(of) = self.ranges.get(&parent).and_then(|told| told.span) else { return Ok(()) };
        let is_half =
            |half: KeySpan, whole: KeySpan| whole.halves().is_some_and(|(low, high)| half == low || half == high);
        if is_half(span, of) || is_half(of, span) { Ok(()) } else { Err(Violation::WrongSpan { range: child }) }
    }

    fn span(&mut self, range: RangeId, span: KeySpan) -> Result<(), Violation> {
        let told = self.ranges.entry(range).or_default();
        if *told.span.get_or_insert(span) == span { Ok(()) } else { Err(Violation::WrongSpan { range }) }
    }

    /// A range that is sealed gave all up to its end.
    ///
    /// # Errors
    /// It ended elsewhere before.
    pub fn end(&mut self, range: RangeId, end: Offset) -> Result<(), Violation> {
        let told = self.ranges.entry(range).or_default();
        self.checked += u64::from(told.end.is_some());
        let was = *told.end.get_or_insert(end);
        if was != end { Err(Violation::SealedEndMoved { range, end, was }) } else { Ok(()) }
    }

    /// A range gave records up to here.
    ///
    /// # Errors
    /// It is sealed below.
    pub fn gave(&mut self, range: RangeId, end: Offset) -> Result<(), Violation> {
        match self.ranges.get(&range).and_then(|told| told.end) {
            Some(was) if end > was => Err(Violation::SealedEndMoved { range, end, was }),
            Some(_) | None => Ok(()),
        }
    }

    /// A batch was answered that was sent to a range that had been told to be sealed by then.
    ///
    /// # Errors
    /// It was stored.
    pub fn sent_to_sealed(&mut self, range: RangeId, stored: bool) -> Result<(), Violation> {
        self.refused += 1;
        if stored { Err(Violation::SealedTook { range }) } else { Ok(()) }
    }

    /// Every range that was told to be sealed is, with the same end and successors, and each of those is there. `standing` is what the
    /// committed state has; `is_gone`: its topic is deleted. Returns how many there are.
    ///
    /// # Errors
    /// One is not.
    pub fn stands(
        &self,
        standing: impl Fn(RangeId) -> Option<Standing>,
        is_gone: impl Fn(RangeId) -> bool,
    ) -> Result<u64, Violation> {
        let mut count = 0;
        for (range, told) in self.ranges.iter().filter(|(range, _)| !is_gone(**range)) {
            let Some(found) = standing(*range) else { return Err(Violation::ReshapeUndone { range: *range }) };
            let Some(successors) = &told.successors else { continue };
            count += 1;
            if found.successors != *successors || told.end.is_some_and(|end| end != found.end) {
                return Err(Violation::ReshapeUndone { range: *range });
            }
            if let Some(missing) = successors.iter().find(|successor| standing(**successor).is_none()) {
                return Err(Violation::ReshapeUndone { range: *missing });
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use sealog_engine::types::{Epoch, NodeId, ShardId};

    use super::*;

    fn route(range: u64, span: KeySpan) -> Route {
        Route { range: RangeId(range), span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) }
    }

    fn split() -> (Lineage, [Route; 2]) {
        let (low, high) = KeySpan::ALL.halves().unwrap();
        let children = [route(2, low), route(3, high)];
        let mut lineage = Lineage::default();
        lineage.routes(&[route(1, KeySpan::ALL)]).unwrap();
        lineage.succeeded(RangeId(1), &children).unwrap();
        (lineage, children)
    }

    #[test]
    fn routes_hold_each_key_once_and_no_sealed_range() {
        let (mut lineage, [low, high]) = split();
        assert!(lineage.routes(&[high, low]).is_ok());
        assert!(matches!(lineage.routes(&[low]), Err(Violation::NoPartition { .. })));
        assert!(matches!(lineage.routes(&[low, low, high]), Err(Violation::NoPartition { .. })));
        assert!(matches!(lineage.routes(&[route(1, KeySpan::ALL)]), Err(Violation::SealedIsActive { .. })));
    }

    #[test]
    fn what_took_a_place_and_where_it_ended_never_changes() {
        let (mut lineage, [low, high]) = split();
        let range = RangeId(1);
        assert!(lineage.succeeded(range, &[low, high]).is_ok());
        assert!(matches!(lineage.succeeded(range, &[low]), Err(Violation::LineageChanged { .. })));
        assert!(lineage.end(range, Offset(7)).is_ok() && lineage.gave(range, Offset(7)).is_ok());
        assert!(matches!(lineage.end(range, Offset(6)), Err(Violation::SealedEndMoved { .. })));
        assert!(matches!(lineage.gave(range, Offset(8)), Err(Violation::SealedEndMoved { .. })));
        assert!(matches!(lineage.sent_to_sealed(range, true), Err(Violation::SealedTook { .. })));
        let active = RangeLineage { route: route(1, KeySpan::ALL), parents: Vec::new(), successors: Vec::new() };
        assert!(matches!(lineage.lineage(&[active]), Err(Violation::SealedIsActive { .. })));
    }

    #[test]
    fn what_was_said_to_be_made_must_be_there_in_the_end_unless_its_topic_is_gone() {
        let (lineage, _) = split();
        let is_parent = |range| range == RangeId(1);
        let whole = |range| {
            let successors = if is_parent(range) { vec![RangeId(2), RangeId(3)] } else { Vec::new() };
            Some(Standing { successors, end: Offset(7) })
        };
        assert_eq!(lineage.stands(whole, |_| false).unwrap(), 1);
        let undone = |_| Some(Standing { successors: Vec::new(), end: Offset(7) });
        assert!(matches!(lineage.stands(undone, |_| false), Err(Violation::ReshapeUndone { .. })));
        let childless = |range| whole(range).filter(|_| is_parent(range));
        assert!(matches!(lineage.stands(childless, |_| false), Err(Violation::ReshapeUndone { .. })));
        assert_eq!(lineage.stands(|_| None, |_| true).unwrap(), 0);
    }
}
