//! One history: for one (range, offset) whatever is served is the same, for ever, and a hole that was told stays a hole. What was
//! being written when a process ended, and whose header the medium holds, may have been acknowledged for all that the node knows:
//! those offsets are never given to anything else. Where a roll was said to have sealed a segment, there it ends for ever.

use std::collections::BTreeMap;

use sealog_engine::api::response::{Gap, RangeRolled};
use sealog_engine::types::{Offset, RangeId, SegmentId};

use super::{Mode, Violation};

/// What was served of one range.
#[derive(Default)]
struct Served {
    /// By first offset: end and digest.
    batches: BTreeMap<u64, (u64, u64)>,
    /// By first offset.
    gaps: BTreeMap<u64, Gap>,
    end: u64,
    /// Batches that may have been stored, by first offset: end and digest.
    held: BTreeMap<u64, (u64, u64)>,
    /// Segments that a roll was said to have sealed: end and successor.
    rolled: BTreeMap<SegmentId, (Offset, SegmentId)>,
}

/// The checker.
#[derive(Default)]
pub struct OneHistory {
    /// Batches and gaps that had been served before.
    pub checked: u64,
    /// Batches that may have been stored when a process ended.
    pub held: u64,
    ranges: BTreeMap<RangeId, Served>,
}

impl OneHistory {
    /// A range served a batch of `[offset, end)`; `digest` is of the producer's bytes and the offset.
    ///
    /// # Errors
    /// It served something else there before.
    pub fn batch(&mut self, range: RangeId, offset: Offset, end: Offset, digest: u64) -> Result<(), Violation> {
        let served = self.ranges.entry(range).or_default();
        if let Some((was_end, was_digest)) = served.batches.get(&offset.0) {
            self.checked += 1;
            if (*was_end, *was_digest) != (end.0, digest) {
                let (was_end, was_digest) = (Offset(*was_end), *was_digest);
                return Err(Violation::Divergent { range, offset, end, digest, was_end, was_digest });
            }
            return Ok(());
        }
        if let Some((other, (other_end, _))) = served.batches.range(..end.0).next_back()
            && *other_end > offset.0
        {
            let (other, other_end) = (Offset(*other), Offset(*other_end));
            return Err(Violation::Overlapping { range, offset, end, other, other_end });
        }
        if let Some((_, gap)) = served.gaps.range(..end.0).next_back()
            && gap.to > offset
        {
            return Err(Violation::ServedFromHole { range, offset, end, gap: *gap });
        }
        if let Some((held, (held_end, held_digest))) = served.held.range(..end.0).next_back()
            && *held_end > offset.0
        {
            self.checked += 1;
            if (*held, *held_end, *held_digest) != (offset.0, end.0, digest) {
                return Err(Violation::GivenAgain {
                    range,
                    offset,
                    end,
                    held: Offset(*held),
                    held_end: Offset(*held_end),
                });
            }
        }
        served.batches.insert(offset.0, (end.0, digest));
        Ok(())
    }

    /// The medium holds the header of a group, and with it the knowledge that this batch may have been stored.
    pub fn may_hold(&mut self, range: RangeId, offset: Offset, end: Offset, digest: u64) {
        let served = self.ranges.entry(range).or_default();
        // An earlier try at the same offsets left nothing that the node could know of.
        served.held.insert(offset.0, (end.0, digest));
        self.held += 1;
    }

    /// A range told a hole. What damage took may have been read before.
    ///
    /// # Errors
    /// It served a batch of it before.
    pub fn gap(&mut self, range: RangeId, gap: &Gap, mode: Mode) -> Result<(), Violation> {
        let served = self.ranges.entry(range).or_default();
        if served.gaps.insert(gap.from.0, *gap).is_some() {
            self.checked += 1;
        }
        if mode == Mode::Within
            && let Some((offset, (end, _))) = served.batches.range(..gap.to.0).next_back()
            && *end > gap.from.0
        {
            return Err(Violation::HoleOverRead { range, offset: Offset(*offset), gap: *gap });
        }
        Ok(())
    }

    /// The node has restarted: until a range's tail is settled, fetches below it know only the end of its committed chain.
    pub fn restarted(&mut self) {
        for served in self.ranges.values_mut() {
            served.end = 0;
        }
    }

    /// A range told how far it can be read: what anyone was given lies below it.
    ///
    /// # Errors
    /// Something lies above.
    pub fn bounds(&mut self, range: RangeId, end: Offset) -> Result<(), Violation> {
        let last = self.shown(range);
        self.checked += 1;
        if last > end {
            return Err(Violation::EndWentBack { range, end, was: last });
        }
        Ok(())
    }

    /// Behind the last record of a range that anyone was given.
    #[must_use]
    pub fn shown(&self, range: RangeId) -> Offset {
        let last = self.ranges.get(&range).and_then(|served| served.batches.last_key_value());
        Offset(last.map_or(0, |(_, (end, _))| *end))
    }

    /// A range that had shown records up to `shown` when it was asked to roll was told to have been.
    ///
    /// # Errors
    /// Some of those records lie in no segment that it says to be sealed, the segment was said to end elsewhere, or a batch lies across
    /// its end.
    pub fn rolled(&mut self, range: RangeId, shown: Offset, rolled: &RangeRolled) -> Result<(), Violation> {
        let end = rolled.end;
        self.checked += 1;
        if end < shown {
            return Err(Violation::RolledBelow { range, end, shown });
        }
        let served = self.ranges.entry(range).or_default();
        if let Some((offset, (batch_end, _))) = served.batches.range(..end.0).next_back()
            && *batch_end > end.0
        {
            return Err(Violation::RolledWithin { range, end, offset: Offset(*offset), batch_end: Offset(*batch_end) });
        }
        if let Some((segment, successor)) = rolled.segments {
            let was = *served.rolled.entry(segment).or_insert((end, successor));
            if was != (end, successor) {
                return Err(Violation::RolledTwice { range, segment, end, was: was.0 });
            }
        }
        Ok(())
    }

    /// Every segment that a roll was said to have sealed is, with that end, by what `sealed_end` knows. Returns how many there are.
    ///
    /// # Errors
    /// One is not.
    pub fn rolls_stand(&self, sealed_end: impl Fn(RangeId, SegmentId) -> Option<Offset>) -> Result<u64, Violation> {
        let mut count = 0;
        for (range, served) in &self.ranges {
            for (segment, (end, _)) in &served.rolled {
                let (range, segment, end) = (*range, *segment, *end);
                count += 1;
                match sealed_end(range, segment) {
                    Some(found) if found == end => {}
                    found => return Err(Violation::RollUndone { range, segment, end, found }),
                }
            }
        }
        Ok(count)
    }

    /// A range said where its committed end is.
    ///
    /// # Errors
    /// It was further on before, in this life of the process.
    pub fn end(&mut self, range: RangeId, end: Offset) -> Result<(), Violation> {
        let served = self.ranges.entry(range).or_default();
        if end.0 < served.end {
            return Err(Violation::EndWentBack { range, end, was: Offset(served.end) });
        }
        served.end = end.0;
        Ok(())
    }
}
