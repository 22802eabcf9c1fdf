//! Parts of the keyspace and where each is read; how they follow splits and merges.

use std::collections::VecDeque;

use sealog_engine::api::response::{Gap, Route};
use sealog_engine::types::{KeySpan, Offset, RangeId};

use super::{Consumer, End};
use crate::client::core::cursor::is_partition_of;
use crate::client::core::links::LinkId;

/// Bits of a correlation id that count a part's fetches.
const TRANSMISSION_BITS: u32 = 20;

/// What a part waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nothing: it may ask for what it needs, unless it has chunks enough.
    Idle,
    /// An answer, at the latest by this time on the monotonic clock.
    Fetching { link: LinkId, give_up_ns: u64 },
    /// A time on the monotonic clock.
    Delayed { until_ns: u64 },
    /// The other half of a merge.
    Waiting { child: RangeId, span: KeySpan },
    /// The application: it was told why.
    Failed,
    /// Nothing: it has reached the end.
    Done,
}

/// What one fetch brought.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) entries: Vec<u8>,
    /// Bytes of `entries` that were delivered.
    pub(super) taken: usize,
    /// Not yet delivered, ascending.
    pub(super) gaps: Vec<Gap>,
    /// Where the next fetch goes on.
    pub(super) next: Offset,
    /// Set at the end of a sealed range.
    pub(super) successors: Option<Vec<Route>>,
}

/// A part of the keyspace.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) id: u64,
    pub(super) span: KeySpan,
    pub(super) range: RangeId,
    /// Behind all that was delivered, inclusive.
    pub(super) next: Offset,
    /// Where to stop, exclusive.
    pub(super) stop: Option<Offset>,
    /// Records earlier than this, in ms, are left out up to the first that is not.
    pub(super) from_ms: Option<u64>,
    /// It is known about where in the range `from_ms` lies, and `next` is there or behind it.
    pub(super) sought: bool,
    pub(super) state: State,
    /// Not yet delivered, in order; two at most.
    pub(super) chunks: VecDeque<Chunk>,
    /// Refusals and bad answers since something last came.
    pub(super) strikes: u32,
    pub(super) transmissions: u64,
}

impl Part {
    /// Where the next fetch begins: behind all that has come. `None` if all has come.
    pub(super) fn fetch_at(&self) -> Option<Offset> {
        match self.chunks.back() {
            Some(Chunk { successors: Some(_), .. }) => None,
            Some(chunk) => Some(chunk.next.max(self.next)),
            None => Some(self.next),
        }
        .filter(|at| self.stop.is_none_or(|stop| *at < stop))
    }

    /// Whether it must ask about where in its range the records begin that are not too early.
    pub(super) fn is_seeking(&self) -> bool {
        self.from_ms.is_some() && !self.sought
    }

    /// The correlation id of its last fetch, or of what it asked before the first.
    pub(super) fn correlation(&self) -> u64 {
        self.id << TRANSMISSION_BITS | self.transmissions & ((1 << TRANSMISSION_BITS) - 1)
    }

    /// The part that a correlation id belongs to.
    pub(super) fn id_of(correlation: u64) -> u64 {
        correlation >> TRANSMISSION_BITS
    }
}

impl Consumer {
    pub(super) fn new_part(&mut self, span: KeySpan, range: RangeId, next: Offset, stop: Option<Offset>) -> Part {
        let id = self.new_part_id();
        let (state, chunks) = (State::Idle, VecDeque::new());
        Part { id, span, range, next, stop, from_ms: None, sought: false, state, chunks, strikes: 0, transmissions: 0 }
    }

    /// Where reading of a range stops: at the end that it had at the start, if it was active then.
    pub(super) fn stop_of(&self, range: RangeId) -> Option<Offset> {
        match self.settings.end {
            End::Never => None,
            End::Committed => self.beginning.end_of(range),
        }
    }

    /// A part has delivered everything of a sealed range: its successors take its place. Whatever part is new may fetch. `false` if
    /// the successors are not all known yet: the end must be asked for again.
    pub(super) fn follow(&mut self, at: usize, successors: &[Route]) -> bool {
        let span = self.parts[at].span;
        let mut below: Vec<&Route> = successors.iter().filter(|r| span.covers(r.span)).collect();
        below.sort_by_key(|r| r.span.first());
        let exact = is_partition_of(span, below.iter().map(|r| r.span));
        if exact {
            let from_ms = self.parts[at].from_ms;
            let children: Vec<Part> =
                below.into_iter().map(|route| self.following_part(route.span, route.range, from_ms)).collect();
            self.parts.splice(at..=at, children);
            return true;
        }
        let Some(child) = successors.iter().find(|r| r.span.covers(span)) else { return false };
        self.parts[at].state = State::Waiting { child: child.range, span: child.span };
        self.join(child.range, child.span);
        true
    }

    /// Once all of a merged range's span waits for it, one part takes the place of all that wait.
    fn join(&mut self, child: RangeId, span: KeySpan) {
        let waits = |p: &Part| p.state == State::Waiting { child, span };
        let Some(first) = self.parts.iter().position(waits) else { return };
        let count = self.parts[first..].iter().take_while(|p| waits(p)).count();
        let spans = self.parts[first..first + count].iter().map(|p| p.span);
        if is_partition_of(span, spans) {
            // Both halves have left out all of theirs: the child may have records that are too early.
            let halves = &self.parts[first..first + count];
            let from_ms = halves.iter().map(|p| p.from_ms).min().flatten();
            let part = self.following_part(span, child, from_ms);
            self.parts.splice(first..first + count, [part]);
        }
    }
}
