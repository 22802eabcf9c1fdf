//! A range as its shard holds it: the replica that decides, and the chain of segments that is read.

use crate::api::request::ReplyTo;
use crate::format::checksum::Digest;
use crate::replica::Replica;
use crate::replica::message::{Rolled, Span};
use crate::types::{Offset, RangeId, SegmentId};

/// Place of a tail in the shard's slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TailSlot(pub(super) usize);

/// Place of a range in the shard's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RangeSlot(pub(super) usize);

/// A range of this shard.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) range: RangeId,
    pub(super) replica: Replica,
    /// Below it, deleted by retention.
    pub(super) trimmed: Offset,
    /// Segments in order of their bases, without a gap.
    pub(super) chain: Vec<Piece>,
    /// Fetches that wait for a record or for a seal.
    pub(super) waiting: Vec<Fetch>,
    /// Its topic is deleted: nobody finds it any more, and what was under way for it is refused.
    pub(super) deleted: bool,
}

/// One segment of a range.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) segment: SegmentId,
    /// Inclusive.
    pub(super) base: Offset,
    /// Exclusive; `None` while it is open.
    pub(super) end: Option<Offset>,
    /// Spans that cannot be read.
    pub(super) holes: Vec<Span>,
    /// Places in the file behind damage, ascending: the offset of a batch, and where its entry begins.
    pub(super) places: Vec<(Offset, u64)>,
    /// Its memory, while it is open in this life or not yet checkpointed.
    pub(super) tail: Option<TailSlot>,
    /// What an earlier life left, until the committed end is told.
    pub(super) found: Option<Found>,
    /// The end is committed.
    pub(super) closed: bool,
}

/// The end of a segment as recovery found it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Exclusive: an upper bound of what it may have held.
    pub(super) end: Offset,
    pub(super) digest: Digest,
    pub(super) unreadable: Vec<Span>,
    pub(super) mark: Option<Rolled>,
}

/// A fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    pub(super) to: ReplyTo,
    pub(super) offset: Offset,
    pub(super) bytes_max: u32,
    /// When it is answered with nothing, on the monotonic clock.
    pub(super) until_ns: u64,
}

impl Range {
    pub(super) fn new(replica: Replica) -> Self {
        let (trimmed, chain, waiting) = (Offset::ZERO, Vec::new(), Vec::new());
        Self { range: replica.range(), replica, trimmed, chain, waiting, deleted: false }
    }

    /// The memory of the segment that takes batches.
    pub(super) fn open_tail(&self) -> Option<TailSlot> {
        self.chain.last().and_then(|piece| piece.tail)
    }

    /// The piece that holds `offset`, by its index: the last one whose base is not above it.
    pub(super) fn piece_at(&self, offset: Offset) -> Option<usize> {
        self.chain.partition_point(|piece| piece.base <= offset).checked_sub(1)
    }

    /// The piece of a segment.
    pub(super) fn piece_of(&self, segment: SegmentId) -> Option<usize> {
        self.chain.iter().rposition(|piece| piece.segment == segment)
    }
}

impl Piece {
    /// A segment that this life has begun.
    pub(super) fn open(segment: SegmentId, base: Offset, tail: TailSlot) -> Self {
        let (end, holes, places, found, closed) = (None, Vec::new(), Vec::new(), None, false);
        Self { segment, base, end, holes, places, tail: Some(tail), found, closed }
    }

    /// Notes where a batch lies that stands behind damage.
    pub(super) fn remember(&mut self, offset: Offset, position: u64) {
        let at = self.places.partition_point(|place| place.0 < offset);
        if self.places.get(at).is_none_or(|place| place.0 != offset) {
            self.places.insert(at, (offset, position));
        }
    }

    /// The last such place that is not behind `offset`.
    pub(super) fn place_before(&self, offset: Offset) -> Option<(Offset, u64)> {
        let behind = self.places.partition_point(|place| place.0 <= offset);
        behind.checked_sub(1).map(|at| self.places[at])
    }

    /// The hole that holds `offset`.
    pub(super) fn hole_at(&self, offset: Offset) -> Option<&Span> {
        self.holes.iter().find(|hole| hole.from <= offset && offset < hole.to)
    }

    /// Where reading from `offset`, which lies in no hole, has to stop: at the next hole or the end.
    pub(super) fn readable_below(&self, offset: Offset, committed: Offset) -> Offset {
        let hole = self.holes.iter().map(|hole| hole.from).find(|from| *from > offset);
        [hole, self.end].into_iter().flatten().fold(committed, Offset::min)
    }
}
