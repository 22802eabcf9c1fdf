//! What is known of a range's open tail when its round is planned: committed facts, and the answers that have come.

use std::collections::BTreeMap;

use super::seal_round::Copies;
use crate::metadata::SealReason;
use crate::replica::message::{SealAnswer, SegmentOpen};
use crate::types::{Epoch, NodeId, Offset, RangeId, SegmentId};

/// A range whose open tail is to be sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundView {
    pub range: RangeId,
    /// The newest epoch given.
    pub epoch: Epoch,
    /// The open segment, first of the tail; its base is known.
    pub first: SegmentOpen,
    /// Prepared for when the first is full.
    pub second: Option<SegmentOpen>,
    /// The last sealed segment before them.
    pub predecessor: Option<SegmentId>,
    /// The nodes that hold the tail: as many as `first.replicas`.
    pub replica_set: Vec<NodeId>,
    pub reason: SealReason,
    /// A round on `first` in `epoch` has been committed.
    pub begun: bool,
    /// The greatest epoch that a refusal named.
    pub promised: Option<Epoch>,
    /// Answers to (`first`, `epoch`), each [tidy](super::seal_round::tidy).
    pub answers: BTreeMap<NodeId, SealAnswer>,
    /// Those who have not answered are no longer waited for where no other copy can be read.
    pub damage_wait_over: bool,
    /// What follows.
    pub goal: Goal,
}

/// What a range's tail is sealed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Nothing follows before somebody writes to the range.
    Rest,
    /// Somebody waits for the range to take records again: the next segment opens with the seal.
    GoOn,
    /// The range is split with the seal.
    Split,
    /// The range becomes one with its buddy: sealed with it, when both ends are known.
    Merge,
}

impl RoundView {
    /// W and A of the open segment.
    #[must_use]
    pub fn copies(&self) -> Copies {
        Copies { replicas: self.first.replicas, quorum: self.first.quorum }
    }

    /// Where the open segment begins.
    ///
    /// # Panics
    /// If that is not known: only a prepared segment has no base, and it is not the first.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.first.base.expect("an open segment has a base")
    }

    /// The nodes whose answer is not here.
    #[must_use]
    pub fn unanswered(&self) -> Vec<NodeId> {
        self.replica_set.iter().copied().filter(|node| !self.answers.contains_key(node)).collect()
    }
}
