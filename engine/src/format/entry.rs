//! The common frame of everything in a segment: a 16-byte header, a payload, and zeros up to a multiple of 8.
//!
//! ```text
//!  0        4      5         6         7          8               12                 16
//!  | length | kind | version | padding | reserved | body checksum | header checksum  | payload … | 0‥7 zeros |
//!    └ whole entry, a multiple of 8                                 └ of the 12 bytes before it
//! ```
//! Both checksums are seeded with the segment ([`SegmentSeed`]). A batch has a body checksum of 0: its placement and its producer's
//! checksum cover it. Emptiness is told by the header alone: 16 zero bytes, which no header can be, for its kind is not 0.
//!
//! Batches, tables and roll marks lie in a journal group as whole entries, just as they will lie in the segment.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{checksum, seed_of};
use super::upgrade::Newer;
use super::verdict::Verdict;
use crate::types::SegmentId;
use crate::types::limits::BLOCK;

/// Bytes of an entry's header.
pub const ENTRY_HEADER_BYTES: usize = 16;
/// Every entry begins at and is a multiple of so many bytes.
pub const ENTRY_ALIGNMENT: usize = 8;
const ENTRY_VERSION: u8 = 1;
/// Bytes of the header that its checksum covers.
const COVERED: usize = 12;

/// What an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// A placed batch (`format::batch`).
    Batch = 1,
    /// The producer table as at the segment's base (`format::segment::table`).
    Table = 2,
    /// The segment ends here and its successor goes on (`format::segment::roll_mark`).
    RollMark = 3,
    /// Zeros up to a block boundary; in no digest.
    Pad = 4,
    /// What a sealed segment ends with (`format::segment::footer`).
    Footer = 5,
}

impl EntryKind {
    /// The kind with this number.
    #[must_use]
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Batch, Self::Table, Self::RollMark, Self::Pad, Self::Footer].into_iter().find(|k| *k as u8 == byte)
    }
}

/// Ties the checksums of a segment's entries to that segment: its id and a random number from its `Open`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentSeed(u32);

impl SegmentSeed {
    /// The seed of a segment whose `Open` holds `random`.
    #[must_use]
    pub fn new(segment: SegmentId, random: u64) -> Self {
        Self(seed_of(random, segment.0))
    }

    /// What the checksums of the segment start from.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct EntryHeader {
    pub(super) length: U32,
    pub(super) kind: u8,
    version: u8,
    pub(super) padding: u8,
    reserved: u8,
    body_checksum: U32,
    header_checksum: U32,
}

const _: () = assert!(
    size_of::<EntryHeader>() == ENTRY_HEADER_BYTES
        && std::mem::offset_of!(EntryHeader, kind) == 4
        && std::mem::offset_of!(EntryHeader, padding) == 6
        && std::mem::offset_of!(EntryHeader, body_checksum) == 8
        && std::mem::offset_of!(EntryHeader, header_checksum) == COVERED
);

/// One entry whose header verifies; and, unless it is a batch, its payload too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRef<'a> {
    /// What it holds.
    pub kind: EntryKind,
    /// Where it begins in the bytes that were given.
    pub at: usize,
    /// Without header and padding. Of a batch: the placement and the producer's bytes, not verified.
    pub payload: &'a [u8],
    /// The whole entry.
    pub bytes: &'a [u8],
}

/// Bytes that an entry with a payload of `payload_bytes` takes.
#[must_use]
pub const fn entry_bytes(payload_bytes: usize) -> usize {
    (ENTRY_HEADER_BYTES + payload_bytes).next_multiple_of(ENTRY_ALIGNMENT)
}

/// Bytes of the pad that brings `position` to a block boundary: 0 on one; a whole block more where a header would not fit.
#[must_use]
pub const fn pad_bytes(position: usize) -> usize {
    match position.next_multiple_of(BLOCK) - position {
        0 => 0,
        gap if gap < ENTRY_HEADER_BYTES => gap + BLOCK,
        gap => gap,
    }
}

/// Writes a whole entry; `out` is exactly its [`entry_bytes`].
///
/// # Panics
/// If `out` is of another size, or for a batch: [`place`](super::batch::place) writes those.
pub fn write_entry(out: &mut [u8], kind: EntryKind, seed: SegmentSeed, payload: &[u8]) {
    assert_ne!(kind, EntryKind::Batch, "a batch is written by `place`");
    out[ENTRY_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
    frame(out, kind, seed, payload.len(), checksum(seed.0, payload));
}

/// Fills `out` with one pad entry.
///
/// # Panics
/// If `out` is smaller than a header or no multiple of [`ENTRY_ALIGNMENT`].
pub fn write_pad(out: &mut [u8], seed: SegmentSeed) {
    let payload = out.len() - ENTRY_HEADER_BYTES;
    out[ENTRY_HEADER_BYTES..].fill(0);
    let sum = checksum(seed.0, &out[ENTRY_HEADER_BYTES..]);
    frame(out, EntryKind::Pad, seed, payload, sum);
}

/// Writes the header before and the zeros behind a payload that already stands in `out`.
pub(super) fn frame(out: &mut [u8], kind: EntryKind, seed: SegmentSeed, payload_bytes: usize, body_checksum: u32) {
    assert_eq!(out.len(), entry_bytes(payload_bytes), "an entry is lent exactly its bytes");
    let end = ENTRY_HEADER_BYTES + payload_bytes;
    let padding = u8::try_from(out.len() - end).expect("padding is below 8");
    out[end..].fill(0);
    let length = u32::try_from(out.len()).expect("an entry is far below 4 GiB");
    // Stored as the checksum reads it, in one piece of eight bytes: a load over several smaller stores waits until they, and with them
    // whatever was stored before, have left the store buffer.
    let front = (u64::from(ENTRY_VERSION) << 40) | (u64::from(padding) << 48);
    let front = front | u64::from(length) | (u64::from(kind as u8) << 32);
    let mut header = [0; ENTRY_HEADER_BYTES];
    header[..8].copy_from_slice(&front.to_le_bytes());
    header[8..COVERED].copy_from_slice(&body_checksum.to_le_bytes());
    let sum = checksum(seed.0, &header[..COVERED]);
    header[COVERED..].copy_from_slice(&sum.to_le_bytes());
    out[..ENTRY_HEADER_BYTES].copy_from_slice(&header);
}

/// What the entry at the start of `front` is, and how many bytes it takes, if its header verifies and `front` ends within it, or what
/// is behind the header does not verify: only a header that verifies proves a length.
#[must_use]
pub fn announced(front: &[u8], seed: SegmentSeed) -> Option<(EntryKind, usize)> {
    if read_entry(front, seed) != Err(Verdict::Torn) {
        return None;
    }
    let (header, _) = EntryHeader::ref_from_prefix(front).ok()?;
    Some((EntryKind::from_byte(header.kind)?, header.length.get() as usize))
}

/// Judges the entry at the start of `bytes`, which may go on behind it.
///
/// # Errors
/// The verdict, if no entry of this segment stands there whole.
pub fn read_entry(bytes: &[u8], seed: SegmentSeed) -> Result<EntryRef<'_>, Verdict> {
    let Ok((header, _)) = EntryHeader::ref_from_prefix(bytes) else {
        return Err(if bytes.iter().all(|b| *b == 0) { Verdict::NeverWritten } else { Verdict::Unreadable });
    };
    if header.as_bytes() == [0; ENTRY_HEADER_BYTES] {
        return Err(Verdict::NeverWritten);
    }
    if checksum(seed.0, &header.as_bytes()[..COVERED]) != header.header_checksum.get() {
        return Err(Verdict::Unreadable);
    }
    if header.version > ENTRY_VERSION {
        let found = u32::from(header.version);
        return Err(Newer { what: "segment entry", found, supported: u32::from(ENTRY_VERSION) }.into());
    }
    // A kind that verifies and is unknown was added without a new version, which may only be done by a newer build.
    let Some(kind) = EntryKind::from_byte(header.kind) else {
        return Err(Newer { what: "kind of segment entry", found: u32::from(header.kind), supported: 5 }.into());
    };
    let (payload, bytes) = split(header, bytes)?;
    if kind != EntryKind::Batch && checksum(seed.0, payload) != header.body_checksum.get() {
        return Err(Verdict::Torn);
    }
    Ok(EntryRef { kind, at: 0, payload, bytes })
}

/// The payload and the whole of the entry that `header`, which stands at the start of `bytes`, announces. Lengths and padding only.
pub(super) fn split<'a>(header: &EntryHeader, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Verdict> {
    let length = header.length.get() as usize;
    let padding = usize::from(header.padding);
    if !length.is_multiple_of(ENTRY_ALIGNMENT)
        || padding >= ENTRY_ALIGNMENT
        || length < ENTRY_HEADER_BYTES + padding
        || header.reserved != 0
    {
        return Err(Verdict::Unreadable);
    }
    let whole = bytes.get(..length).ok_or(Verdict::Torn)?;
    let (payload, zeros) = whole[ENTRY_HEADER_BYTES..].split_at(length - ENTRY_HEADER_BYTES - padding);
    if zeros.iter().any(|b| *b != 0) {
        return Err(Verdict::Torn);
    }
    Ok((payload, whole))
}

/// Walks the entries of a segment that lie back to back, pads included, up to the first verdict.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    seed: SegmentSeed,
    ended: bool,
}

impl<'a> Entries<'a> {
    /// Over `bytes`, which begin with an entry.
    #[must_use]
    pub fn new(bytes: &'a [u8], seed: SegmentSeed) -> Self {
        Self { bytes, at: 0, seed, ended: false }
    }

    /// Where the next entry, or what the verdict was about, begins.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<EntryRef<'a>, Verdict>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.at == self.bytes.len() {
            return None;
        }
        let entry = read_entry(&self.bytes[self.at..], self.seed).map(|entry| EntryRef { at: self.at, ..entry });
        match &entry {
            Ok(entry) => self.at += entry.bytes.len(),
            Err(_) => self.ended = true,
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seed() -> SegmentSeed {
        SegmentSeed::new(SegmentId(7), 0x1234)
    }

    fn entry(kind: EntryKind, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0xaa; entry_bytes(payload.len())];
        write_entry(&mut out, kind, seed(), payload);
        out
    }

    #[test]
    fn zeros_are_never_written_and_a_payload_of_zeros_is_a_payload() {
        assert_eq!(read_entry(&[0; 64], seed()), Err(Verdict::NeverWritten));
        assert_eq!(read_entry(&[0; 7], seed()), Err(Verdict::NeverWritten));
        let bytes = entry(EntryKind::Table, &[0; 40]);
        assert_eq!(read_entry(&bytes, seed()).unwrap().payload, [0; 40]);
    }

    #[test]
    fn an_entry_cut_short_is_torn() {
        let bytes = entry(EntryKind::RollMark, &[1; 30]);
        assert_eq!(read_entry(&bytes[..bytes.len() - 1], seed()), Err(Verdict::Torn));
    }

    #[test]
    fn the_entry_of_another_segment_is_unreadable() {
        let bytes = entry(EntryKind::RollMark, &[1; 30]);
        assert_eq!(read_entry(&bytes, SegmentSeed::new(SegmentId(8), 0x1234)), Err(Verdict::Unreadable));
        assert_eq!(read_entry(&bytes, SegmentSeed::new(SegmentId(7), 0x1235)), Err(Verdict::Unreadable));
    }

    #[test]
    fn a_newer_entry_is_told_as_such() {
        for (at, what) in [(5, "segment entry"), (4, "kind of segment entry")] {
            let mut bytes = entry(EntryKind::Table, b"x");
            bytes[at] = 9;
            let sum = checksum(seed().get(), &bytes[..COVERED]);
            bytes[COVERED..16].copy_from_slice(&sum.to_le_bytes());
            let Err(Verdict::Newer(newer)) = read_entry(&bytes, seed()) else { panic!("told otherwise") };
            assert_eq!((newer.what, newer.found), (what, 9));
        }
    }

    #[test]
    fn a_pad_ends_on_a_block_even_where_a_header_does_not_fit() {
        for position in (0..2 * BLOCK).step_by(ENTRY_ALIGNMENT) {
            let pad = pad_bytes(position);
            assert_eq!((position + pad) % BLOCK, 0);
            if pad != 0 {
                let mut out = vec![1; pad];
                write_pad(&mut out, seed());
                assert_eq!(read_entry(&out, seed()).unwrap().kind, EntryKind::Pad);
            }
        }
    }

    proptest! {
        #[test]
        fn entries_are_walked_back_to_back(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..99), 0..9)) {
            let mut bytes: Vec<u8> = payloads.iter().flat_map(|p| entry(EntryKind::Footer, p)).collect();
            let end = bytes.len();
            bytes.extend([0; 32]);
            let mut entries = Entries::new(&bytes, seed());
            for payload in &payloads {
                prop_assert_eq!(entries.next().unwrap().unwrap().payload, &payload[..]);
            }
            prop_assert_eq!(entries.next(), Some(Err(Verdict::NeverWritten)));
            prop_assert_eq!(entries.position(), end);
            prop_assert_eq!(entries.next(), None);
        }

        #[test]
        fn a_flipped_bit_is_seen(payload in prop::collection::vec(any::<u8>(), 0..99), at: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = entry(EntryKind::Table, &payload);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(read_entry(&bytes, seed()).is_err());
        }

        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Entries::new(&bytes, seed()).count();
        }
    }
}
