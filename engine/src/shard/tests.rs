//! A shard with a disk in memory that does at once what it is asked, and a controller that gives what is asked for.

use std::collections::{BTreeMap, BTreeSet};

mod damage;
mod delete;
mod reading;

use super::command::{Command, FileOperation};
use super::event::{Event, Failed, FileResult, FileToken};
use super::open::RecoveredShard;
use super::samples;
use super::shard::Shard;
use crate::api::config::EngineConfig;
use crate::api::error::Refusal;
use crate::api::port::DataFile;
use crate::api::request::{ReplyTo, ShardRequest};
use crate::api::response::{Fetched, Gap, GapCause, Response, Stored};
use crate::format::batch::{BatchBuilder, ReaderBatches, Stamp};
use crate::format::record::RecordKey;
use crate::journal::{Geometry, Ring};
use crate::replica::message::{SealedSegment, SegmentOpen, Span, ToController, ToReplica};
use crate::segment::catalog::{Catalog, ChainId, Contents, SegmentState};
use crate::types::{
    AlignedBuffer, Epoch, Generation, Now, Offset, ProducerEpoch, ProducerId, RangeId, Run, SegmentId, Sequence,
    ShardId, TopicId,
};

mod rolls;

const RANGE: RangeId = RangeId(1);
const TO: ReplyTo = ReplyTo { shard: ShardId(0), connection: 1, correlation: 0 };

struct Rig {
    shard: Shard,
    now: Now,
    files: BTreeMap<DataFile, Vec<u8>>,
    written: BTreeSet<(DataFile, usize)>,
    /// Groups handed out and not answered.
    groups: Vec<(Box<AlignedBuffer>, usize)>,
    replies: Vec<Response>,
    next_segment: u64,
    builder: BatchBuilder,
    prepare: bool,
    /// What the committed end of a segment tells to be missing in it.
    holes: BTreeMap<SegmentId, Vec<Span>>,
    /// Of the records produced.
    timestamp_ms: u64,
    /// Whether operations on files take their time.
    holds_files: bool,
    held: Vec<(FileToken, FileOperation)>,
    /// What was told of deletions.
    told: Vec<ToController>,
    /// A segment file is removed; false: that fails.
    removes: bool,
    /// Bytes that the device cannot read.
    unreadable: Vec<(DataFile, usize)>,
}

impl Rig {
    fn new(segment_bytes: u64) -> Self {
        Self::with(&EngineConfig {
            journal_file_bytes: 1 << 20,
            segment_bytes,
            batch_bytes_max: 64 << 10,
            memory_bytes: 8 << 20,
            ..EngineConfig::default()
        })
    }

    fn with(config: &EngineConfig) -> Self {
        let generation = Generation(7);
        let mut catalog = Catalog::new(ChainId { shard: ShardId(0), shards: 1, generation }, 1);
        catalog.snapshot();
        let ring = Ring::new(Geometry::new(config.journal_files, config.journal_file_bytes));
        let recovered = RecoveredShard { shard: ShardId(0), generation, ring, catalog };
        let mut rig = Self {
            shard: Shard::open(recovered, config),
            now: Now { monotonic_ns: 1, wall_ms: 1_000 },
            files: BTreeMap::new(),
            written: BTreeSet::new(),
            groups: Vec::new(),
            replies: Vec::new(),
            next_segment: 1,
            builder: BatchBuilder::new(config.batch_bytes_max as usize),
            prepare: true,
            holes: BTreeMap::new(),
            timestamp_ms: 5,
            holds_files: false,
            held: Vec::new(),
            told: Vec::new(),
            removes: true,
            unreadable: Vec::new(),
        };
        rig.give(Event::Started);
        rig
    }

    fn give(&mut self, event: Event<'_>) {
        let mut commands = Vec::new();
        self.now.monotonic_ns += 1_000;
        self.shard.step(self.now, event, &mut commands);
        for command in commands {
            match command {
                Command::Reply { response, .. } => self.replies.push(response),
                Command::WriteGroup { buffer, length, .. } => self.groups.push((buffer, length)),
                Command::File { token, operation } if self.holds_files => self.held.push((token, operation)),
                Command::File { token, operation } => {
                    let outcome = self.operate(operation);
                    self.give(Event::FileDone { token, outcome });
                }
                Command::Tell(message) => self.controller(message),
            }
        }
        assert!(self.groups.len() <= 2, "one group is written, and one waits");
    }

    fn operate(&mut self, operation: FileOperation) -> Result<FileResult, Failed> {
        match operation {
            FileOperation::Create { file, .. } => {
                self.files.insert(file, Vec::new());
            }
            FileOperation::Write { file, position, buffer, length } => {
                let bytes = self.files.get_mut(&file).expect("the file was made");
                let position = usize::try_from(position).unwrap();
                assert!(self.written.insert((file, position)), "a block is written once");
                bytes.resize(bytes.len().max(position + length), 0);
                bytes[position..position + length].copy_from_slice(&buffer[..length]);
            }
            FileOperation::Read { file, position, length } => {
                let position = usize::try_from(position).unwrap();
                if self.unreadable.iter().any(|(of, at)| *of == file && position <= *at && *at < position + length) {
                    return Err(Failed { errno: 5 });
                }
                let found = &self.files[&file][position..];
                let found = &found[..found.len().min(length)];
                let mut bytes = AlignedBuffer::zeroed(length);
                bytes[..found.len()].copy_from_slice(found);
                return Ok(FileResult::Read { bytes, length: found.len() });
            }
            FileOperation::Remove { file: DataFile::Segment { .. } } if !self.removes => {
                return Err(Failed { errno: 5 });
            }
            FileOperation::Remove { file } => {
                let is_noted = self.told.contains(&ToController::Noted { range: RANGE });
                assert!(is_noted || !matches!(file, DataFile::Segment { .. }), "a catalog may still lead to {file}");
                self.files.remove(&file);
            }
            FileOperation::Sync { .. } | FileOperation::SyncFolder { .. } => {}
        }
        Ok(FileResult::Done)
    }

    /// Does the operations that were held back so far, and gives what is answered.
    fn release_files(&mut self) -> Vec<Response> {
        self.replies.clear();
        for (token, operation) in std::mem::take(&mut self.held) {
            let outcome = self.operate(operation);
            self.give(Event::FileDone { token, outcome });
        }
        std::mem::take(&mut self.replies)
    }

    fn open(&mut self, base: Option<Offset>) -> SegmentOpen {
        self.next_segment += 1;
        samples::open(self.next_segment, base, self.next_segment * 77)
    }

    fn controller(&mut self, message: ToController) {
        match message {
            ToController::Ready { .. } => {
                let view = samples::view(TopicId(1), RANGE, Offset(0), Vec::new(), Vec::new());
                self.give(Event::Message(ToReplica::Adopt(view)));
            }
            ToController::NeedOpen { range } => {
                let open = self.open(Some(Offset(0)));
                self.give(Event::Message(ToReplica::Open { range, open }));
            }
            ToController::NeedSuccessor { range, segment } if self.prepare => {
                let open = self.open(None);
                self.give(Event::Message(ToReplica::Prepared { range, after: segment, open }));
            }
            ToController::Rolled { range, mark, .. } => {
                let base = Offset(0);
                let sealed = SealedSegment {
                    segment: mark.segment,
                    base: self.base_of(mark.segment).unwrap_or(base),
                    end: mark.end,
                    digest: mark.digest,
                    holes: self.holes.get(&mark.segment).cloned().unwrap_or_default(),
                    epoch: Epoch(1),
                };
                self.give(Event::Message(ToReplica::Sealed { range, sealed }));
            }
            ToController::Stopped { .. } | ToController::Noted { .. } | ToController::NeedSeal { .. } => {
                self.told.push(message);
            }
            ToController::Unreadable { range, segment, span } => {
                let holes = self.holes.entry(segment).or_default();
                holes.push(span);
                holes.sort_by_key(|hole| hole.from);
                let holes = holes.clone();
                self.told.push(message);
                self.give(Event::Message(ToReplica::Holes { range, segment, holes }));
            }
            ToController::NeedSuccessor { .. }
            | ToController::Promised { .. }
            | ToController::PromiseRefused { .. } => {}
        }
    }

    fn base_of(&self, segment: SegmentId) -> Option<Offset> {
        let range = &self.shard.ranges[0];
        range.piece_of(segment).map(|at| range.chain[at].base)
    }

    fn durable(&mut self, outcome: Result<(), Failed>) {
        if !self.groups.is_empty() {
            let (buffer, _) = self.groups.remove(0);
            self.give(Event::GroupWritten { buffer, outcome });
        }
    }

    /// Makes groups durable until none is under way.
    fn settle(&mut self) {
        while !self.groups.is_empty() {
            self.durable(Ok(()));
        }
        // A tenth of a millisecond for each batch.
        self.now.monotonic_ns += 100_000;
        if self.shard.next_deadline().is_some_and(|due| due <= self.now.monotonic_ns) {
            self.give(Event::Timer);
        }
    }

    fn produce(&mut self, sequence: u64, value: &[u8]) {
        self.builder.clear();
        self.builder.push(RecordKey::Key(b"k"), Some(value), &[], self.timestamp_ms).unwrap();
        let stamp = Stamp {
            producer: ProducerId(3),
            epoch: ProducerEpoch(0),
            run: Run(0),
            sequence: Sequence(sequence),
            last: false,
        };
        let batch = self.builder.finish(stamp).to_vec();
        let request = ShardRequest::Produce { range: RANGE, epoch: Epoch(1), batch: &batch };
        self.give(Event::Request { to: TO, deadline_ns: u64::MAX, request });
    }

    fn fetch(&mut self, offset: u64, wait_ms: u32) -> Vec<Response> {
        self.replies.clear();
        let request = ShardRequest::Fetch { range: RANGE, offset: Offset(offset), bytes_max: 64 << 10, wait_ms };
        self.give(Event::Request { to: TO, deadline_ns: u64::MAX, request });
        std::mem::take(&mut self.replies)
    }

    /// Asks for a request of the range that names nothing else, and gives what it is told at once.
    fn ask(&mut self, request: ShardRequest<'_>) -> Vec<Response> {
        self.replies.clear();
        self.give(Event::Request { to: TO, deadline_ns: u64::MAX, request });
        std::mem::take(&mut self.replies)
    }

    /// Opens the segment: the first produce is refused while that is done.
    fn warm(&mut self) {
        self.produce(0, b"x");
        assert_eq!(self.replies, [Response::Refused(Refusal::Opening { delay_ms: 1 })]);
        self.replies.clear();
        self.settle();
    }

    /// Stores `count` batches of `bytes` each, a group after each.
    fn store(&mut self, count: u64, bytes: usize) {
        self.store_at(&vec![self.timestamp_ms; usize::try_from(count).unwrap()], bytes);
    }

    /// Stores a batch of `bytes` for each of these timestamps, a group after each.
    fn store_at(&mut self, timestamps: &[u64], bytes: usize) {
        for (sequence, timestamp_ms) in (0..).zip(timestamps) {
            self.timestamp_ms = *timestamp_ms;
            self.produce(sequence, &value(sequence, bytes));
            self.give(Event::Flush);
            self.settle();
            let stored = Response::Stored(Stored { records: 1, repeat: false });
            assert_eq!(std::mem::take(&mut self.replies), [stored], "batch {sequence}");
        }
    }

    fn read_all(&mut self) -> Vec<Vec<u8>> {
        let (mut values, mut offset) = (Vec::new(), 0);
        loop {
            let mut replies = self.fetch(offset, 0);
            let Some(Response::Fetched(fetched)) = replies.pop() else { panic!("{replies:?}") };
            if fetched.next.0 == offset {
                return values;
            }
            values.extend(values_of(&fetched));
            offset = fetched.next.0;
        }
    }
}

fn value(sequence: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    value[..8].copy_from_slice(&sequence.to_le_bytes());
    value
}

fn values_of(fetched: &Fetched) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    for batch in ReaderBatches::new(&fetched.entries, 64 << 10) {
        for record in batch.unwrap().batch().records() {
            values.push(record.unwrap().value.unwrap().to_vec());
        }
    }
    values
}

impl Rig {
    /// Three batches of 40 KiB and a little: one is written, two wait behind it, and one is gathered behind those.
    fn three_groups(&mut self) {
        self.warm();
        for (sequence, handed_out) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
            self.produce(sequence, &value(sequence, 40 << 10));
            self.give(Event::Flush);
            assert_eq!(self.groups.len(), handed_out, "batch {sequence}");
        }
        assert_eq!(self.replies, []);
    }
}

#[test]
fn a_group_as_large_as_the_one_that_is_written_is_handed_out_behind_it() {
    let mut rig = Rig::new(1 << 20);
    rig.three_groups();
    let stored = Response::Stored(Stored { records: 1, repeat: false });
    rig.durable(Ok(()));
    assert_eq!(std::mem::take(&mut rig.replies), std::slice::from_ref(&stored));
    assert_eq!(rig.groups.len(), 1, "what is gathered is too small to be closed early");
    rig.durable(Ok(()));
    assert_eq!(std::mem::take(&mut rig.replies), [stored.clone(), stored.clone()]);
    rig.durable(Ok(()));
    assert_eq!(std::mem::take(&mut rig.replies), [stored]);
    assert_eq!(rig.read_all(), [0, 1, 2, 3].map(|sequence| value(sequence, 40 << 10)));
}

#[test]
fn nothing_behind_a_group_that_failed_is_acknowledged() {
    let mut rig = Rig::new(1 << 20);
    rig.three_groups();
    rig.durable(Err(Failed { errno: 5 }));
    rig.durable(Err(Failed { errno: 125 }));
    assert!(rig.groups.is_empty());
    assert_eq!(rig.replies.len(), 4);
    assert!(rig.replies.iter().all(|reply| matches!(reply, Response::Refused(_))), "{:?}", rig.replies);
    assert_eq!(rig.read_all(), [[0; 0]; 0]);
}

#[test]
fn a_produce_is_acknowledged_when_its_group_is_durable_and_is_readable_only_then() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    rig.produce(0, b"one");
    rig.give(Event::Flush);
    assert_eq!(rig.replies, []);
    assert!(rig.fetch(0, 0).iter().all(|r| matches!(r, Response::Fetched(f) if f.entries.is_empty())));
    rig.durable(Ok(()));
    assert_eq!(rig.replies, [Response::Stored(Stored { records: 1, repeat: false })]);
    assert_eq!(rig.read_all(), [b"one"]);
}

#[test]
fn a_waiting_fetch_is_answered_by_the_record_that_it_waits_for_or_at_its_deadline() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    assert_eq!(rig.fetch(0, 10), []);
    rig.produce(0, b"one");
    rig.give(Event::Flush);
    rig.durable(Ok(()));
    let fetched = rig.replies.iter().find_map(|r| if let Response::Fetched(f) = r { Some(values_of(f)) } else { None });
    assert_eq!(fetched, Some(vec![b"one".to_vec()]));
    assert_eq!(rig.fetch(1, 10), []);
    rig.now.monotonic_ns = rig.shard.next_deadline().unwrap().max(rig.now.monotonic_ns) + 10_000_000;
    rig.give(Event::Timer);
    assert!(matches!(&rig.replies[..], [Response::Fetched(f)] if f.entries.is_empty() && f.next == Offset(1)));
}

#[test]
fn what_went_through_rolls_and_checkpoints_reads_back_from_files_and_memory() {
    let mut rig = Rig::new(256 << 10);
    rig.warm();
    rig.store(600, 6_000);
    let counters = *rig.shard.counters();
    assert!(counters.rolls >= 10, "{counters:?}");
    assert!(counters.checkpoints >= 3, "{counters:?}");
    assert!(counters.segments_closed >= 10, "{counters:?}");
    let values = rig.read_all();
    assert_eq!(values.len(), 600);
    for (sequence, found) in values.iter().enumerate() {
        assert_eq!(found, &value(sequence as u64, 6_000));
    }
    assert!(rig.shard.counters().reads > 0);
}

#[test]
fn a_full_segment_without_a_successor_refuses_and_goes_on_when_it_comes() {
    let mut rig = Rig::new(256 << 10);
    rig.prepare = false;
    rig.warm();
    let mut sequence = 0;
    loop {
        rig.produce(sequence, &value(sequence, 10_000));
        rig.give(Event::Flush);
        rig.durable(Ok(()));
        match std::mem::take(&mut rig.replies).pop() {
            Some(Response::Stored(_)) => sequence += 1,
            Some(Response::Refused(refusal)) => {
                assert_eq!(refusal, Refusal::Opening { delay_ms: 1 });
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(sequence > 20);
    let open = rig.open(None);
    let after = rig.shard.ranges[0].replica.open_segment().unwrap();
    rig.give(Event::Message(ToReplica::Prepared { range: RANGE, after, open }));
    rig.produce(sequence, &value(sequence, 10_000));
    rig.give(Event::Flush);
    rig.durable(Ok(()));
    assert_eq!(rig.replies, [Response::Stored(Stored { records: 1, repeat: false })]);
}

#[test]
fn after_a_failed_group_nothing_is_acknowledged_and_reading_goes_on() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    rig.store(1, 100);
    rig.produce(1, b"lost");
    rig.give(Event::Flush);
    rig.durable(Err(Failed { errno: 5 }));
    assert_eq!(std::mem::take(&mut rig.replies), [Response::Refused(Refusal::WriteFailed)]);
    rig.produce(2, b"later");
    rig.give(Event::Flush);
    assert_eq!(std::mem::take(&mut rig.replies), [Response::Refused(Refusal::WriteFailed)]);
    assert_eq!(rig.read_all(), [value(0, 100)]);
}

#[test]
fn an_idle_journal_gets_a_marker_that_nobody_waits_for() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    rig.store(1, 100);
    let due = rig.shard.next_deadline().expect("the last group is unproved");
    rig.now.monotonic_ns = due;
    rig.give(Event::Timer);
    assert_eq!(rig.shard.counters().markers, 1);
    rig.produce(1, b"x");
    rig.give(Event::Flush);
    rig.durable(Ok(()));
    rig.durable(Ok(()));
    assert_eq!(rig.replies, [Response::Stored(Stored { records: 1, repeat: false })]);
}

#[test]
fn what_waits_fits_the_journal_however_small_its_batches_are() {
    let mut rig = Rig::new(64 << 20);
    rig.warm();
    let mut sequence = 0;
    for _ in 0..3 {
        let first = sequence;
        // The first group is under way all the while.
        let overloaded = loop {
            rig.produce(sequence, b"x");
            rig.give(Event::Flush);
            if let Some(refused) = rig.replies.pop() {
                break refused;
            }
            sequence += 1;
        };
        assert!(matches!(overloaded, Response::Refused(Refusal::Overloaded { .. })), "{overloaded:?}");
        for _ in 0..1_000 {
            rig.settle();
        }
        assert!(!rig.shard.is_busy(), "batches {first}..{sequence} found no room");
        let stored = Response::Stored(Stored { records: 1, repeat: false });
        let replies = std::mem::take(&mut rig.replies);
        assert!(replies.len() as u64 == sequence - first && replies.iter().all(|reply| *reply == stored));
    }
}

/// The ring asks for a checkpoint, of which the memory gets little back; what fills it meanwhile asks for the next one.
#[test]
fn a_checkpoint_that_is_due_when_another_ends_begins_though_every_batch_is_refused() {
    let mut rig = Rig::with(&EngineConfig {
        journal_file_bytes: 3 << 20,
        segment_bytes: 64 << 20,
        batch_bytes_max: 384 << 10,
        memory_bytes: 4 << 20,
        ..EngineConfig::default()
    });
    rig.warm();
    rig.holds_files = true;
    let mut sequence = 0;
    while rig.held.is_empty() {
        rig.produce(sequence, b"x");
        rig.give(Event::Flush);
        rig.settle();
        sequence += 1;
    }
    rig.replies.clear();
    let large = value(sequence, 380 << 10);
    while !matches!(rig.replies.last(), Some(Response::Refused(Refusal::Overloaded { .. }))) {
        rig.produce(sequence, &large);
        rig.give(Event::Flush);
        rig.settle();
        sequence += 1;
    }
    // The last group is proved: nothing is to be written any more.
    rig.now.monotonic_ns += 10_000_000;
    rig.settle();
    rig.settle();
    rig.holds_files = false;
    rig.release_files();
    let sequence = sequence - 1;
    for _ in 0..100 {
        rig.produce(sequence, &large);
        rig.give(Event::Flush);
        rig.settle();
    }
    assert!(rig.replies.iter().any(|reply| matches!(reply, Response::Stored(_))), "{:?}", rig.replies.last());
}

#[test]
fn a_stop_puts_all_that_is_only_in_the_journal_into_segments_at_once() {
    let mut rig = Rig::new(1 << 20);
    rig.warm();
    rig.store(20, 6_000);
    assert_eq!(rig.shard.counters().checkpoints, 0);
    rig.give(Event::Stopping);
    assert!(!rig.shard.is_busy());
    let counters = *rig.shard.counters();
    assert_eq!((counters.checkpoints, counters.unwritten_bytes), (1, 0));
    rig.give(Event::Stopping);
    assert_eq!(rig.shard.counters().checkpoints, 1, "there was nothing left to write");
    assert_eq!(rig.read_all().len(), 20);
}
