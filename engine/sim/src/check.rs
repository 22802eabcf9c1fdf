//! Checkers: each knows one promise, is fed what happens, and says when the promise is broken. None looks into the store.
//!
//! Every checker counts how often it had something to check: one that never has is no checker, and the coverage table says so.

pub mod deleted;
pub mod durable;
pub mod fenced;
pub mod lineage;
pub mod memory;
pub mod nothing_silent;
pub mod once;
pub mod one_history;
pub mod ordered;
pub mod pass;
pub mod progress;
#[cfg(test)]
mod tests;

use sealog_engine::api::port::DataFile;
use sealog_engine::api::response::Gap;
use sealog_engine::types::{Offset, ProducerEpoch, RangeId, SegmentId, TopicId};
use thiserror::Error;

pub use pass::Pass;

use crate::history::{Fate, RecordId};

/// A promise that was broken, and by what. Times in ns of virtual time.
#[derive(Debug, Error)]
pub enum Violation {
    #[error(
        "durable: {id:?} of topic {topic} ({fate:?} at {settled_ns}, first read at {read_ns:?}) is gone from pass {pass}"
    )]
    Lost { id: RecordId, topic: u32, fate: Fate, settled_ns: u64, read_ns: Option<u64>, pass: u32 },
    #[error("durable: {missing} records of topic {topic} are gone, and the gaps that were told account for {told}")]
    LostBeyondGaps { topic: u32, missing: u64, told: u64 },
    #[error("once: pass {pass} has {id:?} twice")]
    Twice { pass: u32, id: RecordId },
    #[error("once: pass {pass} has {id:?}, which its sender was told is not stored")]
    NotStoredButRead { pass: u32, id: RecordId },
    #[error("once: pass {pass} has {id:?}, which nobody sent to topic {topic}")]
    NeverSent { pass: u32, topic: u32, id: Option<RecordId> },
    #[error("once: {id:?} was settled twice, the second time as {fate:?}")]
    SettledTwice { id: RecordId, fate: Fate },
    #[error("ordered: pass {pass} has {second:?} behind {first:?}, one writer's records of key {key}")]
    Reordered { pass: u32, key: u32, first: RecordId, second: RecordId },
    #[error(
        "ordered: pass {pass} has {late:?} of key {key} behind {early:?}, which was sent after {late:?} was acknowledged"
    )]
    Inverted { pass: u32, key: u32, early: RecordId, late: RecordId },
    #[error(
        "one history: {range} {offset} is now a batch of {digest:016x} to {end}, and was of {was_digest:016x} to {was_end}"
    )]
    Divergent { range: RangeId, offset: Offset, end: Offset, digest: u64, was_end: Offset, was_digest: u64 },
    #[error("one history: {range} has a batch [{offset}, {end}) across one of [{other}, {other_end})")]
    Overlapping { range: RangeId, offset: Offset, end: Offset, other: Offset, other_end: Offset },
    #[error("one history: {range} gives a batch [{offset}, {end}) out of the hole {gap:?}")]
    ServedFromHole { range: RangeId, offset: Offset, end: Offset, gap: Gap },
    #[error("one history: {range} tells a hole {gap:?} over the batch at {offset} that was read")]
    HoleOverRead { range: RangeId, offset: Offset, gap: Gap },
    #[error("one history: {range} gives [{offset}, {end}) to a batch, where [{held}, {held_end}) may have been stored")]
    GivenAgain { range: RangeId, offset: Offset, end: Offset, held: Offset, held_end: Offset },
    #[error("one history: {range} ends at {end}, and ended at {was}")]
    EndWentBack { range: RangeId, end: Offset, was: Offset },
    #[error("one history: {range} says that a roll sealed all up to {end}, and had shown records up to {shown} before")]
    RolledBelow { range: RangeId, end: Offset, shown: Offset },
    #[error(
        "one history: {range} says that a roll sealed a segment at {end}, within the batch [{offset}, {batch_end})"
    )]
    RolledWithin { range: RangeId, end: Offset, offset: Offset, batch_end: Offset },
    #[error("one history: {range} says that a roll sealed {segment} at {end}, and said {was} before")]
    RolledTwice { range: RangeId, segment: SegmentId, end: Offset, was: Offset },
    #[error("one history: {range} said that a roll sealed {segment} at {end}, and it is sealed at {found:?}")]
    RollUndone { range: RangeId, segment: SegmentId, end: Offset, found: Option<Offset> },
    #[error("nothing silent: {range} asked from {asked} goes on at {found}, where {expected} was to come")]
    Skipped { range: RangeId, asked: Offset, expected: Offset, found: Offset },
    #[error("nothing silent: {range} asked from {asked} says next is {next}, and gave all up to {given}")]
    WrongNext { range: RangeId, asked: Offset, next: Offset, given: Offset },
    #[error("nothing silent: {range} gives {next}, above its committed end {end}")]
    BeyondCommitted { range: RangeId, next: Offset, end: Offset },
    #[error("nothing silent: {range} asked from {asked} gives nothing, and ends at {end}")]
    Stalled { range: RangeId, asked: Offset, end: Offset },
    #[error("nothing silent: what {range} serves at {at} does not verify")]
    Unverifiable { range: RangeId, at: Offset },
    #[error("nothing silent: {range} has a gap {gap:?} without a fault that could have made it")]
    GapWithoutFault { range: RangeId, gap: Gap },
    #[error("progress: {what} was to end by {deadline_ns} and had not by {now_ns}")]
    Late { what: &'static str, deadline_ns: u64, now_ns: u64 },
    #[error("progress: with no fault for {since_ms} ms {waiting} operations still wait for {what}")]
    Stuck { what: &'static str, waiting: u64, since_ms: u64 },
    #[error("progress: the node does not start: {error}")]
    NoStart { error: String },
    #[error("progress: with no fault left a sender was told {fate:?} of {id:?}")]
    RefusedWhenHealed { id: RecordId, fate: Fate },
    #[error("deleted: {range} of {topic} is served, which is deleted")]
    ServedDeleted { range: RangeId, topic: TopicId },
    #[error("deleted: there are routes to {topic}, which is deleted")]
    RoutedDeleted { topic: TopicId },
    #[error("deleted: {file} of {topic} is there, {since_ms} ms after the last fault")]
    FileLeft { file: DataFile, topic: TopicId, since_ms: u64 },
    #[error("lineage: the active ranges {ranges:?} of a topic do not hold each key once")]
    NoPartition { ranges: Vec<RangeId> },
    #[error("lineage: {range} is said to be active, and was said to be sealed")]
    SealedIsActive { range: RangeId },
    #[error("lineage: what {range} was made of or became is told otherwise than before")]
    LineageChanged { range: RangeId },
    #[error("lineage: the span of {range} is not what it was, or does not follow from that of what it was made of")]
    WrongSpan { range: RangeId },
    #[error("lineage: {range} is sealed at {was}, and now at {end}")]
    SealedEndMoved { range: RangeId, end: Offset, was: Offset },
    #[error("lineage: {range} was said to be sealed, and stored what was sent to it after that")]
    SealedTook { range: RangeId },
    #[error("lineage: a split or merge was told, and of {range} the committed state has something else")]
    ReshapeUndone { range: RangeId },
    #[error("fenced: {id:?} of {epoch:?} is stored, and was sent after a record of a later epoch was acknowledged")]
    StoredThoughFenced { id: RecordId, epoch: ProducerEpoch },
    #[error("memory: {what} is {used}, the bound is {bound}")]
    Memory { what: &'static str, used: u64, bound: u64 },
    #[error("the node: {what}")]
    Node { what: &'static str },
}

/// Whether the faults of a run are within what the model promises to survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing that was acknowledged may be lost.
    Within,
    /// Damage that one copy cannot survive: it must be told.
    Beyond,
}

/// All checkers of one run.
#[derive(Default)]
pub struct Checks {
    pub durable: durable::Durable,
    pub once: once::Once,
    pub ordered: ordered::Ordered,
    pub progress: progress::Progress,
    pub nothing_silent: nothing_silent::NothingSilent,
    pub one_history: one_history::OneHistory,
    pub memory: memory::Memory,
    pub deleted: deleted::Deleted,
    pub lineage: lineage::Lineage,
    pub fenced: fenced::Fenced,
    /// Refusals of batches of sealed ranges that say what their producer stored there last, and answers to that question.
    pub settled_by_seal: u64,
    pub settled_by_asking: u64,
    /// The first promise that was found broken where nobody could be told at once.
    pub found: Option<Violation>,
}

impl Checks {
    /// A promise is broken: the run ends after this event.
    pub fn violation(&mut self, violation: Violation) {
        self.found.get_or_insert(violation);
    }

    /// Each checker's name and how often it had something to check.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 10] {
        [
            ("durable", self.durable.checked),
            ("once", self.once.checked),
            ("ordered", self.ordered.checked),
            ("progress", self.progress.checked),
            ("nothing silent", self.nothing_silent.checked),
            ("one history", self.one_history.checked),
            ("memory", self.memory.checked),
            ("deleted", self.deleted.checked),
            ("lineage", self.lineage.checked),
            ("fenced", self.fenced.checked),
        ]
    }
}
