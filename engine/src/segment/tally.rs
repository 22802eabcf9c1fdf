//! What is counted of a segment's batches: for its footer, its rolls and its catalog record.

use crate::format::BatchRef;

/// Counts of the batches of a segment up to some point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of their entries: what counts toward a segment's size.
    pub bytes: u64,
    /// Least timestamp of all records, in ms; 0 if there are none.
    pub timestamp_ms_min: u64,
    /// Greatest timestamp of all records, inclusive; 0 if there are none.
    pub timestamp_ms_max: u64,
}

impl Tally {
    /// Counts a batch whose entry has so many bytes.
    pub fn note(&mut self, batch: BatchRef<'_>, entry_bytes: usize) {
        let least = if self.batches == 0 { u64::MAX } else { self.timestamp_ms_min };
        self.timestamp_ms_min = least.min(batch.timestamp_ms_min());
        self.timestamp_ms_max = self.timestamp_ms_max.max(batch.timestamp_ms_max());
        self.batches += 1;
        self.records += u64::from(batch.record_count());
        self.bytes += entry_bytes as u64;
    }
}
