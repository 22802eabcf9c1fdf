//! A plain writer of journals, segments and catalogs in the order that a shard writes them, and a reader of what recovery found: to test
//! recovery against.

use std::collections::BTreeMap;

use super::{Fresh, RecoverError, Recovered, RecoveredShard, recover};
use crate::api::config::EngineConfig;
use crate::api::port::{DataFile, Fill, Folder, Store};
use crate::format::BatchRef;
use crate::format::batch::{PlacedBatch, Stamp};
use crate::format::checksum::Digest;
use crate::format::journal::{DirectoryEntry, GroupKind, GroupLayout, JournalEntryKind, JournalSeed};
use crate::format::segment::{Hole, RollMark, Seal, SegmentHeader};
use crate::journal::{Mark, OpenGroup, Ring, compose_empty};
use crate::replica::ProducerTable;
use crate::segment::appender::{Appender, UnwrittenChunk};
use crate::segment::catalog::{Catalog, Contents, Extent, LiveMark, SegmentRecord, SegmentState, Tail};
use crate::segment::pool::ChunkPool;
use crate::segment::reader::{Scanned, SegmentReader, Wanted};
use crate::segment::samples::{batch, header};
use crate::segment::test_store::TestStore;
use crate::types::limits::BLOCK;
use crate::types::{
    AlignedBuffer, ClusterId, DiskId, Epoch, Generation, Offset, ProducerId, RangeId, SegmentId, Sequence, ShardId,
};

/// A ring of 64 blocks a file.
pub(super) fn config(shards: u16) -> EngineConfig {
    EngineConfig { shards, journal_file_bytes: 64 * BLOCK as u64, ..EngineConfig::default() }
}

pub(super) fn fresh(generation: u64) -> Fresh {
    Fresh { cluster: ClusterId(11), disk: DiskId(22), generation: Generation(generation) }
}

/// What is known of a segment: what recovery must give back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) end: Offset,
    pub(super) digest: Digest,
    pub(super) entries: Vec<u8>,
    pub(super) mark: Option<RollMark>,
    pub(super) seal: Option<(Seal, Vec<Hole>)>,
    pub(super) table: ProducerTable,
}

/// What is known of a disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Disk {
    pub(super) segments: BTreeMap<SegmentId, Known>,
    pub(super) promises: BTreeMap<RangeId, Epoch>,
    pub(super) trims: BTreeMap<RangeId, Offset>,
    pub(super) uncertain: BTreeMap<SegmentId, Vec<Hole>>,
}

/// One segment that a life writes.
struct Written {
    header: SegmentHeader,
    appender: Appender,
    table: ProducerTable,
    entries: Vec<u8>,
    mark: Option<RollMark>,
    seal: Option<(Seal, Vec<Hole>)>,
    has_file: bool,
}

/// One shard in one life.
pub(super) struct Life {
    pub(super) shard: ShardId,
    seed: JournalSeed,
    pub(super) ring: Ring,
    catalog: Catalog,
    pool: ChunkPool,
    segments: BTreeMap<SegmentId, Written>,
    tables: BTreeMap<SegmentId, Vec<u8>>,
    group: OpenGroup,
    bodies: Vec<Vec<u8>>,
    next_sequence: u64,
    /// What is durable, as recovery must find it.
    pub(super) durable: Disk,
    /// What is durable once the next group is.
    pub(super) taken: Disk,
}

impl Life {
    /// A shard that recovery opened.
    pub(super) fn new(recovered: RecoveredShard, disk: Disk) -> Self {
        let geometry = recovered.ring.geometry();
        let seed = JournalSeed::new(recovered.generation, recovered.shard);
        Self {
            seed,
            shard: recovered.shard,
            ring: recovered.ring,
            catalog: recovered.catalog,
            pool: ChunkPool::new(1 << 20),
            segments: BTreeMap::new(),
            tables: BTreeMap::new(),
            group: OpenGroup::new(seed, geometry.group_bytes_max()),
            bodies: Vec::new(),
            next_sequence: 0,
            durable: disk.clone(),
            taken: disk,
        }
    }

    fn queue(&mut self, line: DirectoryEntry, body: Vec<u8>) {
        self.group.add(line, &body);
        self.bodies.push(body);
    }

    fn note(&mut self, segment: u64) {
        let written = &self.segments[&SegmentId(segment)];
        let known = Known {
            end: written.appender.end(),
            digest: written.appender.digest(),
            entries: written.entries.clone(),
            mark: written.mark,
            seal: written.seal.clone(),
            table: written.table.clone(),
        };
        self.taken.segments.insert(SegmentId(segment), known);
    }

    /// Opens a segment of `range` at `base` with the producers that `table` knows.
    pub(super) fn open(&mut self, range: u64, segment: u64, base: u64, table: ProducerTable) {
        let entry = self.begin(range, segment, base, table);
        self.queue(line(JournalEntryKind::Table, range, segment, (base, 0), entry.len()), entry);
        self.note(segment);
    }

    /// Opens a segment without its table, which is empty.
    pub(super) fn open_only(&mut self, range: u64, segment: u64, base: u64) {
        self.begin(range, segment, base, ProducerTable::default());
    }

    /// The table and a batch of a segment that was only opened.
    pub(super) fn table_and_batch(&mut self, segment: u64, records: u32) {
        let header = self.segments[&SegmentId(segment)].header;
        let (range, base) = (header.range.0, header.base.unwrap().0);
        let entry = self.tables[&SegmentId(segment)].clone();
        self.queue(line(JournalEntryKind::Table, range, segment, (base, 0), entry.len()), entry);
        self.batch(segment, records, 10);
    }

    /// The digest of a segment before its first batch.
    pub(super) fn digest_at_base(&self, segment: u64) -> Digest {
        let header = self.segments[&SegmentId(segment)].header;
        Digest::start_from(header.segment, header.base.unwrap(), header.table.unwrap())
    }

    /// Queues the opening of a segment; gives the entry of its table.
    fn begin(&mut self, range: u64, segment: u64, base: u64, table: ProducerTable) -> Vec<u8> {
        let mut payload = Vec::new();
        table.encode(&mut payload);
        let header =
            SegmentHeader { range: RangeId(range), table: Some(Digest::of(&payload)), ..header(segment, base) };
        let mut appender = Appender::create(&mut self.pool, &header);
        let placed = appender.append_table(&mut self.pool, &payload);
        let entry = appender.entry(placed).to_vec();
        let (mark, seal) = (None, None);
        let written = Written { header, appender, table, entries: Vec::new(), mark, seal, has_file: false };
        self.segments.insert(header.segment, written);
        self.tables.insert(header.segment, entry.clone());
        let body = header.encode().to_vec();
        self.queue(line(JournalEntryKind::Open, range, segment, (base, 0), body.len()), body);
        entry
    }

    /// Appends a batch of `records` records of producer 5.
    pub(super) fn batch(&mut self, segment: u64, records: u32, value_bytes: usize) {
        let stamp = Stamp { producer: ProducerId(5), sequence: Sequence(self.next_sequence), ..Stamp::default() };
        let bytes = batch(5, self.next_sequence, records, value_bytes);
        self.next_sequence += 1;
        let written = self.segments.get_mut(&SegmentId(segment)).unwrap();
        let (range, first) = (written.header.range, written.appender.end());
        let batch = BatchRef::verify(&bytes, bytes.len()).unwrap();
        let placed = written.appender.append_batch(&mut self.pool, Epoch(2), 7, batch);
        written.table.record(&stamp, written.appender.end(), 0);
        let entry = written.appender.entry(placed).to_vec();
        written.entries.extend_from_slice(&entry);
        self.queue(line(JournalEntryKind::Batch, range.0, segment, (first.0, records), entry.len()), entry);
        self.note(segment);
    }

    /// Ends a segment with a mark and goes on in `successor`.
    pub(super) fn roll(&mut self, segment: u64, successor: u64) {
        let written = self.segments.get_mut(&SegmentId(segment)).unwrap();
        let (range, end, table) = (written.header.range, written.appender.end(), written.table.clone());
        let mut payload = Vec::new();
        table.encode(&mut payload);
        let (digest, successor_table) = (written.appender.digest(), Digest::of(&payload));
        let mark = RollMark { end, digest, successor: SegmentId(successor), successor_table };
        let placed = written.appender.append_roll_mark(&mut self.pool, &mark.encode());
        written.mark = Some(mark);
        let entry = written.appender.entry(placed).to_vec();
        self.queue(line(JournalEntryKind::RollMark, range.0, segment, (end.0, 0), entry.len()), entry);
        self.note(segment);
        self.open(range.0, successor, end.0, table);
    }

    /// Takes the committed seal of a segment that this life has written.
    pub(super) fn seal(&mut self, segment: u64) {
        let written = self.segments.get_mut(&SegmentId(segment)).unwrap();
        let seal = Seal { end: written.appender.end(), epoch: Epoch(3), digest: written.appender.digest() };
        written.seal = Some((seal, Vec::new()));
        written.mark = None;
        let range = written.header.range;
        self.queue_seal(range, segment, seal, &[]);
        self.note(segment);
    }

    /// Takes the committed seal of a segment that an earlier life wrote.
    pub(super) fn seal_found(&mut self, segment: u64, end: u64, holes: &[Hole]) {
        let record = self.catalog.segment(SegmentId(segment)).unwrap();
        let seal = Seal { end: Offset(end), epoch: Epoch(3), digest: record.checkpoint.digest };
        let range = record.header.range;
        self.queue_seal(range, segment, seal, holes);
        let known = self.taken.segments.get_mut(&SegmentId(segment)).unwrap();
        known.seal = Some((seal, holes.to_vec()));
        known.mark = None;
        self.taken.uncertain.remove(&SegmentId(segment));
    }

    fn queue_seal(&mut self, range: RangeId, segment: u64, seal: Seal, holes: &[Hole]) {
        let mut body = Vec::new();
        seal.encode(&mut body, holes);
        self.queue(line(JournalEntryKind::Seal, range.0, segment, (seal.end.0, 0), body.len()), body);
    }

    pub(super) fn promise(&mut self, range: u64, epoch: u64) {
        self.queue(DirectoryEntry::promise(RangeId(range), SegmentId(1), Epoch(epoch)), Vec::new());
        self.taken.promises.insert(RangeId(range), Epoch(epoch));
    }

    pub(super) fn trim(&mut self, range: u64, start: u64) {
        self.queue(line(JournalEntryKind::Trim, range, 0, (start, 0), 0), Vec::new());
        self.taken.trims.insert(RangeId(range), Offset(start));
    }

    /// Writes what is queued as one group, not synced. Gives its file, and where its body begins.
    pub(super) fn write_group(&mut self, store: &mut TestStore) -> (DataFile, usize) {
        let length = self.group.length();
        let layout = GroupLayout::of(self.group.directory().len(), 0);
        let slot = self.ring.slot(length as u64).expect("room in the ring");
        let mut buffer = AlignedBuffer::zeroed(length);
        let mut bodies = self.bodies.iter().filter(|body| !body.is_empty());
        let closed = self.group.close(slot, &mut buffer, |_, out| {
            out.copy_from_slice(bodies.next().expect("a body for each"));
        });
        self.group.clear();
        self.bodies.clear();
        self.ring.take(slot, length as u64, closed.digest);
        let (file, position) = self.ring.geometry().locate(slot.position);
        let file = DataFile::Journal { shard: self.shard, file };
        store.write(file, position, &buffer).unwrap();
        (file, usize::try_from(position).unwrap() + layout.body)
    }

    /// Writes and syncs what is queued as one group.
    pub(super) fn group(&mut self, store: &mut TestStore) -> (DataFile, usize) {
        let at = self.write_group(store);
        store.sync(at.0).unwrap();
        self.durable = self.taken.clone();
        at
    }

    /// Writes the marker of an idle shard, and syncs it.
    pub(super) fn marker(&mut self, store: &mut TestStore) {
        let slot = self.ring.slot(BLOCK as u64).unwrap();
        let mut block = AlignedBuffer::zeroed(BLOCK);
        compose_empty(GroupKind::Marker, self.seed, slot, &mut block);
        let (file, position) = self.ring.geometry().locate(slot.position);
        let file = DataFile::Journal { shard: self.shard, file };
        store.write(file, position, &block).unwrap();
        store.sync(file).unwrap();
    }

    /// A whole checkpoint at the last group, which is durable.
    pub(super) fn checkpoint(&mut self, store: &mut TestStore) {
        let Mark { sequence, position, previous } = self.ring.next();
        for written in self.segments.values_mut() {
            let cut = written.appender.cut();
            let file = DataFile::Segment { segment: written.header.segment, part: 0 };
            if !written.has_file {
                store.create(file, 0, Fill::Allocated).unwrap();
                written.has_file = true;
            }
            while let Some(UnwrittenChunk { position, buffer, length }) = written.appender.next_unwritten(cut.position)
            {
                let mut blocks = AlignedBuffer::zeroed(length);
                blocks.copy_from_slice(&buffer[..length]);
                store.write(file, position, &blocks).unwrap();
            }
            store.sync(file).unwrap();
            store.sync_folder(file.folder()).unwrap();
            written.appender.checkpointed(&mut self.pool, cut.position);
            let index = written.appender.index().entries_below(cut.position).to_vec();
            let mut table = Vec::new();
            written.table.encode(&mut table);
            let tail = Tail { index, table };
            let state = match (&written.seal, written.mark) {
                (Some((seal, holes)), _) => {
                    SegmentState::Sealed { seal: *seal, holes: holes.clone(), contents: Contents::Catalog(tail) }
                }
                (None, Some(mark)) => SegmentState::Rolled { mark, tail },
                (None, None) => SegmentState::Open(tail),
            };
            let extents = vec![Extent { part: 0, start: 0, length: cut.position }];
            let record = SegmentRecord { header: written.header, extents, checkpoint: cut, state };
            self.catalog.put_segment(record);
        }
        self.taken.promises.iter().for_each(|(range, epoch)| self.catalog.promise(*range, *epoch));
        self.taken.trims.iter().for_each(|(range, start)| self.catalog.trim(*range, *start));
        self.catalog.set_live(LiveMark { sequence, position: position.0, previous });
        self.write_delta(store);
        self.ring.release(self.ring.next());
    }

    /// Notes that a range is deleted, with a catalog that covers no more of the journal than the last.
    pub(super) fn delete_range(&mut self, store: &mut TestStore, range: u64) {
        self.catalog.delete_range(RangeId(range));
        self.write_delta(store);
        for disk in [&mut self.durable, &mut self.taken] {
            let segments = self.segments.values().filter(|written| written.header.range == RangeId(range));
            segments.for_each(|written| drop(disk.segments.remove(&written.header.segment)));
            disk.promises.remove(&RangeId(range));
            disk.trims.remove(&RangeId(range));
        }
    }

    fn write_delta(&mut self, store: &mut TestStore) {
        let delta = self.catalog.delta();
        store.create(delta.file, 0, Fill::Allocated).unwrap();
        store.write(delta.file, 0, &delta.buffer).unwrap();
        store.sync(delta.file).unwrap();
        store.sync_folder(Folder::Catalog).unwrap();
    }
}

fn line(
    kind: JournalEntryKind,
    range: u64,
    segment: u64,
    (first, records): (u64, u32),
    bytes: usize,
) -> DirectoryEntry {
    let bytes = u32::try_from(bytes).unwrap();
    DirectoryEntry::new(kind, (RangeId(range), SegmentId(segment)), (Offset(first), records), bytes)
}

/// Opens the directory.
pub(super) fn start(store: &mut TestStore, shards: u16, generation: u64) -> Recovered {
    try_start(store, shards, generation).unwrap()
}

pub(super) fn try_start(store: &mut TestStore, shards: u16, generation: u64) -> Result<Recovered, RecoverError> {
    recover(store, &config(shards), fresh(generation))
}

/// The lives of a directory's shards, each of which is expected to hold `disk`.
pub(super) fn lives(recovered: Recovered, disk: &Disk) -> Vec<Life> {
    recovered.shards.into_iter().map(|shard| Life::new(shard, disk.clone())).collect()
}

/// Reads everything back: the catalogs, and every batch from the segment files.
pub(super) fn read_disk(store: &mut TestStore, recovered: &Recovered) -> Disk {
    let mut disk = Disk::default();
    for shard in &recovered.shards {
        let shards = u16::try_from(recovered.shards.len()).unwrap();
        for record in shard.catalog.segments() {
            assert_eq!(record.header.range.shard(shards), shard.shard, "a range lies where its id says");
            disk.segments.insert(record.segment(), read_segment(store, record));
        }
        disk.promises.extend(shard.catalog.promises());
        disk.trims.extend(shard.catalog.trims());
        let uncertain = shard.catalog.all_uncertain();
        disk.uncertain.extend(uncertain.map(|(segment, _, spans)| (segment, spans.to_vec())));
    }
    disk
}

fn read_segment(store: &mut TestStore, record: &SegmentRecord) -> Known {
    let end = record.checkpoint.end;
    let wanted = Wanted { from: record.base(), below: end, until: record.checkpoint.position };
    let (segment, random) = (record.segment(), record.header.random);
    let mut reader = SegmentReader::new(segment, random, record.base(), None, wanted);
    let mut entries = Vec::new();
    let mut length = BLOCK;
    while reader.next() < end {
        let position = reader.read_position();
        let (part, at, piece) = record.locate(position).unwrap();
        let length_max = usize::try_from(piece).unwrap();
        let read = store.read(DataFile::Segment { segment, part }, at, length.min(length_max)).unwrap();
        match reader.feed(position, &read.bytes[..read.length], usize::MAX, &mut entries) {
            Scanned::Enough { .. } => break,
            Scanned::More { length: more, .. } => length = more,
            bad @ Scanned::Bad { .. } => panic!("{segment}: {bad:?}"),
        }
    }
    let tail = record.tail().expect("no footer is written here");
    for entry in &tail.index {
        let (part, at, _) = record.locate(entry.position()).unwrap();
        let block = at - at % BLOCK as u64;
        let read = store.read(DataFile::Segment { segment, part }, block, 1 << 20).unwrap();
        let at = usize::try_from(at - block).unwrap();
        let found = PlacedBatch::verify(&read.bytes[at..read.length], record.header.seed()).unwrap();
        assert_eq!(found.place().offset, entry.offset(), "the index leads to its batch");
    }
    let mark = match &record.state {
        SegmentState::Rolled { mark, .. } => Some(*mark),
        SegmentState::Open(_) | SegmentState::Sealed { .. } => None,
    };
    Known {
        end,
        digest: record.checkpoint.digest,
        entries,
        mark,
        seal: record.seal().map(|(seal, holes)| (*seal, holes.to_vec())),
        table: ProducerTable::decode(&tail.table).unwrap(),
    }
}
