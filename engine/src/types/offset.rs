//! Counters of records in a range and of batches of a producer. Starts are inclusive, ends exclusive.

use std::fmt;

/// Counts records in a range from 0. Never a byte position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub u64);

/// Counts the batches of one producer in one range from 0, in one run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence(pub u64);

impl Offset {
    /// The first offset of a range.
    pub const ZERO: Self = Self(0);

    /// The offset `records` further on.
    ///
    /// # Panics
    /// If it does not fit 64 bits: no range gets that far, so it is a bug.
    #[must_use]
    pub fn plus(self, records: u64) -> Self {
        Self(self.0.checked_add(records).expect("an offset fits 64 bits"))
    }

    /// Records from `start` (inclusive) to `self` (exclusive).
    ///
    /// # Panics
    /// If `start` is above `self`.
    #[must_use]
    pub fn since(self, start: Self) -> u64 {
        self.0.checked_sub(start.0).expect("a span does not end before it starts")
    }
}

impl Sequence {
    /// The sequence after this one.
    ///
    /// # Panics
    /// If it does not fit 64 bits.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a sequence fits 64 bits"))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
