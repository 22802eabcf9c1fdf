//! What waits for the next journal group, in the order in which it was taken.
//!
//! ```text
//!  queue:   | batch | batch | promise | batch | ...      in the order in which they were taken
//!             \______ one group ______/ ^ barrier: a checkpoint's cut; no group reaches over it
//! ```
//! A group is all that became ready while the previous one was being written, at most 1 MiB or one batch.
//!
//! Invariants: entries leave in the order in which they came; the bodies of queued entries stay in their segments' memory, or in
//! `notes`, until they join the group that is being gathered.

use std::collections::VecDeque;

use crate::format::journal::DIRECTORY_ENTRY_BYTES;
use crate::segment::appender::Placed;
use crate::shard::range::{RangeSlot, TailSlot};
use crate::types::{RangeId, SegmentId};

/// Where an entry's bytes are until its group is composed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// In a segment's memory, exactly as they lie in the segment.
    Entry { tail: TailSlot, placed: Placed },
    /// A descriptor: the first of `notes`.
    Note,
    /// It has none.
    Nothing,
}

pub(super) use crate::format::journal::JournalEntryKind as Kind;

/// An entry that waits for a group, or is in the one under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) kind: Kind,
    pub(super) slot: RangeSlot,
    pub(super) range: RangeId,
    pub(super) segment: SegmentId,
    /// First offset; for a promise the epoch.
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) body: Body,
    /// Bytes of the body.
    pub(super) bytes: u32,
}

/// Entries on their way to the journal.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Queued>,
    /// Bodies of waiting descriptors, in the order of their entries.
    notes: VecDeque<Vec<u8>>,
    waiting_bytes: u64,
    /// Entries before a checkpoint's cut that have not gone; no group reaches over it.
    barrier: Option<usize>,
}

impl Queue {
    pub(super) fn push(&mut self, entry: Queued) {
        self.waiting_bytes += u64::from(entry.bytes);
        self.waiting.push_back(entry);
    }

    pub(super) fn push_note(&mut self, mut entry: Queued, note: Vec<u8>) {
        entry.body = Body::Note;
        entry.bytes = u32::try_from(note.len()).expect("a descriptor is small");
        self.notes.push_back(note);
        self.push(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that what waits takes in groups: bodies, and each entry's line in the directory and in its repetition.
    pub(super) fn bytes(&self) -> u64 {
        self.waiting_bytes + (self.waiting.len() * 2 * DIRECTORY_ENTRY_BYTES) as u64
    }

    /// The first entry, if the next group may hold it.
    pub(super) fn front(&self) -> Option<&Queued> {
        if self.barrier == Some(0) { None } else { self.waiting.front() }
    }

    /// Takes the first entry out; its note with it, if it has one.
    pub(super) fn pop(&mut self) -> Option<(Queued, Option<Vec<u8>>)> {
        let entry = self.waiting.pop_front()?;
        self.waiting_bytes -= u64::from(entry.bytes);
        if let Some(left) = &mut self.barrier {
            *left = left.checked_sub(1).expect("nothing is taken over the barrier");
        }
        let note = match entry.body {
            Body::Note => Some(self.notes.pop_front().expect("a descriptor has a note")),
            Body::Entry { .. } | Body::Nothing => None,
        };
        Some((entry, note))
    }

    /// Cuts behind what waits now.
    pub(super) fn set_barrier(&mut self) {
        assert!(self.barrier.is_none(), "one checkpoint at a time");
        self.barrier = Some(self.waiting.len());
    }

    /// Whether all before the cut has gone into groups; then the cut is lifted.
    pub(super) fn pass_barrier(&mut self) -> bool {
        let passed = self.barrier == Some(0);
        if passed {
            self.barrier = None;
        }
        passed
    }
}
