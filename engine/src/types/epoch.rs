//! Fencing numbers. Each only grows; whoever has seen a greater one refuses the smaller for ever.

use std::fmt;

/// A range's fencing number, given only by the metadata group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// A producer's fencing number: opening an id again raises it and so fences the earlier holder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ProducerEpoch(pub u32);

/// Belongs to one (producer, range); raised by the client library when a record is given up, so that an old sequence
/// number can never be taken for another batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Run(pub u32);

impl Epoch {
    /// The epoch after this one.
    ///
    /// # Panics
    /// If it does not fit 64 bits.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("an epoch fits 64 bits"))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ProducerEpoch {
    /// The epoch under which an id is first given.
    pub const FIRST: Self = Self(1);
}
