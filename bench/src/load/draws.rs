//! Which records a connection sends: key and size of each, drawn from the seed of the load.
//!
//! ```text
//! keys 0 1 2 3 4 5 6 …          connection 0 of 3 has 0, 3, 6, …: the order of a key's records is that of one connection
//! ```
//! Zipf ranks a connection's own keys, the lowest number first: a load of N connections has N keys of each rank.
//!
//! **Invariant**: the n-th record of a connection is the same for the same seed and settings, however the answers come: what was drawn
//! and could not be sent is drawn no second time.

use rand_distr::{Distribution, Zipf};

use super::arrivals::Random;
use super::settings::{KeyDist, Settings};

/// What a record is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    pub(super) key: u32,
    pub(super) value_bytes: usize,
}

/// The records of one connection.
#[derive(Debug)]
pub(super) struct Draws {
    random: Random,
    connection: u32,
    connections: u32,
    /// Keys that are this connection's own.
    own: u32,
    zipf: Option<Zipf<f64>>,
    /// Share of the values that are of this size or an earlier one, of 1; the last is taken for whatever is left.
    sizes: Vec<(f64, usize)>,
    value_bytes: usize,
    drawn: Option<Draw>,
}

impl Draws {
    /// Of one of the connections of a load.
    ///
    /// # Panics
    /// If the connection has no key, or the exponent is negative: such settings are refused.
    pub(super) fn new(settings: &Settings, connection: u32) -> Self {
        let own = (settings.keys - connection).div_ceil(settings.connections);
        let mut upto = 0.0;
        let sizes = settings.sizes.iter().map(|share| {
            upto += share.percent / 100.0;
            (upto, share.bytes)
        });
        Self {
            random: Random::new(settings.seed + u64::from(connection) * 7919),
            connection,
            connections: settings.connections,
            own,
            zipf: match settings.key_dist {
                KeyDist::Uniform => None,
                KeyDist::Zipf { exponent } => {
                    Some(Zipf::new(f64::from(own), exponent).expect("at least one key, and no negative exponent"))
                }
            },
            sizes: sizes.collect(),
            value_bytes: settings.value_bytes,
            drawn: None,
        }
    }

    /// The next record, the same until it is [taken](Self::take).
    pub(super) fn peek(&mut self) -> Draw {
        if let Some(draw) = self.drawn {
            return draw;
        }
        let draw = Draw { key: self.key(), value_bytes: self.size() };
        self.drawn = Some(draw);
        draw
    }

    /// It was sent.
    pub(super) fn take(&mut self) {
        self.drawn = None;
    }

    fn key(&mut self) -> u32 {
        let nth = match &self.zipf {
            None => {
                let bits = self.random.next_u64() >> 32;
                u32::try_from((bits * u64::from(self.own)) >> 32).expect("below the number of keys")
            }
            Some(zipf) => rank(zipf.sample(&mut self.random)).clamp(1, self.own) - 1,
        };
        self.connection + self.connections * nth
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept on purpose")]
    fn size(&mut self) -> usize {
        let Some((_, last)) = self.sizes.last() else { return self.value_bytes };
        let at = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.sizes.iter().find(|(upto, _)| at < *upto).map_or(*last, |(_, bytes)| *bytes)
    }
}

/// Ranks are whole numbers from 1 on.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is at most the number of keys")]
fn rank(sample: f64) -> u32 {
    sample as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::settings::SizeShare;

    fn take(settings: &Settings, connection: u32, records: usize) -> Vec<Draw> {
        let mut draws = Draws::new(settings, connection);
        let next = || {
            let draw = draws.peek();
            assert_eq!(draws.peek(), draw, "what was not taken comes again");
            draws.take();
            draw
        };
        std::iter::repeat_with(next).take(records).collect()
    }

    #[test]
    fn each_key_belongs_to_exactly_one_connection() {
        for key_dist in [KeyDist::Uniform, KeyDist::Zipf { exponent: 0.5 }] {
            let settings = Settings { connections: 3, keys: 10, key_dist, ..Settings::default() };
            let mut owners = vec![None; 10];
            for connection in 0..3 {
                for draw in take(&settings, connection, 1_000) {
                    let owner = &mut owners[draw.key as usize];
                    assert!(owner.is_none_or(|owner| owner == connection), "{draw:?}");
                    *owner = Some(connection);
                }
            }
            assert!(owners.iter().all(Option::is_some), "{owners:?}");
        }
    }

    #[test]
    fn zipf_gives_the_nth_key_its_share_and_uniform_gives_all_the_same() {
        const RECORDS: usize = 200_000;
        let counts = |key_dist| {
            let mut counts = vec![0.0; 100];
            let settings = Settings { keys: 100, key_dist, ..Settings::default() };
            take(&settings, 0, RECORDS).iter().for_each(|draw| counts[draw.key as usize] += 1.0);
            counts
        };
        let zipf = counts(KeyDist::Zipf { exponent: 1.0 });
        let harmonic: f64 = (1..=100).map(|n| 1.0 / f64::from(n)).sum();
        for nth in [1, 2, 3, 10, 100] {
            let expected = RECORDS as f64 / f64::from(nth) / harmonic;
            let found = zipf[nth as usize - 1];
            assert!((found / expected - 1.0).abs() < 0.15, "key {nth}: {found} of {expected}");
        }
        let uniform = counts(KeyDist::Uniform);
        assert!(uniform.iter().all(|count| (count / 2_000.0 - 1.0).abs() < 0.15), "{uniform:?}");
    }

    #[test]
    fn a_mix_has_its_sizes_by_their_shares_and_the_same_seed_draws_it_again() {
        let share = |bytes, percent| SizeShare { bytes, percent };
        let settings =
            Settings { sizes: vec![share(128, 70.0), share(1024, 25.0), share(16_384, 5.0)], ..Settings::default() };
        let drawn = take(&settings, 0, 100_000);
        for SizeShare { bytes, percent } in &settings.sizes {
            let found = drawn.iter().filter(|draw| draw.value_bytes == *bytes).count() as f64 / 1e3;
            assert!((found / percent - 1.0).abs() < 0.1, "{bytes} bytes: {found} %");
        }
        assert_eq!(take(&settings, 0, 1_000), drawn[..1_000]);
        assert_ne!(take(&Settings { seed: 2, ..settings.clone() }, 0, 1_000), drawn[..1_000]);
        assert_eq!(take(&Settings::default(), 0, 1)[0].value_bytes, 1024);
    }
}
