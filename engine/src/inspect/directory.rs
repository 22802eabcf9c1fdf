//! What a data directory holds, as far as it can be told.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::finding::{Fault, Finding};
use crate::api::port::{DataFile, Folder, Store, StoreError};
use crate::controller::open::read_metadata;
use crate::format::checksum::Digest;
use crate::format::segment::{Hole, SegmentHeader};
use crate::format::superblock::{Found, Phase, Superblock, choose};
use crate::format::upgrade::Newer;
use crate::segment::catalog::{Catalog, CatalogError, Extent, SegmentRecord, SegmentState, Tail, load};
use crate::segment::{Cut, Tally};
use crate::shard::open::{Fresh, RecoverError, examine, read_superblock_copy};
use crate::types::limits::BLOCK;
use crate::types::{ClusterId, DiskId, Generation, RangeId, SegmentId, ShardId, TopicId};

/// Why a directory cannot be looked into at all.
#[derive(Debug, Error)]
pub enum InspectError {
    /// Something is of a format that this build does not know: exit code 78.
    #[error(transparent)]
    Newer(#[from] Newer),
    /// The superblock asks for features that this build does not have: exit code 78.
    #[error("the data directory needs features that this build does not know: {bits:#x}")]
    UnknownFeatures {
        /// The unknown bits.
        bits: u64,
    },
    /// It is empty, or something else.
    #[error("there is no data of a node: no superblock, catalog or segment")]
    NothingThere,
    /// The device's, or the rights are missing.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who says what a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A catalog: its end and its checkpoint are known.
    Catalog,
    /// The journal alone: it was opened behind the last checkpoint, and nothing of it need be in a file.
    Journal,
    /// Its own header, for no catalog can be read: where it ends is not known.
    Itself,
    /// Nobody: the file is what an unfinished writing left.
    Nobody,
    /// The deletion of its topic: its files are being removed, and nothing of it is read any more.
    Deletion,
}

/// A segment of which the directory knows.
#[derive(Clone, Debug)]
pub struct Segment {
    /// As at its checkpoint, which its files hold.
    pub record: SegmentRecord,
    /// With what the journal says behind that.
    pub current: Option<SegmentRecord>,
    pub source: Source,
    /// Its files, those that are there.
    pub files: Vec<DataFile>,
    /// What may have been held and cannot be read, and no committed seal covers yet.
    pub uncertain: Vec<Hole>,
}

/// A data directory as it was found.
#[derive(Debug, Default)]
pub struct Directory {
    /// `None` if neither copy can be read.
    pub superblock: Option<Superblock>,
    /// Names by topic, if the metadata can be read.
    pub topics: BTreeMap<TopicId, String>,
    /// By id.
    pub segments: Vec<Segment>,
    /// What is wrong with superblock, catalogs, journals, metadata and headers. The segments themselves are walked apart.
    pub findings: Vec<Finding>,
    /// Files that do not verify and that nothing needs: what an unfinished writing left.
    pub unfinished: Vec<DataFile>,
}

impl Segment {
    /// As it is known to be, the journal included.
    #[must_use]
    pub fn now(&self) -> &SegmentRecord {
        self.current.as_ref().unwrap_or(&self.record)
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> RangeId {
        self.record.header.range
    }
}

impl Directory {
    /// Reads all but the segments' files.
    ///
    /// # Errors
    /// Why nothing can be told.
    pub fn read(store: &mut dyn Store) -> Result<Self, InspectError> {
        let mut directory = Self::default();
        let copies = [read_superblock_copy(store, 0)?, read_superblock_copy(store, 1)?];
        for (copy, found) in (0..).zip(copies) {
            if found == Found::Unreadable {
                directory.unfinished.push(DataFile::Superblock { copy });
            }
        }
        match choose(copies[0], copies[1]) {
            Found::Present(superblock) => directory.superblock = Some(superblock),
            Found::Newer(newer) => return Err(newer.into()),
            Found::UnknownFeatures { bits } => return Err(InspectError::UnknownFeatures { bits }),
            Found::Empty if !holds_data(store)? => return Err(InspectError::NothingThere),
            Found::Empty | Found::Unreadable => directory.unfinished.clear(),
        }
        let (catalogs, are_whole) = directory.read_catalogs(store)?;
        let mut current = directory.examine(store)?;
        let deleted = directory.read_metadata(store)?;
        directory.gather(store, (catalogs, are_whole), &mut current, deleted)?;
        Ok(directory)
    }

    /// A segment by its id.
    #[must_use]
    pub fn segment(&self, segment: SegmentId) -> Option<&Segment> {
        self.segments.iter().find(|known| known.record.segment() == segment)
    }

    /// The catalogs of the living generation that can be read, and whether that is all of them.
    fn read_catalogs(&mut self, store: &mut dyn Store) -> Result<(Vec<Catalog>, bool), InspectError> {
        let Some(superblock) = self.superblock else { return Ok((Vec::new(), false)) };
        let names = store.list(Folder::Catalog)?;
        let mut catalogs = Vec::new();
        for shard in (0..superblock.shards).map(ShardId) {
            match load(store, &names, shard, superblock.generation) {
                Ok(Some(loaded)) => {
                    self.unfinished.extend(loaded.broken);
                    catalogs.push(loaded.catalog);
                }
                // Examining says it.
                Ok(None) => {}
                Err(CatalogError::Newer(newer)) => return Err(newer.into()),
                Err(CatalogError::Store(error)) => return Err(error.into()),
                Err(error @ (CatalogError::Broken { .. } | CatalogError::Nonsense { .. })) => {
                    self.findings.push(Finding::of_directory(Fault::Catalog(error)));
                }
            }
        }
        let are_whole = catalogs.len() == usize::from(superblock.shards);
        Ok((catalogs, are_whole))
    }

    /// Judges the journals as a start would. Gives the segments with what the journals say of them.
    fn examine(&mut self, store: &mut dyn Store) -> Result<BTreeMap<SegmentId, SegmentRecord>, InspectError> {
        // A start refuses such a directory; to read it is allowed.
        let read_only = self.superblock.is_some_and(|superblock| !superblock.may_write());
        // A catalog that cannot be read ends the examination, and has been told.
        if read_only || !self.findings.is_empty() {
            return Ok(BTreeMap::new());
        }
        // No life begins here: the numbers are only not those of an earlier one.
        let generation = Generation(self.superblock.map_or(0, |superblock| !superblock.generation.0));
        match examine(store, Fresh { cluster: ClusterId(0), disk: DiskId(0), generation }) {
            Ok(examined) => Ok(examined.segments().map(|record| (record.segment(), record.clone())).collect()),
            Err(RecoverError::Newer(newer)) => Err(newer.into()),
            Err(RecoverError::UnknownFeatures { bits }) => Err(InspectError::UnknownFeatures { bits }),
            Err(error) => {
                self.findings.push(Finding::of_directory(Fault::Directory(error)));
                Ok(BTreeMap::new())
            }
        }
    }

    /// Reads the topics' names. Gives the ranges of deleted topics whose shards may not know of it yet.
    fn read_metadata(&mut self, store: &mut dyn Store) -> Result<BTreeSet<RangeId>, InspectError> {
        let running = self.superblock.filter(|found| found.phase == Phase::Running).map(|found| found.generation);
        match read_metadata(store, running) {
            Ok(state) => {
                self.topics = state.topic_views().into_iter().map(|view| (view.topic, view.name)).collect();
                return Ok(state.all_deleted().map(|(range, _)| range).collect());
            }
            Err(crate::controller::open::RecoverMetadataError::Newer(newer)) => return Err(newer.into()),
            Err(error) => self.findings.push(Finding::of_directory(Fault::Metadata(error))),
        }
        Ok(BTreeSet::new())
    }

    /// All segments, from the catalogs, the journals, and the files.
    fn gather(
        &mut self,
        store: &mut dyn Store,
        (catalogs, are_whole): (Vec<Catalog>, bool),
        current: &mut BTreeMap<SegmentId, SegmentRecord>,
        mut deleted: BTreeSet<RangeId>,
    ) -> Result<(), InspectError> {
        let mut files: BTreeMap<SegmentId, Vec<DataFile>> = BTreeMap::new();
        for byte in 0..=u8::MAX {
            for file in store.list(Folder::SegmentsOf(byte))? {
                if let DataFile::Segment { segment, .. } = file {
                    files.entry(segment).or_default().push(file);
                }
            }
        }
        let mut segments = BTreeMap::new();
        let mut doomed = BTreeSet::new();
        for catalog in &catalogs {
            deleted.extend(catalog.deletions().keys());
            doomed.extend(catalog.deletions().values().flatten().map(|(segment, _)| *segment));
        }
        let source_of = |range, otherwise| if deleted.contains(&range) { Source::Deletion } else { otherwise };
        for catalog in catalogs {
            let mut uncertain: BTreeMap<SegmentId, Vec<Hole>> =
                catalog.all_uncertain().map(|(segment, _, spans)| (segment, spans.to_vec())).collect();
            for record in catalog.into_segments() {
                let id = record.segment();
                let segment = Segment {
                    current: current.remove(&id),
                    source: source_of(record.header.range, Source::Catalog),
                    files: files.remove(&id).unwrap_or_default(),
                    uncertain: uncertain.remove(&id).unwrap_or_default(),
                    record,
                };
                segments.insert(id, segment);
            }
        }
        for (id, record) in std::mem::take(current) {
            let files = files.remove(&id).unwrap_or_default();
            let source = source_of(record.header.range, Source::Journal);
            segments.insert(id, Segment { source, files, uncertain: Vec::new(), current: None, record });
        }
        let source = if are_whole { Source::Nobody } else { Source::Itself };
        for (id, files) in files {
            let source = if doomed.contains(&id) { Source::Deletion } else { source };
            if let Some(segment) = self.by_header(store, id, files, source)? {
                segments.insert(id, segment);
            }
        }
        self.segments = segments.into_values().collect();
        Ok(())
    }

    /// A segment by the header of its first file.
    fn by_header(
        &mut self,
        store: &mut dyn Store,
        segment: SegmentId,
        files: Vec<DataFile>,
        source: Source,
    ) -> Result<Option<Segment>, InspectError> {
        let file = DataFile::Segment { segment, part: 0 };
        let length = store.length(file)?.unwrap_or(0);
        let read = if length == 0 { None } else { Some(store.read(file, 0, BLOCK)?) };
        let header = SegmentHeader::decode(read.as_ref().map_or(&[], |read| &read.bytes[..read.length]));
        let (header, base) = match header {
            Ok(header) => match header.base {
                Some(base) if header.segment == segment => (header, base),
                Some(_) | None => {
                    return Ok(self.no_header(file, segment, Fault::OtherHeader, source));
                }
            },
            Err(error) => return Ok(self.no_header(file, segment, Fault::Header(error), source)),
        };
        let length = length - length % BLOCK as u64;
        let checkpoint = Cut { position: length, end: base, digest: Digest::default(), tally: Tally::default() };
        let extents = vec![Extent { part: 0, start: 0, length }];
        let record = SegmentRecord { header, extents, checkpoint, state: SegmentState::Open(Tail::default()) };
        Ok(Some(Segment { record, current: None, source, files, uncertain: Vec::new() }))
    }

    fn no_header(&mut self, file: DataFile, segment: SegmentId, fault: Fault, source: Source) -> Option<Segment> {
        if matches!(source, Source::Nobody | Source::Deletion) {
            self.unfinished.push(file);
        } else {
            let segment = Some(segment);
            self.findings.push(Finding { file: Some(file), position: 0, segment, batch: None, offsets: None, fault });
        }
        None
    }
}

/// Whether there is any catalog or segment.
fn holds_data(store: &mut dyn Store) -> Result<bool, StoreError> {
    if !store.list(Folder::Catalog)?.is_empty() || !store.list(Folder::Metadata)?.is_empty() {
        return Ok(true);
    }
    for byte in 0..=u8::MAX {
        if !store.list(Folder::SegmentsOf(byte))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
