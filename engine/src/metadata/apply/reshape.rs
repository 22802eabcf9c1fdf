//! Splits and merges: the parents end and the children begin in one change, so that in no state a key belongs to two ranges or to none.
//!
//! Nothing is copied. A child's offsets begin at 0; what it must know of its parents' producers comes with the change.

use super::{Applied, Rejected};
use crate::metadata::range_chain::RangeChain;
use crate::metadata::state::{FIRST_EPOCH, Range, RangeStatus, State};
use crate::replica::message::{Fence, SealedSegment, SegmentOpen};
use crate::types::limits::TOPIC_RANGES_MAX;
use crate::types::{KeySpan, Offset, RangeId, SegmentId, TopicId};

/// A range that is about to be sealed.
struct Parent {
    topic: TopicId,
    span: KeySpan,
}

impl State {
    pub(super) fn split(
        &mut self,
        range: RangeId,
        sealed: &SealedSegment,
        fences: &[Fence],
        opens: &[SegmentOpen],
    ) -> Result<Applied, Rejected> {
        let Parent { topic, span } = self.ends_with(range, sealed)?;
        let (low, high) = span.halves().ok_or(Rejected::OneHash { range })?;
        if self.active_count(topic) >= TOPIC_RANGES_MAX as usize {
            return Err(Rejected::TooManyRanges { most: TOPIC_RANGES_MAX });
        }
        self.check_children(fences, opens, 2)?;
        self.end(range, sealed)?;
        self.bear(&[range], &[low, high], fences, opens);
        Ok(Applied::Reshaped)
    }

    pub(super) fn merge(
        &mut self,
        parents: &[(RangeId, SealedSegment); 2],
        fences: &[Fence],
        open: &[SegmentOpen],
    ) -> Result<Applied, Rejected> {
        let [(low, low_sealed), (high, high_sealed)] = parents;
        let (lower, upper) = (self.ends_with(*low, low_sealed)?, self.ends_with(*high, high_sealed)?);
        let whole = lower.span.depth().checked_sub(1).and_then(|depth| KeySpan::new(lower.span.first(), depth));
        let whole =
            whole.filter(|whole| whole.halves() == Some((lower.span, upper.span)) && lower.topic == upper.topic);
        let whole = whole.ok_or(Rejected::NotBuddies { low: *low, high: *high })?;
        self.check_children(fences, open, 1)?;
        let mark = self.ranges.get(low).map(|state| state.chain.mark());
        self.end(*low, low_sealed)?;
        if let Err(rejected) = self.end(*high, high_sealed) {
            let state = self.ranges.get_mut(low).expect("it was just changed");
            state.chain.restore(mark.expect("it was there"));
            return Err(rejected);
        }
        self.bear(&[*low, *high], &[whole], fences, open);
        Ok(Applied::Reshaped)
    }

    /// Whether the committed round on the range's last segment may end so.
    fn ends_with(&mut self, range: RangeId, sealed: &SealedSegment) -> Result<Parent, Rejected> {
        let state = self.active(range)?;
        if sealed.epoch != state.epoch {
            return Err(Rejected::StaleEpoch { current: state.epoch });
        }
        let segment = sealed.segment;
        if state.sealing.is_none_or(|sealing| sealing.segment != segment) {
            return Err(Rejected::NotSealing { segment });
        }
        Ok(Parent { topic: state.topic, span: state.span })
    }

    fn check_children(&self, fences: &[Fence], opens: &[SegmentOpen], children: usize) -> Result<(), Rejected> {
        let known = fences.iter().all(|fence| fence.producer < self.next.producer);
        if !known || !fences.is_sorted_by(|a, b| a.producer < b.producer) {
            return Err(Rejected::BadFences);
        }
        if !opens.is_empty() && opens.len() != children || !opens.is_sorted_by(|a, b| a.segment < b.segment) {
            return Err(Rejected::BadOpens { found: opens.len(), children });
        }
        for open in opens {
            self.check_open(open)?;
            // Checked here, so that nothing is refused once something has been changed.
            RangeChain::default().open_next(*open)?;
            if open.epoch != FIRST_EPOCH {
                return Err(Rejected::StaleEpoch { current: FIRST_EPOCH });
            }
        }
        Ok(())
    }

    /// Ends a parent's chain.
    fn end(&mut self, range: RangeId, sealed: &SealedSegment) -> Result<(), Rejected> {
        Ok(self.active(range)?.chain.seal(sealed.clone(), false)?)
    }

    /// Seals the parents, whose chains have ended, and makes the children.
    fn bear(&mut self, parents: &[RangeId], spans: &[KeySpan], fences: &[Fence], opens: &[SegmentOpen]) {
        let first = self.next.range;
        let successors: Vec<RangeId> = (first.0..).map(RangeId).take(spans.len()).collect();
        self.next.range = RangeId(first.0 + successors.len() as u64);
        let of_parent = &self.ranges[&parents[0]];
        let (topic, home) = (of_parent.topic, of_parent.home);
        for parent in parents {
            let state = self.ranges.get_mut(parent).expect("it was just changed");
            state.status = RangeStatus::Sealed { successors: successors.clone() };
            state.sealing = None;
            self.fences.remove(parent);
            self.loads.remove(parent);
        }
        for (at, (id, span)) in successors.iter().zip(spans).enumerate() {
            let mut chain = RangeChain::default();
            let open = opens.get(at);
            if let Some(open) = open {
                chain.open_next(*open).expect("it was checked for an empty chain");
                self.next.segment = SegmentId(open.segment.0 + 1);
            }
            let range = Range {
                topic,
                span: *span,
                epoch: FIRST_EPOCH,
                status: RangeStatus::Active,
                parents: parents.to_vec(),
                home: open.map_or(home, |open| open.primary),
                trimmed: Offset::ZERO,
                chain,
                sealing: None,
            };
            self.ranges.insert(*id, range);
            if !fences.is_empty() {
                self.fences.insert(*id, fences.to_vec());
            }
        }
        self.topics.get_mut(&topic).expect("a range's topic is known").ranges.extend(successors);
    }
}

#[cfg(test)]
mod tests;
