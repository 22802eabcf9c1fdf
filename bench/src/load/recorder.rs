//! What one connection's records cost in time, as three HDR histograms.
//!
//! ```text
//! intended ──── send delay ──── sent ──── service time ──── answered
//!    └───────────────────── response time ────────────────────┘
//! ```
//! The response time is the figure that counts: it begins when the record was *meant* to be sent. A send delay says how late the
//! client itself was. Histograms of several connections are merged, never averaged.

use hdrhistogram::Histogram;

/// Longest time that is told apart; longer ones count as this.
const MOST_NS: u64 = 120_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;

/// Times of records, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// From the intended send to the answer.
    pub response: Histogram<u64>,
    /// From the send to the answer.
    pub service: Histogram<u64>,
    /// From the intended send to the send.
    pub delay: Histogram<u64>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { response: histogram(), service: histogram(), delay: histogram() }
    }
}

/// An empty histogram of times in nanoseconds.
///
/// # Panics
/// Never: the bounds are constants that fit.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_NS, DIGITS).expect("constant bounds that fit")
}

impl Recorder {
    /// One answered record; times on one monotonic clock in ns.
    pub fn record(&mut self, intended_ns: u64, sent_ns: u64, answered_ns: u64) {
        self.response.saturating_record(answered_ns.saturating_sub(intended_ns));
        self.service.saturating_record(answered_ns.saturating_sub(sent_ns));
        self.delay.saturating_record(sent_ns.saturating_sub(intended_ns));
    }

    /// Takes in another connection's records.
    ///
    /// # Panics
    /// Never: all recorders have the same bounds.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.delay, &other.delay),
        ] {
            mine.add(theirs).expect("all recorders have the same bounds");
        }
    }

    /// Records held.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.response.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_percentile_is_that_of_all_records_not_a_mean_of_percentiles() {
        let (mut quick, mut slow) = (Recorder::default(), Recorder::default());
        for _ in 0..990 {
            quick.record(0, 0, 1_000);
        }
        for _ in 0..10 {
            slow.record(0, 0, 1_000_000);
        }
        quick.merge(&slow);
        assert_eq!(quick.len(), 1_000);
        assert!(quick.response.value_at_quantile(0.99) < 1_100, "a mean of both p99 would be about 500,000");
        assert!(quick.response.value_at_quantile(0.995) > 990_000);
    }

    #[test]
    fn the_response_time_begins_at_the_intended_send() {
        let mut recorder = Recorder::default();
        recorder.record(1_000, 51_000, 151_000);
        assert_eq!(recorder.delay.max(), 50_015, "within three digits of 50 us");
        assert!(recorder.response.max().abs_diff(150_000) < 200);
        assert!(recorder.service.max().abs_diff(100_000) < 100);
    }

    #[test]
    fn a_time_beyond_the_longest_counts_as_the_longest() {
        let mut recorder = Recorder::default();
        recorder.record(0, 0, u64::MAX);
        assert!(recorder.response.max() >= MOST_NS);
    }
}
