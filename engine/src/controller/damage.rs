//! What rots on a disk: a span of a sealed segment that its only copy cannot give back becomes a hole, as a committed change; then readers are
//! told of it.
//!
//! Crash before the change is committed: nothing is known of it, and the next reader that comes there finds it again. Crash after it: the
//! committed state is told at the start.

use super::command::Commands;
use super::controller::Controller;
use crate::metadata::Change;
use crate::replica::message::{Span, ToReplica};
use crate::types::{RangeId, SegmentId};

impl Controller {
    /// A span of a segment cannot be read where it is held.
    pub(super) fn unreadable(&mut self, range: RangeId, segment: SegmentId, span: Span, commands: &mut Commands) {
        let sealed = self.state.range(range).and_then(|state| state.chain.find_sealed(segment));
        let Some(sealed) = sealed else { return };
        if sealed.holes.iter().any(|hole| hole.from <= span.from && span.to <= hole.to) {
            return self.tell_holes(range, segment, commands);
        }
        let wanted = (range, segment, span.from);
        if !self.log.has_failed() && self.unreadable.insert(wanted) {
            self.propose(Change::Holes { range, segment, holes: vec![span] });
        }
    }

    /// The change is committed, or it was refused.
    pub(super) fn holes_committed(
        &mut self,
        range: RangeId,
        segment: SegmentId,
        holes: &[Span],
        commands: &mut Commands,
    ) {
        for hole in holes {
            self.unreadable.remove(&(range, segment, hole.from));
            tracing::error!(%range, %segment, from = %hole.from, to = %hole.to, "records cannot be read any more");
        }
        self.tell_holes(range, segment, commands);
    }

    fn tell_holes(&self, range: RangeId, segment: SegmentId, commands: &mut Commands) {
        let sealed = self.state.range(range).and_then(|state| state.chain.find_sealed(segment));
        if let Some(sealed) = sealed {
            self.tell(ToReplica::Holes { range, segment, holes: sealed.holes.clone() }, commands);
        }
    }
}

#[cfg(test)]
mod tests;
