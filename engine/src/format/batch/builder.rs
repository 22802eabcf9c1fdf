//! Builds batches, one after another in the same memory.
//!
//! A record's timestamp is stored as its distance from the batch's least, which is known only at the end. So distances are first taken
//! from the first record's timestamp, wrapping; where that turns out not to be the least, all records are written once more at the end.
//! What fits is judged by the greatest distance that any record can then have.

use zerocopy::IntoBytes;

use super::header::{BATCH_HEADER_BYTES, BatchHeader, HeaderParts, Stamp};
use crate::format::checksum::checksum;
use crate::format::record::{Cursor, RecordKey, put_record, record_bytes, varint_bytes};
use crate::types::KeyHash;
use crate::types::limits::BATCH_BYTES_CEILING;

/// A record does not fit the batch any more; into an empty one it never will.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("with this record the batch could take {bytes} bytes, more than the {max} allowed")]
pub struct BatchFull {
    /// Bytes that the batch could then take.
    pub bytes: usize,
    /// Bytes that it may take.
    pub max: usize,
}

/// Collects records and makes a batch of them. Its memory is kept from one batch to the next.
#[derive(Debug)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    rewritten: Vec<u8>,
    bytes_max: usize,
    /// Bytes of all records without their timestamp deltas.
    bare_bytes: usize,
    count: u32,
    timestamp_ms_base: u64,
    timestamps_ms: (u64, u64),
    key_hashes: (KeyHash, KeyHash),
    finished: bool,
}

impl BatchBuilder {
    /// For batches of at most `max_batch` bytes, the producer's header included.
    ///
    /// # Panics
    /// If `max_batch` is above [`BATCH_BYTES_CEILING`].
    #[must_use]
    pub fn new(max_batch: usize) -> Self {
        assert!(max_batch <= BATCH_BYTES_CEILING, "no configuration allows batches above the ceiling");
        let mut builder = Self {
            bytes: Vec::new(),
            rewritten: Vec::new(),
            bytes_max: max_batch,
            bare_bytes: 0,
            count: 0,
            timestamp_ms_base: 0,
            timestamps_ms: (u64::MAX, 0),
            key_hashes: (KeyHash(u64::MAX), KeyHash(0)),
            finished: false,
        };
        builder.clear();
        builder
    }

    /// Forgets all records, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(BATCH_HEADER_BYTES, 0);
        self.bare_bytes = 0;
        self.count = 0;
        self.timestamps_ms = (u64::MAX, 0);
        self.key_hashes = (KeyHash(u64::MAX), KeyHash(0));
        self.finished = false;
    }

    /// Records collected.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The most bytes that the batch of what is collected can take.
    #[must_use]
    pub fn bytes_bound(&self) -> usize {
        self.bound(self.count, self.bare_bytes, self.timestamps_ms)
    }

    fn bound(&self, count: u32, bare_bytes: usize, (min, max): (u64, u64)) -> usize {
        BATCH_HEADER_BYTES + bare_bytes + count as usize * varint_bytes(max.saturating_sub(min))
    }

    fn widened(&self, timestamp_ms: u64) -> (u64, u64) {
        (self.timestamps_ms.0.min(timestamp_ms), self.timestamps_ms.1.max(timestamp_ms))
    }

    /// The most bytes that the batch could take with this record too.
    #[must_use]
    pub fn bytes_with(
        &self,
        key: RecordKey<'_>,
        value: Option<&[u8]>,
        headers: &[(&[u8], &[u8])],
        timestamp_ms: u64,
    ) -> usize {
        let bare_bytes = self.bare_bytes + record_bytes(key, value, headers);
        self.bound(self.count + 1, bare_bytes, self.widened(timestamp_ms))
    }

    /// Whether the record would fit.
    #[must_use]
    pub fn would_fit(
        &self,
        key: RecordKey<'_>,
        value: Option<&[u8]>,
        headers: &[(&[u8], &[u8])],
        timestamp_ms: u64,
    ) -> bool {
        self.bytes_with(key, value, headers, timestamp_ms) <= self.bytes_max
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If it does not fit; nothing is changed.
    ///
    /// # Panics
    /// After [`finish`](Self::finish), before [`clear`](Self::clear).
    pub fn push(
        &mut self,
        key: RecordKey<'_>,
        value: Option<&[u8]>,
        headers: &[(&[u8], &[u8])],
        timestamp_ms: u64,
    ) -> Result<(), BatchFull> {
        assert!(!self.finished, "a finished batch is cleared before it is filled again");
        let bytes = self.bytes_with(key, value, headers, timestamp_ms);
        if bytes > self.bytes_max {
            return Err(BatchFull { bytes, max: self.bytes_max });
        }
        if self.count == 0 {
            self.timestamp_ms_base = timestamp_ms;
        }
        let hash = key.hash();
        self.bare_bytes += record_bytes(key, value, headers);
        self.count += 1;
        self.timestamps_ms = self.widened(timestamp_ms);
        self.key_hashes = (self.key_hashes.0.min(hash), self.key_hashes.1.max(hash));
        let delta = timestamp_ms.wrapping_sub(self.timestamp_ms_base);
        put_record(&mut self.bytes, key, value, (headers.len(), headers.iter().copied()), delta);
        Ok(())
    }

    /// The finished batch. It stands until [`clear`](Self::clear); finishing again gives the same records another stamp.
    ///
    /// # Panics
    /// If there is no record.
    pub fn finish(&mut self, stamp: Stamp) -> &[u8] {
        assert!(self.count > 0, "a batch has at least one record");
        if self.timestamps_ms.0 != self.timestamp_ms_base {
            self.rewrite();
        }
        self.finished = true;
        let header = BatchHeader::new(&HeaderParts {
            length: u32::try_from(self.bytes.len()).expect("a batch is at most 16 MiB"),
            stamp,
            record_count: self.count,
            timestamps_ms: self.timestamps_ms,
            key_hashes: self.key_hashes,
        });
        self.bytes[..BATCH_HEADER_BYTES].copy_from_slice(header.as_bytes());
        let sum = checksum(0, &self.bytes[4..]);
        self.bytes[..4].copy_from_slice(&sum.to_le_bytes());
        &self.bytes
    }

    /// Writes all records once more, their timestamps counted from the least.
    fn rewrite(&mut self) {
        let (base, least) = (self.timestamp_ms_base, self.timestamps_ms.0);
        self.rewritten.clear();
        self.rewritten.resize(BATCH_HEADER_BYTES, 0);
        let mut cursor = Cursor { bytes: &self.bytes[BATCH_HEADER_BYTES..] };
        for _ in 0..self.count {
            let record =
                cursor.record_at(|delta| Some(base.wrapping_add(delta))).expect("this builder wrote the record");
            let headers = (record.headers.len(), record.headers);
            put_record(&mut self.rewritten, record.key, record.value, headers, record.timestamp_ms - least);
        }
        std::mem::swap(&mut self.bytes, &mut self.rewritten);
        self.timestamp_ms_base = least;
    }
}
