//! Which groups may be overwritten, and when it is time to make more of them so.
//!
//! A checkpoint at group k, in this order:
//!
//! ```text
//! (a) write the touched segments, pad each to a block, sync them and the folders of new files
//! (b) write the catalog as at k, sync it
//! (c) groups up to k may be overwritten
//! ```
//! Crash before (b) is durable: recovery replays from the older mark, whose groups are all still there. Crash after it: from the new one.
//! This file keeps count; who writes what is decided elsewhere.

use super::ring::{Mark, Ring};

/// The checkpoints of one journal, at most one under way.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    unwritten_bytes_max: u64,
    running: Option<Mark>,
}

impl Checkpoints {
    /// For a ring of `ring_bytes` and `memory_bytes` of memory for data that is in no segment yet.
    #[must_use]
    pub fn new(ring_bytes: u64, memory_bytes: u64) -> Self {
        Self { unwritten_bytes_max: (ring_bytes / 2).min(memory_bytes / 4), running: None }
    }

    /// Whether one should begin: half a ring is live, or `unwritten_bytes`, those in memory and in no segment, are many enough. Never while
    /// one is under way.
    #[must_use]
    pub fn is_due(&self, ring: &Ring, unwritten_bytes: u64) -> bool {
        let ring_is_half_full = ring.used_bytes() >= ring.geometry().bytes() / 2;
        self.running.is_none() && (ring_is_half_full || unwritten_bytes >= self.unwritten_bytes_max)
    }

    /// The mark of the one under way.
    #[must_use]
    pub fn running(&self) -> Option<Mark> {
        self.running
    }

    /// Begins one that covers all groups before `mark`, which are durable.
    ///
    /// # Panics
    /// If one is under way.
    pub fn begin(&mut self, mark: Mark) {
        assert_eq!(self.running, None, "one checkpoint at a time");
        self.running = Some(mark);
    }

    /// The catalog of the one under way is durable: what it covers may be overwritten.
    ///
    /// # Panics
    /// If none is under way.
    pub fn finish(&mut self, ring: &mut Ring) {
        ring.release(self.running.take().expect("only a checkpoint under way finishes"));
    }

    /// The one under way failed: nothing is released.
    pub fn abandon(&mut self) {
        self.running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Geometry;
    use crate::types::limits::BLOCK;

    const B: u64 = BLOCK as u64;

    fn ring(groups: u64) -> Ring {
        let mut ring = Ring::new(Geometry::new(2, 16 * B));
        for _ in 0..groups {
            let slot = ring.slot(B).unwrap();
            ring.take(slot, B, 0);
        }
        ring
    }

    #[test]
    fn a_checkpoint_is_due_by_unwritten_bytes_or_by_half_a_ring() {
        let checkpoints = Checkpoints::new(32 * B, 8 * B);
        assert!(!checkpoints.is_due(&ring(15), 2 * B - 1));
        assert!(checkpoints.is_due(&ring(15), 2 * B));
        assert!(checkpoints.is_due(&ring(16), 0));
    }

    #[test]
    fn only_a_finished_checkpoint_releases_and_only_what_it_covers() {
        let mut checkpoints = Checkpoints::new(32 * B, 8 * B);
        let mut ring = ring(20);
        let mark = ring.next();
        checkpoints.begin(mark);
        let slot = ring.slot(B).unwrap();
        ring.take(slot, B, 0);
        assert!(!checkpoints.is_due(&ring, u64::MAX));
        assert_eq!(ring.used_bytes(), 21 * B);
        checkpoints.finish(&mut ring);
        assert_eq!((ring.live(), ring.used_bytes()), (mark, B));
        checkpoints.begin(ring.next());
        checkpoints.abandon();
        assert_eq!((checkpoints.running(), ring.live()), (None, mark));
    }
}
