//! The checkpoint at work: what lies in memory and in the journal goes into segments and the catalog, and the journal's groups may
//! be overwritten.
//!
//! ```text
//!  cut: every segment's memory is closed at a block; no later entry joins a group with an earlier one (barrier)
//!   |  if a file is missing: the last group before the cut is durable
//!   |  make missing files -> write chunks -> sync files -> sync folders        (a)
//!   |  the last group before the cut is durable
//!   |  write the catalog's delta -> sync it -> sync its folder                 (b)
//!   v  release the journal up to the cut, and the memory                       (c)
//! ```
//! Crash before (b) is durable: recovery replays from the older mark, whose groups are all still there, and writes the same bytes
//! behind the older checkpoint. Crash after (b): from the new mark. Each step begins when all of the one before has been answered.
//!
//! A file is made only for a segment whose opening is durable: so whatever file there is, the journal or a catalog knows whose it is, and
//! none is left behind.
//!
//! Invariant: the catalog's delta speaks of nothing that is not synced, and of no entry behind the cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::api::port::{DataFile, Fill, Folder};
use crate::format::segment::{Hole, Seal};
use crate::journal::Mark;
use crate::segment::appender::{Cut, UnwrittenChunk};
use crate::segment::catalog;
use crate::segment::catalog::{CatalogFile, Contents, Extent, LiveMark, SegmentRecord, SegmentState};
use crate::shard::command::{Command, Commands, FileOperation};
use crate::shard::event::{Failed, FileResult, FileToken};
use crate::shard::obey::hole_of;
use crate::shard::range::TailSlot;
use crate::shard::shard::Shard;
use crate::shard::tail::Tail;
use crate::types::{Now, RangeId};

/// How files are made, written and synced while so many eighths of the ring, or of the memory for unwritten data, are taken: the device
/// is shared with the journal, whose latency counts, until room counts more. The syncs of a few hundred segments at once would keep
/// a group waiting for a tenth of a second.
const PACES: [Pace; 3] = [
    Pace { eighths_max: 5, operations_max: 1, interval_ns: 2_000_000 },
    Pace { eighths_max: 6, operations_max: 2, interval_ns: 500_000 },
    Pace { eighths_max: 8, operations_max: 8, interval_ns: 0 },
];

/// How fast segments are worked on.
#[derive(Clone, Copy, Debug)]
struct Pace {
    eighths_max: u64,
    /// Operations under way at once.
    operations_max: usize,
    /// Time between the beginnings of two.
    interval_ns: u64,
}

/// Where a checkpoint is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Step {
    #[default]
    Idle,
    /// A file is to be made, and the opening of its segment is not durable yet.
    Openings,
    Files,
    Chunks,
    Syncs,
    Folders,
    /// The last group before the cut is not durable yet.
    Groups,
    CatalogFile,
    CatalogWrite,
    CatalogSync,
    CatalogFolder,
    /// A snapshot is written besides, when one is due; then what it supersedes is removed.
    Snapshot(u8),
    Removals,
}

/// Whether the shard is about to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stopping {
    #[default]
    No,
    /// The last checkpoint is to begin.
    Wanted,
    /// It has begun, or there was nothing to do.
    Begun,
}

/// The one checkpoint of a shard.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    step: Step,
    under_way: BTreeSet<FileToken>,
    failed: bool,
    /// One is wanted though none is due, and in no way to be slow: nobody waits for the journal any more.
    stopping: Stopping,
    cuts: BTreeMap<TailSlot, Cut>,
    /// Tails of deleted ranges: all that waited of them lies before the cut.
    doomed: Vec<TailSlot>,
    /// Ranges that were deleted before the cut.
    pub(super) deleted: BTreeSet<RangeId>,
    chunks: VecDeque<FileOperation>,
    /// Operations of this step that wait for their turn.
    paced: VecDeque<FileOperation>,
    /// When the next one may begin, on the monotonic clock.
    next_paced_ns: u64,
    folders: BTreeSet<Folder>,
    /// Behind the last group before the cut; known when that has been handed out.
    mark: Option<Mark>,
    file: Option<CatalogFile>,
    snapshot: Option<CatalogFile>,
    removals: Vec<DataFile>,
    /// Bytes that were unwritten at the cut.
    bytes: u64,
}

impl Checkpoint {
    /// Whether one is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.step != Step::Idle && !self.failed
    }

    /// Whether it asks for nothing now and waits for an answer.
    fn waits(&self) -> bool {
        !self.under_way.is_empty() || !self.paced.is_empty()
    }
}

impl Shard {
    /// Begins a checkpoint if one is due.
    pub(super) fn begin_checkpoint(&mut self, now: Now, commands: &mut Commands) {
        let due = self.wants_checkpoint() || self.checkpoints.is_due(&self.groups.ring, self.counters.unwritten_bytes);
        if self.checkpoint.step != Step::Idle || self.checkpoint.failed || self.groups.failed || !due {
            return;
        }
        if self.checkpoint.stopping == Stopping::Wanted {
            self.checkpoint.stopping = Stopping::Begun;
        }
        self.counters.last_checkpoint_begin_wall_ms = now.wall_ms;
        self.checkpoint.bytes = self.counters.unwritten_bytes;
        self.checkpoint.deleted = self.deletions.cut();
        self.cut_tails();
        self.groups.cut();
        self.checkpoint.mark = self.groups.pass_cut();
        self.enter(now, Step::Openings, commands);
        self.advance_checkpoint(now, commands);
    }

    /// Whether somebody waits for one that begins from now on, however little there is to write.
    fn wants_checkpoint(&self) -> bool {
        self.checkpoint.stopping == Stopping::Wanted || self.deletions.want_checkpoint()
    }

    /// The last checkpoint of this life, if there is anything to write: behind the one that is under way, if one is.
    pub(super) fn checkpoint_to_stop(&mut self, now: Now, commands: &mut Commands) {
        let anything = self.counters.unwritten_bytes > 0 || self.groups.ring.used_bytes() > 0;
        self.checkpoint.stopping = if anything { Stopping::Wanted } else { Stopping::Begun };
        self.operate_paced(now, commands);
        self.advance_checkpoint(now, commands);
    }

    /// Closes every touched segment's memory, and writes down what the catalog is to say of it.
    fn cut_tails(&mut self) {
        for (at, tail) in self.tails.iter_mut().enumerate() {
            let Some(tail) = tail else { continue };
            if tail.doomed {
                self.checkpoint.doomed.push(TailSlot(at));
                continue;
            }
            let cut = tail.appender.cut();
            if cut.position == tail.appender.checkpointed_position() && tail.noted_closed == tail.closed.is_some() {
                continue;
            }
            let file = DataFile::Segment { segment: tail.segment, part: 0 };
            while let Some(UnwrittenChunk { position, buffer, length }) = tail.appender.next_unwritten(cut.position) {
                self.checkpoint.chunks.push_back(FileOperation::Write { file, position, buffer, length });
            }
            self.scratch.clear();
            let table = match &tail.final_table {
                Some(table) => table,
                None => {
                    self.ranges[tail.slot.0].replica.producers().encode(&mut self.scratch);
                    &self.scratch
                }
            };
            self.catalog.put_segment(record_of(tail, cut, table));
            tail.noted_closed = tail.closed.is_some();
            self.checkpoint.cuts.insert(TailSlot(at), cut);
        }
    }

    /// The group that reaches the cut has been handed out.
    pub(super) fn note_cut(&mut self) {
        if self.checkpoint.mark.is_none() && self.checkpoint.step != Step::Idle {
            self.checkpoint.mark = self.groups.pass_cut();
        }
    }

    /// Goes on while nothing is waited for.
    pub(super) fn advance_checkpoint(&mut self, now: Now, commands: &mut Commands) {
        if self.checkpoint.step == Step::Idle {
            return self.begin_checkpoint(now, commands);
        }
        while !self.checkpoint.waits() && !self.checkpoint.failed {
            if self.checkpoint.step == Step::Idle && self.wants_checkpoint() {
                return self.begin_checkpoint(now, commands);
            }
            let next = match self.checkpoint.step {
                // Another may have become due meanwhile, and if all that comes is refused nothing else begins it.
                Step::Idle => return self.begin_checkpoint(now, commands),
                Step::Files => Step::Chunks,
                Step::Chunks => Step::Syncs,
                Step::Syncs => Step::Folders,
                Step::Folders => Step::Groups,
                Step::Groups => {
                    if !self.cut_is_durable() {
                        return;
                    }
                    Step::CatalogFile
                }
                Step::CatalogFile => Step::CatalogWrite,
                Step::CatalogWrite => Step::CatalogSync,
                Step::CatalogSync => Step::CatalogFolder,
                Step::CatalogFolder => {
                    self.release(now);
                    self.note_deletions(commands);
                    Step::Snapshot(0)
                }
                Step::Snapshot(step) if step < 3 && self.checkpoint.snapshot.is_some() => Step::Snapshot(step + 1),
                Step::Snapshot(_) => Step::Removals,
                Step::Removals => Step::Idle,
                Step::Openings => {
                    if self.makes_files() && !self.cut_is_durable() {
                        return;
                    }
                    Step::Files
                }
            };
            self.enter(now, next, commands);
        }
    }

    /// Whether the last group before the cut is durable.
    fn cut_is_durable(&self) -> bool {
        self.checkpoint.mark.is_some_and(|mark| self.groups.durable.sequence >= mark.sequence)
    }

    fn makes_files(&self) -> bool {
        let mut tails = self.checkpoint.cuts.keys().filter_map(|slot| self.tails[slot.0].as_ref());
        tails.any(|tail| !tail.has_file)
    }

    /// Gives the operations of a step.
    fn enter(&mut self, now: Now, step: Step, commands: &mut Commands) {
        self.checkpoint.step = step;
        match step {
            Step::Idle | Step::Openings | Step::Groups => {}
            Step::Files => {
                self.make_files();
                self.operate_paced(now, commands);
            }
            Step::Chunks => {
                std::mem::swap(&mut self.checkpoint.paced, &mut self.checkpoint.chunks);
                self.operate_paced(now, commands);
            }
            Step::Syncs => {
                for slot in self.checkpoint.cuts.keys().copied().collect::<Vec<_>>() {
                    let file = DataFile::Segment { segment: self.tail(slot).segment, part: 0 };
                    self.checkpoint.paced.push_back(FileOperation::Sync { file });
                }
                self.operate_paced(now, commands);
            }
            Step::Folders => {
                let folders = std::mem::take(&mut self.checkpoint.folders);
                self.checkpoint.paced.extend(folders.into_iter().map(|folder| FileOperation::SyncFolder { folder }));
                self.operate_paced(now, commands);
            }
            Step::CatalogFile => {
                let mark = self.checkpoint.mark.expect("the cut has passed");
                let Mark { sequence, position, previous } = mark;
                self.catalog.set_live(LiveMark { sequence, position: position.0, previous });
                self.checkpoint.file = Some(self.catalog.delta());
                self.catalog_step(0, false, commands);
            }
            Step::CatalogWrite => self.catalog_step(1, false, commands),
            Step::CatalogSync => self.catalog_step(2, false, commands),
            Step::CatalogFolder => self.catalog_step(3, false, commands),
            Step::Snapshot(0) => {
                if self.catalog.snapshot_is_due() && self.catalog.is_clean() {
                    self.checkpoint.snapshot = Some(self.catalog.snapshot());
                    self.catalog_step(0, true, commands);
                }
            }
            Step::Snapshot(step) => self.catalog_step(step, true, commands),
            Step::Removals => {
                if let Some(snapshot) = self.checkpoint.snapshot.take() {
                    self.checkpoint.removals = self.catalog.snapshot_durable(snapshot.file);
                }
                for file in std::mem::take(&mut self.checkpoint.removals) {
                    self.operate(FileOperation::Remove { file }, commands);
                }
            }
        }
    }

    fn operate(&mut self, operation: FileOperation, commands: &mut Commands) {
        let token = self.token();
        self.checkpoint.under_way.insert(token);
        commands.push(Command::File { token, operation });
    }

    fn make_files(&mut self) {
        for slot in self.checkpoint.cuts.keys().copied().collect::<Vec<_>>() {
            let tail = self.tail(slot);
            if tail.has_file {
                continue;
            }
            tail.has_file = true;
            let file = DataFile::Segment { segment: tail.segment, part: 0 };
            self.checkpoint.folders.insert(file.folder());
            self.checkpoint.paced.push_back(FileOperation::Create { file, bytes: 0, fill: Fill::Allocated });
        }
    }

    /// The pace that the room left asks for.
    fn pace(&self) -> Pace {
        let ring = &self.groups.ring;
        let of_ring = (ring.used_bytes() * 8).div_ceil(ring.geometry().bytes());
        let of_memory = (self.counters.unwritten_bytes * 8).div_ceil(self.config.memory_bytes / 2);
        let eighths = of_ring.max(of_memory);
        let [slow, quick, full] = PACES;
        if self.checkpoint.stopping != Stopping::No {
            return full;
        }
        [slow, quick].into_iter().find(|pace| eighths <= pace.eighths_max).unwrap_or(full)
    }

    /// When the next operation is due, if one waits for its time alone.
    pub(super) fn next_paced_ns(&self) -> Option<u64> {
        let Checkpoint { under_way, paced, next_paced_ns, failed, .. } = &self.checkpoint;
        let waits = !paced.is_empty() && !failed && under_way.len() < self.pace().operations_max;
        waits.then_some(*next_paced_ns)
    }

    /// Begins the operations whose time has come.
    pub(super) fn operate_paced(&mut self, now: Now, commands: &mut Commands) {
        let pace = self.pace();
        while !self.checkpoint.failed
            && self.checkpoint.under_way.len() < pace.operations_max
            && (pace.interval_ns == 0 || self.checkpoint.next_paced_ns <= now.monotonic_ns)
            && let Some(operation) = self.checkpoint.paced.pop_front()
        {
            self.checkpoint.next_paced_ns = now.monotonic_ns + pace.interval_ns;
            self.operate(operation, commands);
        }
    }

    /// A catalog file is made, written whole, synced, and its name synced.
    fn catalog_step(&mut self, step: u8, snapshot: bool, commands: &mut Commands) {
        let which = if snapshot { &self.checkpoint.snapshot } else { &self.checkpoint.file };
        let CatalogFile { file, buffer } = which.clone().expect("the file has been composed");
        let operation = match step {
            0 => FileOperation::Create { file, bytes: 0, fill: Fill::Allocated },
            1 => FileOperation::Write { file, position: 0, length: buffer.len(), buffer },
            2 => FileOperation::Sync { file },
            _ => FileOperation::SyncFolder { folder: file.folder() },
        };
        self.operate(operation, commands);
    }

    /// One operation is answered.
    pub(super) fn checkpoint_file_done(
        &mut self,
        now: Now,
        token: FileToken,
        outcome: Result<FileResult, Failed>,
        commands: &mut Commands,
    ) {
        assert!(self.checkpoint.under_way.remove(&token), "an answer to an operation of the checkpoint");
        // What could not be removed is removed by a later start; all else must not fail.
        if outcome.is_err() && self.checkpoint.step != Step::Removals {
            self.checkpoint.failed = true;
            self.stop_taking(now, commands);
            return;
        }
        self.operate_paced(now, commands);
        self.advance_checkpoint(now, commands);
    }

    /// The catalog is durable: the journal before the cut and the memory below it are free.
    fn release(&mut self, now: Now) {
        let mark = self.checkpoint.mark.take().expect("a checkpoint has a mark");
        self.groups.ring.release(mark);
        for (slot, cut) in std::mem::take(&mut self.checkpoint.cuts) {
            let tail = self.tails[slot.0].as_mut().expect("a tail in use");
            tail.appender.checkpointed(&mut self.pool, cut.position);
            let done = tail.noted_closed && tail.appender.position() == cut.position;
            if done && let Some(tail) = self.tails[slot.0].take() {
                let range = &mut self.ranges[tail.slot.0];
                if let Some(at) = range.piece_of(tail.segment) {
                    range.chain[at].tail = None;
                }
                tail.appender.release(&mut self.pool);
            }
        }
        for slot in std::mem::take(&mut self.checkpoint.doomed) {
            if let Some(tail) = self.tails[slot.0].take() {
                tail.appender.release(&mut self.pool);
            }
        }
        self.checkpoint.file = None;
        self.counters.unwritten_bytes -= std::mem::take(&mut self.checkpoint.bytes);
        self.counters.checkpoints += 1;
        self.counters.last_checkpoint_end_wall_ms = now.wall_ms;
    }
}

/// What the catalog is to say of a segment that this life writes.
fn record_of(tail: &Tail, cut: Cut, table: &[u8]) -> SegmentRecord {
    let index = tail.appender.index().entries_below(cut.position).to_vec();
    let contents = catalog::Tail { index, table: table.to_vec() };
    let state = match (&tail.closed, &tail.rolled) {
        (Some(closed), rolled) => {
            let sealed = &closed.sealed;
            let holes: Vec<Hole> = sealed.holes.iter().map(hole_of).collect();
            let seal = Seal { end: sealed.end, epoch: sealed.epoch, digest: sealed.digest };
            // The table of a range's newest segment stays at hand: the next segment begins with it.
            let contents = if rolled.is_some() { Contents::Footer(closed.footer) } else { Contents::Catalog(contents) };
            SegmentState::Sealed { seal, holes, contents }
        }
        (None, Some(mark)) => SegmentState::Rolled { mark: *mark, tail: contents },
        (None, None) => SegmentState::Open(contents),
    };
    let extents = vec![Extent { part: 0, start: 0, length: cut.position }];
    SegmentRecord { header: tail.header, extents, checkpoint: cut, state }
}
