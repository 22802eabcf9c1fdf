//! What the controller keeps of one range while something is being done about it. None of it need survive: it is asked for again, or
//! follows from the committed state.

use std::collections::BTreeMap;

use crate::metadata::consensus::LogIndex;
use crate::replica::message::{RollCause, Rolled, SealAnswer};
use crate::types::{Epoch, NodeId, RangeId, SegmentId};

/// A range at work.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The one change of this range that is not committed yet.
    pub(super) pending: Option<LogIndex>,
    /// Somebody waits for an open segment.
    pub(super) want_open: bool,
    /// This segment is to be sealed.
    pub(super) want_seal: Option<SegmentId>,
    /// This segment is filling.
    pub(super) want_successor: Option<SegmentId>,
    /// This is full, and its primary has gone on.
    pub(super) rolled: Option<(Rolled, RollCause)>,
    /// The range is to end.
    pub(super) reshape: Option<Reshape>,
    /// A committed intention to split or merge is not followed any more: it was refused, or took too long.
    pub(super) given_up: bool,
    pub(super) round: Round,
}

/// How a range is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reshape {
    Split,
    /// With its buddy, if both ends are known before this time.
    Merge {
        buddy: RangeId,
        until_ns: u64,
    },
}

/// A seal round: of one segment, in one epoch.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) segment: SegmentId,
    pub(super) epoch: Epoch,
    pub(super) answers: BTreeMap<NodeId, SealAnswer>,
    /// The greatest epoch that a refusal named.
    pub(super) promised: Option<Epoch>,
    /// When the replicas are asked again.
    pub(super) ask_at_ns: Option<u64>,
    /// Since when only an unanswered replica could have what nobody can read.
    pub(super) unreadable_since_ns: Option<u64>,
}

impl Round {
    /// The round of `segment` in `epoch`: what belongs to another is forgotten.
    pub(super) fn of(&mut self, segment: SegmentId, epoch: Epoch) -> &mut Self {
        if (self.segment, self.epoch) != (segment, epoch) {
            *self = Self { segment, epoch, ..Self::default() };
        }
        self
    }
}

impl Work {
    /// Whether nothing is left to be done.
    pub(super) fn is_done(&self) -> bool {
        self.pending.is_none()
            && !self.want_open
            && self.want_seal.is_none()
            && self.want_successor.is_none()
            && self.rolled.is_none()
            && self.reshape.is_none()
    }
}
