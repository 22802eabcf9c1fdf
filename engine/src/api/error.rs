//! Every way in which a request is refused, each with what became of it (outcome) and what to do (retry). A client library acts
//! on these two only; code and text are for people and for counting.

use thiserror::Error;

use crate::api::response::Route;
use crate::format::batch::{BatchError, RecordError};
use crate::format::record::RecordFault;
use crate::types::{Epoch, Offset, ProducerEpoch, Run, Sequence};

/// What became of a produce. Requests that store nothing are always `NotStored`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It is stored.
    Stored,
    /// It is not stored, and this attempt never will be.
    NotStored,
    /// It may be stored now or later; retrying with the same sequence is safe.
    Unknown,
}

/// What the client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// Trying again cannot help.
    Never,
    /// The same again, behind the earlier batches that are still under way.
    Same,
    /// With newer routes.
    AfterRefresh,
    /// Not before so many milliseconds.
    AfterDelay { ms: u32 },
}

/// Why a batch is refused at the door: a reader would refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadBatch {
    #[error("the batch is cut short")]
    Short,
    #[error("its checksum is {found:08x}, its bytes give {computed:08x}")]
    Checksum { found: u32, computed: u32 },
    #[error("version {found} is not known; the newest here is {newest}")]
    Version { found: u8, newest: u8 },
    #[error("codec {found} is not known")]
    Codec { found: u8 },
    #[error("it holds no records")]
    Empty,
    #[error("record {index} is malformed")]
    Record { index: u32 },
    #[error("record {index} has a key outside the range's span or the header's bounds")]
    Key { index: u32 },
    #[error("the header does not agree with the records")]
    Header,
}

/// A request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("no such topic")]
    UnknownTopic,
    #[error("a topic of this name exists")]
    TopicExists,
    #[error("the topic name is not allowed: 1 to 249 of letters, digits, '.', '_' and '-'")]
    BadTopicName,
    #[error("ranges must be a power of two, at most {most}")]
    BadRangeCount { most: u32 },
    #[error("no such range here")]
    UnknownRange,
    #[error("this node is not the range's primary")]
    NotPrimary { route: Option<Route> },
    #[error("the range is sealed")]
    Sealed {
        /// Where its keys go now.
        successors: Vec<Route>,
        /// The producer's last batch that is stored here.
        last: Option<(ProducerEpoch, Run, Sequence)>,
    },
    #[error("the range is in epoch {current}, not in the one named")]
    StaleEpoch { current: Epoch },
    #[error("the range's segment is being opened")]
    Opening { delay_ms: u32 },
    #[error("a later instance of this producer has written here")]
    ProducerFenced { epoch: ProducerEpoch, run: Run },
    #[error("expected sequence {expected}")]
    OutOfOrder { expected: Sequence },
    #[error("nothing is known of this producer here, and its sequence is not 0")]
    UnknownProducer,
    #[error("the range has no room for another producer")]
    TooManyProducers { delay_ms: u32 },
    #[error("too much is under way")]
    Overloaded { delay_ms: u32 },
    #[error("the disk is full")]
    DiskFull { delay_ms: u32 },
    #[error("a write to this shard's disk has failed; it takes no more")]
    WriteFailed,
    #[error("too few replicas")]
    TooFewReplicas { delay_ms: u32 },
    #[error("the batch is larger than {most} bytes")]
    BatchTooLarge { most: u32 },
    #[error("the batch is not valid: {0}")]
    BadBatch(BadBatch),
    #[error("the repeat of a batch that may lie in a hole")]
    Doubtful,
    #[error("the offset is below what retention has left; go on from {resume}")]
    Expired { resume: Offset },
    #[error("the offset is above the end, {end}")]
    BeyondEnd { end: Offset },
    #[error("the bytes there do not verify")]
    Unreadable { from: Offset },
    #[error("the deadline has passed")]
    DeadlinePassed,
    #[error("the node is stopping")]
    Stopping,
    #[error("the request cannot be understood")]
    BadRequest,
    #[error("the range's span is a single hash: it cannot be split")]
    OneHash,
    #[error("the ranges are not the lower and the upper half of one span")]
    NotBuddies,
    #[error("the topic has {most} ranges, as many as there may be")]
    TooManyRanges { most: u32 },
    #[error("the range is being split or merged in another way")]
    Reshaping { delay_ms: u32 },
    #[error("the merge was given up: an end of the ranges could not be fixed in time; both go on as they were")]
    MergeGivenUp { delay_ms: u32 },
    #[error("bytes there do not verify; how far that goes is being found out")]
    Judging { delay_ms: u32 },
}

impl Refusal {
    /// Its number on the wire. Numbers are only ever added.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::UnknownTopic => 1,
            Self::TopicExists => 2,
            Self::BadTopicName => 3,
            Self::BadRangeCount { .. } => 4,
            Self::UnknownRange => 5,
            Self::NotPrimary { .. } => 6,
            Self::Sealed { .. } => 7,
            Self::StaleEpoch { .. } => 8,
            Self::Opening { .. } => 9,
            Self::ProducerFenced { .. } => 10,
            Self::OutOfOrder { .. } => 11,
            Self::UnknownProducer => 12,
            Self::TooManyProducers { .. } => 13,
            Self::Overloaded { .. } => 14,
            Self::DiskFull { .. } => 15,
            Self::WriteFailed => 16,
            Self::TooFewReplicas { .. } => 17,
            Self::BatchTooLarge { .. } => 18,
            Self::BadBatch(_) => 19,
            Self::Doubtful => 20,
            Self::Expired { .. } => 21,
            Self::BeyondEnd { .. } => 22,
            Self::Unreadable { .. } => 23,
            Self::DeadlinePassed => 24,
            Self::Stopping => 25,
            Self::BadRequest => 26,
            Self::OneHash => 27,
            Self::NotBuddies => 28,
            Self::TooManyRanges { .. } => 29,
            Self::Reshaping { .. } => 30,
            Self::MergeGivenUp { .. } => 31,
            Self::Judging { .. } => 32,
        }
    }

    /// What became of the produce that it answers.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Doubtful | Self::DeadlinePassed | Self::WriteFailed => Outcome::Unknown,
            Self::UnknownTopic
            | Self::TopicExists
            | Self::BadTopicName
            | Self::BadRangeCount { .. }
            | Self::UnknownRange
            | Self::NotPrimary { .. }
            | Self::Sealed { .. }
            | Self::StaleEpoch { .. }
            | Self::Opening { .. }
            | Self::ProducerFenced { .. }
            | Self::OutOfOrder { .. }
            | Self::UnknownProducer
            | Self::TooManyProducers { .. }
            | Self::Overloaded { .. }
            | Self::DiskFull { .. }
            | Self::TooFewReplicas { .. }
            | Self::BatchTooLarge { .. }
            | Self::BadBatch(_)
            | Self::Expired { .. }
            | Self::BeyondEnd { .. }
            | Self::Unreadable { .. }
            | Self::Stopping
            | Self::BadRequest
            | Self::OneHash
            | Self::NotBuddies
            | Self::TooManyRanges { .. }
            | Self::Reshaping { .. }
            | Self::MergeGivenUp { .. }
            | Self::Judging { .. } => Outcome::NotStored,
        }
    }

    /// What the client does next.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match *self {
            Self::Opening { delay_ms }
            | Self::TooManyProducers { delay_ms }
            | Self::Overloaded { delay_ms }
            | Self::DiskFull { delay_ms }
            | Self::TooFewReplicas { delay_ms }
            | Self::Reshaping { delay_ms }
            | Self::MergeGivenUp { delay_ms }
            | Self::Judging { delay_ms } => Retry::AfterDelay { ms: delay_ms },
            Self::NotPrimary { .. } | Self::Sealed { .. } | Self::StaleEpoch { .. } | Self::UnknownRange => {
                Retry::AfterRefresh
            }
            Self::OutOfOrder { .. } => Retry::Same,
            Self::Stopping => Retry::AfterDelay { ms: 100 },
            Self::UnknownTopic
            | Self::TopicExists
            | Self::BadTopicName
            | Self::BadRangeCount { .. }
            | Self::ProducerFenced { .. }
            | Self::UnknownProducer
            | Self::WriteFailed
            | Self::BatchTooLarge { .. }
            | Self::BadBatch(_)
            | Self::Doubtful
            | Self::Expired { .. }
            | Self::BeyondEnd { .. }
            | Self::Unreadable { .. }
            | Self::DeadlinePassed
            | Self::BadRequest
            | Self::OneHash
            | Self::NotBuddies
            | Self::TooManyRanges { .. } => Retry::Never,
        }
    }
}

impl From<BatchError> for BadBatch {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Length { .. } | BatchError::TooLarge { .. } => Self::Short,
            BatchError::Checksum { stored, computed } => Self::Checksum { found: stored, computed },
            BatchError::Newer(newer) => Self::Version {
                found: u8::try_from(newer.found).unwrap_or(u8::MAX),
                newest: u8::try_from(newer.supported).unwrap_or(u8::MAX),
            },
            BatchError::Codec { found } => Self::Codec { found: u8::try_from(found).unwrap_or(u8::MAX) },
            BatchError::Header => Self::Header,
        }
    }
}

impl From<RecordError> for BadBatch {
    fn from(error: RecordError) -> Self {
        match error.fault {
            RecordFault::HashBounds(_) | RecordFault::HashSpan(_) => Self::Key { index: error.index },
            RecordFault::Truncated
            | RecordFault::Number
            | RecordFault::Attributes(_)
            | RecordFault::Timestamp
            | RecordFault::Trailing(_) => Self::Record { index: error.index },
        }
    }
}
