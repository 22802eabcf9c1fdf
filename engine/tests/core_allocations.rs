//! A steady-state step of the core allocates nothing: counted by the allocator itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_engine::api::config::EngineConfig;
use sealog_engine::api::request::{ReplyTo, ShardRequest};
use sealog_engine::api::response::Response;
use sealog_engine::format::batch::{BatchBuilder, Stamp};
use sealog_engine::format::record::RecordKey;
use sealog_engine::journal::{Geometry, Ring};
use sealog_engine::replica::message::{RangeView, SegmentOpen, ToController, ToReplica};
use sealog_engine::segment::catalog::{Catalog, ChainId};
use sealog_engine::shard::Shard;
use sealog_engine::shard::command::{Command, Commands, FileOperation};
use sealog_engine::shard::event::{Event, FileResult};
use sealog_engine::shard::open::RecoveredShard;
use sealog_engine::types::{
    Epoch, Generation, KeySpan, NodeId, Now, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, Run, SegmentId,
    Sequence, ShardId, TopicId,
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RANGES: usize = 4;

struct Rig {
    shard: Shard,
    now: Now,
    commands: Commands,
    /// Events that answer commands, in order; made outside the counted steps.
    answers: VecDeque<Event<'static>>,
    stored: u64,
    /// Allocations within steps that were counted.
    counted: u64,
}

impl Rig {
    fn new() -> Self {
        let config = EngineConfig {
            journal_file_bytes: 16 << 20,
            segment_bytes: 1 << 30,
            memory_bytes: 32 << 20,
            ..EngineConfig::default()
        };
        config.check().expect("it can work");
        let generation = Generation(7);
        let mut catalog = Catalog::new(ChainId { shard: ShardId(0), shards: 1, generation }, 1);
        catalog.snapshot();
        let ring = Ring::new(Geometry::new(config.journal_files, config.journal_file_bytes));
        let shard = Shard::open(RecoveredShard { shard: ShardId(0), generation, ring, catalog }, &config);
        Self {
            shard,
            now: Now { monotonic_ns: 1, wall_ms: 1 },
            commands: Vec::with_capacity(1024),
            answers: VecDeque::with_capacity(1024),
            stored: 0,
            counted: 0,
        }
    }

    fn step(&mut self, event: Event<'_>, count: bool) {
        self.now.monotonic_ns += 1_000;
        self.now.wall_ms += 1;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        self.shard.step(self.now, event, &mut self.commands);
        if count {
            self.counted += ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
        for command in self.commands.drain(..) {
            match command {
                Command::Reply { response: Response::Stored(_), .. } => self.stored += 1,
                Command::Reply { .. } => {}
                Command::WriteGroup { buffer, .. } => {
                    self.answers.push_back(Event::GroupWritten { buffer, outcome: Ok(()) });
                }
                Command::File { token, operation } => {
                    assert!(!matches!(operation, FileOperation::Read { .. }), "nothing is read");
                    self.answers.push_back(Event::FileDone { token, outcome: Ok(FileResult::Done) });
                }
                Command::Tell(ToController::NeedOpen { range }) => {
                    self.answers.push_back(Event::Message(ToReplica::Open { range, open: open(range) }));
                }
                Command::Tell(_) => {}
            }
        }
    }

    /// Answers everything; journal groups are counted if `count`, the checkpoint's file operations are not.
    fn settle(&mut self, count: bool) {
        while let Some(event) = self.answers.pop_front() {
            let count = count && matches!(event, Event::GroupWritten { .. });
            self.step(event, count);
        }
    }
}

fn open(range: RangeId) -> SegmentOpen {
    SegmentOpen {
        segment: SegmentId(range.0),
        base: Some(Offset(0)),
        epoch: Epoch(1),
        seed: range.0,
        predecessor: None,
        primary: NodeId(1),
        life: ProcessLife(1),
        replicas: 1,
        quorum: 1,
        batch_bytes_max: 1 << 20,
        retention_ms: 0,
    }
}

fn view(range: RangeId) -> RangeView {
    RangeView {
        topic: TopicId(1),
        range,
        span: KeySpan::ALL,
        epoch: Epoch(1),
        trimmed: Offset(0),
        end: Offset(0),
        sealed: Vec::new(),
        open: Vec::new(),
        fences: Vec::new(),
        successors: None,
    }
}

#[test]
fn a_steady_state_produce_allocates_nothing_from_request_to_answer() {
    const WARM: u64 = 60_000;
    const COUNTED: u64 = 20_000;
    let mut rig = Rig::new();
    let mut builder = BatchBuilder::new(1 << 20);
    for range in (1..=RANGES as u64).map(RangeId) {
        rig.step(Event::Message(ToReplica::Adopt(view(range))), false);
    }
    let mut sequences = [0u64; RANGES];
    let mut refused = 0;
    let value = [7u8; 1024];
    let mut quiet = 0;
    for n in 0..WARM + COUNTED {
        let which = usize::try_from(n).expect("small") % RANGES;
        builder.clear();
        builder.push(RecordKey::Key(b"key"), Some(&value), &[], 5).expect("it fits");
        let sequence = Sequence(sequences[which]);
        let stamp = Stamp { producer: ProducerId(3), epoch: ProducerEpoch(0), run: Run(0), sequence, last: false };
        let batch = builder.finish(stamp);
        let to = ReplyTo { shard: ShardId(0), connection: 1, correlation: n };
        let range = RangeId(which as u64 + 1);
        let request = ShardRequest::Produce { range, epoch: Epoch(1), batch };
        let before = rig.shard.counters().produce_refused;
        let begun = rig.shard.counters().last_checkpoint_begin_wall_ms;
        let counted = rig.counted;
        // 64 produces arrive together, and the group before is answered.
        let count = n >= WARM;
        rig.step(Event::Request { to, deadline_ns: u64::MAX, request }, count);
        if n % 64 == 63 {
            rig.step(Event::Flush, count);
            rig.settle(count);
            // Time for the checkpoint's writes, which are paced.
            rig.now.monotonic_ns += 100_000;
            if rig.shard.next_deadline().is_some_and(|due| due <= rig.now.monotonic_ns) {
                rig.step(Event::Timer, false);
                rig.settle(false);
            }
        }
        if rig.shard.counters().produce_refused == before {
            sequences[which] += 1;
        } else {
            refused += 1;
            rig.settle(false);
        }
        // A step that begins a checkpoint writes down what the catalog is to say: no steady state, and once in many thousands.
        if rig.shard.counters().last_checkpoint_begin_wall_ms != begun {
            rig.counted = counted;
        }
        quiet += u64::from(count && rig.counted == counted);
    }
    assert!(refused <= RANGES as u64, "only the first of each range finds no segment: {refused}");
    assert!(rig.shard.counters().checkpoints > 2, "{:?}", rig.shard.counters());
    assert!(rig.stored > WARM, "{}", rig.stored);
    println!("{} allocations in {COUNTED} produces, {quiet} of them without any", rig.counted);
    assert_eq!(rig.counted, 0, "{:?}", rig.shard.counters());
}
