//! A load cut into intervals, each with a histogram of its own, so that what happened when can be seen.
//!
//! ```text
//! from ──┬── 1 s ──┬── 1 s ──┬── … ──┬ until        a long run has longer ones: there are 240 at most
//! ```
//! A record's time belongs to the interval in which it was *meant* to be sent, as it does to the run; the rate counts the answers that came.

use hdrhistogram::Histogram;

use super::recorder::histogram;
use super::samples::Span;

/// Intervals at most.
const MOST: u64 = 240;
/// Length of an interval, and what longer ones are multiples of.
const UNIT_NS: u64 = 1_000_000_000;

/// The intervals of a load. All memory is had at the start.
#[derive(Clone, Debug)]
pub struct Timeline {
    from_ns: u64,
    every_ns: u64,
    intervals: Vec<Slice>,
}

/// What one interval holds.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Answers *stored* that came in it.
    pub answered: u64,
    /// Response times in ns of the records meant to be sent in it.
    pub response: Histogram<u64>,
}

impl Timeline {
    /// From `from_ns`, inclusive, to `until_ns`, exclusive.
    #[must_use]
    pub fn new(from_ns: u64, until_ns: u64) -> Self {
        let long_ns = until_ns.saturating_sub(from_ns).max(1);
        let every_ns = long_ns.div_ceil(MOST).next_multiple_of(UNIT_NS);
        let slice = || Slice { answered: 0, response: histogram() };
        Self { from_ns, every_ns, intervals: (0..long_ns.div_ceil(every_ns)).map(|_| slice()).collect() }
    }

    /// A record that was stored.
    pub fn stored(&mut self, intended_ns: u64, answered_ns: u64) {
        if let Some(slice) = self.slice(intended_ns) {
            slice.response.saturating_record(answered_ns.saturating_sub(intended_ns));
        }
        if let Some(slice) = self.slice(answered_ns) {
            slice.answered += 1;
        }
    }

    fn slice(&mut self, at_ns: u64) -> Option<&mut Slice> {
        let index = at_ns.checked_sub(self.from_ns)? / self.every_ns;
        self.intervals.get_mut(usize::try_from(index).ok()?)
    }

    /// The intervals up to `until_ns`, where the run ended; the last may be cut off.
    pub fn until(&self, until_ns: u64) -> impl Iterator<Item = (Span, &Slice)> {
        (0..).zip(&self.intervals).map_while(move |(index, slice): (u64, _)| {
            let begin_ns = self.from_ns + index * self.every_ns;
            (begin_ns < until_ns).then(|| (Span { begin_ns, end_ns: until_ns.min(begin_ns + self.every_ns) }, slice))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_record_belongs_to_when_it_was_meant_and_its_answer_to_when_it_came() {
        let mut timeline = Timeline::new(10 * SECOND, 13 * SECOND);
        timeline.stored(9 * SECOND, 10 * SECOND);
        timeline.stored(10 * SECOND, 12 * SECOND);
        timeline.stored(13 * SECOND - 1, 14 * SECOND);
        let seen: Vec<_> =
            timeline.until(13 * SECOND).map(|(_, slice)| (slice.answered, slice.response.len())).collect();
        assert_eq!(seen, [(1, 1), (0, 0), (1, 1)]);
    }

    #[test]
    fn a_run_that_was_ended_early_has_a_short_last_interval() {
        let timeline = Timeline::new(0, 10 * SECOND);
        let spans: Vec<Span> = timeline.until(SECOND + SECOND / 2).map(|(span, _)| span).collect();
        let cut = Span { begin_ns: SECOND, end_ns: SECOND + SECOND / 2 };
        assert_eq!(spans, [Span { begin_ns: 0, end_ns: SECOND }, cut]);
    }

    #[test]
    fn a_long_run_has_longer_intervals() {
        let timeline = Timeline::new(0, 3_600 * SECOND);
        assert_eq!((timeline.every_ns, timeline.intervals.len()), (15 * SECOND, 240));
    }
}
