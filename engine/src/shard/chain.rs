//! The chain of a range's segments as recovery left it, completed by what the controller says is committed.
//!
//! Recovery has put everything that the disk holds into the catalog: sealed segments with their ends, and segments of an earlier
//! life with an upper bound of what they may have held. The committed state says which of them the range consists of.

use crate::api::response::GapCause;
use crate::format::segment::{Hole, HoleCause};
use crate::replica::message::{RangeView, Rolled, SealedSegment, Span};
use crate::replica::{ProducerTable, Replica};
use crate::segment::catalog::{Contents, SegmentRecord, SegmentState};
use crate::shard::range::{Found, Piece, RangeSlot};
use crate::shard::shard::Shard;
use crate::types::SegmentId;

impl Shard {
    /// The range of a view, with the chain that the disk holds of it.
    pub(super) fn adopt_range(&mut self, view: &RangeView) -> RangeSlot {
        let promised = self.catalog.promises().get(&view.range).copied().unwrap_or_default();
        let chain = self.chain_of(view);
        let newest = chain.last().map(|piece| piece.segment);
        let slot = self.add_range(Replica::recovered(view.range, promised, self.table_at_end(newest)));
        let range = &mut self.ranges[slot.0];
        range.trimmed = view.trimmed;
        range.chain = chain;
        slot
    }

    /// The committed segments that this disk holds, in order.
    fn chain_of(&self, view: &RangeView) -> Vec<Piece> {
        let committed = view.sealed.iter().map(|sealed| sealed.segment);
        let open = view.open.iter().map(|open| open.segment);
        let records = committed.chain(open).filter_map(|segment| self.catalog.segment(segment));
        records.map(|record| piece_of(record, self.catalog.uncertain(record.segment()))).collect()
    }

    /// The producer table behind the last batch of a range's newest segment.
    fn table_at_end(&self, newest: Option<SegmentId>) -> ProducerTable {
        let tail = newest.and_then(|segment| self.catalog.segment(segment)).and_then(SegmentRecord::tail);
        let table = tail.map(|tail| ProducerTable::decode(&tail.table).expect("the catalog judged it"));
        table.unwrap_or_default()
    }

    /// The committed end of a segment that an earlier life wrote: the catalog is to say so.
    pub(super) fn close_found(&mut self, sealed: &SealedSegment, holes: Vec<Hole>) {
        let Some(record) = self.catalog.segment(sealed.segment) else { return };
        let Some(tail) = record.tail() else { return };
        let seal = crate::format::segment::Seal { end: sealed.end, epoch: sealed.epoch, digest: sealed.digest };
        let state = SegmentState::Sealed { seal, holes, contents: Contents::Catalog(tail.clone()) };
        let record = SegmentRecord { state, ..record.clone() };
        self.catalog.put_segment(record);
    }
}

fn piece_of(record: &SegmentRecord, uncertain: &[Hole]) -> Piece {
    let mut piece = Piece {
        segment: record.segment(),
        base: record.base(),
        end: None,
        holes: Vec::new(),
        tail: None,
        found: None,
        closed: false,
    };
    match &record.state {
        SegmentState::Sealed { seal, holes, .. } => {
            piece.end = Some(seal.end);
            piece.holes = holes.iter().map(span_of).collect();
            piece.closed = true;
        }
        SegmentState::Rolled { mark, .. } => {
            let rolled =
                Rolled { segment: record.segment(), end: mark.end, digest: mark.digest, successor: mark.successor };
            piece.found = Some(found(record, uncertain, Some(rolled)));
        }
        SegmentState::Open(_) => piece.found = Some(found(record, uncertain, None)),
    }
    piece
}

/// Unreadable is not absent: the end is above every span that may have held records.
fn found(record: &SegmentRecord, uncertain: &[Hole], mark: Option<Rolled>) -> Found {
    let (mut end, mut digest) = (record.checkpoint.end, record.checkpoint.digest);
    if let Some(last) = uncertain.last().filter(|last| last.to > end) {
        digest = digest.hole(last.from, last.to);
        end = last.to;
    }
    Found { end, digest, unreadable: uncertain.iter().map(span_of).collect(), mark }
}

fn span_of(hole: &Hole) -> Span {
    let cause = match hole.cause {
        HoleCause::Interrupted => GapCause::Interrupted,
        HoleCause::Unreadable => GapCause::Unreadable,
        HoleCause::Forced => GapCause::Forced,
    };
    Span { from: hole.from, to: hole.to, records_at_most: hole.records_at_most, cause }
}
