//! The catalog of one shard: its segments, promises, seals, trims and uncertain spans as at its last checkpoint, on disk as a chain
//! of small files.
//!
//! ```text
//!   sequence   12          13        14        15        16        17
//!   delta                  Δ13       Δ14       Δ15       Δ16       Δ17      one a checkpoint, synced: then its groups may go
//!   snapshot   S12                   S14                 S16               when deltas have outgrown the last one
//!              first of the generation                   two are kept, and all deltas since the older
//! ```
//! A checkpoint is done when its delta is durable. A snapshot is written besides, later, and nobody waits for it: it may be torn,
//! then the older one and the deltas since give the same. So a file that does not verify is harmless where it is the last delta (an
//! unfinished checkpoint: the journal still has its groups) or a snapshot; any other is damage, seen by what stands behind it.
//!
//! Invariant: a record in memory that differs from the files is dirty, and the next delta holds it.

mod codec;
mod file;
mod load;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

pub use load::{CatalogError, LoadedCatalog, load};
pub use record::{Contents, DoomedFile, Extent, LiveMark, Record, SegmentRecord, SegmentState, Tail};

use crate::api::port::DataFile;
use crate::format::segment::Hole;
use crate::types::{AlignedBuffer, Epoch, Generation, Offset, RangeId, SegmentId, ShardId};

use file::{FileHeader, FileKind};

/// Deltas of so many bytes are never worth a new snapshot.
const DELTA_BYTES_MIN: u64 = 1 << 20;

/// A catalog file to be written whole under a new name, then synced, then its folder.
#[derive(Clone, Debug)]
pub struct CatalogFile {
    /// Its name.
    pub file: DataFile,
    /// All its bytes.
    pub buffer: Arc<AlignedBuffer>,
}

/// Which chain of files a catalog is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainId {
    /// The shard.
    pub shard: ShardId,
    /// Shards of the generation.
    pub shards: u16,
    /// The generation of journals that it belongs to.
    pub generation: Generation,
}

/// One shard's catalog in memory.
#[derive(Debug)]
pub struct Catalog {
    id: ChainId,
    segments: BTreeMap<SegmentId, SegmentRecord>,
    /// Derived from `segments`: a range is deleted without a look at all of them.
    by_range: BTreeMap<RangeId, BTreeSet<SegmentId>>,
    promises: BTreeMap<RangeId, Epoch>,
    uncertain: BTreeMap<SegmentId, (RangeId, Vec<Hole>)>,
    trims: BTreeMap<RangeId, Offset>,
    deletions: BTreeMap<RangeId, Vec<DoomedFile>>,
    live: LiveMark,
    dirty: Dirty,
    /// Sequence and digest of the last delta made; the digest is 0 at the beginning of a generation.
    sequence: u64,
    digest: u64,
    /// Sequences of the snapshots that are durable and kept, the older first.
    snapshots: Vec<u64>,
    /// Files of the chain that exist.
    files: BTreeSet<DataFile>,
    snapshot_bytes: u64,
    /// Bytes of deltas since the last snapshot.
    delta_bytes: u64,
}

/// What the next delta holds.
#[derive(Debug, Default)]
struct Dirty {
    segments: BTreeSet<SegmentId>,
    promises: BTreeSet<RangeId>,
    uncertain: BTreeSet<SegmentId>,
    trims: BTreeSet<RangeId>,
    deletions: BTreeSet<RangeId>,
}

impl Catalog {
    /// An empty catalog whose first snapshot will have `sequence`: greater than that of any catalog file of the shard.
    #[must_use]
    pub fn new(id: ChainId, sequence: u64) -> Self {
        Self {
            id,
            segments: BTreeMap::new(),
            by_range: BTreeMap::new(),
            promises: BTreeMap::new(),
            uncertain: BTreeMap::new(),
            trims: BTreeMap::new(),
            deletions: BTreeMap::new(),
            live: LiveMark::default(),
            dirty: Dirty::default(),
            sequence,
            digest: 0,
            snapshots: Vec::new(),
            files: BTreeSet::new(),
            snapshot_bytes: 0,
            delta_bytes: 0,
        }
    }

    /// Which chain it is.
    #[must_use]
    pub fn id(&self) -> ChainId {
        self.id
    }

    /// All segments, by id.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentRecord> {
        self.segments.values()
    }

    /// All segments, by id; the catalog is done with.
    pub fn into_segments(self) -> impl Iterator<Item = SegmentRecord> {
        self.segments.into_values()
    }

    /// One segment.
    #[must_use]
    pub fn segment(&self, segment: SegmentId) -> Option<&SegmentRecord> {
        self.segments.get(&segment)
    }

    /// The index and table of the newest segment of a range above `segment` that has them here.
    #[must_use]
    pub fn last_tail_above(&self, range: RangeId, segment: SegmentId) -> Option<&Tail> {
        let of_range = self.by_range.get(&range)?.range((Bound::Excluded(segment), Bound::Unbounded));
        of_range.rev().find_map(|segment| self.segment(*segment)?.tail())
    }

    /// All promises.
    #[must_use]
    pub fn promises(&self) -> &BTreeMap<RangeId, Epoch> {
        &self.promises
    }

    /// Trimmed starts, inclusive.
    #[must_use]
    pub fn trims(&self) -> &BTreeMap<RangeId, Offset> {
        &self.trims
    }

    /// Spans of a segment that were found uncertain or unreadable and that no committed seal covers.
    #[must_use]
    pub fn uncertain(&self, segment: SegmentId) -> &[Hole] {
        self.uncertain.get(&segment).map_or(&[], |(_, spans)| spans)
    }

    /// All of them, with the range of each segment.
    pub fn all_uncertain(&self) -> impl Iterator<Item = (SegmentId, RangeId, &[Hole])> {
        self.uncertain.iter().map(|(segment, (range, spans))| (*segment, *range, spans.as_slice()))
    }

    /// Ranges that are deleted, with their files that are still to be removed.
    #[must_use]
    pub fn deletions(&self) -> &BTreeMap<RangeId, Vec<DoomedFile>> {
        &self.deletions
    }

    /// Where the journal is to be read from.
    #[must_use]
    pub fn live(&self) -> LiveMark {
        self.live
    }

    /// Takes a segment as it is at the checkpoint. A committed seal ends its uncertainty.
    pub fn put_segment(&mut self, record: SegmentRecord) {
        let segment = record.segment();
        if record.seal().is_some() {
            self.clear_uncertain(segment);
        }
        self.dirty.segments.insert(segment);
        self.by_range.entry(record.header.range).or_default().insert(segment);
        self.segments.insert(segment, record);
    }

    /// A committed trim has removed a segment. Its files may be removed when this is durable.
    pub fn remove_segment(&mut self, segment: SegmentId) -> Option<SegmentRecord> {
        let removed = self.segments.remove(&segment)?;
        if let Some(of_range) = self.by_range.get_mut(&removed.header.range) {
            of_range.remove(&segment);
        }
        self.dirty.segments.insert(segment);
        self.clear_uncertain(segment);
        Some(removed)
    }

    /// Nothing below `epoch` is taken for the range. A promise never falls.
    pub fn promise(&mut self, range: RangeId, epoch: Epoch) {
        if self.promises.get(&range).is_none_or(|promised| epoch > *promised) {
            self.promises.insert(range, epoch);
            self.dirty.promises.insert(range);
        }
    }

    /// What may have been held of a segment and cannot be read: ascending, not touching. The segment itself need not be known: its
    /// opening may be part of what cannot be read.
    pub fn set_uncertain(&mut self, range: RangeId, segment: SegmentId, spans: Vec<Hole>) {
        self.uncertain.insert(segment, (range, spans));
        self.dirty.uncertain.insert(segment);
    }

    /// A committed seal covers what was uncertain of a segment.
    pub fn clear_uncertain(&mut self, segment: SegmentId) {
        if self.uncertain.remove(&segment).is_some() {
            self.dirty.uncertain.insert(segment);
        }
    }

    /// Below `start`, the range is deleted. A trimmed start never falls.
    pub fn trim(&mut self, range: RangeId, start: Offset) {
        if self.trims.get(&range).is_none_or(|trimmed| start > *trimmed) {
            self.trims.insert(range, start);
            self.dirty.trims.insert(range);
        }
    }

    /// The range is deleted, as committed: all that is known of it is forgotten, but which files are to be removed. They may be removed
    /// when this is durable and the journal is covered up to the last that it says of the range.
    pub fn delete_range(&mut self, range: RangeId) {
        let segments = self.by_range.get(&range).into_iter().flatten();
        let records = segments.filter_map(|segment| self.segments.get(segment));
        let files = records.flat_map(|record| {
            let segment = record.segment();
            record.extents.iter().map(move |extent| (segment, extent.part))
        });
        let files = files.collect();
        self.set_deletion(range, files);
    }

    /// As `delete_range`, of a range whose files are known.
    pub fn set_deletion(&mut self, range: RangeId, files: Vec<DoomedFile>) {
        let Self { uncertain, dirty, .. } = self;
        for segment in self.by_range.remove(&range).unwrap_or_default() {
            self.segments.remove(&segment);
            dirty.segments.remove(&segment);
        }
        uncertain.retain(|segment, (of, _)| {
            let stays = *of != range;
            if !stays {
                dirty.uncertain.remove(segment);
            }
            stays
        });
        self.promises.remove(&range);
        self.dirty.promises.remove(&range);
        self.trims.remove(&range);
        self.dirty.trims.remove(&range);
        self.deletions.insert(range, files);
        self.dirty.deletions.insert(range);
    }

    /// The files of a deleted range are removed, durably: nothing of it is left to be known.
    pub fn deletion_done(&mut self, range: RangeId) {
        if self.deletions.remove(&range).is_some() {
            self.dirty.deletions.insert(range);
        }
    }

    /// The first group that the next file will not cover.
    pub fn set_live(&mut self, live: LiveMark) {
        self.live = live;
    }

    /// The next delta: what has changed since the last file. When it is durable, the journal's groups before `live` may be overwritten.
    pub fn delta(&mut self) -> CatalogFile {
        let dirty = std::mem::take(&mut self.dirty);
        let mut records = Vec::new();
        for range in dirty.deletions {
            let record = match self.deletions.get(&range) {
                Some(files) => Record::Deletion { range, files: files.clone() },
                None => Record::DeletionDone { range },
            };
            record.encode(&mut records);
        }
        for segment in &dirty.segments {
            match self.segments.get(segment) {
                Some(record) => record::put_segment(record, &mut records),
                None => Record::SegmentRemoved(*segment).encode(&mut records),
            }
        }
        for range in dirty.promises {
            Record::Promise { range, epoch: self.promises[&range] }.encode(&mut records);
        }
        for segment in dirty.uncertain {
            let (range, spans) = self.uncertain.get(&segment).cloned().unwrap_or_default();
            Record::Uncertain { range, segment, spans }.encode(&mut records);
        }
        for range in dirty.trims {
            Record::Trim { range, start: self.trims[&range] }.encode(&mut records);
        }
        Record::Live(self.live).encode(&mut records);
        self.sequence += 1;
        let header = self.header(FileKind::Delta);
        let (buffer, digest) = header.encode(&records);
        self.digest = digest;
        self.delta_bytes += buffer.len() as u64;
        self.files.insert(header.file());
        CatalogFile { file: header.file(), buffer: Arc::new(buffer) }
    }

    /// Everything, as at the last delta; at the beginning of a generation its first file. Nothing may be dirty otherwise.
    ///
    /// # Panics
    /// If something changed since the last delta.
    pub fn snapshot(&mut self) -> CatalogFile {
        let begins = self.files.is_empty();
        assert!(begins || self.is_clean(), "a snapshot says what its delta says");
        self.dirty = Dirty::default();
        let mut records = Vec::new();
        for (&range, files) in &self.deletions {
            Record::Deletion { range, files: files.clone() }.encode(&mut records);
        }
        for record in self.segments.values() {
            record::put_segment(record, &mut records);
        }
        for (&range, &epoch) in &self.promises {
            Record::Promise { range, epoch }.encode(&mut records);
        }
        for (&segment, (range, spans)) in &self.uncertain {
            Record::Uncertain { range: *range, segment, spans: spans.clone() }.encode(&mut records);
        }
        for (&range, &start) in &self.trims {
            Record::Trim { range, start }.encode(&mut records);
        }
        Record::Live(self.live).encode(&mut records);
        let header = self.header(FileKind::Snapshot);
        let (buffer, _) = header.encode(&records);
        self.snapshot_bytes = buffer.len() as u64;
        self.delta_bytes = 0;
        self.files.insert(header.file());
        CatalogFile { file: header.file(), buffer: Arc::new(buffer) }
    }

    /// Whether nothing has changed since the last delta.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.dirty.segments.is_empty()
            && self.dirty.promises.is_empty()
            && self.dirty.uncertain.is_empty()
            && self.dirty.trims.is_empty()
            && self.dirty.deletions.is_empty()
    }

    /// Whether deltas have outgrown the last snapshot, so that a new one is worth its bytes. To be made right after a delta.
    #[must_use]
    pub fn snapshot_is_due(&self) -> bool {
        self.delta_bytes > self.snapshot_bytes.max(DELTA_BYTES_MIN)
    }

    /// The snapshot of this name is durable. Gives the files that nobody needs any more: all before the older of the two kept.
    pub fn snapshot_durable(&mut self, snapshot: DataFile) -> Vec<DataFile> {
        if let DataFile::CatalogSnapshot { sequence, .. } = snapshot {
            self.snapshots.push(sequence);
        }
        let kept_from = self.snapshots.len().saturating_sub(2);
        self.snapshots.drain(..kept_from);
        let Some(&oldest) = self.snapshots.first() else { return Vec::new() };
        let superseded = |file: &&DataFile| {
            matches!(file, DataFile::CatalogSnapshot { sequence, .. } if *sequence < oldest)
                || matches!(file, DataFile::CatalogDelta { sequence, .. } if *sequence <= oldest)
        };
        let gone: Vec<DataFile> = self.files.iter().filter(superseded).copied().collect();
        for file in &gone {
            self.files.remove(file);
        }
        gone
    }

    fn header(&self, kind: FileKind) -> FileHeader {
        let ChainId { shard, shards, generation } = self.id;
        FileHeader { kind, shard, shards, generation, sequence: self.sequence, previous: self.digest }
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Segment(record) => self.put_segment(*record),
            Record::SegmentRemoved(segment) => {
                self.remove_segment(segment);
            }
            Record::Promise { range, epoch } => self.promise(range, epoch),
            Record::Uncertain { segment, spans, .. } if spans.is_empty() => {
                self.uncertain.remove(&segment);
            }
            Record::Uncertain { range, segment, spans } => self.set_uncertain(range, segment, spans),
            Record::Trim { range, start } => self.trim(range, start),
            Record::Live(live) => self.live = live,
            Record::Deletion { range, files } => self.set_deletion(range, files),
            Record::DeletionDone { range } => self.deletion_done(range),
        }
    }
}
