//! Reads batches back from a segment's files: entry by entry, each verified, none from beyond what is asked for.
//!
//! ```text
//!   start (index)      from                      below           until
//!     |                  |                         |               |
//!   --[batch][batch][pad][batch][batch][batch][batch][batch][pad]--|   positions ->
//!     └ verified, passed over └ given                 └ not looked at
//! ```
//! The caller reads whole blocks and feeds them; the reader says what it needs next. It never decides what bytes that do not verify
//! mean: it says where they lie and which offset they should have held.
//!
//! Invariants: batches are given whole, in order, without a gap; nothing at or above `below` is given, and nothing at or behind the
//! position `until` is looked at: there may lie bytes of an earlier, unfinished writing.

use crate::format::batch::{PlacedBatch, PlacedError};
use crate::format::entry::{ENTRY_HEADER_BYTES, EntryKind, SegmentSeed, read_entry};
use crate::format::verdict::Verdict;
use crate::types::limits::{BATCH_BYTES_CEILING, BLOCK, round_up_to_block};
use crate::types::{Offset, SegmentId};

/// No entry is longer: a batch, a footer's index or a table are all below.
pub const ENTRY_BYTES_CEILING: usize = 2 * BATCH_BYTES_CEILING;

/// What a reader wants of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Inclusive: the first batch given holds it or begins above it.
    pub from: Offset,
    /// Exclusive: no batch that ends above it is given. Not above the segment's end, nor above the next hole.
    pub below: Offset,
    /// Byte position at which the segment's entries end, exclusive.
    pub until: u64,
}

/// What came of the bytes that were fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scanned {
    /// Enough: `below` is reached, or as many bytes as were wanted. The next read begins at `next`, inclusive.
    Enough { next: Offset },
    /// Read at least `length` bytes (whole blocks) from `position` (a block boundary) and feed them.
    More { position: u64, length: usize },
    /// What lies at `position` should have held `offset`, and does not verify.
    Bad { position: u64, offset: Offset, cause: BadEntry },
}

/// Why an entry cannot be read.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadEntry {
    /// It does not verify.
    #[error(transparent)]
    Placed(#[from] PlacedError),
    /// It verifies, and belongs elsewhere.
    #[error("a batch of {segment} with offset {found} lies there")]
    Elsewhere {
        /// The segment that it names.
        segment: SegmentId,
        /// The offset that it names.
        found: Offset,
    },
    /// The entries end below the records that were to be there.
    #[error("the entries end there")]
    Missing,
    /// The file ends below what was asked for.
    #[error("the file ends there")]
    Short,
}

impl BadEntry {
    /// Whether it was written by a later build.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Placed(PlacedError::Entry(Verdict::Newer(_))))
    }
}

/// Walks one segment.
#[derive(Clone, Debug)]
pub struct SegmentReader {
    segment: SegmentId,
    seed: SegmentSeed,
    wanted: Wanted,
    /// Of the next entry.
    position: u64,
    /// Of the next batch.
    offset: Offset,
}

impl SegmentReader {
    /// Begins at the batch of `start`, its offset and position, which is at or before `wanted.from`. Without one, at the segment's first
    /// entry and its base.
    #[must_use]
    pub fn new(segment: SegmentId, seed: u64, base: Offset, start: Option<(Offset, u64)>, wanted: Wanted) -> Self {
        let (offset, position) = start.unwrap_or((base, BLOCK as u64));
        Self { segment, seed: SegmentSeed::new(segment, seed), wanted, position, offset }
    }

    /// The offset that it goes on at: never below what was wanted.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.offset.max(self.wanted.from)
    }

    /// The next batch that may be given and where the entry lies that it, or what is passed over in front of it, begins with; `None` if
    /// there is none.
    #[must_use]
    pub fn place(&self) -> Option<(Offset, u64)> {
        let is_more = self.offset < self.wanted.below && self.position < self.wanted.until;
        (is_more && self.offset >= self.wanted.from).then_some((self.offset, self.position))
    }

    /// The position at which the segment's entries end, exclusive.
    #[must_use]
    pub fn until(&self) -> u64 {
        self.wanted.until
    }

    /// The block at which to read for the next entry.
    #[must_use]
    pub fn read_position(&self) -> u64 {
        self.position - self.position % BLOCK as u64
    }

    /// Takes `bytes` of the segment from `position` on, which is `read_position` or before it. Adds whole batch entries to `out` while
    /// that stays within `bytes_max`; but one, if `out` was empty.
    ///
    /// # Panics
    /// If `position` is above the next entry.
    pub fn feed(&mut self, position: u64, bytes: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Scanned {
        assert!(position <= self.position, "bytes from {position} cannot hold the entry at {}", self.position);
        loop {
            if self.offset >= self.wanted.below {
                return Scanned::Enough { next: self.next() };
            }
            if self.position >= self.wanted.until {
                return self.bad(BadEntry::Missing);
            }
            let at = usize::try_from(self.position - position).unwrap_or(usize::MAX);
            let rest = bytes.get(at..).unwrap_or(&[]);
            if let Some(more) = self.more(rest) {
                return more;
            }
            let entry = match read_entry(rest, self.seed) {
                Ok(entry) => entry,
                Err(verdict) => return self.bad(PlacedError::from(verdict).into()),
            };
            if entry.kind == EntryKind::Batch {
                let batch = match PlacedBatch::verify_entry(entry, self.seed) {
                    Ok(batch) => batch,
                    Err(error) => return self.bad(error.into()),
                };
                let place = batch.place();
                if place.segment != self.segment || place.offset != self.offset {
                    return self.bad(BadEntry::Elsewhere { segment: place.segment, found: place.offset });
                }
                if batch.end() > self.wanted.from {
                    let full = !out.is_empty() && out.len() + entry.bytes.len() > bytes_max;
                    if full || batch.end() > self.wanted.below {
                        return Scanned::Enough { next: self.next() };
                    }
                    out.extend_from_slice(entry.bytes);
                }
                self.offset = batch.end();
            }
            self.position += entry.bytes.len() as u64;
        }
    }

    /// What to read first, if `rest` ends within the next entry.
    fn more(&self, rest: &[u8]) -> Option<Scanned> {
        let needed = match rest.get(..4) {
            Some(length) if rest.len() >= ENTRY_HEADER_BYTES => {
                let announced = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
                let short = rest.len() < announced && announced <= ENTRY_BYTES_CEILING;
                // A length that is not yet proved asks for no read: only one whose header verifies does.
                let proved = || read_entry(rest, self.seed) == Err(Verdict::Torn);
                if !short || !proved() {
                    return None;
                }
                announced
            }
            Some(_) | None => ENTRY_HEADER_BYTES,
        };
        let position = self.read_position();
        let within = usize::try_from(self.position - position).expect("below a block");
        Some(Scanned::More { position, length: round_up_to_block(within + needed) })
    }

    fn bad(&self, cause: BadEntry) -> Scanned {
        Scanned::Bad { position: self.position, offset: self.offset, cause }
    }

    /// The file has no more bytes, though `feed` asked for them.
    #[must_use]
    pub fn ended(&self) -> Scanned {
        self.bad(BadEntry::Short)
    }
}

#[cfg(test)]
mod tests;
