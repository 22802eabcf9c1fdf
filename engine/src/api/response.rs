//! What a node answers.

use crate::api::error::Refusal;
use crate::types::{
    Epoch, KeySpan, NodeId, Offset, ProducerEpoch, ProducerId, RangeId, Run, SegmentId, Sequence, ShardId, TopicId,
};

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// A batch is durable on a quorum, and so is all before it in its range.
    Stored(Stored),
    /// Batches as they lie on disk.
    Fetched(Fetched),
    /// Where a range begins and ends.
    Bounds {
        /// Trimmed start, inclusive.
        start: Offset,
        /// Committed end, exclusive.
        end: Offset,
    },
    /// What is stored of one producer in a sealed range.
    Settled(ProducerSettled),
    /// All that was acknowledged before the request to roll lies in sealed segments.
    Rolled(RangeRolled),
    /// What a range consists of.
    Described(RangeDescription),
    /// A topic was created.
    Topic(TopicView),
    /// A topic is deleted: nothing of it will be served again.
    TopicDeleted { topic: TopicId },
    /// All topics, by name.
    Topics(Vec<TopicView>),
    /// A topic and its ranges, by key span.
    Routes { topic: TopicView, routes: Vec<Route> },
    /// Ranges, with what they were made of and became, by id.
    Lineage {
        ranges: Vec<RangeLineage>,
        /// There are more above the last one.
        more: bool,
    },
    /// An id and the epoch under which it now writes.
    Producer { producer: ProducerId, epoch: ProducerEpoch },
    /// Not done; the refusal says with which outcome, and what to do.
    Refused(Refusal),
}

/// A batch is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Records of the batch.
    pub records: u32,
    /// It had been stored before: this was a repeat.
    pub repeat: bool,
}

/// Part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Entries of kind batch as they lie on disk, one after the other; `format::entry`. The first may begin below the offset asked for.
    pub entries: Vec<u8>,
    /// Where the next fetch goes on, inclusive: above all entries and gaps given here.
    pub next: Offset,
    /// The committed end, exclusive, at the time of the answer.
    pub end: Offset,
    /// Holes that lie between the offset asked for and `next`, ascending.
    pub gaps: Vec<Gap>,
    /// Set once `next` has reached the end of a range that is sealed: what to read after it.
    pub successors: Option<Vec<Route>>,
}

/// A hole as a reader is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Inclusive.
    pub from: Offset,
    /// Exclusive.
    pub to: Offset,
    /// No more records than this were lost; there may have been none.
    pub records_at_most: u64,
    pub cause: GapCause,
}

/// Why records cannot be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GapCause {
    /// They were being written when the node stopped, and may never have been acknowledged.
    Interrupted,
    /// They were stored, and no copy of them can be read.
    Unreadable,
    /// An operator gave up the disks that may have held them.
    Forced,
}

/// The last batch that is stored of one producer in a sealed range; final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSettled {
    pub producer: ProducerId,
    /// Epoch, run and sequence of its last batch; `None`: nothing of it is stored there.
    pub last: Option<(ProducerEpoch, Run, Sequence)>,
    /// A batch of it may lie in a hole: what is above `last` is unknown.
    pub doubtful: bool,
}

/// Every record that was acknowledged before a range was asked to roll lies in a segment whose end is fixed for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRolled {
    /// Where the newest of those segments ends, exclusive.
    pub end: Offset,
    /// The segment that was sealed there and the one that takes records now. `None`: no open segment held a record, so there was
    /// nothing to seal.
    pub segments: Option<(SegmentId, SegmentId)>,
}

/// What a range consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeDescription {
    /// Trimmed start, inclusive.
    pub start: Offset,
    /// Committed end, exclusive.
    pub end: Offset,
    /// Segments that were begun and are left, the one that takes records among them.
    pub segments: u32,
}

/// A topic as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    pub topic: TopicId,
    pub name: String,
    /// Active ranges.
    pub ranges: u32,
    /// Version of the key hash.
    pub keyspace_version: u8,
    /// Bytes of the largest batch.
    pub batch_bytes_max: u32,
    /// It splits ranges that fill, up to so many, and merges those that do not.
    pub auto_split: Option<u32>,
}

/// Where a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub range: RangeId,
    pub span: KeySpan,
    pub epoch: Epoch,
    /// The node of its primary.
    pub node: NodeId,
    /// Its shard there.
    pub shard: ShardId,
}

/// What a range was made of and became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeLineage {
    /// Where it is, or was when it was sealed.
    pub route: Route,
    /// One if it was split from that, two if it was merged from those; none if its topic was created with it.
    pub parents: Vec<RangeId>,
    /// What took its place, ascending by span; none while it is active.
    pub successors: Vec<RangeId>,
}
