//! A data directory in memory that can lose power, and a performer for the controller.

use std::collections::BTreeMap;
use std::ops::Range;

use super::command::{Command, Commands};
use super::controller::Controller;
use super::event::Event;
use super::open::{MetadataStart, RecoverMetadataError, RecoveredMetadata, recover_metadata};
use crate::api::config::EngineConfig;
use crate::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreAction, StoreError, StoreTarget};
use crate::api::request::{ControlRequest, ReplyTo};
use crate::api::response::{RangeLineage, Response, Route};
use crate::format::journal::{GroupKind, JournalSeed, METADATA_JOURNAL, read_front};
use crate::metadata::Change;
use crate::replica::message::{Fence, SealedSegment, SegmentOpen, Span, ToController, ToReplica};
use crate::shard::command::FileOperation;
use crate::shard::event::FileResult;
use crate::types::{AlignedBuffer, ClusterId, Generation, Generator, NodeId, Now, ProcessLife, RangeId, ShardId};

pub(super) const NODE: NodeId = NodeId(1);
pub(super) const FILE_BYTES: u64 = 128 << 10;
const SECTOR: usize = 512;

#[derive(Clone, Debug)]
struct Inode {
    current: Vec<u8>,
    synced: Vec<u8>,
}

/// Files whose unsynced bytes and names may be lost.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryStore {
    inodes: Vec<Inode>,
    names: BTreeMap<DataFile, usize>,
    synced_names: BTreeMap<DataFile, usize>,
    /// Calls that succeed before the power goes.
    pub(super) calls_left: Option<usize>,
    pub(super) calls: usize,
    pub(super) unreadable: Vec<(DataFile, Range<usize>)>,
}

impl MemoryStore {
    fn call(&mut self, action: StoreAction, target: StoreTarget) -> Result<(), StoreError> {
        self.calls += 1;
        match self.calls_left.as_mut() {
            Some(0) => Err(StoreError { action, file: target, position: 0, errno: 5 }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn inode(&mut self, file: DataFile) -> &mut Inode {
        let index = self.names[&file];
        &mut self.inodes[index]
    }

    /// Power fails: of what was not synced, any part survives; the length of a file that never was may not.
    pub(super) fn lose_power(&mut self, random: &mut Generator) {
        let keep_names = random.draw().is_multiple_of(2);
        if !keep_names {
            self.names = self.synced_names.clone();
        }
        self.synced_names = self.names.clone();
        let mode = random.draw() % 3;
        for inode in &mut self.inodes {
            if inode.synced.len() < inode.current.len() {
                if random.draw().is_multiple_of(2) {
                    inode.current.truncate(inode.synced.len());
                }
                inode.synced.resize(inode.current.len(), 0);
            }
            let (current, synced) = (&mut inode.current, &inode.synced);
            for (now, then) in current.chunks_mut(SECTOR).zip(synced.chunks(SECTOR)) {
                if mode == 0 || (mode == 1 && random.draw().is_multiple_of(2)) {
                    now.copy_from_slice(then);
                }
            }
            inode.synced = inode.current.clone();
        }
        self.calls_left = None;
    }

    pub(super) fn bytes_mut(&mut self, file: DataFile) -> &mut Vec<u8> {
        &mut self.inode(file).current
    }

    pub(super) fn names(&self) -> Vec<DataFile> {
        self.names.keys().copied().collect()
    }

    /// All that can be read of it.
    pub(super) fn contents(&self) -> BTreeMap<DataFile, Vec<u8>> {
        self.names.iter().map(|(name, index)| (*name, self.inodes[*index].current.clone())).collect()
    }

    fn perform(&mut self, operation: FileOperation) -> Result<(), StoreError> {
        match operation {
            FileOperation::Create { file, bytes, fill } => self.create(file, bytes, fill),
            FileOperation::Write { file, position, buffer, length } => {
                assert_eq!(buffer.len(), length, "whole buffers are written here");
                self.write(file, position, &buffer)
            }
            FileOperation::Sync { file } => self.sync(file),
            FileOperation::SyncFolder { folder } => self.sync_folder(folder),
            FileOperation::Remove { file } => self.remove(file),
            FileOperation::Read { .. } => panic!("the controller reads nothing"),
        }
    }
}

impl Store for MemoryStore {
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError> {
        self.call(StoreAction::List, StoreTarget::Folder(folder))?;
        Ok(self.names.keys().copied().filter(|file| file.folder() == folder).collect())
    }

    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError> {
        self.call(StoreAction::Read, StoreTarget::File(file))?;
        Ok(self.names.get(&file).map(|index| self.inodes[*index].current.len() as u64))
    }

    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        self.call(StoreAction::Read, StoreTarget::File(file))?;
        let unreadable: Vec<Range<usize>> =
            self.unreadable.iter().filter(|(of, _)| *of == file).map(|(_, span)| span.clone()).collect();
        let content = &self.inode(file).current[usize::try_from(position).unwrap()..];
        let length = length.min(content.len());
        let mut bytes = AlignedBuffer::zeroed(length);
        bytes[..length].copy_from_slice(&content[..length]);
        for span in &unreadable {
            bytes[span.clone()].fill(0);
        }
        Ok(ReadBytes { bytes, length, unreadable })
    }

    fn create(&mut self, file: DataFile, bytes: u64, _: Fill) -> Result<(), StoreError> {
        self.call(StoreAction::Create, StoreTarget::File(file))?;
        let current = vec![0; usize::try_from(bytes).unwrap()];
        self.names.insert(file, self.inodes.len());
        self.inodes.push(Inode { current, synced: Vec::new() });
        Ok(())
    }

    fn write(&mut self, file: DataFile, position: u64, blocks: &AlignedBuffer) -> Result<(), StoreError> {
        let outcome = self.call(StoreAction::Write, StoreTarget::File(file));
        let position = usize::try_from(position).unwrap();
        // A write that fails may have been done in part: power is lost right behind it.
        self.inode(file).current[position..position + blocks.len()].copy_from_slice(blocks);
        outcome
    }

    fn sync(&mut self, file: DataFile) -> Result<(), StoreError> {
        self.call(StoreAction::Sync, StoreTarget::File(file))?;
        let inode = self.inode(file);
        inode.synced = inode.current.clone();
        Ok(())
    }

    fn sync_folder(&mut self, folder: Folder) -> Result<(), StoreError> {
        self.call(StoreAction::Sync, StoreTarget::Folder(folder))?;
        self.synced_names = self.names.clone();
        Ok(())
    }

    fn remove(&mut self, file: DataFile) -> Result<(), StoreError> {
        self.call(StoreAction::Remove, StoreTarget::File(file))?;
        self.names.remove(&file);
        Ok(())
    }
}

/// A node's controller, its disk, and what it said.
#[derive(Debug)]
pub(super) struct World {
    pub(super) store: MemoryStore,
    pub(super) controller: Controller,
    pub(super) life: u64,
    pub(super) now: Now,
    shards: u16,
    /// Under way.
    queue: Vec<Command>,
    /// What was done since the last look, in order.
    pub(super) lines: Vec<String>,
    /// Operations that succeed before every later one fails.
    pub(super) writes_left: Option<usize>,
    /// Operations on snapshots fail.
    pub(super) fail_files: bool,
}

pub(super) fn start(life: u64, founding: bool) -> MetadataStart {
    MetadataStart {
        founding,
        running: (!founding).then_some(Generation(1000 + life - 1)),
        generation: Generation(1000 + life),
        node: NODE,
        life: ProcessLife(life),
        file_bytes: FILE_BYTES,
    }
}

fn controller(recovered: RecoveredMetadata, life: u64, shards: u16) -> Controller {
    let config = EngineConfig { shards, metadata_file_bytes: FILE_BYTES, ..EngineConfig::default() };
    Controller::open(recovered, config, (NODE, ProcessLife(life), ClusterId(7)), life)
}

pub(super) fn client(correlation: u64) -> ReplyTo {
    ReplyTo { shard: ShardId(0), connection: 1, correlation }
}

impl World {
    /// A cluster that has just been founded: its node has started, all shards are ready.
    pub(super) fn founded(shards: u16) -> Self {
        let mut store = MemoryStore::default();
        let recovered = recover_metadata(&mut store, &start(1, true)).expect("a fresh directory");
        let mut world = Self::of(store, controller(recovered, 1, shards), 1, shards);
        world.ready();
        world
    }

    fn of(store: MemoryStore, controller: Controller, life: u64, shards: u16) -> Self {
        let now = Now { monotonic_ns: 1, wall_ms: 0 };
        let (queue, lines, writes_left, fail_files) = (Vec::new(), Vec::new(), None, false);
        Self { store, controller, life, now, shards, queue, lines, writes_left, fail_files }
    }

    /// The process ends here and starts again; what was under way is lost.
    pub(super) fn restart(self) -> Result<Self, RecoverMetadataError> {
        let Self { mut store, life, shards, .. } = self;
        let recovered = recover_metadata(&mut store, &start(life + 1, false))?;
        Ok(Self::of(store, controller(recovered, life + 1, shards), life + 1, shards))
    }

    pub(super) fn ready(&mut self) {
        for shard in (0..self.shards).map(ShardId) {
            self.say(ToController::Ready { shard });
        }
        self.settle();
    }

    pub(super) fn step(&mut self, event: Event) {
        let mut commands: Commands = Vec::new();
        self.controller.step(self.now, event, &mut commands);
        for command in commands {
            match command {
                Command::Reply { to, response } => {
                    self.lines.push(format!("reply {}: {}", to.correlation, show_response(&response)));
                }
                Command::Tell { shard, message } => {
                    self.lines.push(format!("tell {shard}: {}", show_message(&message)));
                }
                Command::WriteGroup { .. } | Command::File { .. } => self.queue.push(command),
            }
        }
    }

    pub(super) fn say(&mut self, message: ToController) {
        self.step(Event::Message(message));
    }

    pub(super) fn ask(&mut self, correlation: u64, request: ControlRequest) {
        let deadline_ns = self.now.monotonic_ns + 1_000_000_000;
        self.step(Event::Request { to: client(correlation), deadline_ns, request });
    }

    pub(super) fn create_topic(&mut self, name: &str, ranges: u32) {
        self.ask(1, ControlRequest::CreateTopic { name: name.to_owned(), ranges, auto_split: None });
        self.settle();
    }

    /// Performs the oldest operation under way; false if there is none.
    pub(super) fn perform_one(&mut self) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let fails = self.writes_left.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        let failed = Err(crate::shard::event::Failed { errno: 5 });
        match self.queue.remove(0) {
            Command::WriteGroup { file, position, buffer, length } => {
                let seed = JournalSeed::new(Generation(1000 + self.life), METADATA_JOURNAL);
                self.lines.push(show_group(&buffer[..length], seed));
                let file = DataFile::MetadataJournal { file };
                let mut blocks = AlignedBuffer::zeroed(length);
                blocks.copy_from_slice(&buffer[..length]);
                self.store.write(file, position, &blocks).expect("the store is sound");
                if !fails {
                    self.store.sync(file).expect("the store is sound");
                }
                self.step(Event::GroupWritten { buffer, outcome: if fails { failed } else { Ok(()) } });
            }
            Command::File { token, operation } => {
                let outcome = if self.fail_files {
                    Err(crate::shard::event::Failed { errno: 5 })
                } else {
                    self.store.perform(operation).expect("the store is sound");
                    Ok(FileResult::Done)
                };
                self.step(Event::FileDone { token, outcome });
            }
            Command::Reply { .. } | Command::Tell { .. } => unreachable!("these are not queued"),
        }
        true
    }

    /// The power goes while the oldest operation is under way: it was given to the device and not made durable.
    pub(super) fn lose_power(&mut self, random: &mut Generator) {
        if !self.queue.is_empty() && random.draw().is_multiple_of(2) {
            match self.queue.remove(0) {
                Command::WriteGroup { file, position, buffer, length } => {
                    let mut blocks = AlignedBuffer::zeroed(length);
                    blocks.copy_from_slice(&buffer[..length]);
                    let file = DataFile::MetadataJournal { file };
                    self.store.write(file, position, &blocks).expect("the store is sound");
                }
                Command::File { operation, .. } => self.store.perform(operation).expect("the store is sound"),
                Command::Reply { .. } | Command::Tell { .. } => unreachable!("these are not queued"),
            }
        }
        self.store.lose_power(random);
    }

    pub(super) fn settle(&mut self) {
        while self.perform_one() {}
    }

    /// What was done since the last look.
    pub(super) fn look(&mut self) -> String {
        std::mem::take(&mut self.lines).join("\n")
    }

    /// Compares what was done since the last look, line by line; indentation does not count.
    pub(super) fn expect(&mut self, expected: &str) {
        self.settle();
        let found = self.look();
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "\n{found}\n");
    }
}

fn show_group(bytes: &[u8], seed: JournalSeed) -> String {
    let front = read_front(bytes, seed).expect("a group of this generation");
    assert_eq!(front.header.kind, GroupKind::Normal);
    if front.directory.is_empty() {
        return "log: proof".to_owned();
    }
    let body = &bytes[64 + 40 * front.directory.len()..];
    let changes = front.directory.iter().map(|entry| {
        let body = &body[entry.body_offset() as usize..][..entry.bytes() as usize];
        show_change(&Change::decode(body).expect("a change"))
    });
    format!("log: {}", changes.collect::<Vec<_>>().join("; "))
}

fn show_change(change: &Change) -> String {
    match change {
        Change::NodeStarted { node, life, shards } => format!("{node} started as {life} with {shards}"),
        Change::CreateTopic { name, ranges, .. } => format!("create {name} of {ranges}"),
        Change::BeginSeal { range, segment, epoch, reason } => {
            format!("begin to seal {range} {segment} in {epoch} ({reason:?})")
        }
        Change::Sealed { range, sealed, goes_on, open } => {
            let rest = if *goes_on { ", goes on" } else { "" };
            let open = open.map(|open| format!(", open {}", show_open(&open))).unwrap_or_default();
            let holes: String = sealed.holes.iter().map(|hole| format!(" hole [{}, {})", hole.from, hole.to)).collect();
            let (segment, base, end, epoch) = (sealed.segment, sealed.base, sealed.end, sealed.epoch);
            format!("seal {range} {segment} [{base}, {end}){holes} in {epoch}{rest}{open}")
        }
        Change::Open { range, open } => format!("open {range} {}", show_open(open)),
        Change::Prepare { range, after, open } => format!("prepare {range} {} after {after}", show_open(open)),
        Change::Rolled { range, sealed, successor, .. } => {
            let (segment, base, end) = (sealed.segment, sealed.base, sealed.end);
            format!("roll {range} {segment} [{base}, {end}) into {successor}")
        }
        Change::ProducerEpoch { producer, epoch } => format!("raise {producer} to {}", epoch.0),
        Change::ProducerBlock { node, first, count } => format!("give {node} {count} from {first}"),
        Change::RetentionTick { ms } => format!("tick {ms}"),
        Change::DeleteTopic { topic } => format!("delete {topic}"),
        Change::RangeGone { range } => format!("{range} is gone"),
        Change::Holes { range, segment, holes } => format!("holes of {range} {segment}: {}", show_spans(holes)),
        Change::Split { range, sealed, fences, opens } => {
            let (opens, fences): (Vec<String>, _) = (opens.iter().map(show_open).collect(), show_fences(fences));
            format!("split {range} {}{fences}, open {}", show_end(sealed), opens.join(" and "))
        }
        Change::Merge { parents: [(low, lower), (high, upper)], fences, open } => {
            let open = open.as_ref().map(show_open).unwrap_or_default();
            let (lower, upper, fences) = (show_end(lower), show_end(upper), show_fences(fences));
            format!("merge {low} {lower} and {high} {upper}{fences}, open {open}")
        }
    }
}

fn show_end(sealed: &SealedSegment) -> String {
    format!("{} [{}, {}) in {}", sealed.segment, sealed.base, sealed.end, sealed.epoch)
}

fn show_spans(spans: &[Span]) -> String {
    let spans: Vec<String> = spans.iter().map(|span| format!("[{}, {})", span.from, span.to)).collect();
    spans.join(" ")
}

fn show_fences(fences: &[Fence]) -> String {
    fences.iter().map(|fence| format!(" {} from {}", fence.producer, fence.epoch.0)).collect()
}

fn show_open(open: &SegmentOpen) -> String {
    let base = open.base.map_or_else(|| "later".to_owned(), |base| base.to_string());
    format!("{} at {base} in {} by {}", open.segment, open.epoch, open.life)
}

fn show_message(message: &ToReplica) -> String {
    match message {
        ToReplica::Adopt(view) => {
            let sealed: Vec<String> = view
                .sealed
                .iter()
                .map(|sealed| format!("{} [{}, {})", sealed.segment, sealed.base, sealed.end))
                .collect();
            let open: Vec<String> = view.open.iter().map(show_open).collect();
            let (range, epoch, end) = (view.range, view.epoch, view.end);
            let rest = match &view.successors {
                None => show_fences(&view.fences),
                Some(routes) => format!(" then {}", show_ranges(routes)),
            };
            let (sealed, open) = (sealed.join(", "), open.join(", "));
            format!("adopt {range} in {epoch} end {end} sealed [{sealed}] open [{open}]{rest}")
        }
        ToReplica::Seal { range, segment, epoch } => format!("seal {range} {segment} in {epoch}"),
        ToReplica::Sealed { range, sealed } => format!("sealed {range} {}", show_end(sealed)),
        ToReplica::Open { range, open } => format!("open {range} {}", show_open(open)),
        ToReplica::Prepared { range, after, open } => format!("prepared {range} {} after {after}", show_open(open)),
        ToReplica::Retired { range, sealed, successors } => {
            format!("retired {range} {} for {}", show_end(sealed), show_ranges(successors))
        }
        ToReplica::Holes { range, segment, holes } => format!("holes of {range} {segment}: {}", show_spans(holes)),
        ToReplica::Deleted { range } => format!("deleted {range}"),
    }
}

fn show_ranges(routes: &[Route]) -> String {
    let ranges: Vec<String> = routes.iter().map(|route| route.range.to_string()).collect();
    ranges.join(" ")
}

fn show_lineage(range: &RangeLineage) -> String {
    let list = |ranges: &[RangeId]| ranges.iter().map(RangeId::to_string).collect::<Vec<_>>().join(" ");
    let RangeLineage { route, parents, successors } = range;
    format!("{} {} of [{}] to [{}]", route.range, route.span, list(parents), list(successors))
}

fn show_response(response: &Response) -> String {
    match response {
        Response::Topic(view) => format!("{} {} of {}", view.topic, view.name, view.ranges),
        Response::TopicDeleted { topic } => format!("deleted {topic}"),
        Response::Topics(views) => {
            let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
            names.join(" ")
        }
        Response::Routes { topic, routes } => {
            let routes: Vec<String> =
                routes.iter().map(|r| format!("{} {} {} {}", r.range, r.span, r.node, r.shard)).collect();
            format!("{}: {}", topic.name, routes.join(", "))
        }
        Response::Lineage { ranges, more } => {
            let ranges: Vec<String> = ranges.iter().map(show_lineage).collect();
            format!("{}{}", ranges.join(", "), if *more { " and more" } else { "" })
        }
        Response::Producer { producer, epoch } => format!("{producer} in {}", epoch.0),
        Response::Refused(refusal) => format!("refused: {refusal}"),
        Response::Stored(_)
        | Response::Fetched(_)
        | Response::Bounds { .. }
        | Response::Settled(_)
        | Response::Rolled(_)
        | Response::Described(_) => panic!("a shard's answer"),
    }
}
