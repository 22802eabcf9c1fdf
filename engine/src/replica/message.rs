//! What the controller and a range's replica say to each other. On one node they are handed over in memory; between nodes they
//! are frames. Late, repeated and reordered messages change nothing: each names its range, segment and epoch.
//!
//! ```text
//!  replica                                     controller
//!     | -- Ready ------------------------------->|   every shard, once in a life, when recovery is done
//!     |<------------------------------ Adopt --- |   each range that the shard holds, with its committed chain
//!     | -- NeedOpen ---------------------------->|   a produce came and no segment is open
//!     |<------------------------------- Seal --- |   only if an earlier life's segment is still open
//!     | -- Promised ---------------------------->|   the promise is durable: end, digest, what cannot be read
//!     |<----------------------------- Sealed --- |   committed end
//!     |<------------------------------- Open --- |   committed: next segment, base = that end
//!     | -- NeedSuccessor ----------------------->|   three quarters full
//!     |<--------------------------- Prepared --- |
//!     | -- Rolled ------------------------------>|   full, and committed to its end
//!     |<----------------------------- Sealed --- |
//!     |<---------------------------- Retired --- |   the range was split or merged: the committed end of its last segment
//!     | -- Unreadable -------------------------->|   a span of a sealed segment does not verify here
//!     |<------------------------------ Holes --- |   it is a hole, as committed
//!     |<---------------------------- Deleted --- |   its topic is deleted, as committed
//!     | -- Stopped ----------------------------->|   it takes and serves nothing any more
//!     | -- Noted ------------------------------->|   the catalog says that its files are to go: told no more
//! ```

use crate::api::response::{GapCause, Route};
use crate::format::checksum::Digest;
use crate::types::{
    Epoch, KeySpan, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, SegmentId, ShardId, TopicId,
};

/// From the controller to the shard that holds a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToReplica {
    /// The committed state of a range that this shard holds: at start, and when a range is created.
    Adopt(RangeView),
    /// Promise `epoch`, take nothing older, and report what the segment holds.
    Seal { range: RangeId, segment: SegmentId, epoch: Epoch },
    /// The segment's end is committed.
    Sealed { range: RangeId, sealed: SealedSegment },
    /// A segment is open under `open.epoch`; this node is its primary.
    Open { range: RangeId, open: SegmentOpen },
    /// The successor of `after`, to be used when that is full. Its base is where `after` ends.
    Prepared { range: RangeId, after: SegmentId, open: SegmentOpen },
    /// The range itself is sealed, at the end of its last segment: its keys go to the successors.
    Retired { range: RangeId, sealed: SealedSegment, successors: Vec<Route> },
    /// What cannot be given back of a sealed segment, all of it, ascending.
    Holes { range: RangeId, segment: SegmentId, holes: Vec<Span> },
    /// The range's topic is deleted: it ends, and its segments go, for ever.
    Deleted { range: RangeId },
}

/// From a shard to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToController {
    /// Recovery is done; the shard wants the state of its ranges.
    Ready { shard: ShardId },
    /// A produce waits and no segment of the range is open in this life.
    NeedOpen { range: RangeId },
    /// The segment was opened in an earlier life: seal it where it stands. `urgent`: a reader waits.
    NeedSeal { range: RangeId, segment: SegmentId, urgent: bool },
    /// The open segment is three quarters full.
    NeedSuccessor { range: RangeId, segment: SegmentId },
    /// The promise is durable. Answers `Seal`.
    Promised { range: RangeId, segment: SegmentId, epoch: Epoch, answer: SealAnswer },
    /// A greater epoch than the one asked for has been promised. Answers `Seal`.
    PromiseRefused { range: RangeId, segment: SegmentId, promised: Epoch },
    /// The roll mark is durable on a quorum, and so is all before it.
    Rolled { range: RangeId, mark: Rolled, cause: RollCause },
    /// A span of a sealed segment does not verify on this disk. Answered by `Holes` once that is committed.
    Unreadable { range: RangeId, segment: SegmentId, span: Span },
    /// The range takes and serves nothing any more. Answers `Deleted`, each time.
    Stopped { range: RangeId },
    /// The catalog says, durably, that the range is deleted and which files are still to be removed. Answers `Deleted`.
    Noted { range: RangeId },
}

/// The committed state of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeView {
    pub topic: TopicId,
    pub range: RangeId,
    pub span: KeySpan,
    /// The newest epoch given.
    pub epoch: Epoch,
    /// Below it, deleted by retention.
    pub trimmed: Offset,
    /// Where the committed chain ends: the sealed end of its last sealed segment, or 0. Exclusive.
    pub end: Offset,
    /// Sealed segments with their ends, in order of their bases.
    pub sealed: Vec<SealedSegment>,
    /// Committed as open in an earlier life, and not yet sealed: at most one, and after it a successor that was prepared for it. One
    /// of this life is told by `Open`.
    pub open: Vec<SegmentOpen>,
    /// Of a range that was split or merged from others and has none of its own records sealed yet: producers whose earlier epochs are
    /// refused, ascending by producer.
    pub fences: Vec<Fence>,
    /// Set if the range itself is sealed.
    pub successors: Option<Vec<Route>>,
}

/// How a segment begins: its `Open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOpen {
    pub segment: SegmentId,
    /// Inclusive. For a prepared successor not known yet: then it is where its predecessor ends.
    pub base: Option<Offset>,
    pub epoch: Epoch,
    /// Seeds the checksums of its entries; random.
    pub seed: u64,
    /// The segment before it in the range.
    pub predecessor: Option<SegmentId>,
    /// The primary, and the life of its process: nobody appends in another.
    pub primary: NodeId,
    pub life: ProcessLife,
    /// W and A: copies, and durable copies needed for an acknowledgement.
    pub replicas: u8,
    pub quorum: u8,
    pub batch_bytes_max: u32,
    /// The committed retention clock, by which producers leave the table, in ms.
    pub retention_ms: u64,
}

/// A segment whose end is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    pub segment: SegmentId,
    /// Inclusive.
    pub base: Offset,
    /// Exclusive.
    pub end: Offset,
    /// The running digest at its end.
    pub digest: Digest,
    /// Ascending, none empty, none overlapping, all inside the segment.
    pub holes: Vec<Span>,
    /// The epoch in which it was sealed.
    pub epoch: Epoch,
}

/// A span of offsets that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Inclusive.
    pub from: Offset,
    /// Exclusive.
    pub to: Offset,
    pub records_at_most: u64,
    pub cause: GapCause,
}

/// The epoch below which a producer's batches are refused in a range that has none of its batches yet: what its ancestors knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// When it last wrote, on the committed retention clock, in ms.
    pub seen_ms: u64,
}

/// What a replica holds of the tail that it was asked to seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealAnswer {
    /// Durable end of the first segment of the tail, exclusive: an upper bound of what it may have held where it is damaged.
    pub end: Offset,
    /// Digest there, with the unreadable spans told in it.
    pub digest: Digest,
    /// What lies below `end` and cannot be read.
    pub unreadable: Vec<Span>,
    /// The roll mark, if the segment ends in one: then the tail goes on in the successor.
    pub mark: Option<Rolled>,
    /// What the replica knows of producers whose id was opened again, ascending by producer.
    pub fences: Vec<Fence>,
}

/// Why a living primary has rolled a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RollCause {
    /// It was full.
    Full,
    /// It held records and was as old as a segment may become.
    Age,
    /// Somebody asked for it.
    Asked,
}

/// A segment ended by a roll mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolled {
    pub segment: SegmentId,
    /// Exclusive.
    pub end: Offset,
    pub digest: Digest,
    pub successor: SegmentId,
}

impl ToReplica {
    /// The range it is about.
    #[must_use]
    pub fn range(&self) -> RangeId {
        match self {
            Self::Adopt(view) => view.range,
            Self::Seal { range, .. }
            | Self::Sealed { range, .. }
            | Self::Open { range, .. }
            | Self::Prepared { range, .. }
            | Self::Retired { range, .. }
            | Self::Holes { range, .. }
            | Self::Deleted { range } => *range,
        }
    }
}

/// All of both, ascending by producer: of a producer that is in both, the greater epoch and the later time. Both ascend.
#[must_use]
pub fn join_fences(ours: &[Fence], theirs: &[Fence]) -> Vec<Fence> {
    let mut all: Vec<Fence> = ours.iter().chain(theirs).copied().collect();
    all.sort_by_key(|fence| fence.producer);
    all.dedup_by(|later, kept| {
        let same = later.producer == kept.producer;
        if same {
            kept.epoch = kept.epoch.max(later.epoch);
            kept.seen_ms = kept.seen_ms.max(later.seen_ms);
        }
        same
    });
    all
}
