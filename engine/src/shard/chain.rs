//! The chain of a range's segments as recovery left it, completed by what the controller says is committed.
//!
//! Recovery has put everything that the disk holds into the catalog: sealed segments with their ends, and segments of an earlier
//! life with an upper bound of what they may have held. The committed state says which of them the range consists of.

use crate::api::response::GapCause;
use crate::format::checksum::Digest;
use crate::format::segment::{Hole, HoleCause};
use crate::replica::message::{RangeView, Rolled, SealedSegment, Span};
use crate::replica::{ProducerTable, Replica};
use crate::segment::catalog::{Contents, SegmentRecord, SegmentState};
use crate::shard::range::{Found, Piece, RangeSlot};
use crate::shard::shard::Shard;
use crate::types::{Offset, SegmentId};

impl Shard {
    /// The range of a view, with the chain that the disk holds of it.
    pub(super) fn adopt_range(&mut self, view: &RangeView) -> RangeSlot {
        let promised = self.catalog.promises().get(&view.range).copied().unwrap_or_default();
        let chain = self.chain_of(view);
        let producers = self.table_at_end(view, &chain);
        let slot = self.add_range(Replica::recovered(view.range, promised, producers));
        let range = &mut self.ranges[slot.0];
        range.trimmed = view.trimmed;
        range.chain = chain;
        for sealed in &view.sealed {
            if self.catalog.segment(sealed.segment).is_none() {
                self.catalog.clear_uncertain(sealed.segment);
            }
        }
        slot
    }

    /// The committed segments, in order: those that this disk holds, and what is known of those that it does not.
    fn chain_of(&self, view: &RangeView) -> Vec<Piece> {
        let record = |segment| self.catalog.segment(segment);
        let uncertain = |segment| self.catalog.uncertain(segment);
        let sealed = view.sealed.iter().map(|sealed| match record(sealed.segment) {
            Some(record) => {
                let mut piece = piece_of(record, uncertain(sealed.segment));
                if piece.closed {
                    // More may have been lost since the catalog was written.
                    piece.holes.clone_from(&sealed.holes);
                }
                piece
            }
            None => piece_without_record(sealed),
        });
        let mut chain: Vec<Piece> = sealed.collect();
        for open in &view.open {
            let segment = open.segment;
            match (record(segment), uncertain(segment)) {
                (Some(record), uncertain) => chain.push(piece_of(record, uncertain)),
                (None, []) => {}
                (None, uncertain) => {
                    let before = chain.last().and_then(|piece| self.catalog.segment(piece.segment));
                    chain.push(piece_of_uncertain(segment, uncertain, before));
                }
            }
        }
        chain
    }

    /// The producer table behind the last batch of a range. What lies in a hole behind it may have been anybody's.
    fn table_at_end(&self, view: &RangeView, chain: &[Piece]) -> ProducerTable {
        let held = chain.iter().rposition(|piece| self.catalog.segment(piece.segment).is_some());
        let Some(held) = held else { return ProducerTable::default() };
        let last = chain[held].segment;
        let tail = self.catalog.segment(last).and_then(SegmentRecord::tail);
        // A segment that was rolled leaves its table to its successor; that one is no more in the chain if it ended without a record.
        let tail = tail.or_else(|| self.catalog.last_tail_above(view.range, last));
        let table = tail.map(|tail| ProducerTable::decode(&tail.table).expect("the catalog judged it"));
        let mut table = table.unwrap_or_default();
        let behind = |segment| chain[held..].iter().any(|piece| piece.segment == segment);
        if view.sealed.iter().any(|sealed| !sealed.holes.is_empty() && behind(sealed.segment)) {
            table.doubt();
        }
        table
    }

    /// The committed end of a segment that an earlier life wrote: the catalog is to say so.
    pub(super) fn close_found(&mut self, sealed: &SealedSegment, holes: Vec<Hole>) {
        let Some(record) = self.catalog.segment(sealed.segment) else {
            return self.catalog.clear_uncertain(sealed.segment);
        };
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
        places: Vec::new(),
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

/// A sealed segment of which the disk has nothing: its holes are told, all else of it cannot be read.
fn piece_without_record(sealed: &SealedSegment) -> Piece {
    Piece {
        segment: sealed.segment,
        base: sealed.base,
        end: Some(sealed.end),
        holes: sealed.holes.clone(),
        places: Vec::new(),
        tail: None,
        found: None,
        closed: true,
    }
}

/// A segment whose opening was in the journal's last group, which cannot be read: nothing is known of it but what it may have held.
fn piece_of_uncertain(segment: SegmentId, uncertain: &[Hole], before: Option<&SegmentRecord>) -> Piece {
    let base = uncertain[0].from;
    let mark = before.and_then(|record| match &record.state {
        SegmentState::Rolled { mark, .. } if mark.successor == segment => Some(mark),
        SegmentState::Rolled { .. } | SegmentState::Open(_) | SegmentState::Sealed { .. } => None,
    });
    let table = mark.map_or_else(Digest::default, |mark| mark.successor_table);
    let found = found_at(base, Digest::start_from(segment, base, table), uncertain, None);
    Piece {
        segment,
        base,
        end: None,
        holes: Vec::new(),
        places: Vec::new(),
        tail: None,
        found: Some(found),
        closed: false,
    }
}

/// Unreadable is not absent: the end is above every span that may have held records.
fn found(record: &SegmentRecord, uncertain: &[Hole], mark: Option<Rolled>) -> Found {
    found_at(record.checkpoint.end, record.checkpoint.digest, uncertain, mark)
}

fn found_at(mut end: Offset, mut digest: Digest, uncertain: &[Hole], mark: Option<Rolled>) -> Found {
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

#[cfg(test)]
mod tests;
