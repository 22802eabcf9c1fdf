//! Where the next group goes, and what may be overwritten.
//!
//! A position counts the bytes from a generation's start, on through all laps: so it only grows, and its place in the files is its
//! remainder by the ring's length.
//!
//! ```text
//! position   0 ........ F | F ........ 2F | 2F ....... 3F | 3F ...      F bytes a file, two files
//! file          0         |      1        |      0        |   1
//! ```
//! Groups never wrap inside a file: one that does not fit the rest of a file starts at the next file's start. The gap counts as used.
//! Whoever looks for the next group looks at both places.
//!
//! Invariant: from the live mark to the next there is never more than one ring.

use crate::types::limits::{BLOCK, GROUP_BYTES_MAX};

/// Bytes from a generation's start, through all laps of the ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);

/// The files of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    files: u16,
    file_bytes: u64,
}

/// A point between two groups: the next one has this sequence, is looked for from this position on, and carries this digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Sequence of the next group.
    pub sequence: u64,
    /// Where the group before ends.
    pub position: Position,
    /// Digest of the group before; 0 before the first.
    pub previous: u64,
}

/// Where a group will lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its sequence.
    pub sequence: u64,
    /// Its position.
    pub position: Position,
    /// The digest of the group before it.
    pub previous: u64,
}

impl Mark {
    /// Before the first group of a generation.
    pub const BEGIN: Self = Self { sequence: 0, position: Position(0), previous: 0 };
}

impl Geometry {
    /// A ring of `files` files of `file_bytes` bytes.
    ///
    /// # Panics
    /// If there is no file, or they are empty or not whole blocks.
    #[must_use]
    pub fn new(files: u16, file_bytes: u64) -> Self {
        assert!(files > 0 && file_bytes > 0, "a ring has files with room");
        assert!(file_bytes.is_multiple_of(BLOCK as u64), "a journal file is whole blocks");
        Self { files, file_bytes }
    }

    /// Its files.
    #[must_use]
    pub fn files(self) -> u16 {
        self.files
    }

    /// Bytes of one of them.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        self.file_bytes
    }

    /// Bytes of the whole ring.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.file_bytes * u64::from(self.files)
    }

    /// File, and byte offset in it, of a position.
    #[must_use]
    pub fn locate(self, position: Position) -> (u16, u64) {
        let in_ring = position.0 % self.bytes();
        let file = u16::try_from(in_ring / self.file_bytes).expect("below the number of files");
        (file, in_ring % self.file_bytes)
    }

    /// The position from which a group of `length` bytes does not run beyond its file: `position`, or the next file's start.
    #[must_use]
    pub fn fit(self, position: Position, length: u64) -> Position {
        let (_, offset) = self.locate(position);
        if offset + length <= self.file_bytes { position } else { self.next_file(position) }
    }

    /// The start of the next file.
    #[must_use]
    pub fn next_file(self, position: Position) -> Position {
        Position((position.0 / self.file_bytes + 1) * self.file_bytes)
    }

    /// Bytes of the largest group that should be made of several entries: groups must stay small against a small ring. One entry alone
    /// may be larger, up to a file.
    #[must_use]
    pub fn group_bytes_max(self) -> usize {
        let quarter = usize::try_from(self.file_bytes / 4).unwrap_or(GROUP_BYTES_MAX);
        quarter.clamp(BLOCK, GROUP_BYTES_MAX)
    }
}

/// The ring as it is being written.
#[derive(Clone, Debug)]
pub struct Ring {
    geometry: Geometry,
    next: Mark,
    live: Mark,
}

impl Ring {
    /// At the beginning of a generation: nothing is live, the next group is the first.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, next: Mark::BEGIN, live: Mark::BEGIN }
    }

    /// Its files.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Behind the last group taken.
    #[must_use]
    pub fn next(&self) -> Mark {
        self.next
    }

    /// Before the first group that must not be overwritten.
    #[must_use]
    pub fn live(&self) -> Mark {
        self.live
    }

    /// Bytes that hold live groups, gaps included.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.next.position.0 - self.live.position.0
    }

    /// Bytes that may be overwritten.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.geometry.bytes() - self.used_bytes()
    }

    /// Where a group of `length` bytes would go; `None` if it would overwrite what is live.
    ///
    /// # Panics
    /// If it is longer than a file.
    #[must_use]
    pub fn slot(&self, length: u64) -> Option<Slot> {
        assert!(length <= self.geometry.file_bytes, "a group of {length} bytes fits a journal file");
        let position = self.geometry.fit(self.next.position, length);
        let used = position.0 + length - self.live.position.0;
        let Mark { sequence, previous, .. } = self.next;
        (used <= self.geometry.bytes()).then_some(Slot { sequence, position, previous })
    }

    /// Whether produce may still be taken when a group of `length` bytes comes of it: an eighth of the ring stays for promises, seals,
    /// roll marks and checkpoints.
    #[must_use]
    pub fn admits(&self, length: u64) -> bool {
        let position = self.geometry.fit(self.next.position, length.min(self.geometry.file_bytes));
        let used = position.0 + length - self.live.position.0;
        used <= self.geometry.bytes() - self.geometry.bytes() / 8
    }

    /// Takes note of a group that was composed for its slot. A marker is not taken: the next group overwrites it.
    ///
    /// # Panics
    /// If the slot was not the next.
    pub fn take(&mut self, slot: Slot, length: u64, digest: u64) {
        let is_next = slot.sequence == self.next.sequence
            && slot.previous == self.next.previous
            && slot.position >= self.next.position;
        assert!(is_next, "groups are taken in order");
        self.next =
            Mark { sequence: slot.sequence + 1, position: Position(slot.position.0 + length), previous: digest };
        assert!(self.used_bytes() <= self.geometry.bytes(), "a live group is never overwritten");
    }

    /// All groups before `mark` may be overwritten: a catalog that holds what they held is durable.
    ///
    /// # Panics
    /// If `mark` is not between the live mark and the next.
    pub fn release(&mut self, mark: Mark) {
        let ordered = (self.live.position..=self.next.position).contains(&mark.position)
            && (self.live.sequence..=self.next.sequence).contains(&mark.sequence);
        assert!(ordered, "what is released lies between the live mark and the next");
        self.live = mark;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const B: u64 = BLOCK as u64;

    #[test]
    fn a_group_that_does_not_fit_starts_at_the_next_file() {
        let geometry = Geometry::new(2, 4 * B);
        assert_eq!(geometry.fit(Position(3 * B), B), Position(3 * B));
        assert_eq!(geometry.fit(Position(3 * B), 2 * B), Position(4 * B));
        assert_eq!(geometry.fit(Position(11 * B), 2 * B), Position(12 * B));
        assert_eq!(geometry.locate(Position(12 * B)), (1, 0));
        assert_eq!(geometry.next_file(Position(4 * B)), Position(8 * B));
    }

    #[test]
    fn admission_stops_while_an_eighth_is_free_and_promises_still_go() {
        let mut ring = Ring::new(Geometry::new(2, 8 * B));
        while ring.admits(B) {
            let slot = ring.slot(B).unwrap();
            ring.take(slot, B, slot.sequence);
        }
        assert_eq!(ring.free_bytes(), 2 * B);
        for _ in 0..2 {
            let slot = ring.slot(B).unwrap();
            ring.take(slot, B, slot.sequence);
        }
        assert_eq!(ring.slot(B), None);
        ring.release(ring.next());
        assert_eq!(ring.free_bytes(), 16 * B);
    }

    #[test]
    fn groups_of_a_small_ring_stay_small() {
        assert_eq!(Geometry::new(2, 1 << 20).group_bytes_max(), 256 << 10);
        assert_eq!(Geometry::new(2, 128 << 20).group_bytes_max(), GROUP_BYTES_MAX);
        assert_eq!(Geometry::new(2, B).group_bytes_max(), BLOCK);
    }

    proptest! {
        #[test]
        fn live_groups_never_overlap(lengths in prop::collection::vec(1u64..8, 1..200), keep in 1usize..6) {
            let geometry = Geometry::new(3, 8 * B);
            let mut ring = Ring::new(geometry);
            let mut live = std::collections::VecDeque::new();
            for length in lengths {
                let length = length * B;
                let Some(slot) = ring.slot(length) else {
                    while live.len() > keep {
                        live.pop_front();
                    }
                    let (mark, ..): (Mark, u64, u64) = live[0];
                    ring.release(mark);
                    continue;
                };
                let (file, offset) = geometry.locate(slot.position);
                prop_assert!(offset + length <= geometry.file_bytes());
                let start = u64::from(file) * geometry.file_bytes() + offset;
                for (_, other, other_length) in &live {
                    prop_assert!(start + length <= *other || other + other_length <= start);
                }
                live.push_back((ring.next(), start, length));
                ring.take(slot, length, 1);
            }
        }
    }
}
