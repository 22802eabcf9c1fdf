//! When each record is meant to be sent. An open loop keeps to this schedule whatever the answers do, so that a stall of the
//! server is seen by every record that should have been sent meanwhile, not only by the one that happened to wait.
//!
//! **Invariant**: intended times never go back, and depend on the rate and the seed alone.

use std::convert::Infallible;

const SECOND_NS: f64 = 1e9;

/// How intended times are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Evenly.
    Constant,
    /// At random with the same mean: independent senders.
    Poisson,
}

/// The intended times of one sender.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrival: Arrival,
    interval_ns: f64,
    start_ns: u64,
    /// Records given so far.
    given: u64,
    /// Of the next record, behind the start.
    elapsed_ns: f64,
    random: Random,
}

impl Schedule {
    /// `rate` records a second from `start_ns` on.
    ///
    /// # Panics
    /// If the rate is not positive.
    #[must_use]
    pub fn new(arrival: Arrival, rate: f64, start_ns: u64, seed: u64) -> Self {
        assert!(rate > 0.0, "a rate is positive");
        let mut schedule = Self {
            arrival,
            interval_ns: SECOND_NS / rate,
            start_ns,
            given: 0,
            elapsed_ns: 0.0,
            random: Random::new(seed),
        };
        if arrival == Arrival::Poisson {
            schedule.elapsed_ns = schedule.random.exponential() * schedule.interval_ns;
        }
        schedule
    }

    /// When the next record is meant to be sent, in ns on the clock of the start.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative; a run is far below 2^53 ns"
    )]
    pub fn peek(&self) -> u64 {
        self.start_ns + self.elapsed_ns as u64
    }

    /// Takes the next record's time.
    pub fn take(&mut self) -> u64 {
        let intended = self.peek();
        self.given += 1;
        match self.arrival {
            // Multiplied, not added up: no drift however long the run.
            #[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^53 records")]
            Arrival::Constant => self.elapsed_ns = self.given as f64 * self.interval_ns,
            Arrival::Poisson => self.elapsed_ns += self.random.exponential() * self.interval_ns,
        }
        intended
    }
}

/// SplitMix64: a small generator, the same for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed; any will do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Exponentially distributed with mean 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept on purpose")]
    fn exponential(&mut self) -> f64 {
        // In (0, 1]: the logarithm of 0 is never taken.
        let uniform = ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln()
    }
}

/// So that distributions of libraries can be drawn from it.
impl rand::TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from(self.next_u64() >> 32).expect("32 bits"))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next_u64())
    }

    fn try_fill_bytes(&mut self, space: &mut [u8]) -> Result<(), Infallible> {
        for part in space.chunks_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes()[..part.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_schedule_does_not_drift() {
        let mut schedule = Schedule::new(Arrival::Constant, 30_000.0, 1_000, 0);
        let times: Vec<u64> = (0..300_001).map(|_| schedule.take()).collect();
        assert_eq!(times[0], 1_000);
        assert_eq!(times[3], 101_000);
        assert_eq!(times[300_000], 10_000_001_000, "ten seconds later to the nanosecond");
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_their_rate() {
        let mut schedule = Schedule::new(Arrival::Poisson, 10_000.0, 0, 7);
        let times: Vec<u64> = (0..100_000).map(|_| schedule.take()).collect();
        assert!(times.is_sorted());
        let mean = *times.last().expect("times") as f64 / 1e5;
        assert!((mean - 100_000.0).abs() < 2_000.0, "mean interval {mean} ns");
        let longer = times.windows(2).filter(|w| w[1] - w[0] > 100_000).count() as f64 / 1e5;
        assert!((longer - (-1f64).exp()).abs() < 0.01, "share of intervals above the mean {longer}");
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let times = |seed| {
            let mut s = Schedule::new(Arrival::Poisson, 1e3, 0, seed);
            (0..10).map(|_| s.take()).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
