//! What a whole disk holds, whatever shards wrote it: gathered from catalogs and journals, written into segments, and handed out to
//! the catalogs of the new shards.
//!
//! A last group that is *uncertain* may have been acknowledged, and cannot be read. What it may have held counts as held: its promises
//! are promised, and its batches are a span of their segment that may have held records, so that their offsets are not given again.
//! Where the group also held the mark by which an earlier segment rolled into that one, nothing readable leads there, and the controller may
//! or may not have heard of the roll: the span counts for both, and whichever is sealed is sealed above it.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::port::{Folder, Store, StoreError};
use crate::format::batch::Stamp;
use crate::format::checksum::Digest;
use crate::format::journal::{DirectoryEntry, JournalEntryKind};
use crate::format::segment::{Hole, HoleCause, SegmentHeader};
use crate::replica::{PRODUCER_EXPIRY_MS, ProducerTable};
use crate::segment::catalog::{Catalog, DoomedFile, SegmentRecord};
use crate::segment::recover::{EntryFault, Rebuild};
use crate::shard::open::RecoverError;
use crate::types::{Epoch, Offset, RangeId, SegmentId};

/// Everything that is known of a disk.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// As a catalog has them: the journals say nothing more.
    segments: BTreeMap<SegmentId, SegmentRecord>,
    /// Those of which the journals say more.
    tails: BTreeMap<SegmentId, Tail>,
    promises: BTreeMap<RangeId, Epoch>,
    trims: BTreeMap<RangeId, Offset>,
    uncertain: BTreeMap<SegmentId, (RangeId, Vec<Hole>)>,
    /// Ranges that are deleted, with their files that are still to be removed. What a journal says of them is of before.
    deletions: BTreeMap<RangeId, Vec<DoomedFile>>,
}

/// A segment of which a journal says more than its catalog.
#[derive(Debug)]
struct Tail {
    rebuild: Rebuild,
    producers: ProducerTable,
}

impl Content {
    /// Adds what a shard's catalog holds.
    pub(super) fn take_catalog(&mut self, catalog: Catalog) {
        self.deletions.extend(catalog.deletions().iter().map(|(range, files)| (*range, files.clone())));
        catalog.promises().iter().for_each(|(range, epoch)| self.promise(*range, *epoch));
        catalog.trims().iter().for_each(|(range, start)| self.trim(*range, *start));
        for (segment, range, spans) in catalog.all_uncertain() {
            self.uncertain.insert(segment, (range, spans.to_vec()));
        }
        self.segments.extend(catalog.into_segments().map(|record| (record.segment(), record)));
    }

    /// All segments.
    pub(super) fn segments(&self) -> impl Iterator<Item = &SegmentRecord> {
        self.segments.values().chain(self.tails.values().map(|tail| tail.rebuild.record()))
    }

    fn promise(&mut self, range: RangeId, epoch: Epoch) {
        let promised = self.promises.entry(range).or_default();
        *promised = epoch.max(*promised);
    }

    fn trim(&mut self, range: RangeId, start: Offset) {
        let trimmed = self.trims.entry(range).or_default();
        *trimmed = start.max(*trimmed);
    }

    /// Adds one entry of a journal group.
    pub(super) fn take_entry(&mut self, line: &DirectoryEntry, body: &[u8]) -> Result<(), RecoverError> {
        let segment = line.segment();
        if self.deletions.contains_key(&line.range()) {
            return Ok(());
        }
        self.fold(line, body).map_err(|fault| RecoverError::Contradiction { segment, fault })
    }

    fn fold(&mut self, line: &DirectoryEntry, body: &[u8]) -> Result<(), EntryFault> {
        let segment = line.segment();
        let out_of_order = || EntryFault::Order { at: line.first() };
        match line.kind() {
            JournalEntryKind::Promise => self.promise(line.range(), line.epoch()),
            JournalEntryKind::Trim => self.trim(line.range(), line.first()),
            JournalEntryKind::Open => {
                let header = SegmentHeader::decode(body)?;
                if !self.segments.contains_key(&segment) && !self.tails.contains_key(&segment) {
                    let tail = Tail { rebuild: Rebuild::begin(header)?, producers: ProducerTable::default() };
                    self.tails.insert(segment, tail);
                }
            }
            JournalEntryKind::Table => {
                let tail = self.tail(segment)?.ok_or_else(out_of_order)?;
                tail.producers = ProducerTable::decode(tail.rebuild.table(body)?)?;
            }
            JournalEntryKind::Batch => {
                let tail = self.tail(segment)?.ok_or_else(out_of_order)?;
                let batch = tail.rebuild.batch(body)?;
                let stamp = Stamp {
                    producer: batch.batch().producer(),
                    epoch: batch.batch().producer_epoch(),
                    run: batch.batch().run(),
                    sequence: batch.batch().sequence(),
                    last: batch.batch().is_last_of_producer(),
                };
                let seen_ms = tail.rebuild.record().header.retention_clock;
                tail.producers.record(&stamp, batch.end(), seen_ms);
            }
            JournalEntryKind::RollMark => {
                let tail = self.tail(segment)?.ok_or_else(out_of_order)?;
                tail.rebuild.roll_mark(body)?;
            }
            JournalEntryKind::Seal => self.fold_seal(segment, body)?,
            JournalEntryKind::Change => return Err(EntryFault::Unknown),
        }
        Ok(())
    }

    /// A committed seal, of a segment that this disk may not have; it ends the segment's uncertainty.
    fn fold_seal(&mut self, segment: SegmentId, body: &[u8]) -> Result<(), EntryFault> {
        self.uncertain.remove(&segment);
        match self.tail(segment) {
            Ok(Some(tail)) => tail.rebuild.seal(body),
            Ok(None) | Err(EntryFault::Unknown) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// The tail of a segment, taken from the catalog's record when the journal first speaks of it. `None`: its footer is durable.
    fn tail(&mut self, segment: SegmentId) -> Result<Option<&mut Tail>, EntryFault> {
        if let Some(record) = self.segments.get(&segment) {
            let Some(tail) = record.tail() else { return Ok(None) };
            let producers = ProducerTable::decode(&tail.table)?;
            let record = self.segments.remove(&segment).expect("it was looked at");
            let rebuild = Rebuild::go_on(record).expect("its tail is in the catalog");
            self.tails.insert(segment, Tail { rebuild, producers });
        }
        self.tails.get_mut(&segment).map(Some).ok_or(EntryFault::Unknown)
    }

    /// Adds what the last, uncertain group of a journal may have held.
    pub(super) fn take_uncertain(&mut self, directory: &[DirectoryEntry]) {
        let mut rolled: BTreeMap<RangeId, SegmentId> = BTreeMap::new();
        for line in directory {
            if self.deletions.contains_key(&line.range()) {
                continue;
            }
            match line.kind() {
                JournalEntryKind::Promise => self.promise(line.range(), line.epoch()),
                JournalEntryKind::Trim => self.trim(line.range(), line.first()),
                JournalEntryKind::RollMark => {
                    rolled.insert(line.range(), line.segment());
                }
                JournalEntryKind::Batch => {
                    self.hold(line, line.segment());
                    if let Some(before) = rolled.get(&line.range()).filter(|before| **before != line.segment()) {
                        self.hold(line, *before);
                    }
                }
                // A seal is told again by whoever committed it. An opening or a table holds no offset.
                JournalEntryKind::Open
                | JournalEntryKind::Table
                | JournalEntryKind::Seal
                | JournalEntryKind::Change => {}
            }
        }
    }

    /// The batch of `line` may be held by `segment`.
    fn hold(&mut self, line: &DirectoryEntry, segment: SegmentId) {
        let (_, spans) = self.uncertain.entry(segment).or_insert_with(|| (line.range(), Vec::new()));
        match spans.last_mut() {
            Some(last) if last.to == line.first() => {
                last.to = line.end();
                last.records_at_most += u64::from(line.records());
            }
            Some(_) | None => spans.push(Hole {
                from: line.first(),
                to: line.end(),
                records_at_most: u64::from(line.records()),
                cause: HoleCause::Interrupted,
            }),
        }
    }

    /// All journals have been read. A segment that was opened and whose table did not get durable holds nothing: it is dropped, unless
    /// something of it is uncertain; then it is kept with what is known of its table.
    pub(super) fn settle(&mut self) {
        let unstarted = self.tails.iter().filter(|(_, tail)| !tail.rebuild.is_started());
        let unstarted: Vec<SegmentId> = unstarted.map(|(segment, _)| *segment).collect();
        for segment in unstarted {
            if !self.uncertain.contains_key(&segment) {
                self.tails.remove(&segment);
                continue;
            }
            let producers = self.inherited(&self.tails[&segment].rebuild.record().header);
            let tail = self.tails.get_mut(&segment).expect("it was listed");
            tail.rebuild.start_without_table();
            tail.producers = producers;
        }
    }

    /// The table that a segment began with, made again from the segment before it. Where that does not give the one that was named, each
    /// producer in it is doubtful.
    fn inherited(&self, header: &SegmentHeader) -> ProducerTable {
        let [before, _] = header.predecessors;
        let tail = before.and_then(|segment| self.tails.get(&segment));
        let record = before.and_then(|segment| self.segments.get(&segment));
        let mut producers = match (tail, record.and_then(SegmentRecord::tail)) {
            (Some(tail), _) => tail.producers.clone(),
            (None, Some(tail)) => ProducerTable::decode(&tail.table).unwrap_or_default(),
            (None, None) => ProducerTable::default(),
        };
        let seal = tail.map(|tail| tail.rebuild.record()).or(record).and_then(SegmentRecord::seal);
        if seal.is_some_and(|(_, holes)| !holes.is_empty()) {
            producers.doubt();
        }
        producers.expire(header.retention_clock, PRODUCER_EXPIRY_MS);
        let mut payload = Vec::new();
        producers.encode(&mut payload);
        if header.table != Some(Digest::of(&payload)) {
            producers.doubt();
        }
        producers
    }

    /// Writes what the journals hold into the segments' files; durable when this returns.
    pub(super) fn write_tails(&mut self, store: &mut dyn Store) -> Result<(), StoreError> {
        let mut folders: BTreeSet<Folder> = BTreeSet::new();
        for tail in self.tails.values_mut() {
            if let Some(file) = tail.rebuild.write(store)? {
                folders.insert(file.folder());
            }
        }
        folders.into_iter().try_for_each(|folder| store.sync_folder(folder))
    }

    /// Hands everything out, each range to the shard that now holds it.
    pub(super) fn distribute(self, catalogs: &mut [Catalog]) {
        let shards = u16::try_from(catalogs.len()).expect("shards are counted in 16 bits");
        let at = |range: RangeId| usize::from(range.shard(shards).0);
        let rebuilt = self.tails.into_values().map(|tail| {
            let mut table = Vec::new();
            tail.producers.encode(&mut table);
            tail.rebuild.finish(table)
        });
        for record in self.segments.into_values().chain(rebuilt) {
            catalogs[at(record.header.range)].put_segment(record);
        }
        for (range, files) in self.deletions {
            catalogs[at(range)].set_deletion(range, files);
        }
        for (range, epoch) in self.promises {
            catalogs[at(range)].promise(range, epoch);
        }
        for (range, start) in self.trims {
            catalogs[at(range)].trim(range, start);
        }
        for (segment, (range, spans)) in self.uncertain {
            catalogs[at(range)].set_uncertain(range, segment, spans);
        }
    }
}
