//! Entries of the metadata log: each is a proposal which [`State::apply`](super::State::apply) takes or refuses, the same everywhere.
//!
//! At rest and on the wire: one version byte, one byte that names the kind, the fields in the order below, little-endian. Kinds
//! and versions are added, never changed. A change is written in the version that brought its kind: an older build refuses a log with
//! what it does not know, and goes on reading one without.

use super::codec::{Codec, DecodeError, Reader};
use crate::format::upgrade::Newer;
use crate::replica::message::{Fence, RollCause, SealedSegment, SegmentOpen, Span};
use crate::types::{Epoch, NodeId, ProcessLife, ProducerEpoch, ProducerId, RangeId, SegmentId, TopicId};

/// Newest version of a change that is known here.
pub const CHANGE_VERSION: u8 = 4;

/// One entry of the metadata log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A process of a node has started: whatever names an earlier life of it is superseded. Lives only grow.
    NodeStarted {
        node: NodeId,
        life: ProcessLife,
        /// Shards that it runs in this life.
        shards: u16,
    },
    /// A topic of `ranges` (a power of two) equal key spans, each without a segment yet.
    CreateTopic {
        name: String,
        keyspace_version: u8,
        batch_bytes_max: u32,
        ranges: u32,
        /// Who opens the first segments: range *i* belongs to number *i* modulo their count. Not empty.
        homes: Vec<NodeId>,
        /// The topic splits and merges its ranges by itself, up to so many.
        auto_split: Option<u32>,
    },
    /// A seal round begins on the open segment: `epoch` may be asked for. Above the range's epoch.
    BeginSeal { range: RangeId, segment: SegmentId, epoch: Epoch, reason: SealReason },
    /// The round's result: the end of the segment, for ever.
    Sealed {
        range: RangeId,
        sealed: SealedSegment,
        /// The segment ended in a roll mark: its prepared successor begins at the end, is now the open one, and the round goes
        /// on in it. Otherwise nothing in a prepared successor was acknowledged, and it is dropped.
        goes_on: bool,
        /// The segment that follows; never together with `goes_on`.
        open: Option<SegmentOpen>,
    },
    /// The range's next segment. Its base is where the chain ends.
    Open { range: RangeId, open: SegmentOpen },
    /// The successor of the open segment `after`, for when that is full. It has no base yet.
    Prepare { range: RangeId, after: SegmentId, open: SegmentOpen },
    /// A living primary has gone on in the prepared successor: the first is sealed, the successor open where it ends.
    Rolled {
        range: RangeId,
        sealed: SealedSegment,
        successor: SegmentId,
        /// What the roll says of the range's load.
        cause: RollCause,
    },
    /// A producer's id was opened again: earlier epochs are fenced. The epoch is one above the current one.
    ProducerEpoch { producer: ProducerId, epoch: ProducerEpoch },
    /// A node may give the ids from `first` on. `first` is the next id never given.
    ProducerBlock { node: NodeId, first: ProducerId, count: u64 },
    /// The retention clock goes on by so many ms.
    RetentionTick { ms: u64 },
    /// The topic is deleted with all its ranges, for ever. Its name is free.
    DeleteTopic { topic: TopicId },
    /// Who held the range of a deleted topic has written down that its files are to go: it need not be told again.
    RangeGone { range: RangeId },
    /// The end of a seal round on the last segment of a range, which splits at the middle of its span: the range is sealed, and its two
    /// children are active, the lower half first.
    Split {
        range: RangeId,
        sealed: SealedSegment,
        /// What the children know of producers; ascending.
        fences: Vec<Fence>,
        /// The children's first segments, or none.
        opens: Vec<SegmentOpen>,
    },
    /// The end of the seal rounds on the last segments of two ranges, each the other's buddy, which become one: both are sealed, and
    /// their child is active.
    Merge {
        /// The ranges and their segments' ends, the lower half first.
        parents: [(RangeId, SealedSegment); 2],
        /// What the child knows of producers; ascending.
        fences: Vec<Fence>,
        /// The child's first segment.
        open: Option<SegmentOpen>,
    },
    /// No copy of a sealed segment can give these back any more: they are holes from now on, whatever its end and digest are.
    Holes {
        range: RangeId,
        segment: SegmentId,
        /// Each not empty and inside the segment.
        holes: Vec<Span>,
    },
}

/// Why a segment is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SealReason {
    /// Its primary's process has ended.
    Restart,
    /// Its primary asked for it.
    Asked,
    /// It cannot be read whole.
    Damage,
    /// Its range splits.
    Split,
    /// Its range merges.
    Merge,
    /// It moves to other nodes.
    Move,
    /// A replica of it is lost.
    Lost,
}

impl Change {
    /// As it lies in the log.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.version().put(&mut out);
        self.put(&mut out);
        out
    }

    /// The version that brought its kind.
    fn version(&self) -> u8 {
        match self {
            Self::CreateTopic { auto_split: Some(_), .. }
            | Self::Rolled { cause: RollCause::Full | RollCause::Age, .. } => 3,
            Self::NodeStarted { .. }
            | Self::CreateTopic { auto_split: None, .. }
            | Self::BeginSeal { .. }
            | Self::Sealed { .. }
            | Self::Open { .. }
            | Self::Prepare { .. }
            | Self::Rolled { cause: RollCause::Asked, .. }
            | Self::ProducerEpoch { .. }
            | Self::ProducerBlock { .. }
            | Self::RetentionTick { .. } => 1,
            Self::DeleteTopic { .. } | Self::RangeGone { .. } => 2,
            Self::Split { .. } | Self::Merge { .. } => 3,
            Self::Holes { .. } => 4,
        }
    }

    /// From what lies in the log; all of `bytes` belongs to it.
    ///
    /// # Errors
    /// `Newer` if a later build wrote it; `Malformed` if nobody did.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = u8::get(&mut reader)?;
        if version > CHANGE_VERSION {
            let (found, supported) = (u32::from(version), u32::from(CHANGE_VERSION));
            return Err(Newer { what: "metadata change", found, supported }.into());
        }
        let change = Self::get(&mut reader)?;
        if version != change.version() {
            return Err(reader.malformed());
        }
        reader.end()?;
        Ok(change)
    }
}

impl Codec for SealReason {
    fn put(&self, out: &mut Vec<u8>) {
        let number: u8 = match self {
            Self::Restart => 1,
            Self::Asked => 2,
            Self::Damage => 3,
            Self::Split => 4,
            Self::Merge => 5,
            Self::Move => 6,
            Self::Lost => 7,
        };
        number.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::get(from)? {
            1 => Self::Restart,
            2 => Self::Asked,
            3 => Self::Damage,
            4 => Self::Split,
            5 => Self::Merge,
            6 => Self::Move,
            7 => Self::Lost,
            _ => return Err(from.malformed()),
        })
    }
}

impl Codec for Change {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::NodeStarted { node, life, shards } => (1u8, *node, *life, *shards).put(out),
            Self::CreateTopic { name, keyspace_version, batch_bytes_max, ranges, homes, auto_split } => {
                let kind = if auto_split.is_none() { 2u8 } else { 15u8 };
                (kind, *keyspace_version, *batch_bytes_max, *ranges).put(out);
                name.put(out);
                homes.put(out);
                if let Some(ranges_max) = auto_split {
                    ranges_max.put(out);
                }
            }
            Self::BeginSeal { range, segment, epoch, reason } => {
                (3u8, *range, *segment, *epoch).put(out);
                reason.put(out);
            }
            Self::Sealed { range, sealed, goes_on, open } => {
                (4u8, *range, *goes_on).put(out);
                sealed.put(out);
                open.put(out);
            }
            Self::Open { range, open } => (5u8, *range, *open).put(out),
            Self::Prepare { range, after, open } => (6u8, *range, *after, *open).put(out),
            Self::Rolled { range, sealed, successor, cause } => {
                let kind: u8 = match cause {
                    RollCause::Asked => 7,
                    RollCause::Full => 16,
                    RollCause::Age => 17,
                };
                (kind, *range, *successor).put(out);
                sealed.put(out);
            }
            Self::ProducerEpoch { producer, epoch } => (8u8, *producer, *epoch).put(out),
            Self::ProducerBlock { node, first, count } => (9u8, *node, *first, *count).put(out),
            Self::RetentionTick { ms } => (10u8, *ms).put(out),
            Self::DeleteTopic { topic } => (11u8, *topic).put(out),
            Self::RangeGone { range } => (12u8, *range).put(out),
            Self::Split { range, sealed, fences, opens } => {
                (13u8, *range).put(out);
                sealed.put(out);
                fences.put(out);
                opens.put(out);
            }
            Self::Merge { parents: [(low, low_sealed), (high, high_sealed)], fences, open } => {
                (14u8, *low, *high).put(out);
                low_sealed.put(out);
                high_sealed.put(out);
                fences.put(out);
                open.put(out);
            }
            Self::Holes { range, segment, holes } => {
                (18u8, *range, *segment).put(out);
                holes.put(out);
            }
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::get(from)? {
            1 => Self::NodeStarted { node: from.take()?, life: from.take()?, shards: from.take()? },
            kind @ (2 | 15) => {
                let (keyspace_version, batch_bytes_max, ranges) = from.take()?;
                let (name, homes) = (from.take()?, from.take()?);
                let auto_split = if kind == 15 { Some(from.take()?) } else { None };
                Self::CreateTopic { name, keyspace_version, batch_bytes_max, ranges, homes, auto_split }
            }
            3 => Self::BeginSeal {
                range: from.take()?,
                segment: from.take()?,
                epoch: from.take()?,
                reason: from.take()?,
            },
            4 => {
                let (range, goes_on) = from.take()?;
                Self::Sealed { range, goes_on, sealed: from.take()?, open: from.take()? }
            }
            5 => Self::Open { range: from.take()?, open: from.take()? },
            6 => Self::Prepare { range: from.take()?, after: from.take()?, open: from.take()? },
            kind @ (7 | 16 | 17) => {
                let (range, successor) = from.take()?;
                let cause = match kind {
                    16 => RollCause::Full,
                    17 => RollCause::Age,
                    _ => RollCause::Asked,
                };
                Self::Rolled { range, successor, sealed: from.take()?, cause }
            }
            8 => Self::ProducerEpoch { producer: from.take()?, epoch: from.take()? },
            9 => Self::ProducerBlock { node: from.take()?, first: from.take()?, count: from.take()? },
            10 => Self::RetentionTick { ms: from.take()? },
            11 => Self::DeleteTopic { topic: from.take()? },
            12 => Self::RangeGone { range: from.take()? },
            13 => Self::Split { range: from.take()?, sealed: from.take()?, fences: from.take()?, opens: from.take()? },
            14 => {
                let (low, high) = from.take()?;
                let parents = [(low, from.take()?), (high, from.take()?)];
                Self::Merge { parents, fences: from.take()?, open: from.take()? }
            }
            18 => Self::Holes { range: from.take()?, segment: from.take()?, holes: from.take()? },
            _ => return Err(from.malformed()),
        })
    }
}
