//! What rots in a segment's file: a read has met bytes that do not verify, and how far that goes is found out, so that readers step over it
//! and are told.
//!
//! ```text
//!  fetch meets bad bytes --> refused with a delay        the segment is not sealed yet: it is to be, first
//!        search in the file for the next batch that verifies          (segment/search)
//!        Unreadable told to the controller --> committed --> Holes    the reader that asks again is told of a gap
//! ```
//! The first read of the search is the second one of those bytes: if they verify now, the device has mended itself, and nothing is said.
//! Nothing is deleted or written over: the bytes stay in the file. Where the batch lies that follows a hole is remembered, for the index
//! may lead in front of the damage only; it is found again when it was forgotten.
//!
//! One search at a time, in small reads among those of readers: while it lasts only readers of that place wait.

use std::collections::{BTreeSet, VecDeque};

use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::GapCause;
use crate::format::segment::Hole;
use crate::replica::message::{Span, ToController};
use crate::segment::catalog::{SegmentRecord, SegmentState};
use crate::segment::search::{Search, Searched};
use crate::shard::command::{Command, Commands};
use crate::shard::obey::hole_of;
use crate::shard::range::RangeSlot;
use crate::shard::shard::{Shard, refuse};
use crate::types::limits::BLOCK;
use crate::types::{Now, Offset, SegmentId};

/// Bytes of one read of a search, unless an entry is larger.
const SEARCH_BYTES: usize = 64 << 10;
/// What a reader waits before it comes again, in ms.
const JUDGING_DELAY_MS: u32 = 10;

/// What is being found out.
#[derive(Debug, Default)]
pub(super) struct Damages {
    /// The first is under way.
    searches: VecDeque<(RangeSlot, Search)>,
    /// Bytes that it needs of the read under way.
    needed: usize,
    /// Segments of which a span is told and not yet committed.
    told: BTreeSet<SegmentId>,
}

/// Bytes that do not verify: at `position` of `segment` the batch with `offset` was to come, and the segment's entries end at `until`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    pub(super) slot: RangeSlot,
    pub(super) segment: SegmentId,
    pub(super) position: u64,
    pub(super) offset: Offset,
    pub(super) until: u64,
}

impl Shard {
    /// A reader has met bytes that do not verify.
    pub(super) fn suspect(&mut self, to: ReplyTo, suspect: Suspect, commands: &mut Commands) {
        let Suspect { slot, segment, position, offset, until } = suspect;
        refuse(to, Refusal::Judging { delay_ms: JUDGING_DELAY_MS }, commands);
        let range = &self.ranges[slot.0];
        let Some(piece) = range.piece_of(segment).map(|at| &range.chain[at]) else { return };
        let is_known = |(_, search): &(RangeSlot, Search)| search.segment() == segment;
        if self.damages.told.contains(&segment) || self.damages.searches.iter().any(is_known) {
            return;
        }
        if !piece.closed {
            // Its end first: only what is sealed has holes. Its primary goes on in the next one.
            commands.push(Command::Tell(ToController::NeedSeal { range: range.range, segment, urgent: true }));
            return;
        }
        let Some(record) = self.catalog.segment(segment) else { return };
        tracing::warn!(range = %range.range, %segment, position, %offset, "bytes of a segment do not verify");
        self.counters.damage_found += 1;
        let search = Search::new(segment, record.header.seed(), position, offset, until);
        self.damages.searches.push_back((slot, search));
        if self.damages.searches.len() == 1 {
            self.search_on(commands);
        }
    }

    /// Begins the search that is next, if there is one.
    fn search_on(&mut self, commands: &mut Commands) {
        self.read_for_search(BLOCK, SEARCH_BYTES, commands);
    }

    /// Reads what the search under way looks at next: what it needs, and more of it if there is hope.
    fn read_for_search(&mut self, needed: usize, length: usize, commands: &mut Commands) {
        let Some((slot, search)) = self.damages.searches.front() else { return };
        let (slot, segment, position) = (*slot, search.segment(), search.read_position());
        self.damages.needed = needed;
        self.start_search_read(slot, segment, position, length.max(needed), commands);
    }

    /// `bytes` of `length` that were asked for at `position` have come; none, if the device did not give them.
    pub(super) fn search_read(&mut self, position: u64, length: usize, bytes: Option<&[u8]>, commands: &mut Commands) {
        let (_, search) = self.damages.searches.front_mut().expect("a search is under way");
        let searched = match bytes {
            Some(bytes) => search.feed(position, bytes, bytes.len() < length),
            // Less may do: only what the device cannot read is passed over.
            None if length > self.damages.needed => Searched::More { position, length: self.damages.needed },
            None => search.unreadable(length),
        };
        match searched {
            Searched::More { length: needed, .. } => {
                let hoped = if bytes.is_some() { SEARCH_BYTES } else { 0 };
                self.read_for_search(needed, hoped, commands);
            }
            Searched::Intact => self.end_search(None, commands),
            Searched::Found { offset, position } => self.end_search(Some((offset, Some(position))), commands),
            Searched::End => {
                let (slot, search) = self.damages.searches.front().expect("a search is under way");
                let range = &self.ranges[slot.0];
                let end = range.piece_of(search.segment()).and_then(|at| range.chain[at].end);
                self.end_search(end.map(|end| (end, None)), commands);
            }
        }
    }

    /// The search under way ends: nothing can be read up to `found`, the next batch or the segment's end.
    fn end_search(&mut self, found: Option<(Offset, Option<u64>)>, commands: &mut Commands) {
        let (slot, search) = self.damages.searches.pop_front().expect("a search is under way");
        let (segment, from) = (search.segment(), search.offset());
        if let Some((to, place)) = found
            && !self.ranges[slot.0].deleted
        {
            let range = &mut self.ranges[slot.0];
            let id = range.range;
            if let Some(piece) = range.piece_of(segment).map(|at| &mut range.chain[at]) {
                if let Some(position) = place {
                    piece.remember(to, position);
                }
                let is_hole = piece.holes.iter().any(|hole| hole.from <= from && to <= hole.to);
                if from < to && !is_hole {
                    self.damages.told.insert(segment);
                    let span = Span { from, to, records_at_most: to.since(from), cause: GapCause::Unreadable };
                    commands.push(Command::Tell(ToController::Unreadable { range: id, segment, span }));
                }
            }
        }
        self.search_on(commands);
    }

    /// The holes of a sealed segment, as committed.
    pub(super) fn take_holes(
        &mut self,
        now: Now,
        slot: RangeSlot,
        segment: SegmentId,
        holes: Vec<Span>,
        commands: &mut Commands,
    ) {
        self.damages.told.remove(&segment);
        let range = &self.ranges[slot.0];
        // Holes only grow: a list that holds less than what is known is late.
        let offsets = |holes: &[Span]| holes.iter().map(|hole| hole.to.since(hole.from)).sum::<u64>();
        let known = range.piece_of(segment).map(|at| &range.chain[at]);
        if known.is_none_or(|piece| !piece.closed || offsets(&piece.holes) > offsets(&holes)) {
            return;
        }
        let on_disk: Vec<Hole> = holes.iter().map(hole_of).collect();
        if let Some(record) = self.catalog.segment(segment)
            && let SegmentState::Sealed { seal, contents, .. } = &record.state
        {
            let state = SegmentState::Sealed { seal: *seal, holes: on_disk, contents: contents.clone() };
            let record = SegmentRecord { state, ..record.clone() };
            self.catalog.put_segment(record);
        }
        let range = &mut self.ranges[slot.0];
        let Some(at) = range.piece_of(segment) else { return };
        if let Some(tail) = range.chain[at].tail
            && let Some(closed) = self.tails[tail.0].as_mut().and_then(|tail| tail.closed.as_mut())
        {
            closed.sealed.holes.clone_from(&holes);
        }
        range.chain[at].holes = holes;
        self.wake(now, slot, commands);
    }
}
