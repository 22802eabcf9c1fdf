//! Composes a group: gathers entries while the one before is in flight, then writes them as one piece of memory.
//!
//! The bodies stay with their owners (the memory that a segment is later written from) until the group is closed, and are then copied
//! once, behind a directory whose size is now known. Their checksum goes along as they are added, while the group before is in flight:
//! between two writes there is only the copy. All memory is reused.

use crate::format::journal::{DirectoryEntry, GroupHeader, GroupKind, GroupLayout, JournalSeed, write_fronts};
use crate::types::limits::{BATCH_BYTES_CEILING, BLOCK, GROUP_BYTES_MAX};

use super::ring::Slot;

/// A group as it will be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedGroup {
    /// Where it goes.
    pub slot: Slot,
    /// What it is for.
    pub kind: GroupKind,
    /// Its bytes, whole blocks.
    pub length: usize,
    /// Its digest, which the next group carries.
    pub digest: u64,
}

/// Bytes of the longest group that can be made where batches have at most `max_batch` bytes: for the memory to compose it in.
///
/// # Panics
/// If `max_batch` is above [`BATCH_BYTES_CEILING`].
#[must_use]
pub fn group_bytes_max(max_batch: usize) -> usize {
    assert!(max_batch <= BATCH_BYTES_CEILING, "no configuration allows batches above the ceiling");
    let alone = GroupLayout::of(1, crate::format::batch::entry_length(max_batch)).length;
    alone.max(GROUP_BYTES_MAX)
}

/// What has become ready for the next group.
#[derive(Debug)]
pub struct OpenGroup {
    seed: JournalSeed,
    directory: Vec<DirectoryEntry>,
    body_bytes: usize,
    /// The checksum of the bodies so far.
    sum: u32,
    bytes_max: usize,
}

impl OpenGroup {
    /// Closes at `bytes_max` bytes, one entry alone excepted (`Geometry::group_bytes_max`).
    #[must_use]
    pub fn new(seed: JournalSeed, bytes_max: usize) -> Self {
        Self { seed, directory: Vec::new(), body_bytes: 0, sum: seed.body_checksum(None, &[]), bytes_max }
    }

    /// The seed of the journal that it is for.
    #[must_use]
    pub fn seed(&self) -> JournalSeed {
        self.seed
    }

    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.directory.is_empty()
    }

    /// Its entries so far.
    #[must_use]
    pub fn directory(&self) -> &[DirectoryEntry] {
        &self.directory
    }

    /// Bytes that it would take if it were closed now.
    #[must_use]
    pub fn length(&self) -> usize {
        GroupLayout::of(self.directory.len(), self.body_bytes).length
    }

    /// Bytes that it would take with one more entry of `body_bytes`.
    #[must_use]
    pub fn length_with(&self, body_bytes: usize) -> usize {
        GroupLayout::of(self.directory.len() + 1, self.body_bytes + body_bytes).length
    }

    /// Whether an entry of `body_bytes` can still be added. To an empty group it always can.
    #[must_use]
    pub fn fits(&self, body_bytes: usize) -> bool {
        self.is_empty() || self.length_with(body_bytes) <= self.bytes_max
    }

    /// Adds an entry behind the others. Its body, which must not change any more, is asked for again when the group is closed, by the
    /// entry's number in the directory.
    ///
    /// # Panics
    /// If it does not [fit](Self::fits), or the body is not as long as the entry says.
    pub fn add(&mut self, entry: DirectoryEntry, body: &[u8]) {
        let bytes = entry.bytes() as usize;
        assert_eq!(bytes, body.len(), "a body is as long as its entry says");
        assert!(self.fits(bytes), "a full group takes no entry");
        self.sum = self.seed.body_checksum(Some(self.sum), body);
        let body_offset = u32::try_from(self.body_bytes).expect("a group is far below 4 GiB");
        self.directory.push(entry.at(body_offset));
        self.body_bytes += bytes;
    }

    /// Writes the whole group to the front of `out`. `fill` is called for each entry that has a body, in order, with its number in the
    /// directory and the bytes to fill. The entries stay until [`clear`](Self::clear).
    ///
    /// # Panics
    /// If `out` is shorter than [`length`](Self::length).
    pub fn close(&self, slot: Slot, out: &mut [u8], mut fill: impl FnMut(usize, &mut [u8])) -> ClosedGroup {
        let layout = GroupLayout::of(self.directory.len(), self.body_bytes);
        let out = &mut out[..layout.length];
        let (body, rest) = out[layout.body..].split_at_mut(self.body_bytes);
        for (index, entry) in self.directory.iter().enumerate().filter(|(_, e)| e.bytes() > 0) {
            let part = &mut body[entry.body_offset() as usize..][..entry.bytes() as usize];
            fill(index, part);
        }
        debug_assert_eq!(self.sum, self.seed.body_checksum(None, body), "a body changed after it was added");
        // The memory is reused: what an earlier group left must not lie between the body and the repetition.
        rest.fill(0);
        let to_u32 = |bytes: usize| u32::try_from(bytes).expect("a group is far below 4 GiB");
        let header = GroupHeader {
            kind: GroupKind::Normal,
            sequence: slot.sequence,
            position: slot.position.0,
            length: to_u32(layout.length),
            body_bytes: to_u32(self.body_bytes),
            entries: to_u32(self.directory.len()),
            previous: slot.previous,
            body_checksum: self.sum,
        };
        let digest = write_fronts(out, self.seed, &header, &self.directory);
        ClosedGroup { slot, kind: header.kind, length: layout.length, digest }
    }

    /// Forgets all entries, keeps the memory.
    pub fn clear(&mut self) {
        self.directory.clear();
        self.body_bytes = 0;
        self.sum = self.seed.body_checksum(None, &[]);
    }
}

/// Writes a group without entries to the front of `out`: one block.
///
/// A [marker](GroupKind::Marker) is not [taken](super::Ring::take): the next real group has its slot's sequence and overwrites it, or lies
/// at the next file's start. That is why it needs no sync of its own: were it a link of the chain, a crash that kept the group behind it
/// and lost it would look like rot.
///
/// # Panics
/// If `out` is shorter than a block.
pub fn compose_empty(kind: GroupKind, seed: JournalSeed, slot: Slot, out: &mut [u8]) -> ClosedGroup {
    let out = &mut out[..BLOCK];
    out.fill(0);
    let header = GroupHeader {
        kind,
        sequence: slot.sequence,
        position: slot.position.0,
        length: u32::try_from(BLOCK).expect("a block is small"),
        body_bytes: 0,
        entries: 0,
        previous: slot.previous,
        body_checksum: seed.body_checksum(None, &[]),
    };
    let digest = write_fronts(out, seed, &header, &[]);
    ClosedGroup { slot, kind, length: BLOCK, digest }
}
