//! What a node can be asked.

use crate::types::{Epoch, KeySpan, Offset, ProducerEpoch, ProducerId, RangeId, ShardId, TopicId};

/// Where an answer goes: a request of one connection of one shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplyTo {
    /// The shard that has the connection.
    pub shard: ShardId,
    /// The connection on that shard; never reused in one life of the process.
    pub connection: u32,
    /// The client's correlation id.
    pub correlation: u64,
}

/// A request of either kind, as it comes from a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// To the shard of its range.
    Shard(ShardRequest<'a>),
    /// To the controller.
    Control(ControlRequest),
}

/// A request to the shard that holds a range. Borrows from the receive buffer: a produce is copied once, into the segment's
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardRequest<'a> {
    /// Store one batch. Answered `Response::Stored` or a refusal.
    Produce {
        range: RangeId,
        /// The range's epoch as the client knows it.
        epoch: Epoch,
        /// Producer's header and records, exactly; `format::batch`.
        batch: &'a [u8],
    },
    /// Batches of `range` that hold records from `offset` on. Answered `Response::Fetched` or a refusal.
    Fetch {
        range: RangeId,
        /// Inclusive.
        offset: Offset,
        /// At most so many bytes of entries, but always at least one batch.
        bytes_max: u32,
        /// How long to wait for a record if there is none, in ms; 0 answers at once.
        wait_ms: u32,
    },
    /// Where the range's records begin and end now. Answered `Response::Bounds`.
    Bounds { range: RangeId },
    /// Where the records begin that are not earlier than a time, and where the range ends now. Answered `Response::Bounds`: every
    /// record below its start is earlier, and the first that is not lies a little behind it, or is still to come.
    Since {
        range: RangeId,
        /// Of the records' own timestamps, in ms since the Unix epoch; inclusive.
        timestamp_ms: u64,
    },
    /// The last batch stored of each producer. Answered `Response::Settled` by a sealed range only.
    Settle { range: RangeId, producer: ProducerId },
    /// Seal the range's open segment and go on in its successor, as is done with a full one. It names no epoch: what is asked for is
    /// right whoever is the primary, and a primary that was deposed cannot make it durable. Answered `Response::Rolled` once the
    /// sealed end is durable, or a refusal; asked again it may roll again what has come since, and does no harm.
    Roll { range: RangeId },
    /// What the range consists of now. Answered `Response::Described`.
    Describe { range: RangeId },
}

impl ShardRequest<'_> {
    /// The range it is about.
    #[must_use]
    pub fn range(&self) -> RangeId {
        match *self {
            Self::Produce { range, .. }
            | Self::Fetch { range, .. }
            | Self::Bounds { range }
            | Self::Since { range, .. }
            | Self::Settle { range, .. }
            | Self::Roll { range }
            | Self::Describe { range } => range,
        }
    }
}

/// A request to the metadata group, answered when its change is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Create a topic of `ranges` (a power of two) equal key spans. Answered `Response::Topic`.
    CreateTopic {
        name: String,
        ranges: u32,
        /// The topic splits ranges that fill and merges those that do not, between `ranges` and this many.
        auto_split: Option<u32>,
    },
    /// Delete the topic of this name with all its records, for ever. Answered `Response::TopicDeleted` when no range of it takes or
    /// serves anything any more; its files go later.
    DeleteTopic {
        name: String,
        /// The topic that is meant: one of the same name that was created since is not touched. `None`: whichever it is.
        topic: Option<TopicId>,
    },
    /// All topics, by name. Answered `Response::Topics`.
    ListTopics,
    /// One topic's ranges. Answered `Response::Routes`.
    Routes { topic: String },
    /// Split the range of a topic at the middle of its span. Answered `Response::Lineage` with its two children, also when it was split
    /// before: a range is split once at most, so that asking again does no harm.
    SplitRange { topic: String, range: RangeId },
    /// Make one range of two, each the other's buddy, of a topic, in any order. Answered `Response::Lineage` with their child, also when
    /// they were merged before.
    MergeRanges { topic: String, ranges: [RangeId; 2] },
    /// What the ranges of a topic, sealed ones too, were made of and became. Answered `Response::Lineage`.
    Lineage {
        topic: String,
        /// Ranges above this id, exclusive; ids begin at 1.
        after: RangeId,
    },
    /// A new producer id, or the next epoch of one. Answered `Response::Producer`.
    OpenProducer {
        /// The id and epoch that it replaces; fenced if that epoch is not the current one.
        replaces: Option<(ProducerId, ProducerEpoch)>,
    },
}

/// A part of a range as a client may want it: a convenience for cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePart {
    pub range: RangeId,
    /// Records whose key hash lies outside are not wanted.
    pub span: KeySpan,
    /// Next offset, inclusive.
    pub offset: Offset,
}
