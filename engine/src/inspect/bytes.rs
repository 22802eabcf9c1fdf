//! A segment's bytes as one run of positions, whatever files they lie in, read ahead in large pieces.
//!
//! Invariant: nothing at or behind `limit` is given.

use std::ops::Range;

use crate::api::port::{DataFile, Store, StoreError};
use crate::segment::catalog::SegmentRecord;
use crate::types::limits::{BLOCK, round_up_to_block};

/// Bytes that are read at once.
const AHEAD_BYTES: usize = 1 << 20;

/// The bytes, and a window of them in memory.
pub(super) struct SegmentBytes<'a> {
    store: &'a mut dyn Store,
    record: &'a SegmentRecord,
    limit: u64,
    begin: u64,
    window: Vec<u8>,
    /// Positions that the device could not read, of the window.
    unreadable: Vec<Range<u64>>,
}

impl<'a> SegmentBytes<'a> {
    pub(super) fn new(store: &'a mut dyn Store, record: &'a SegmentRecord, limit: u64) -> Self {
        Self { store, record, limit, begin: 0, window: Vec::new(), unreadable: Vec::new() }
    }

    /// The bytes from `position` on: at least `wanted`, unless the limit or the file's end comes before.
    ///
    /// # Errors
    /// A file that is there cannot be opened.
    pub(super) fn at(&mut self, position: u64, wanted: usize) -> Result<&[u8], StoreError> {
        let end = position.saturating_add(wanted as u64).min(self.limit);
        if position < self.begin || end > self.begin + self.window.len() as u64 {
            self.load(position, wanted)?;
        }
        let at = usize::try_from(position - self.begin).expect("a window fits memory").min(self.window.len());
        Ok(&self.window[at..])
    }

    /// Whether the device could not read some of these bytes, which lie in the window.
    pub(super) fn is_unreadable(&self, position: u64, length: usize) -> bool {
        let end = position + length as u64;
        self.unreadable.iter().any(|span| span.start < end && position < span.end)
    }

    fn load(&mut self, position: u64, wanted: usize) -> Result<(), StoreError> {
        self.begin = position - position % BLOCK as u64;
        self.window.clear();
        self.unreadable.clear();
        let within = usize::try_from(position - self.begin).expect("below a block");
        let end = self.limit.min(self.begin + round_up_to_block(within + wanted).max(AHEAD_BYTES) as u64);
        while self.begin + (self.window.len() as u64) < end {
            let from = self.begin + self.window.len() as u64;
            let Some((part, position, run)) = self.record.locate(from) else { break };
            let file = DataFile::Segment { segment: self.record.segment(), part };
            if self.store.length(file)?.is_none() {
                break;
            }
            let length = usize::try_from((end - from).min(run)).expect("a window fits memory");
            let read = self.store.read(file, position, length)?;
            self.window.extend_from_slice(&read.bytes[..read.length]);
            self.unreadable.extend(read.unreadable.iter().map(|span| from + span.start as u64..from + span.end as u64));
            if read.length < length {
                break;
            }
        }
        Ok(())
    }
}

/// The file and the byte in it of a position of a segment; behind its last file's end, in that file.
pub(super) fn place(record: &SegmentRecord, position: u64) -> (DataFile, u64) {
    let segment = record.segment();
    let (part, at) = match record.locate(position) {
        Some((part, at, _)) => (part, at),
        None => record.extents.last().map_or((0, position), |last| {
            let before: u64 = record.extents.iter().rev().skip(1).map(|extent| extent.length).sum();
            (last.part, last.start + position.saturating_sub(before))
        }),
    };
    (DataFile::Segment { segment, part }, at)
}
