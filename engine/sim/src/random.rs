//! Chance, all of it from one number: xoshiro256++ seeded by splitmix64.
//!
//! Every part of a simulation has a generator of its own, [`Random::fork`]ed by a label. So a part that draws once more than
//! before does not change what the others draw, and a failing seed stays near its failure while one looks for the cause.
//!
//! Sources: Blackman and Vigna, *Scrambled linear pseudorandom number generators* (2019), public-domain reference code.

/// A seeded generator. The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// One step of splitmix64: spreads a seed over 64 bits.
fn spread(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut seed = seed;
        Self { state: std::array::from_fn(|_| spread(&mut seed)) }
    }

    /// A generator of its own for a part of the simulation, the same for the same label. Draws nothing from this one.
    #[must_use]
    pub fn fork(&self, label: &str) -> Self {
        let mut seed = self.state[0] ^ self.state[3];
        for byte in label.bytes() {
            seed = spread(&mut seed) ^ u64::from(byte);
        }
        Self::new(seed)
    }

    /// Any 64 bits.
    pub fn word(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound` (exclusive).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        // The bias of the multiplication is below 2^-32 for every bound used here.
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `length` (exclusive).
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    /// A number from `low` to `high`, both inclusive.
    ///
    /// # Panics
    /// If `high` is below `low`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "the bounds are in order");
        match (high - low).checked_add(1) {
            Some(bound) => low + self.below(bound),
            None => self.word(),
        }
    }

    /// A number from `low` to `high`, both inclusive, small ones as likely in each power of two as great ones: for times and sizes,
    /// whose orders of magnitude matter more than their values.
    ///
    /// # Panics
    /// If `low` is 0 or `high` is below it.
    pub fn spread_between(&mut self, low: u64, high: u64) -> u64 {
        assert!(0 < low && low <= high, "the bounds are positive and in order");
        let power = self.between(u64::from(low.ilog2()), u64::from(high.ilog2()));
        self.between(1 << power, (2 << power) - 1).clamp(low, high)
    }

    /// True in one of `of` cases.
    ///
    /// # Panics
    /// If `of` is 0.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// Fills with any bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let mut random = Random::new(42);
        let drawn: Vec<u64> = (0..3).map(|_| random.word()).collect();
        assert_eq!(drawn, [0xd076_4d4f_4476_689f, 0x519e_4174_576f_3791, 0xfbe0_7cfb_0c24_ed8c]);
    }

    #[test]
    fn a_fork_draws_nothing_and_differs_by_label() {
        let mut random = Random::new(1);
        let before = random.clone().word();
        let (mut disk, mut network) = (random.fork("disk"), random.fork("network"));
        assert_eq!(random.word(), before);
        assert_ne!(disk.word(), network.word());
    }

    #[test]
    fn every_number_of_a_bound_comes_and_none_beyond() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        for _ in 0..500 {
            seen[random.index(5)] = true;
            let spread = random.spread_between(3, 1000);
            assert!((3..=1000).contains(&spread));
            assert!((9..=11).contains(&random.between(9, 11)));
        }
        assert_eq!(seen, [true; 5]);
        random.between(0, u64::MAX);
    }
}
