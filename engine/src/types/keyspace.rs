//! The keyspace: all 64-bit hashes of keys, and the power-of-two aligned spans that ranges own.
//!
//! ```text
//! depth 0   [0 ............................................ 2^64)
//! depth 1   [0 .................. 2^63) [2^63 ............. 2^64)
//! depth 2   [0 ..... 2^62) [2^62 .....) [.........) [...........)
//! ```
//! A span splits at its middle into two of the next depth; two such *buddies* merge back into it.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Seed of the key hash. Part of the keyspace-hash version 1: it never changes.
const KEY_HASH_SEED: u64 = 0x5ea1_0609_0000_0001;

/// Version of the function from keys to [`KeyHash`]. A topic carries it.
pub const KEYSPACE_VERSION: u8 = 1;

/// A point of the keyspace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyHash(pub u64);

/// A contiguous, power-of-two aligned part of the keyspace: all hashes whose highest `depth` bits equal those of `start`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySpan {
    start: u64,
    depth: u8,
}

impl KeyHash {
    /// The hash of a key: XXH3-64 with a fixed seed.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64_with_seed(key, KEY_HASH_SEED))
    }
}

impl KeySpan {
    /// The whole keyspace.
    pub const ALL: Self = Self { start: 0, depth: 0 };
    /// The deepest span that can exist: one hash.
    pub const DEPTH_MAX: u8 = 64;

    /// The span of `depth` that begins at `start` (inclusive), or `None` if `start` is not aligned to it.
    #[must_use]
    pub fn new(start: KeyHash, depth: u8) -> Option<Self> {
        if depth > Self::DEPTH_MAX || start.0 & Self::mask_below(depth) != 0 {
            return None;
        }
        Some(Self { start: start.0, depth })
    }

    /// The spans that cut the keyspace into `parts` equal ones, in order, or `None` if `parts` is not a power of two.
    #[must_use]
    pub fn divide(parts: u32) -> Option<Vec<Self>> {
        if !parts.is_power_of_two() {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 31")]
        let depth = parts.trailing_zeros() as u8;
        let step = |i: u32| if depth == 0 { 0 } else { u64::from(i) << (64 - depth) };
        Some((0..parts).map(|i| Self { start: step(i), depth }).collect())
    }

    /// The bits below the prefix of a span of `depth`, all set.
    const fn mask_below(depth: u8) -> u64 {
        if depth >= 64 { 0 } else { u64::MAX >> depth }
    }

    /// First hash, inclusive.
    #[must_use]
    pub fn first(self) -> KeyHash {
        KeyHash(self.start)
    }

    /// Last hash, inclusive: the end of the keyspace does not fit 64 bits.
    #[must_use]
    pub fn last(self) -> KeyHash {
        KeyHash(self.start | Self::mask_below(self.depth))
    }

    /// How many bits of a hash are fixed, 0 to 64.
    #[must_use]
    pub fn depth(self) -> u8 {
        self.depth
    }

    /// Whether `hash` lies in it.
    #[must_use]
    pub fn contains(self, hash: KeyHash) -> bool {
        hash.0 & !Self::mask_below(self.depth) == self.start
    }

    /// Whether all of `other` lies in it.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.depth <= other.depth && self.contains(other.first())
    }

    /// The lower and upper half, or `None` for a single hash.
    #[must_use]
    pub fn halves(self) -> Option<(Self, Self)> {
        if self.depth >= Self::DEPTH_MAX {
            return None;
        }
        let depth = self.depth + 1;
        let upper = self.start | (1 << (64 - depth));
        Some((Self { start: self.start, depth }, Self { start: upper, depth }))
    }

    /// The other half of the span that this one is a half of; `None` for the whole keyspace.
    #[must_use]
    pub fn buddy(self) -> Option<Self> {
        if self.depth == 0 {
            return None;
        }
        Some(Self { start: self.start ^ (1 << (64 - self.depth)), depth: self.depth })
    }
}

impl fmt::Display for KeySpan {
    /// `START/DEPTH`, the start in 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}", self.start, self.depth)
    }
}

impl fmt::Debug for KeySpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_keys_hash_never_changes() {
        assert_eq!(KeyHash::of(b""), KeyHash(0xf0b7_c136_e0b1_6cad));
        assert_eq!(KeyHash::of(b"key-1"), KeyHash(0x0c77a72d25291435));
    }

    #[test]
    fn an_unaligned_span_is_refused() {
        assert_eq!(KeySpan::new(KeyHash(1), 1), None);
        assert_eq!(KeySpan::new(KeyHash(0), 65), None);
        assert!(KeySpan::new(KeyHash(1), 64).is_some());
        assert_eq!(KeySpan::divide(3), None);
        assert_eq!(KeySpan::divide(0), None);
    }

    proptest! {
        #[test]
        fn equal_parts_hold_each_hash_exactly_once(hash: u64, power in 0u32..9) {
            let spans = KeySpan::divide(1 << power).unwrap();
            prop_assert_eq!(spans.len(), 1 << power);
            prop_assert_eq!(spans.iter().filter(|s| s.contains(KeyHash(hash))).count(), 1);
        }

        #[test]
        fn halves_are_buddies_and_fill_their_parent(start: u64, depth in 0u8..64) {
            let parent = KeySpan::new(KeyHash(start & !KeySpan::mask_below(depth)), depth).unwrap();
            let (low, high) = parent.halves().unwrap();
            prop_assert_eq!(low.buddy(), Some(high));
            prop_assert_eq!(high.buddy(), Some(low));
            prop_assert_eq!(low.first(), parent.first());
            prop_assert_eq!(high.last(), parent.last());
            prop_assert_eq!(low.last().0 + 1, high.first().0);
            prop_assert!(parent.covers(low) && parent.covers(high) && !low.covers(parent));
        }
    }
}
