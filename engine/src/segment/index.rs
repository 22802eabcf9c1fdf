//! The sparse index of a segment that is still being written: one entry for about each 64 KiB of entries.
//!
//! It leaves out what lies densely: a search begins at the batch that an entry names and walks on from there. In the footer of a
//! sealed segment it lies as `format::index` says.

use crate::format::IndexEntry;
use crate::format::index::find_offset;
use crate::types::Offset;

/// Bytes between two entries, at least.
pub const INDEX_SPACING: u64 = 64 << 10;

/// Index entries in the order of their offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseIndex {
    entries: Vec<IndexEntry>,
}

impl SparseIndex {
    /// The index of these entries, which ascend: as a catalog or a footer keeps it.
    #[must_use]
    pub fn from_entries(entries: Vec<IndexEntry>) -> Self {
        Self { entries }
    }

    /// Takes note of the batch that begins with `offset` at `position`, when no record before it is later than
    /// `timestamp_ms_before`.
    pub fn note(&mut self, offset: Offset, position: u64, timestamp_ms_before: u64) {
        if self.entries.last().is_none_or(|last| position - last.position() >= INDEX_SPACING) {
            self.entries.push(IndexEntry::new(offset, timestamp_ms_before, position));
        }
    }

    /// All entries, ascending.
    #[must_use]
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// The entries of batches that begin below `position` (exclusive).
    #[must_use]
    pub fn entries_below(&self, position: u64) -> &[IndexEntry] {
        &self.entries[..self.entries.partition_point(|entry| entry.position() < position)]
    }

    /// Where to begin reading for `offset`: the offset and position of a batch that begins at or before it. `None`: at the first
    /// entry of the segment.
    #[must_use]
    pub fn find_offset(&self, offset: Offset) -> Option<(Offset, u64)> {
        find_offset(&self.entries, offset).map(|entry| (entry.offset(), entry.position()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::index::is_ordered;

    #[test]
    fn an_entry_is_kept_for_each_64_kib_and_knows_what_came_before_it() {
        let mut index = SparseIndex::default();
        for i in 0..100u64 {
            index.note(Offset(i * 3), 4096 + i * 10_000, 1_000 + i / 50);
        }
        assert_eq!(index.entries().len(), 15);
        assert!(is_ordered(index.entries()));
        assert_eq!(index.find_offset(Offset(0)), Some((Offset(0), 4096)));
        assert_eq!(index.find_offset(Offset(20)), Some((Offset(0), 4096)));
        assert_eq!(index.find_offset(Offset(21)), Some((Offset(21), 74_096)));
        let first_later = index.entries().iter().find(|entry| entry.timestamp_ms_before() > 1_000);
        assert_eq!(first_later.map(|entry| entry.offset()), Some(Offset(56 * 3)), "no record before batch 50 is later");
        assert_eq!(index.entries_below(74_096).len(), 1);
    }
}
