//! Finds the next batch behind bytes of a segment that do not verify.
//!
//! ```text
//!   … batch │ does not verify │ batch …          every 8 bytes an entry may begin: the first one that verifies as a batch of this segment,
//!           ^ position        ^ found            with an offset not below the one that was to come, ends what cannot be read
//! ```
//! An entry's header is seeded with the segment, so that neither chance nor a record that holds another segment's bytes looks like one. A
//! record may hold a copy of bytes of this very segment, which verifies: it was copied from further in front, so its offset is below the
//! one that was to come, and it is passed over.

use crate::format::batch::PlacedBatch;
use crate::format::entry::{ENTRY_ALIGNMENT, ENTRY_HEADER_BYTES, EntryKind, SegmentSeed, announced, read_entry};
use crate::segment::reader::ENTRY_BYTES_CEILING;
use crate::types::limits::{BLOCK, round_up_to_block};
use crate::types::{Offset, SegmentId};

/// What came of the bytes that were fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Searched {
    /// Read at least `length` bytes (whole blocks) from `position` (a block boundary) and feed them.
    More { position: u64, length: usize },
    /// What was thought not to verify does: it was the reading that failed.
    Intact,
    /// The next batch begins with `offset`, at `position`.
    Found { offset: Offset, position: u64 },
    /// There is none up to the end.
    End,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Search {
    segment: SegmentId,
    seed: SegmentSeed,
    /// Where the bytes begin that did not verify.
    begin: u64,
    /// The next place to look at.
    position: u64,
    /// Of the batch that was to come, inclusive.
    offset: Offset,
    /// Position at which the segment's entries end, exclusive.
    until: u64,
}

impl Search {
    /// From `position`, where the batch with `offset` was to come, to `until`, exclusive.
    #[must_use]
    pub fn new(segment: SegmentId, seed: SegmentSeed, position: u64, offset: Offset, until: u64) -> Self {
        Self { segment, seed, begin: position, position, offset, until }
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// The first offset that cannot be read.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// The block at which to read.
    #[must_use]
    pub fn read_position(&self) -> u64 {
        self.position - self.position % BLOCK as u64
    }

    /// The device does not give `length` bytes, which is no more than were asked for: if that is one block, it is passed over; if more, the
    /// entry that reaches so far is.
    pub fn unreadable(&mut self, length: usize) -> Searched {
        if length > BLOCK {
            self.position += ENTRY_ALIGNMENT as u64;
        } else {
            self.position = self.read_position() + BLOCK as u64;
        }
        self.more(ENTRY_HEADER_BYTES)
    }

    /// Takes `bytes` of the segment from `position` on, which is `read_position`. `is_all`: the file has no more.
    pub fn feed(&mut self, position: u64, bytes: &[u8], is_all: bool) -> Searched {
        while self.position < self.until {
            let at = usize::try_from(self.position - position).unwrap_or(usize::MAX);
            let rest = bytes.get(at..).unwrap_or(&[]);
            if rest.len() < ENTRY_HEADER_BYTES {
                if is_all {
                    return Searched::End;
                }
                return self.more(ENTRY_HEADER_BYTES);
            }
            // Only a header that verifies proves a length, and asks for a read.
            if let Some((_, length)) = announced(rest, self.seed)
                && (rest.len()..=ENTRY_BYTES_CEILING).contains(&length)
                && !is_all
            {
                return self.more(length);
            }
            let Ok(entry) = read_entry(rest, self.seed) else {
                self.position += ENTRY_ALIGNMENT as u64;
                continue;
            };
            let length = entry.bytes.len() as u64;
            if entry.kind == EntryKind::Batch {
                let batch = PlacedBatch::verify_entry(entry, self.seed).ok();
                let place = batch.map(|batch| batch.place());
                match place.filter(|place| place.segment == self.segment && place.offset >= self.offset) {
                    Some(place) if self.position == self.begin && place.offset == self.offset => {
                        return Searched::Intact;
                    }
                    Some(place) => return Searched::Found { offset: place.offset, position: self.position },
                    None => self.position += ENTRY_ALIGNMENT as u64,
                }
            } else if self.position == self.begin {
                return Searched::Intact;
            } else {
                self.position += length;
            }
        }
        Searched::End
    }

    /// What to read for the next entry, of which `needed` bytes are wanted.
    fn more(&self, needed: usize) -> Searched {
        if self.position >= self.until {
            return Searched::End;
        }
        let position = self.read_position();
        let within = usize::try_from(self.position - position).expect("below a block");
        Searched::More { position, length: round_up_to_block(within + needed) }
    }
}

#[cfg(test)]
mod tests;
