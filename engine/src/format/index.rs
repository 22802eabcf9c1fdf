//! The sparse index of a segment: from an offset or a time to a position at which to begin reading.
//!
//! ```text
//!  0 offset u64   8 greatest timestamp before it, ms u64   16 position u64   24
//! ```
//! An entry stands for a batch: the offset of its first record, where its entry begins, and the greatest timestamp of *all records of
//! the segment before it*. So both columns ascend even where timestamps do not, and a search by time never begins behind the first
//! record it looks for. Positions count the bytes of the segment's entries in this copy, through all its files.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::types::Offset;

/// Bytes of an index entry.
pub const INDEX_ENTRY_BYTES: usize = 24;

/// A batch that a search may begin at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IndexEntry {
    offset: U64,
    timestamp_ms_before: U64,
    position: U64,
}

const _: () = assert!(
    size_of::<IndexEntry>() == INDEX_ENTRY_BYTES
        && std::mem::offset_of!(IndexEntry, timestamp_ms_before) == 8
        && std::mem::offset_of!(IndexEntry, position) == 16
);

impl IndexEntry {
    /// Of the batch that begins with `offset` at `position`, when no record before it is later than `timestamp_ms_before`.
    #[must_use]
    pub fn new(offset: Offset, timestamp_ms_before: u64, position: u64) -> Self {
        Self { offset: offset.0.into(), timestamp_ms_before: timestamp_ms_before.into(), position: position.into() }
    }

    /// The offset of the batch's first record.
    #[must_use]
    pub fn offset(&self) -> Offset {
        Offset(self.offset.get())
    }

    /// No record of the segment before this batch is later.
    #[must_use]
    pub fn timestamp_ms_before(&self) -> u64 {
        self.timestamp_ms_before.get()
    }

    /// Where the batch's entry begins, in bytes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.get()
    }
}

/// The last entry at or before `offset`, or `None` if reading has to begin at the segment's start.
#[must_use]
pub fn find_offset(index: &[IndexEntry], offset: Offset) -> Option<&IndexEntry> {
    index[..index.partition_point(|entry| entry.offset() <= offset)].last()
}

/// The last entry before which every record is earlier than `timestamp_ms`, or `None` if reading has to begin at the segment's start.
/// From there the first record that is not earlier is the first of the segment.
#[must_use]
pub fn find_time(index: &[IndexEntry], timestamp_ms: u64) -> Option<&IndexEntry> {
    index[..index.partition_point(|entry| entry.timestamp_ms_before() < timestamp_ms)].last()
}

/// Whether both columns and the positions ascend, offsets and positions strictly.
#[must_use]
pub fn is_ordered(index: &[IndexEntry]) -> bool {
    index.is_sorted_by(|a, b| {
        a.offset() < b.offset() && a.position() < b.position() && a.timestamp_ms_before() <= b.timestamp_ms_before()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn before_the_first_entry_reading_begins_at_the_start() {
        let index = [IndexEntry::new(Offset(10), 5, 100)];
        assert_eq!(find_offset(&index, Offset(9)), None);
        assert_eq!(find_offset(&index, Offset(10)).unwrap().position(), 100);
        assert_eq!(find_time(&index, 5), None);
        assert_eq!(find_time(&index, 6).unwrap().position(), 100);
    }

    proptest! {
        #[test]
        fn a_search_by_time_never_begins_behind_the_first_record(times in prop::collection::vec(0u64..50, 1..40), wanted in 0u64..60) {
            let mut index = Vec::new();
            let mut greatest = 0;
            for (i, &time) in times.iter().enumerate() {
                if i % 3 == 1 {
                    index.push(IndexEntry::new(Offset(i as u64), greatest, i as u64 * 100));
                }
                greatest = greatest.max(time);
            }
            prop_assert!(is_ordered(&index));
            let begin = find_time(&index, wanted).map_or(0, |e| usize::try_from(e.offset().0).unwrap());
            let first = times.iter().position(|t| *t >= wanted);
            prop_assert_eq!(times[begin..].iter().position(|t| *t >= wanted).map(|i| i + begin), first);
        }
    }
}
