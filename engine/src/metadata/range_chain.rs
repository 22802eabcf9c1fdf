//! The segments of a range, in order, and the rules that keep them a chain.
//!
//! ```text
//!  start         end of a = base of b                end
//!    |  sealed a         |  sealed b                  |  open c ...      |  prepared d (no base yet)
//! ```
//! Invariants: bases ascend without a gap from `start`; a sealed segment holds at least one offset (an empty one is dropped); at
//! most one is open, and it begins at the end; at most one is prepared, only behind an open one, in the same epoch; segment
//! ids ascend; epochs never fall, but for the second segment of a tail, which keeps the epoch of its opening while the first is
//! sealed in a later one.

use thiserror::Error;

use super::codec::fields;
use crate::replica::message::{SealedSegment, SegmentOpen, Span};
use crate::types::{Epoch, Offset, SegmentId};

/// A range's segments.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RangeChain {
    /// Base of the first segment that is left, inclusive.
    start: Offset,
    sealed: Vec<SealedSegment>,
    open: Option<SegmentOpen>,
    prepared: Option<SegmentOpen>,
}

/// Why a change does not fit the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Misfit {
    #[error("{segment} is not the open segment")]
    NotOpen { segment: SegmentId },
    #[error("{segment} is open already")]
    AlreadyOpen { segment: SegmentId },
    #[error("{segment} is prepared already")]
    AlreadyPrepared { segment: SegmentId },
    #[error("{segment} is not sealed")]
    NotSealed { segment: SegmentId },
    #[error("{segment} is not the prepared successor")]
    NotPrepared { segment: SegmentId },
    #[error("its base is not {expected:?}")]
    Base { expected: Option<Offset> },
    #[error("its predecessor is not {expected:?}")]
    Predecessor { expected: Option<SegmentId> },
    #[error("its end {end} is below its base {base}")]
    End { base: Offset, end: Offset },
    #[error("hole {index} is empty, out of order or outside the segment")]
    Hole { index: usize },
    #[error("its epoch is below {least}")]
    Epoch { least: Epoch },
}

/// What a refused change must put back: all that a step can alter but the sealed segments below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    sealed: usize,
    open: Option<SegmentOpen>,
    prepared: Option<SegmentOpen>,
}

fields!(RangeChain { start, sealed, open, prepared });

impl RangeChain {
    /// Where the sealed part ends, exclusive: the base of the open segment, or of the next.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.sealed.last().map_or(self.start, |last| last.end)
    }

    /// Base of the first segment that is left, inclusive.
    #[must_use]
    pub fn start(&self) -> Offset {
        self.start
    }

    /// Sealed segments, in order of their bases.
    #[must_use]
    pub fn sealed(&self) -> &[SealedSegment] {
        &self.sealed
    }

    /// The open segment; its base is known.
    #[must_use]
    pub fn open(&self) -> Option<&SegmentOpen> {
        self.open.as_ref()
    }

    /// The prepared successor of the open segment.
    #[must_use]
    pub fn prepared(&self) -> Option<&SegmentOpen> {
        self.prepared.as_ref()
    }

    /// The sealed segment of this id.
    #[must_use]
    pub fn find_sealed(&self, segment: SegmentId) -> Option<&SealedSegment> {
        self.sealed.binary_search_by_key(&segment, |sealed| sealed.segment).ok().map(|at| &self.sealed[at])
    }

    /// The last sealed segment: what the next one names as its predecessor.
    #[must_use]
    pub fn last_sealed(&self) -> Option<SegmentId> {
        self.sealed.last().map(|last| last.segment)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { sealed: self.sealed.len(), open: self.open, prepared: self.prepared }
    }

    /// Undoes every step since the mark was taken.
    pub(super) fn restore(&mut self, mark: Mark) {
        self.sealed.truncate(mark.sealed);
        self.open = mark.open;
        self.prepared = mark.prepared;
    }

    pub(super) fn open_next(&mut self, open: SegmentOpen) -> Result<(), Misfit> {
        if let Some(other) = &self.open {
            return Err(Misfit::AlreadyOpen { segment: other.segment });
        }
        let (base, predecessor) = (Some(self.end()), self.last_sealed());
        if open.base != base {
            return Err(Misfit::Base { expected: base });
        }
        if open.predecessor != predecessor {
            return Err(Misfit::Predecessor { expected: predecessor });
        }
        if let Some(last) = self.sealed.last().filter(|last| last.epoch > open.epoch) {
            return Err(Misfit::Epoch { least: last.epoch });
        }
        self.open = Some(open);
        Ok(())
    }

    pub(super) fn prepare(&mut self, after: SegmentId, open: SegmentOpen) -> Result<(), Misfit> {
        let first = self.open.as_ref().filter(|first| first.segment == after);
        let first = first.ok_or(Misfit::NotOpen { segment: after })?;
        if let Some(other) = &self.prepared {
            return Err(Misfit::AlreadyPrepared { segment: other.segment });
        }
        if open.base.is_some() {
            return Err(Misfit::Base { expected: None });
        }
        if open.predecessor != Some(after) {
            return Err(Misfit::Predecessor { expected: Some(after) });
        }
        if open.epoch < first.epoch {
            return Err(Misfit::Epoch { least: first.epoch });
        }
        self.prepared = Some(open);
        Ok(())
    }

    /// Seals the open segment. `goes_on`: the prepared successor becomes the open one; otherwise it is dropped.
    pub(super) fn seal(&mut self, sealed: SealedSegment, goes_on: bool) -> Result<(), Misfit> {
        let segment = sealed.segment;
        let open = self.open.as_ref().filter(|open| open.segment == segment).ok_or(Misfit::NotOpen { segment })?;
        if open.base != Some(sealed.base) {
            return Err(Misfit::Base { expected: open.base });
        }
        if sealed.epoch < open.epoch {
            return Err(Misfit::Epoch { least: open.epoch });
        }
        if sealed.end < sealed.base {
            return Err(Misfit::End { base: sealed.base, end: sealed.end });
        }
        check_holes(&sealed.holes, sealed.base, sealed.end)?;
        if goes_on && self.prepared.is_none() {
            return Err(Misfit::NotPrepared { segment });
        }
        if sealed.end > sealed.base {
            self.sealed.push(sealed);
        }
        let (base, predecessor) = (Some(self.end()), self.last_sealed());
        let next = self.prepared.take().filter(|_| goes_on);
        self.open = next.map(|next| SegmentOpen { base, predecessor, ..next });
        Ok(())
    }

    /// Adds holes to a sealed segment: what overlaps becomes one.
    pub(super) fn add_holes(&mut self, segment: SegmentId, holes: &[Span]) -> Result<(), Misfit> {
        let at = self.sealed.binary_search_by_key(&segment, |sealed| sealed.segment);
        let sealed = at.ok().map(|at| &mut self.sealed[at]).ok_or(Misfit::NotSealed { segment })?;
        for (index, hole) in holes.iter().enumerate() {
            check_holes(std::slice::from_ref(hole), sealed.base, sealed.end).map_err(|_| Misfit::Hole { index })?;
        }
        for hole in holes {
            unite(&mut sealed.holes, *hole);
        }
        Ok(())
    }

    /// Whether the invariants hold: for a chain that was read, not made.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let mut end = self.start;
        let mut last: Option<(SegmentId, Epoch)> = None;
        for sealed in &self.sealed {
            let ascends = last.is_none_or(|(segment, epoch)| segment < sealed.segment && epoch <= sealed.epoch);
            if !ascends
                || sealed.base != end
                || sealed.end <= sealed.base
                || check_holes(&sealed.holes, sealed.base, sealed.end).is_err()
            {
                return false;
            }
            end = sealed.end;
            last = Some((sealed.segment, sealed.epoch));
        }
        let open_fits = self.open.as_ref().is_none_or(|open| {
            open.base == Some(end)
                && open.predecessor == self.last_sealed()
                && last.is_none_or(|(segment, _)| segment < open.segment)
        });
        let prepared_fits = self.prepared.as_ref().is_none_or(|prepared| {
            prepared.base.is_none()
                && self.open.as_ref().is_some_and(|open| {
                    prepared.predecessor == Some(open.segment)
                        && open.segment < prepared.segment
                        && open.epoch <= prepared.epoch
                })
        });
        open_fits && prepared_fits
    }
}

/// Holes ascend, do not overlap, hold at least one offset each and lie between `base` and `end`.
fn check_holes(holes: &[Span], base: Offset, end: Offset) -> Result<(), Misfit> {
    let mut from = base;
    for (index, hole) in holes.iter().enumerate() {
        if hole.from < from || hole.to <= hole.from || hole.to > end {
            return Err(Misfit::Hole { index });
        }
        from = hole.to;
    }
    Ok(())
}

/// Puts a hole in its place among others, which ascend and do not overlap; those that it overlaps become one with it.
fn unite(holes: &mut Vec<Span>, mut hole: Span) {
    holes.retain(|known| {
        let apart = known.to <= hole.from || hole.to <= known.from;
        if !apart {
            let records = hole.records_at_most.saturating_add(known.records_at_most);
            (hole.from, hole.to) = (hole.from.min(known.from), hole.to.max(known.to));
            hole.records_at_most = records.min(hole.to.since(hole.from));
            hole.cause = hole.cause.max(known.cause);
        }
        apart
    });
    let at = holes.partition_point(|known| known.to <= hole.from);
    holes.insert(at, hole);
}
