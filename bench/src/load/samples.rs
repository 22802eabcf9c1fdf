//! Single records of a load, kept so that those near an event (a roll, a checkpoint, a split, a merge) can be told from the others: when one
//! happened is known only afterwards.

use hdrhistogram::Histogram;

use super::recorder::histogram;

/// When each record was meant to be sent, and how long its answer took.
#[derive(Debug)]
pub struct Samples {
    /// Intended time in units of 10 µs, and response time in units of 100 ns, saturating.
    records: Vec<(u32, u32)>,
    dropped: u64,
}

/// An event from its begin to its end, in ns on the clock of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub begin_ns: u64,
    pub end_ns: u64,
}

impl Samples {
    /// Records kept at most.
    pub const MOST: usize = 32 << 20;
    const INTENDED_UNIT_NS: u64 = 10_000;
    const RESPONSE_UNIT_NS: u64 = 100;

    /// Room for so many, at most [`MOST`](Self::MOST).
    #[must_use]
    pub fn new(records: usize) -> Self {
        Self { records: Vec::with_capacity(records.min(Self::MOST)), dropped: 0 }
    }

    /// Adds a record, unless there is no room: nothing is allocated.
    pub fn add(&mut self, intended_ns: u64, answered_ns: u64) {
        let units = |ns: u64, unit: u64| u32::try_from(ns / unit).unwrap_or(u32::MAX);
        if self.records.len() == self.records.capacity() {
            self.dropped += 1;
            return;
        }
        let response = units(answered_ns.saturating_sub(intended_ns), Self::RESPONSE_UNIT_NS);
        self.records.push((units(intended_ns, Self::INTENDED_UNIT_NS), response));
    }

    /// Records for which there was no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Response times in ns of the records meant to be sent within `near_ns` of an event, from its begin to its end, and of all others.
    #[must_use]
    pub fn split(&self, events: &[Span], near_ns: u64) -> (Histogram<u64>, Histogram<u64>) {
        let mut spans: Vec<Span> = events
            .iter()
            .map(|e| Span { begin_ns: e.begin_ns.saturating_sub(near_ns), end_ns: e.end_ns + near_ns })
            .collect();
        spans.sort_by_key(|span| span.begin_ns);
        // Joined where they overlap, so that the only span that can hold a time is the last that begins before it.
        spans.dedup_by(|next, kept| {
            let joined = next.begin_ns <= kept.end_ns;
            if joined {
                kept.end_ns = kept.end_ns.max(next.end_ns);
            }
            joined
        });
        let (mut near, mut others) = (histogram(), histogram());
        for (intended, response) in &self.records {
            let intended_ns = u64::from(*intended) * Self::INTENDED_UNIT_NS;
            let before = spans.partition_point(|span| span.begin_ns <= intended_ns);
            let is_near = before > 0 && intended_ns <= spans[before - 1].end_ns;
            let side = if is_near { &mut near } else { &mut others };
            side.saturating_record(u64::from(*response) * Self::RESPONSE_UNIT_NS);
        }
        (near, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn records_within_the_time_asked_for_are_near_an_event() {
        let mut samples = Samples::new(10);
        for intended_ms in [0, 899, 901, 1_000, 1_099, 1_149, 1_151, 2_000, 2_250, 2_301] {
            samples.add(intended_ms * MS, (intended_ms + 1) * MS);
        }
        let roll = Span { begin_ns: 1_000 * MS, end_ns: 1_000 * MS };
        let overlapping = Span { begin_ns: 1_050 * MS, end_ns: 1_050 * MS };
        let long = Span { begin_ns: 2_100 * MS, end_ns: 2_200 * MS };
        let (near, others) = samples.split(&[long, overlapping, roll], 100 * MS);
        assert_eq!((near.len(), others.len()), (6, 4), "901, 1000, 1099, 1149; 2000 and 2250 by the long one");
        assert!(near.max().abs_diff(MS) < 1_000);
        assert_eq!(samples.split(&[roll], 50 * MS).0.len(), 1, "1000");
    }

    #[test]
    fn what_does_not_fit_is_counted_and_not_kept() {
        let mut samples = Samples::new(0);
        samples.add(0, 5);
        assert_eq!((samples.dropped(), samples.split(&[], MS).1.len()), (1, 0));
    }
}
