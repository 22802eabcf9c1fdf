//! A batch with its place: the second header, outside the producer's checksum, and the whole entry around both.
//!
//! ```text
//! the placement:
//!  0 segment u64   8 offset of the first record u64   16 epoch u64   24 append time, ms u64   32 running digest after this batch, 16 bytes
//! 48 checksum u32 (of bytes 0 to 48, then of the producer's checksum; seeded with the segment)   52 reserved u32   56 reserved u64   64
//! ```
//! A replica copies whole entries unchanged: the seed and the digest are the same on all of them. A consumer does not know the seed and
//! checks the producer's checksum only; it may follow the digests from one batch to the next ([`PlacedBatch::continues`]).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::header::{BATCH_HEADER_BYTES, BatchError, BatchRef};
use crate::format::checksum::{Digest, checksum};
use crate::format::entry::{
    ENTRY_HEADER_BYTES, EntryHeader, EntryKind, EntryRef, SegmentSeed, entry_bytes, frame, read_entry, split,
};
use crate::format::verdict::Verdict;
use crate::types::{Epoch, Offset, SegmentId};

/// Bytes of a placement.
pub const PLACEMENT_BYTES: usize = 64;
/// Bytes of the placement that its checksum covers.
const COVERED: usize = 48;
/// Where the producer's bytes begin in an entry.
const BATCH_AT: usize = ENTRY_HEADER_BYTES + PLACEMENT_BYTES;

/// Where a batch lies in its range, and who put it there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The segment.
    pub segment: SegmentId,
    /// The offset of the first record.
    pub offset: Offset,
    /// The epoch in which it was given its offsets.
    pub epoch: Epoch,
    /// When, in milliseconds since the Unix epoch by the primary's clock. Nothing is decided from it.
    pub append_time_ms: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Placement {
    segment: U64,
    offset: U64,
    epoch: U64,
    append_time_ms: U64,
    digest: [u8; Digest::BYTES],
    checksum: U32,
    reserved_word: U32,
    reserved: U64,
}

const _: () = assert!(
    size_of::<Placement>() == PLACEMENT_BYTES
        && std::mem::offset_of!(Placement, offset) == 8
        && std::mem::offset_of!(Placement, epoch) == 16
        && std::mem::offset_of!(Placement, append_time_ms) == 24
        && std::mem::offset_of!(Placement, digest) == 32
        && std::mem::offset_of!(Placement, checksum) == COVERED
        && BATCH_AT == 80
);

impl Placement {
    fn sum(&self, seed: SegmentSeed, batch_checksum: u32) -> u32 {
        checksum(checksum(seed.get(), &self.as_bytes()[..COVERED]), &batch_checksum.to_le_bytes())
    }
}

/// Why bytes are not a placed batch.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacedError {
    /// The frame around it does not stand.
    #[error(transparent)]
    Entry(#[from] Verdict),
    /// An entry of another kind.
    #[error("the entry is no batch but {0:?}")]
    Kind(EntryKind),
    /// The placement does not verify.
    #[error("the placement does not verify")]
    Placement,
    /// The producer's part does not verify.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Bytes of the entry that holds a batch of `batch_bytes` bytes.
#[must_use]
pub const fn entry_length(batch_bytes: usize) -> usize {
    entry_bytes(PLACEMENT_BYTES + batch_bytes)
}

/// Writes the whole entry of `batch` at `place` and gives the running digest after it; `out` is exactly its [`entry_length`].
///
/// # Panics
/// If `out` is of another size.
pub fn place(out: &mut [u8], seed: SegmentSeed, place: Place, before: Digest, batch: BatchRef<'_>) -> Digest {
    let digest = before.chain(place, batch.checksum(), batch.body());
    let mut placement = Placement {
        segment: place.segment.0.into(),
        offset: place.offset.0.into(),
        epoch: place.epoch.0.into(),
        append_time_ms: place.append_time_ms.into(),
        digest: digest.to_bytes(),
        checksum: 0.into(),
        reserved_word: 0.into(),
        reserved: 0.into(),
    };
    placement.checksum = placement.sum(seed, batch.checksum()).into();
    frame(out, EntryKind::Batch, seed, PLACEMENT_BYTES + batch.bytes().len(), 0);
    out[ENTRY_HEADER_BYTES..BATCH_AT].copy_from_slice(placement.as_bytes());
    out[BATCH_AT..][..batch.bytes().len()].copy_from_slice(batch.bytes());
    digest
}

/// A whole entry that holds a batch.
#[derive(Clone, Copy, Debug)]
pub struct PlacedBatch<'a> {
    place: Place,
    digest: Digest,
    batch: BatchRef<'a>,
    bytes: &'a [u8],
}

impl<'a> PlacedBatch<'a> {
    /// Verifies the entry at the start of `bytes` as its segment's replicas do: header, placement, producer's checksum.
    ///
    /// # Errors
    /// Why it is not a batch of this segment.
    pub fn verify(bytes: &'a [u8], seed: SegmentSeed) -> Result<Self, PlacedError> {
        Self::verify_entry(read_entry(bytes, seed)?, seed)
    }

    /// Verifies an entry whose header is already verified.
    ///
    /// # Errors
    /// Why it is not a batch of this segment.
    pub fn verify_entry(entry: EntryRef<'a>, seed: SegmentSeed) -> Result<Self, PlacedError> {
        if entry.kind != EntryKind::Batch {
            return Err(PlacedError::Kind(entry.kind));
        }
        let (placement, batch) = Placement::ref_from_prefix(entry.payload).map_err(|_| PlacedError::Placement)?;
        let batch = BatchRef::verify(batch, batch.len())?;
        if placement.sum(seed, batch.checksum()) != placement.checksum.get() || !Self::is_sound(placement, batch) {
            return Err(PlacedError::Placement);
        }
        Ok(Self::new(placement, batch, entry.bytes))
    }

    /// Verifies the entry at the start of `bytes` as a consumer does, who does not know the segment's seed: lengths, and the producer's
    /// checksum over a batch of at most `max_batch` bytes.
    ///
    /// # Errors
    /// Why it is not a batch.
    pub fn verify_as_reader(bytes: &'a [u8], max_batch: usize) -> Result<Self, PlacedError> {
        let (placement, batch, bytes) = Self::parts(bytes)?;
        let batch = BatchRef::verify(batch, max_batch)?;
        if !Self::is_sound(placement, batch) {
            return Err(PlacedError::Placement);
        }
        Ok(Self::new(placement, batch, bytes))
    }

    /// The entry at the start of `bytes`, by its lengths alone: for what was verified when it came and has not left this process.
    ///
    /// # Errors
    /// If the lengths contradict each other.
    pub fn trust(bytes: &'a [u8]) -> Result<Self, PlacedError> {
        let (placement, batch, bytes) = Self::parts(bytes)?;
        Ok(Self::new(placement, BatchRef::trust(batch)?, bytes))
    }

    fn parts(bytes: &'a [u8]) -> Result<(&'a Placement, &'a [u8], &'a [u8]), PlacedError> {
        let (header, _) = EntryHeader::ref_from_prefix(bytes).map_err(|_| Verdict::Torn)?;
        match EntryKind::from_byte(header.kind) {
            Some(EntryKind::Batch) => {}
            Some(other) => return Err(PlacedError::Kind(other)),
            None => return Err(Verdict::Unreadable.into()),
        }
        let (payload, bytes) = split(header, bytes)?;
        let (placement, batch) = Placement::ref_from_prefix(payload).map_err(|_| PlacedError::Placement)?;
        Ok((placement, batch, bytes))
    }

    /// No checksum covers what is reserved; and no range gets near the last offset.
    fn is_sound(placement: &Placement, batch: BatchRef<'_>) -> bool {
        placement.reserved_word.get() == 0
            && placement.reserved.get() == 0
            && placement.offset.get().checked_add(u64::from(batch.record_count())).is_some()
    }

    fn new(placement: &Placement, batch: BatchRef<'a>, bytes: &'a [u8]) -> Self {
        let place = Place {
            segment: SegmentId(placement.segment.get()),
            offset: Offset(placement.offset.get()),
            epoch: Epoch(placement.epoch.get()),
            append_time_ms: placement.append_time_ms.get(),
        };
        Self { place, digest: Digest::from_bytes(placement.digest), batch, bytes }
    }

    /// Where it lies.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The offset after its last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.place.offset.plus(u64::from(self.batch.record_count()))
    }

    /// The running digest after it, as it carries it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether the digest that it carries follows from `before`, the digest before it.
    #[must_use]
    pub fn continues(&self, before: Digest) -> bool {
        before.chain(self.place, self.batch.checksum(), self.batch.body()) == self.digest
    }

    /// The producer's part.
    #[must_use]
    pub fn batch(&self) -> BatchRef<'a> {
        self.batch
    }

    /// The whole entry.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The batches in a piece of a segment as a consumer walks it, entries of other kinds passed over, up to the first that is wrong.
#[derive(Clone, Debug)]
pub struct ReaderBatches<'a> {
    bytes: &'a [u8],
    max_batch: usize,
}

impl<'a> ReaderBatches<'a> {
    /// Over whole entries, back to back, with batches of at most `max_batch` bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8], max_batch: usize) -> Self {
        Self { bytes, max_batch }
    }
}

impl<'a> Iterator for ReaderBatches<'a> {
    type Item = Result<PlacedBatch<'a>, PlacedError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.bytes.is_empty() {
            let found = PlacedBatch::verify_as_reader(self.bytes, self.max_batch);
            match found {
                Ok(placed) => self.bytes = &self.bytes[placed.bytes.len()..],
                Err(PlacedError::Kind(_)) => {
                    let (header, _) = EntryHeader::ref_from_prefix(self.bytes).expect("its kind was read");
                    match split(header, self.bytes) {
                        Ok((_, whole)) => self.bytes = &self.bytes[whole.len()..],
                        Err(verdict) => {
                            self.bytes = &[];
                            return Some(Err(verdict.into()));
                        }
                    }
                    continue;
                }
                Err(_) => self.bytes = &[],
            }
            return Some(found);
        }
        None
    }
}

const _: () = assert!(BATCH_AT + BATCH_HEADER_BYTES == 160);
