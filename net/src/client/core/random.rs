//! Random numbers from a seed that the driver gives at construction: hashes for keyless records, and jitter. Xorshift64*, after
//! Marsaglia and Vigna; not for secrets.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose numbers are a function of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Spread by one step of splitmix64, so that seeds 1 and 2 have nothing in common; 0 is the one state it must not have.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self { state: (mixed ^ (mixed >> 31)).max(1) }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `value - value / 4` to `value + value / 4`: so that what failed together is not tried again together.
    pub fn jitter(&mut self, value: u64) -> u64 {
        let quarter = value / 4;
        value - quarter + self.next_u64() % (2 * quarter + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.next_u64(), random.next_u64(), random.next_u64()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_ne!(numbers(0), [0, 0, 0]);
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            assert!((75..=125).contains(&random.jitter(100)));
        }
        assert_eq!(random.jitter(0), 0);
    }
}
