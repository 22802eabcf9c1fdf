//! A journal group: what became ready while the one before it was being written, in one write and one sync.
//!
//! ```text
//! | header | directory | body ………………… | zeros | header and directory again | tail mark |
//! └ begins on a block                                              ends on a block ┘
//!
//! header:
//!  0 magic u32   4 version u8   5 kind u8   6 journal u16   8 generation u64   16 sequence u64   24 position u64   32 length u32
//! 36 body offset u32   40 body length u32   44 entries u32   48 digest of the group before u64
//! 56 body checksum u32   60 header checksum u32 (of bytes 0 to 60 and of the directory)   64
//!
//! directory, for each entry:
//!  0 kind u8   1 … 4 reserved   4 records u32   8 range u64   16 segment u64   24 first offset u64 (of a promise: the epoch)
//! 32 bytes u32   36 offset in the body u32   40
//!
//! tail mark:
//!  0 magic u32   4 bytes of the repetition u32   8 reserved u32   12 checksum u32 (of the 12 bytes before it)   16
//! ```
//! All checksums are seeded with the generation and the journal's id: what an earlier life or another journal wrote does not verify in a
//! recycled file. The tail mark ends with the group, so that a group whose front is gone is found by looking at the ends of blocks. A
//! group's digest is the XXH3-64 of its header and directory, and so of its body's checksum and of the digest before.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{checksum, seed_of};
use super::upgrade::Newer;
use crate::types::limits::{BLOCK, round_up_to_block};
use crate::types::{Epoch, Generation, Offset, RangeId, SegmentId, ShardId};

/// Bytes of a group's header.
pub const GROUP_HEADER_BYTES: usize = 64;
/// Bytes of one entry of a group's directory.
pub const DIRECTORY_ENTRY_BYTES: usize = 40;
/// Bytes of the mark that a group ends with.
pub const TAIL_MARK_BYTES: usize = 16;
/// The id of the metadata journal, which belongs to no shard.
pub const METADATA_JOURNAL: ShardId = ShardId(u16::MAX);

const WHAT: &str = "journal group";
const VERSION: u8 = 1;
const MAGIC: u32 = u32::from_le_bytes(*b"SJG1");
const TAIL_MAGIC: u32 = u32::from_le_bytes(*b"SJT1");
const HEADER_COVERED: usize = GROUP_HEADER_BYTES - 4;
const TAIL_COVERED: usize = TAIL_MARK_BYTES - 4;

/// What a group is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GroupKind {
    /// Holds entries. Without any it proves the one before it, for who waits for that.
    Normal = 1,
    /// Empty, not synced: proves the group before it. It lies where the next group will go, has that group's sequence, and is
    /// overwritten by it.
    Marker = 2,
    /// Empty: begins a generation, at position 0, with sequence 0.
    First = 3,
    /// Empty: a clean stop; nothing follows in this generation.
    Stop = 4,
}

impl GroupKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Normal, Self::Marker, Self::First, Self::Stop].into_iter().find(|k| *k as u8 == byte)
    }
}

/// What an entry of a group is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum JournalEntryKind {
    /// A placed batch, as it will lie in its segment.
    Batch = 1,
    /// A segment's producer table, as it will lie there.
    Table = 2,
    /// A roll mark, as it will lie in its segment.
    RollMark = 3,
    /// A promise; no body.
    Promise = 4,
    /// A segment's opening; the body is a segment header.
    Open = 5,
    /// A committed seal; the body is a `format::segment::Seal`.
    Seal = 6,
    /// A committed trim up to *first*; no body.
    Trim = 7,
    /// A piece of the metadata log; only in the metadata journal.
    Change = 8,
}

impl JournalEntryKind {
    const ALL: [Self; 8] =
        [Self::Batch, Self::Table, Self::RollMark, Self::Promise, Self::Open, Self::Seal, Self::Trim, Self::Change];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|k| *k as u8 == byte)
    }
}

/// Ties the checksums of a journal's groups to its generation and id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalSeed {
    generation: Generation,
    journal: ShardId,
    seed: u32,
}

impl JournalSeed {
    /// Of a journal in a generation.
    #[must_use]
    pub fn new(generation: Generation, journal: ShardId) -> Self {
        Self { generation, journal, seed: seed_of(generation.0, u64::from(journal.0)) }
    }

    /// The generation.
    #[must_use]
    pub fn generation(self) -> Generation {
        self.generation
    }

    /// The journal.
    #[must_use]
    pub fn journal(self) -> ShardId {
        self.journal
    }

    /// The checksum of a group's body, part by part: `sum` is that of the parts before, `None` at the first.
    #[must_use]
    pub fn body_checksum(self, sum: Option<u32>, part: &[u8]) -> u32 {
        checksum(sum.unwrap_or(self.seed), part)
    }
}

/// One line of a group's directory.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirectoryEntry {
    kind: u8,
    reserved: [u8; 3],
    records: U32,
    range: U64,
    segment: U64,
    first: U64,
    bytes: U32,
    body_offset: U32,
}

const _: () = assert!(
    size_of::<DirectoryEntry>() == DIRECTORY_ENTRY_BYTES
        && std::mem::offset_of!(DirectoryEntry, records) == 4
        && std::mem::offset_of!(DirectoryEntry, range) == 8
        && std::mem::offset_of!(DirectoryEntry, segment) == 16
        && std::mem::offset_of!(DirectoryEntry, first) == 24
        && std::mem::offset_of!(DirectoryEntry, bytes) == 32
        && std::mem::offset_of!(DirectoryEntry, body_offset) == 36
);

impl DirectoryEntry {
    /// A line for an entry with `bytes` of body. Where the body lies is set when the group is closed.
    #[must_use]
    pub fn new(
        kind: JournalEntryKind,
        (range, segment): (RangeId, SegmentId),
        (first, records): (Offset, u32),
        bytes: u32,
    ) -> Self {
        Self {
            kind: kind as u8,
            reserved: [0; 3],
            records: records.into(),
            range: range.0.into(),
            segment: segment.0.into(),
            first: first.0.into(),
            bytes: bytes.into(),
            body_offset: 0.into(),
        }
    }

    /// A line for a promise, which is the line itself.
    #[must_use]
    pub fn promise(range: RangeId, segment: SegmentId, epoch: Epoch) -> Self {
        Self::new(JournalEntryKind::Promise, (range, segment), (Offset(epoch.0), 0), 0)
    }

    /// The same at `body_offset`.
    #[must_use]
    pub fn at(self, body_offset: u32) -> Self {
        Self { body_offset: body_offset.into(), ..self }
    }

    /// What it is.
    ///
    /// # Panics
    /// On a line that was neither made by [`new`](Self::new) nor decoded with its group.
    #[must_use]
    pub fn kind(&self) -> JournalEntryKind {
        JournalEntryKind::from_byte(self.kind).expect("the kind was judged with its group")
    }

    /// The range it is about; 0 for none.
    #[must_use]
    pub fn range(&self) -> RangeId {
        RangeId(self.range.get())
    }

    /// The segment it is about; 0 for none.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        SegmentId(self.segment.get())
    }

    /// Its first offset; of a seal and a roll mark the end, of a trim the new start.
    #[must_use]
    pub fn first(&self) -> Offset {
        Offset(self.first.get())
    }

    /// Of a promise: the epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.first.get())
    }

    /// Records in it.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records.get()
    }

    /// The offset after its last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.first().plus(u64::from(self.records()))
    }

    /// Bytes of its body.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes.get()
    }

    /// Where its body begins in the group's.
    #[must_use]
    pub fn body_offset(&self) -> u32 {
        self.body_offset.get()
    }

    fn body_end(&self) -> u64 {
        u64::from(self.body_offset.get()) + u64::from(self.bytes.get())
    }
}

impl std::fmt::Debug for DirectoryEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (range, segment, first, records) = (self.range(), self.segment(), self.first(), self.records());
        match JournalEntryKind::from_byte(self.kind) {
            Some(kind) => write!(f, "{kind:?}")?,
            None => write!(f, "kind {}", self.kind)?,
        }
        write!(f, " {range} {segment} {first}+{records}, {} bytes", self.bytes())
    }
}

/// Where the parts of a group lie, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLayout {
    /// The body; behind header and directory.
    pub body: usize,
    /// Header and directory once more.
    pub repetition: usize,
    /// The whole group, a multiple of [`BLOCK`].
    pub length: usize,
}

impl GroupLayout {
    /// Of a group with so many entries and bytes of body.
    #[must_use]
    pub const fn of(entries: usize, body_bytes: usize) -> Self {
        let front = GROUP_HEADER_BYTES + entries * DIRECTORY_ENTRY_BYTES;
        let length = round_up_to_block(front + body_bytes + front + TAIL_MARK_BYTES);
        Self { body: front, repetition: length - TAIL_MARK_BYTES - front, length }
    }
}

/// The header of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHeader {
    /// What it is for.
    pub kind: GroupKind,
    /// Counts the groups of a generation from 0.
    pub sequence: u64,
    /// Its own position (`journal::ring`).
    pub position: u64,
    /// Bytes of the whole group.
    pub length: u32,
    /// Bytes of its body.
    pub body_bytes: u32,
    /// Entries in its directory.
    pub entries: u32,
    /// The digest of the group before it; 0 for the first.
    pub previous: u64,
    /// The checksum of its body.
    pub body_checksum: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    version: u8,
    kind: u8,
    journal: U16,
    generation: U64,
    sequence: U64,
    position: U64,
    length: U32,
    body_offset: U32,
    body_bytes: U32,
    entries: U32,
    previous: U64,
    body_checksum: U32,
    header_checksum: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TailMark {
    magic: U32,
    repetition_bytes: U32,
    reserved: U32,
    checksum: U32,
}

const _: () = assert!(
    size_of::<Raw>() == GROUP_HEADER_BYTES
        && std::mem::offset_of!(Raw, version) == 4
        && std::mem::offset_of!(Raw, journal) == 6
        && std::mem::offset_of!(Raw, generation) == 8
        && std::mem::offset_of!(Raw, sequence) == 16
        && std::mem::offset_of!(Raw, position) == 24
        && std::mem::offset_of!(Raw, length) == 32
        && std::mem::offset_of!(Raw, previous) == 48
        && std::mem::offset_of!(Raw, body_checksum) == 56
        && std::mem::offset_of!(Raw, header_checksum) == HEADER_COVERED
        && size_of::<TailMark>() == TAIL_MARK_BYTES
        && std::mem::offset_of!(TailMark, checksum) == TAIL_COVERED
);

/// Why bytes are not the front of a group of this journal.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrontError {
    /// They do not verify.
    #[error("no header of this journal and generation verifies here")]
    Unverified,
    /// They verify and contradict themselves: only an error in a writer makes such.
    #[error("a header verifies and contradicts itself")]
    Contradiction,
    /// Of a version or with entries that this build does not know.
    #[error(transparent)]
    Newer(#[from] Newer),
}

/// The verified front of a group, or its repetition: header and directory.
#[derive(Clone, Copy, Debug)]
pub struct Front<'a> {
    /// The header.
    pub header: GroupHeader,
    /// The directory.
    pub directory: &'a [DirectoryEntry],
    /// The group's digest, which the next carries.
    pub digest: u64,
}

/// Writes the front of a group into `out` twice, and its tail mark. The body and the zeros behind it already stand there; `out` is the
/// whole group. Gives the group's digest.
///
/// # Panics
/// If the sizes contradict the header.
pub fn write_fronts(out: &mut [u8], seed: JournalSeed, header: &GroupHeader, directory: &[DirectoryEntry]) -> u64 {
    let layout = GroupLayout::of(directory.len(), header.body_bytes as usize);
    assert!(
        out.len() == layout.length
            && header.length as usize == layout.length
            && header.entries as usize == directory.len(),
        "a group is as long as its header says"
    );
    let body_offset = u32::try_from(layout.body).expect("a directory is far below 4 GiB");
    let mut raw = Raw {
        magic: MAGIC.into(),
        version: VERSION,
        kind: header.kind as u8,
        journal: seed.journal.0.into(),
        generation: seed.generation.0.into(),
        sequence: header.sequence.into(),
        position: header.position.into(),
        length: header.length.into(),
        body_offset: body_offset.into(),
        body_bytes: header.body_bytes.into(),
        entries: header.entries.into(),
        previous: header.previous.into(),
        body_checksum: header.body_checksum.into(),
        header_checksum: 0.into(),
    };
    raw.header_checksum = front_checksum(seed, &raw, directory.as_bytes()).into();
    for at in [0, layout.repetition] {
        out[at..][..GROUP_HEADER_BYTES].copy_from_slice(raw.as_bytes());
        out[at + GROUP_HEADER_BYTES..at + layout.body].copy_from_slice(directory.as_bytes());
    }
    let mut tail = TailMark {
        magic: TAIL_MAGIC.into(),
        repetition_bytes: body_offset.into(),
        reserved: 0.into(),
        checksum: 0.into(),
    };
    tail.checksum = checksum(seed.seed, &tail.as_bytes()[..TAIL_COVERED]).into();
    out[layout.length - TAIL_MARK_BYTES..].copy_from_slice(tail.as_bytes());
    digest_of(&out[..layout.body])
}

fn front_checksum(seed: JournalSeed, raw: &Raw, directory: &[u8]) -> u32 {
    checksum(checksum(seed.seed, &raw.as_bytes()[..HEADER_COVERED]), directory)
}

fn digest_of(front: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(front)
}

/// Reads the front of a group at the start of `bytes`, which may go on behind it. The body is not looked at.
///
/// # Errors
/// Why there is none.
pub fn read_front(bytes: &[u8], seed: JournalSeed) -> Result<Front<'_>, FrontError> {
    let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| FrontError::Unverified)?;
    let ours =
        raw.magic.get() == MAGIC && raw.generation.get() == seed.generation.0 && raw.journal.get() == seed.journal.0;
    if !ours {
        return Err(FrontError::Unverified);
    }
    // Magic, version, the length of the front (the body's offset) and this checksum's rule never change: so a newer group is told for
    // certain, and one whose version rotted is not taken for one.
    let front = bytes.get(..raw.body_offset.get() as usize).ok_or(FrontError::Unverified)?;
    let directory = front.get(GROUP_HEADER_BYTES..).ok_or(FrontError::Unverified)?;
    if front_checksum(seed, raw, directory) != raw.header_checksum.get() {
        return Err(FrontError::Unverified);
    }
    if raw.version > VERSION {
        return Err(unknown(WHAT, raw.version, u32::from(VERSION)).into());
    }
    let directory = <[DirectoryEntry]>::ref_from_bytes_with_elems(directory, raw.entries.get() as usize)
        .map_err(|_| FrontError::Contradiction)?;
    let kind = GroupKind::from_byte(raw.kind).ok_or_else(|| unknown("kind of journal group", raw.kind, 4))?;
    for entry in directory {
        if JournalEntryKind::from_byte(entry.kind).is_none() {
            return Err(unknown("kind of journal entry", entry.kind, 8).into());
        }
    }
    let layout = GroupLayout::of(directory.len(), raw.body_bytes.get() as usize);
    let sound = raw.version == VERSION
        && directory.len() == raw.entries.get() as usize
        && raw.length.get() as usize == layout.length
        && raw.body_offset.get() as usize == layout.body
        && directory.iter().all(|e| {
            e.body_end() <= u64::from(raw.body_bytes.get())
                && e.first.get().checked_add(u64::from(e.records.get())).is_some()
        });
    if !sound {
        return Err(FrontError::Contradiction);
    }
    let header = GroupHeader {
        kind,
        sequence: raw.sequence.get(),
        position: raw.position.get(),
        length: raw.length.get(),
        body_bytes: raw.body_bytes.get(),
        entries: raw.entries.get(),
        previous: raw.previous.get(),
        body_checksum: raw.body_checksum.get(),
    };
    Ok(Front { header, directory, digest: digest_of(front) })
}

/// Reads the repetition of the group that ends where `bytes` end. They may begin anywhere: the group begins its length before that end.
///
/// # Errors
/// Why there is none.
pub fn read_repetition(bytes: &[u8], seed: JournalSeed) -> Result<Front<'_>, FrontError> {
    let (rest, tail) = TailMark::ref_from_suffix(bytes).map_err(|_| FrontError::Unverified)?;
    if tail.magic.get() != TAIL_MAGIC || checksum(seed.seed, &tail.as_bytes()[..TAIL_COVERED]) != tail.checksum.get() {
        return Err(FrontError::Unverified);
    }
    let at = rest.len().checked_sub(tail.repetition_bytes.get() as usize).ok_or(FrontError::Unverified)?;
    read_front(&rest[at..], seed)
}

/// Whether a block may begin with a group or end with one, by its magic numbers alone.
#[must_use]
pub fn may_hold_front(block: &[u8]) -> bool {
    let starts = block.get(..4).is_some_and(|magic| magic == MAGIC.to_le_bytes());
    starts || ends_group(block)
}

/// Whether bytes may end with a group, by its magic number alone.
#[must_use]
pub fn ends_group(block: &[u8]) -> bool {
    let tail = block.len().checked_sub(TAIL_MARK_BYTES).and_then(|at| block.get(at..at + 4));
    tail.is_some_and(|magic| magic == TAIL_MAGIC.to_le_bytes())
}

fn unknown(what: &'static str, found: u8, supported: u32) -> Newer {
    Newer { what, found: u32::from(found), supported }
}

const _: () = assert!(
    // One record of 1 KiB takes one block.
    GroupLayout::of(1, super::batch::entry_length(super::batch::BATCH_HEADER_BYTES + 1024 + 64)).length == BLOCK
);

#[cfg(test)]
mod tests;
