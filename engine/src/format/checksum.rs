//! The one checksum (CRC-32C) and the one digest (XXH3-128).
//!
//! A checksum guards one piece of bytes against damage; its seed ties it to one segment or one journal, so that the same bytes
//! elsewhere do not verify. A CRC is a bijection of its seed: two seeds never give the same checksum of the same bytes. It is no
//! signature.
//!
//! The *running digest* is a chain over the batches of a segment, whatever blocks, groups and files they lie in:
//!
//! ```text
//! D₀   = H("start" | segment | base | H(table payload))
//! Dₙ₊₁ = H("batch" | Dₙ | segment offset epoch append-time | producer's checksum | H(body))
//! D'   = H("hole"  | D  | from | to)                          only for a hole that reaches the end
//! ```
//! *body* is the batch without its first four bytes, which are the producer's checksum. The tag comes first, in 8 bytes, so that no
//! two kinds of link can be taken for each other.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

use super::batch::Place;
use crate::types::{Offset, SegmentId};

/// CRC-32C of `bytes`, going on from `seed`: the checksum of two pieces is that of the second seeded with that of the first.
#[must_use]
pub fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}

/// A checksum's seed from a random number and an id.
#[must_use]
pub fn seed_of(random: u64, id: u64) -> u32 {
    checksum(checksum(0, &random.to_le_bytes()), &id.to_le_bytes())
}

/// The running digest of a segment at a batch's end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub u128);

impl Digest {
    /// Bytes that it takes at rest, little-endian.
    pub const BYTES: usize = 16;

    /// Of plain bytes, such as a table's payload.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// D₀ of a segment that begins at `base` with this producer table.
    #[must_use]
    pub fn start(segment: SegmentId, base: Offset, table_payload: &[u8]) -> Self {
        Self::start_from(segment, base, Self::of(table_payload))
    }

    /// D₀ as [`start`](Self::start) gives it, from the digest of the table's payload.
    #[must_use]
    pub fn start_from(segment: SegmentId, base: Offset, table: Self) -> Self {
        let mut link = Link::<40>::new(*b"start\0\0\0");
        link.add(&segment.0.to_le_bytes());
        link.add(&base.0.to_le_bytes());
        link.add(&table.to_bytes());
        link.digest()
    }

    /// The digest after the batch that lies at `place`.
    ///
    /// `body` is the batch from its byte 4 to its end, `batch_checksum` the four bytes before.
    #[must_use]
    pub fn chain(self, place: Place, batch_checksum: u32, body: &[u8]) -> Self {
        let mut link = Link::<76>::new(*b"batch\0\0\0");
        link.add(&self.to_bytes());
        link.add(&place.segment.0.to_le_bytes());
        link.add(&place.offset.0.to_le_bytes());
        link.add(&place.epoch.0.to_le_bytes());
        link.add(&place.append_time_ms.to_le_bytes());
        link.add(&batch_checksum.to_le_bytes());
        link.add(&Self::of(body).to_bytes());
        link.digest()
    }

    /// The digest of a segment whose last offsets, `from` to `to` (exclusive), are a hole.
    #[must_use]
    pub fn hole(self, from: Offset, to: Offset) -> Self {
        let mut link = Link::<40>::new(*b"hole\0\0\0\0");
        link.add(&self.to_bytes());
        link.add(&from.0.to_le_bytes());
        link.add(&to.0.to_le_bytes());
        link.digest()
    }

    /// As it lies at rest.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_le_bytes()
    }

    /// From what lies at rest.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The input of one digest, of a known size, on the stack: one pass of XXH3, no state, no allocation.
struct Link<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Link<N> {
    fn new(tag: [u8; 8]) -> Self {
        let mut link = Self { bytes: [0; N], filled: 0 };
        link.add(&tag);
        link
    }

    fn add(&mut self, part: &[u8]) {
        self.bytes[self.filled..self.filled + part.len()].copy_from_slice(part);
        self.filled += part.len();
    }

    fn digest(self) -> Digest {
        assert_eq!(self.filled, N, "a link is filled before it is hashed");
        Digest::of(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Epoch;

    fn place() -> Place {
        Place { segment: SegmentId(3), offset: Offset(10), epoch: Epoch(2), append_time_ms: 1_700_000_000_000 }
    }

    #[test]
    fn the_checksum_is_crc32c_and_goes_on_from_its_seed() {
        assert_eq!(checksum(0, b"123456789"), 0xe306_9283);
        assert_eq!(checksum(checksum(0, b"1234"), b"56789"), checksum(0, b"123456789"));
    }

    #[test]
    fn each_part_of_a_link_changes_the_digest() {
        let start = Digest::start(SegmentId(1), Offset(7), b"table");
        assert_ne!(start, Digest::start(SegmentId(2), Offset(7), b"table"));
        assert_ne!(start, Digest::start(SegmentId(1), Offset(8), b"table"));
        assert_ne!(start, Digest::start(SegmentId(1), Offset(7), b"tablf"));
        let next = start.chain(place(), 5, b"body");
        let others = [
            Digest(start.0 + 1).chain(place(), 5, b"body"),
            start.chain(Place { segment: SegmentId(4), ..place() }, 5, b"body"),
            start.chain(Place { offset: Offset(11), ..place() }, 5, b"body"),
            start.chain(Place { epoch: Epoch(3), ..place() }, 5, b"body"),
            start.chain(Place { append_time_ms: 0, ..place() }, 5, b"body"),
            start.chain(place(), 6, b"body"),
            start.chain(place(), 5, b"bodx"),
        ];
        for other in others {
            assert_ne!(next, other);
        }
        assert_ne!(next.hole(Offset(1), Offset(2)), next.hole(Offset(1), Offset(3)));
    }

    #[test]
    fn a_digest_survives_its_bytes() {
        let digest = Digest::of(b"x");
        assert_eq!(Digest::from_bytes(digest.to_bytes()), digest);
    }
}
