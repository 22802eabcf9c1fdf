//! A segment that this life writes: its memory, and what the catalog is to say of it.

use crate::format::segment::{RollMark, SegmentHeader};
use crate::replica::message::SealedSegment;
use crate::segment::appender::{Appender, Placed};
use crate::shard::range::RangeSlot;
use crate::types::{Offset, SegmentId};

/// An open segment, or one closed since the last checkpoint.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) segment: SegmentId,
    pub(super) slot: RangeSlot,
    pub(super) header: SegmentHeader,
    pub(super) base: Offset,
    pub(super) appender: Appender,
    pub(super) opened_ns: u64,
    /// The roll mark that it ends in.
    pub(super) rolled: Option<RollMark>,
    /// The producer table at the mark.
    pub(super) final_table: Option<Vec<u8>>,
    /// Its end is committed, and its footer lies there.
    pub(super) closed: Option<Closed>,
    /// Its file exists.
    pub(super) has_file: bool,
    /// The catalog says that it is closed.
    pub(super) noted_closed: bool,
    /// Its range is deleted: it is written no more, and goes when the journal has what waits of it.
    pub(super) doomed: bool,
}

/// A committed end, written down.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) sealed: SealedSegment,
    pub(super) footer: Placed,
}
