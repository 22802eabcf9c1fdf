//! What an inspection found wrong: where, which records it concerns, and what it is.

use thiserror::Error;

use crate::api::port::DataFile;
use crate::controller::open::RecoverMetadataError;
use crate::format::batch::{PlacedError, RecordError};
use crate::format::entry::EntryKind;
use crate::format::verdict::{DecodeError, Verdict};
use crate::segment::catalog::CatalogError;
use crate::shard::open::RecoverError;
use crate::types::{Offset, SegmentId};

/// Offsets of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetSpan {
    /// Inclusive.
    pub from: Offset,
    /// Exclusive.
    pub to: Offset,
}

/// One thing that is wrong.
#[derive(Debug)]
pub struct Finding {
    /// In which file; `None` if it concerns several.
    pub file: Option<DataFile>,
    /// At which byte of the file.
    pub position: u64,
    /// Of which segment.
    pub segment: Option<SegmentId>,
    /// Number of the batch in its segment, from 0; `None` if it is no batch, or damage before it leaves the number unknown.
    pub batch: Option<u64>,
    /// Records that cannot be read for it, or that it casts doubt on.
    pub offsets: Option<OffsetSpan>,
    /// What it is.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Debug, Error)]
pub enum Fault {
    #[error("the file is not there")]
    FileMissing,
    #[error("the file ends there, and more was synced")]
    Short,
    #[error("the device cannot read it")]
    Device,
    #[error(transparent)]
    Header(DecodeError),
    #[error("the header is not the one that the segment was opened with")]
    OtherHeader,
    #[error("what follows the header in its block is not zeros")]
    HeaderRest,
    #[error("entry: {0}")]
    Entry(Verdict),
    #[error("batch: {0}")]
    Batch(PlacedError),
    /// The batch verifies, so it was taken like that.
    #[error(transparent)]
    Record(RecordError),
    #[error(transparent)]
    Payload(DecodeError),
    #[error("a batch of {segment} with offset {found} lies there")]
    Elsewhere { segment: SegmentId, found: Offset },
    #[error("the running digest does not go on from the batch before")]
    Digest,
    #[error("an entry of kind {0:?} does not belong there")]
    Order(EntryKind),
    #[error("the segment held records there, and no entry has them")]
    Missing,
    #[error("the producer table is not the one that the header names")]
    Table,
    #[error("the roll mark contradicts the segment's end")]
    RollMark,
    #[error("the footer contradicts the segment")]
    Footer,
    #[error("the footer is not where the catalog says")]
    FooterMissing,
    #[error("the sparse index leads to a place where no batch with its offset begins")]
    Index,
    #[error("batches, records or bytes are not as many as the catalog counts")]
    Count,
    #[error("the running digest at the end is not that of the catalog")]
    EndDigest,
    #[error("the running digest at the end is not that of the committed seal")]
    SealDigest,
    #[error(transparent)]
    Directory(RecoverError),
    #[error(transparent)]
    Catalog(CatalogError),
    #[error(transparent)]
    Metadata(RecoverMetadataError),
}

impl Finding {
    /// Of the directory as a whole.
    pub(super) fn of_directory(fault: Fault) -> Self {
        let file = if let Fault::Catalog(CatalogError::Nonsense { file, .. }) = &fault { Some(*file) } else { None };
        Self { file, position: 0, segment: None, batch: None, offsets: None, fault }
    }
}
