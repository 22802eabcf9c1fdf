//! What the medium holds of groups that were in flight when a process ended, judged by their bytes and not by the engine.

use sealog_engine::api::port::DataFile;
use sealog_engine::format::PlacedBatch;
use sealog_engine::format::journal::{GroupLayout, JournalEntryKind, JournalSeed, read_front};
use sealog_engine::types::{Generation, Offset, RangeId};

use crate::disk::{Disk, TornGroup};

/// A group in flight, and the generation that wrote it.
pub(super) struct Torn {
    pub(super) group: TornGroup,
    pub(super) generation: Generation,
}

/// A batch whose offsets may have been acknowledged.
pub(super) struct MayHold {
    pub(super) range: RangeId,
    pub(super) offset: Offset,
    pub(super) end: Offset,
    /// Of the producer's bytes and the offset.
    pub(super) digest: u64,
}

/// The digest that a batch is told from others by.
pub(super) fn digest_of(offset: Offset, batch: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(batch, offset.0)
}

impl Torn {
    /// The batches that the node must take for stored: the header of their group, or its repetition, is there.
    pub(super) fn may_hold(&self, disk: &Disk) -> Vec<MayHold> {
        let DataFile::Journal { shard, .. } = self.group.file else { return Vec::new() };
        let bytes = &self.group.bytes[..];
        let Ok(front) = read_front(bytes, JournalSeed::new(self.generation, shard)) else { return Vec::new() };
        let layout = GroupLayout::of(front.directory.len(), front.header.body_bytes as usize);
        let there = disk.peek(self.group.file, self.group.position, bytes.len());
        if there.len() != bytes.len() {
            return Vec::new();
        }
        let kept = |span: std::ops::Range<usize>| there[span.clone()] == bytes[span];
        if !kept(0..layout.body) && !kept(layout.repetition..layout.length) {
            return Vec::new();
        }
        let batches = front.directory.iter().filter(|line| line.kind() == JournalEntryKind::Batch);
        let held = batches.filter_map(|line| {
            let from = layout.body + line.body_offset() as usize;
            let placed = PlacedBatch::trust(&bytes[from..from + line.bytes() as usize]).ok()?;
            let digest = digest_of(line.first(), placed.batch().bytes());
            Some(MayHold { range: line.range(), offset: line.first(), end: line.end(), digest })
        });
        held.collect()
    }
}
