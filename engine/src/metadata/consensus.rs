//! The one door to agreement: a change is proposed here, its entry is written by whoever keeps the log, and it comes back
//! committed, in order. Behind it stands a group of one; Raft comes in at the same door.
//!
//! ```text
//!  propose -> waiting -> take_entries -> [ written to the log, durable ] -> logged -> take_committed -> apply
//! ```
//! Invariants: indexes are contiguous; an entry is committed only when it is durable on a quorum (here: on this log); at most one
//! append is under way.

use std::collections::VecDeque;

use super::change::Change;

/// A place in the metadata log, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogIndex(pub u64);

/// A change and its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub index: LogIndex,
    pub change: Change,
}

/// A replica of the metadata log, without its I/O.
#[derive(Debug)]
pub struct Consensus {
    /// Index of the next proposal.
    next: LogIndex,
    waiting: VecDeque<Entry>,
    /// Handed out to be written.
    logging: VecDeque<Entry>,
}

impl Consensus {
    /// A group of one whose log holds the entries below `next`, all of them applied.
    #[must_use]
    pub fn alone(next: LogIndex) -> Self {
        Self { next, waiting: VecDeque::new(), logging: VecDeque::new() }
    }

    /// Proposes a change. Its entry will have the index that is returned, if it is committed at all.
    pub fn propose(&mut self, change: Change) -> LogIndex {
        let index = self.next;
        self.next = LogIndex(index.0 + 1);
        self.waiting.push_back(Entry { index, change });
        index
    }

    /// Proposals that are not committed yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.logging.len()
    }

    /// Whether an append may be begun and there is something for it.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        self.logging.is_empty() && !self.waiting.is_empty()
    }

    /// Hands out the entries to append next, in order, to `accept`, up to the first that it refuses. None while an append is under
    /// way.
    pub fn take_entries(&mut self, mut accept: impl FnMut(&Entry) -> bool) {
        if self.has_entries() {
            while let Some(entry) = self.waiting.pop_front_if(|entry| accept(entry)) {
                self.logging.push_back(entry);
            }
        }
    }

    /// The append is durable: its entries are committed, in order.
    pub fn logged(&mut self) -> VecDeque<Entry> {
        std::mem::take(&mut self.logging)
    }

    /// The log cannot be written any more: proposals that were handed out may or may not be in it, the others are not.
    pub fn abandon(&mut self) -> VecDeque<Entry> {
        let mut entries = std::mem::take(&mut self.logging);
        entries.append(&mut self.waiting);
        entries
    }
}
