//! The producer's part of a batch: its header, and a verified view of header and records.
//!
//! ```text
//!  0 checksum u32 (of bytes 4 to the end)   4 length u32 (header and records)   8 version u8   9 digest version u8
//! 10 flags u16 (bits 0–2 codec, bit 3 last of this producer)   12 reserved u16   14 keyspace version u16
//! 16 producer u64   24 sequence u64   32 producer epoch u32   36 run u32   40 record count u32   44 reserved u32
//! 48 least timestamp, ms u64   56 greatest timestamp, ms u64   64 least key hash u64   72 greatest key hash u64   80 records …
//! ```
//! All bounds are inclusive. What is reserved is 0.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::checksum::checksum;
use crate::format::record::{Cursor, RECORD_BYTES_MIN, RecordFault, RecordRef};
use crate::format::upgrade::Newer;
use crate::types::keyspace::KEYSPACE_VERSION;
use crate::types::{KeyHash, KeySpan, ProducerEpoch, ProducerId, Run, Sequence};

/// Bytes of a batch before its records.
pub const BATCH_HEADER_BYTES: usize = 80;
/// Version of the batch's header and of its records.
pub const BATCH_VERSION: u8 = 1;
/// Version of the running digest that the batch is chained by.
pub const DIGEST_VERSION: u8 = 1;

const CODEC_BITS: u16 = 0b111;
const LAST_OF_PRODUCER: u16 = 1 << 3;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BatchHeader {
    pub(super) checksum: U32,
    pub(super) length: U32,
    pub(super) version: u8,
    pub(super) digest_version: u8,
    flags: U16,
    reserved_slot: U16,
    keyspace_version: U16,
    producer: U64,
    sequence: U64,
    producer_epoch: U32,
    run: U32,
    pub(super) record_count: U32,
    reserved: U32,
    timestamp_ms_min: U64,
    timestamp_ms_max: U64,
    key_hash_min: U64,
    key_hash_max: U64,
}

const _: () = assert!(
    size_of::<BatchHeader>() == BATCH_HEADER_BYTES
        && std::mem::offset_of!(BatchHeader, length) == 4
        && std::mem::offset_of!(BatchHeader, version) == 8
        && std::mem::offset_of!(BatchHeader, flags) == 10
        && std::mem::offset_of!(BatchHeader, keyspace_version) == 14
        && std::mem::offset_of!(BatchHeader, producer) == 16
        && std::mem::offset_of!(BatchHeader, sequence) == 24
        && std::mem::offset_of!(BatchHeader, producer_epoch) == 32
        && std::mem::offset_of!(BatchHeader, run) == 36
        && std::mem::offset_of!(BatchHeader, record_count) == 40
        && std::mem::offset_of!(BatchHeader, timestamp_ms_min) == 48
        && std::mem::offset_of!(BatchHeader, timestamp_ms_max) == 56
        && std::mem::offset_of!(BatchHeader, key_hash_min) == 64
        && std::mem::offset_of!(BatchHeader, key_hash_max) == 72
);

/// Who sends a batch, and which one of theirs it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// The producer.
    pub producer: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Its run in this range.
    pub run: Run,
    /// The batch's number in the run.
    pub sequence: Sequence,
    /// No batch of this producer follows in this range.
    pub last: bool,
}

/// What a finished batch's header is made of.
pub(super) struct HeaderParts {
    pub(super) length: u32,
    pub(super) stamp: Stamp,
    pub(super) record_count: u32,
    pub(super) timestamps_ms: (u64, u64),
    pub(super) key_hashes: (KeyHash, KeyHash),
}

impl BatchHeader {
    /// With the checksum still 0.
    pub(super) fn new(parts: &HeaderParts) -> Self {
        Self {
            checksum: 0.into(),
            length: parts.length.into(),
            version: BATCH_VERSION,
            digest_version: DIGEST_VERSION,
            flags: if parts.stamp.last { LAST_OF_PRODUCER } else { 0 }.into(),
            reserved_slot: 0.into(),
            keyspace_version: u16::from(KEYSPACE_VERSION).into(),
            producer: parts.stamp.producer.0.into(),
            sequence: parts.stamp.sequence.0.into(),
            producer_epoch: parts.stamp.epoch.0.into(),
            run: parts.stamp.run.0.into(),
            record_count: parts.record_count.into(),
            reserved: 0.into(),
            timestamp_ms_min: parts.timestamps_ms.0.into(),
            timestamp_ms_max: parts.timestamps_ms.1.into(),
            key_hash_min: parts.key_hashes.0.0.into(),
            key_hash_max: parts.key_hashes.1.0.into(),
        }
    }
}

/// Why bytes are not a batch.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchError {
    /// The header's length is not that of the bytes.
    #[error("a batch says it is {claimed} bytes long, and {found} bytes are here")]
    Length {
        /// What the header says; 0 if not even a header is there.
        claimed: u32,
        /// Bytes that there are.
        found: usize,
    },
    /// Longer than allowed.
    #[error("a batch of {length} bytes is longer than the {max} allowed")]
    TooLarge {
        /// Its bytes.
        length: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// The producer's checksum says otherwise.
    #[error("the batch's checksum is {stored:08x}, its bytes give {computed:08x}")]
    Checksum {
        /// The producer's checksum.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// Of a version that this build does not know.
    #[error(transparent)]
    Newer(#[from] Newer),
    /// Compressed in a way that this build does not know.
    #[error("the batch's codec {found} is unknown")]
    Codec {
        /// Its number.
        found: u16,
    },
    /// A header field that has no meaning: flags or reserved bytes set, bounds the wrong way round, a count that the bytes cannot hold.
    #[error("the batch's header contradicts itself")]
    Header,
}

/// What is wrong with the records of a batch whose checksum is right.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("record {index} of the batch: {fault}")]
pub struct RecordError {
    /// The record, from 0.
    pub index: u32,
    /// What is wrong.
    pub fault: RecordFault,
}

/// A verified batch: its lengths, versions and header make sense and the producer's checksum is right. The records are not yet walked.
#[derive(Clone, Copy)]
pub struct BatchRef<'a> {
    header: &'a BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchRef<'a> {
    /// Verifies that `bytes` are exactly one batch of at most `max_batch` bytes.
    ///
    /// # Errors
    /// Why they are not.
    pub fn verify(bytes: &'a [u8], max_batch: usize) -> Result<Self, BatchError> {
        if bytes.len() > max_batch {
            return Err(BatchError::TooLarge { length: bytes.len(), max: max_batch });
        }
        let batch = Self::trust(bytes)?;
        let computed = checksum(0, &bytes[4..]);
        let stored = batch.checksum();
        if stored != computed {
            return Err(BatchError::Checksum { stored, computed });
        }
        batch.judge_header()?;
        Ok(batch)
    }

    /// The same without the checksum and what it proves: for bytes that were verified when they came and have not left this process.
    ///
    /// # Errors
    /// If the length is not that of the bytes.
    pub fn trust(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let Ok((header, _)) = BatchHeader::ref_from_prefix(bytes) else {
            return Err(BatchError::Length { claimed: 0, found: bytes.len() });
        };
        if header.length.get() as usize != bytes.len() {
            return Err(BatchError::Length { claimed: header.length.get(), found: bytes.len() });
        }
        Ok(Self { header, bytes })
    }

    fn judge_header(self) -> Result<(), BatchError> {
        let h = self.header;
        let keyspace = u16::from(KEYSPACE_VERSION);
        for (what, found, supported) in [
            ("batch", u32::from(h.version), u32::from(BATCH_VERSION)),
            ("running digest", u32::from(h.digest_version), u32::from(DIGEST_VERSION)),
            ("keyspace", u32::from(h.keyspace_version.get()), u32::from(keyspace)),
        ] {
            if found > supported {
                return Err(Newer { what, found, supported }.into());
            }
        }
        match h.flags.get() & CODEC_BITS {
            0 => {}
            found => return Err(BatchError::Codec { found }),
        }
        let records = (self.bytes.len() - BATCH_HEADER_BYTES) / RECORD_BYTES_MIN;
        let sound = h.version == BATCH_VERSION
            && h.digest_version == DIGEST_VERSION
            && h.keyspace_version.get() == keyspace
            && h.flags.get() & !LAST_OF_PRODUCER == 0
            && h.reserved_slot.get() == 0
            && h.reserved.get() == 0
            && (1..=records).contains(&(h.record_count.get() as usize))
            && h.timestamp_ms_min.get() <= h.timestamp_ms_max.get()
            && h.key_hash_min.get() <= h.key_hash_max.get();
        if sound { Ok(()) } else { Err(BatchError::Header) }
    }

    /// Walks all records: a batch that passes has nothing that a reader would refuse. Each must lie inside the header's bounds and its
    /// key hash inside `span`; they must be as many as the header says and fill the batch.
    ///
    /// # Errors
    /// The first record that is wrong, and how.
    pub fn walk(self, span: KeySpan) -> Result<(), RecordError> {
        let timestamps = self.timestamp_ms_min()..=self.timestamp_ms_max();
        let hashes = self.key_hash_min()..=self.key_hash_max();
        let mut records = self.records();
        let mut index = 0;
        for record in records.by_ref() {
            let record = record?;
            let hash = record.key.hash();
            let fault = if !timestamps.contains(&record.timestamp_ms) {
                RecordFault::Timestamp
            } else if !hashes.contains(&hash) {
                RecordFault::HashBounds(hash)
            } else if !span.contains(hash) {
                RecordFault::HashSpan(hash)
            } else {
                index += 1;
                continue;
            };
            return Err(RecordError { index, fault });
        }
        match records.cursor.bytes.len() {
            0 => Ok(()),
            left => Err(RecordError { index, fault: RecordFault::Trailing(left) }),
        }
    }

    /// Its records in order.
    #[must_use]
    pub fn records(self) -> Records<'a> {
        Records {
            cursor: Cursor { bytes: &self.bytes[BATCH_HEADER_BYTES..] },
            timestamp_ms_min: self.timestamp_ms_min(),
            index: 0,
            count: self.record_count(),
        }
    }

    /// Header and records, as the producer sent them.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// What the producer's checksum covers: all but its own four bytes.
    #[must_use]
    pub fn body(self) -> &'a [u8] {
        &self.bytes[4..]
    }

    /// The producer's checksum.
    #[must_use]
    pub fn checksum(self) -> u32 {
        self.header.checksum.get()
    }

    /// Who sent it, and which of theirs it is.
    #[must_use]
    pub fn stamp(self) -> Stamp {
        Stamp {
            producer: self.producer(),
            epoch: self.producer_epoch(),
            run: self.run(),
            sequence: self.sequence(),
            last: self.is_last_of_producer(),
        }
    }

    /// Who sent it.
    #[must_use]
    pub fn producer(self) -> ProducerId {
        ProducerId(self.header.producer.get())
    }

    /// In which epoch of the producer.
    #[must_use]
    pub fn producer_epoch(self) -> ProducerEpoch {
        ProducerEpoch(self.header.producer_epoch.get())
    }

    /// In which run.
    #[must_use]
    pub fn run(self) -> Run {
        Run(self.header.run.get())
    }

    /// Its number in the run.
    #[must_use]
    pub fn sequence(self) -> Sequence {
        Sequence(self.header.sequence.get())
    }

    /// Whether the producer says that no batch of it follows in this range.
    #[must_use]
    pub fn is_last_of_producer(self) -> bool {
        self.header.flags.get() & LAST_OF_PRODUCER != 0
    }

    /// Records in it, at least 1.
    #[must_use]
    pub fn record_count(self) -> u32 {
        self.header.record_count.get()
    }

    /// Least timestamp of its records, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn timestamp_ms_min(self) -> u64 {
        self.header.timestamp_ms_min.get()
    }

    /// Greatest timestamp of its records, inclusive.
    #[must_use]
    pub fn timestamp_ms_max(self) -> u64 {
        self.header.timestamp_ms_max.get()
    }

    /// Least key hash of its records.
    #[must_use]
    pub fn key_hash_min(self) -> KeyHash {
        KeyHash(self.header.key_hash_min.get())
    }

    /// Greatest key hash of its records, inclusive.
    #[must_use]
    pub fn key_hash_max(self) -> KeyHash {
        KeyHash(self.header.key_hash_max.get())
    }

    /// Whether some record of it may lie in `span`, and whether all do.
    #[must_use]
    pub fn overlap(self, span: KeySpan) -> Overlap {
        let (min, max) = (self.key_hash_min(), self.key_hash_max());
        if span.contains(min) && span.contains(max) {
            Overlap::Whole
        } else if max < span.first() || min > span.last() {
            Overlap::Nothing
        } else {
            Overlap::Part
        }
    }
}

/// How the key hashes of a batch lie to a span, by the header's bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overlap {
    /// All records lie in it.
    Whole,
    /// Some may, some may not: filter each record.
    Part,
    /// None does.
    Nothing,
}

impl std::fmt::Debug for BatchRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (records, bytes) = (self.record_count(), self.bytes.len());
        write!(f, "batch {}{} of {records} records, {bytes} bytes", self.producer(), self.sequence())
    }
}

/// The records of a batch, up to the first that is malformed.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    cursor: Cursor<'a>,
    timestamp_ms_min: u64,
    index: u32,
    count: u32,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordRef<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            return None;
        }
        let record = self.cursor.record(self.timestamp_ms_min);
        let index = self.index;
        self.index = if record.is_ok() { index + 1 } else { self.count };
        Some(record.map_err(|fault| RecordError { index, fault }))
    }
}
