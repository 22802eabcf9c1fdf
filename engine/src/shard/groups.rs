//! The shard's journal at work: composes the next group when the last one is durable, and tells what became durable with it.
//!
//! Invariants: one group is under way at most; it is handed out only when its predecessor is durable, so a valid group proves
//! every earlier one. A group that failed is the last: nothing behind it is ever acknowledged.

use crate::api::config::EngineConfig;
use crate::format::journal::{DirectoryEntry, GroupKind, JournalSeed};
use crate::journal::group::group_bytes_max;
use crate::journal::{Mark, OpenGroup, Ring, compose_empty};
use crate::shard::command::{Command, Commands};
use crate::shard::event::Failed;
use crate::shard::open::RecoveredShard;
use crate::shard::queue::{Body, Kind, Queue, Queued};
use crate::shard::range::RangeSlot;
use crate::shard::shard::Shard;
use crate::types::limits::BLOCK;
use crate::types::{AlignedBuffer, Epoch, Now, Offset};

/// The journal of one shard.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) queue: Queue,
    pub(super) ring: Ring,
    seed: JournalSeed,
    open: OpenGroup,
    /// Comes back with each group; `None` while one is under way.
    buffer: Option<Box<AlignedBuffer>>,
    under_way: Option<UnderWay>,
    /// Entries of the group under way.
    entries: Vec<Queued>,
    notes: Vec<Vec<u8>>,
    /// Ranges whose committed end moved with the last group.
    moved: Vec<RangeSlot>,
    /// Before the first group that is not durable.
    pub(super) durable: Mark,
    /// The last group that was written is a real one and nothing proves it yet; since when, on the monotonic clock.
    unproved_since_ns: Option<u64>,
    pub(super) failed: bool,
}

/// The group that is being written.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    marker: bool,
}

impl Groups {
    pub(super) fn new(recovered: &RecoveredShard, config: &EngineConfig) -> Self {
        let ring = recovered.ring.clone();
        Self {
            queue: Queue::default(),
            seed: JournalSeed::new(recovered.generation, recovered.shard),
            open: OpenGroup::new(ring.geometry().group_bytes_max()),
            buffer: Some(Box::new(AlignedBuffer::zeroed(group_bytes_max(config.batch_bytes_max as usize)))),
            under_way: None,
            entries: Vec::new(),
            notes: Vec::new(),
            moved: Vec::new(),
            durable: ring.next(),
            unproved_since_ns: None,
            failed: false,
            ring,
        }
    }

    /// Whether anything waits or is being written that somebody waits for.
    pub(super) fn is_busy(&self) -> bool {
        !self.failed
            && (!self.queue.is_empty() || !self.open.is_empty() || self.under_way.is_some_and(|group| !group.marker))
    }

    /// Whether the journal has room for produce: the last eighth of the ring is for promises, seals, roll marks and checkpoints.
    pub(super) fn admits(&self) -> bool {
        self.ring.admits(self.queue.bytes() + 2 * BLOCK as u64)
    }

    /// Nothing that is taken from now on joins a group with what waits.
    pub(super) fn cut(&mut self) {
        self.queue.set_barrier();
    }

    /// The mark behind the last group before the cut, if that has been handed out.
    pub(super) fn pass_cut(&mut self) -> Option<Mark> {
        (self.open.is_empty() && self.queue.pass_barrier()).then(|| self.ring.next())
    }

    /// When the idle marker is due.
    pub(super) fn marker_due_ns(&self, config: &EngineConfig) -> Option<u64> {
        match (self.under_way, self.unproved_since_ns) {
            (None, Some(since)) if !self.failed && !self.is_busy() => Some(since + config.idle_marker_us * 1_000),
            (Some(_) | None, _) => None,
        }
    }
}

impl Shard {
    /// Hands out the next group if one may go and something waits.
    pub(super) fn submit_group(&mut self, now: Now, commands: &mut Commands) {
        let groups = &mut self.groups;
        if groups.under_way.is_some() || groups.failed {
            return;
        }
        // A group that found no room in the ring waits for a checkpoint, composed of what it had.
        if groups.open.is_empty() {
            self.fill_group();
        }
        if self.groups.open.is_empty() || !self.write_group(commands) {
            return;
        }
        self.groups.unproved_since_ns = Some(now.monotonic_ns);
        self.note_cut();
    }

    /// Takes entries from the queue while they fit one group; one always does.
    fn fill_group(&mut self) {
        let groups = &mut self.groups;
        groups.entries.clear();
        groups.notes.clear();
        while let Some(next) = groups.queue.front() {
            if !groups.open.fits(next.bytes as usize) {
                break;
            }
            let line = match next.kind {
                Kind::Promise => DirectoryEntry::promise(next.range, next.segment, Epoch(next.first)),
                Kind::Batch | Kind::Table | Kind::RollMark | Kind::Open | Kind::Seal | Kind::Trim | Kind::Change => {
                    DirectoryEntry::new(
                        next.kind,
                        (next.range, next.segment),
                        (Offset(next.first), next.count),
                        next.bytes,
                    )
                }
            };
            groups.open.add(line);
            let (entry, note) = groups.queue.pop().expect("it was looked at");
            groups.entries.push(entry);
            groups.notes.extend(note);
        }
    }

    /// Composes the open group for the next place of the ring and hands it out; false if there is no room.
    fn write_group(&mut self, commands: &mut Commands) -> bool {
        let groups = &mut self.groups;
        let length = groups.open.length();
        let Some(place) = groups.ring.slot(length as u64) else { return false };
        let mut buffer = groups.buffer.take().expect("the last group has come back");
        let (tails, entries) = (&self.tails, &groups.entries);
        let mut notes = groups.notes.iter();
        let closed = groups.open.close(groups.seed, place, &mut buffer, |index, out| match entries[index].body {
            Body::Entry { tail, placed } => {
                out.copy_from_slice(tails[tail.0].as_ref().expect("a tail in use").appender.entry(placed));
            }
            Body::Note => out.copy_from_slice(notes.next().expect("a descriptor has a note")),
            Body::Nothing => unreachable!("only what has a body is asked for"),
        });
        groups.open.clear();
        groups.ring.take(place, length as u64, closed.digest);
        groups.under_way = Some(UnderWay { marker: false });
        self.counters.groups += 1;
        self.counters.group_bytes += length as u64;
        let (file, position) = groups.ring.geometry().locate(place.position);
        commands.push(Command::WriteGroup { file, position, buffer, length, sync: true });
        true
    }

    /// The last real group is alone at the end of the journal: an empty one behind it proves it. Nobody waits for that.
    pub(super) fn mark_idle(&mut self, now: Now, commands: &mut Commands) {
        let groups = &mut self.groups;
        let due = groups.marker_due_ns(&self.config).is_some_and(|due| due <= now.monotonic_ns);
        if !due || groups.is_busy() {
            return;
        }
        groups.unproved_since_ns = None;
        // Without room for it the last group stays unproved until the next one.
        let Some(place) = groups.ring.slot(BLOCK as u64) else { return };
        let mut buffer = groups.buffer.take().expect("the last group has come back");
        let closed = compose_empty(GroupKind::Marker, groups.seed, place, &mut buffer);
        groups.under_way = Some(UnderWay { marker: true });
        self.counters.markers += 1;
        let (file, position) = groups.ring.geometry().locate(place.position);
        commands.push(Command::WriteGroup { file, position, buffer, length: closed.length, sync: false });
    }

    /// The group under way is durable, or failed.
    pub(super) fn group_written(
        &mut self,
        now: Now,
        buffer: Box<AlignedBuffer>,
        outcome: Result<(), Failed>,
        commands: &mut Commands,
    ) {
        self.groups.buffer = Some(buffer);
        let under_way = self.groups.under_way.take().expect("a group was under way");
        if outcome.is_err() {
            self.stop_taking(now, commands);
            return;
        }
        if under_way.marker {
            return;
        }
        self.groups.durable = self.groups.ring.next();
        let entries = std::mem::take(&mut self.groups.entries);
        for entry in &entries {
            self.entry_durable(now, entry, commands);
        }
        self.groups.entries = entries;
        let mut moved = std::mem::take(&mut self.groups.moved);
        for slot in moved.drain(..) {
            self.wake(now, slot, commands);
        }
        self.groups.moved = moved;
    }

    fn entry_durable(&mut self, now: Now, entry: &Queued, commands: &mut Commands) {
        let range = &mut self.ranges[entry.slot.0];
        match entry.kind {
            Kind::Batch => {
                let end = Offset(entry.first).plus(u64::from(entry.count));
                let counters = &mut self.counters;
                let moved = range.replica.durable(end, |due| {
                    counters.batches_stored += 1;
                    counters.batches_repeated += u64::from(due.stored.repeat);
                    commands.push(Command::Reply { to: due.to, response: due.response() });
                });
                if moved && !range.waiting.is_empty() && self.groups.moved.last() != Some(&entry.slot) {
                    self.groups.moved.push(entry.slot);
                }
            }
            Kind::RollMark => {
                range.replica.report_roll(Offset(entry.first), &mut self.replica_commands);
                self.obey(now, entry.slot, commands);
            }
            Kind::Promise => self.answer_seal(now, entry, commands),
            Kind::Table | Kind::Open | Kind::Seal | Kind::Trim => {}
            Kind::Change => unreachable!("the metadata log has a journal of its own"),
        }
    }

    /// A failed sync is never retried as if nothing were: what waits has an unknown end, and no more is taken.
    pub(super) fn stop_taking(&mut self, now: Now, commands: &mut Commands) {
        self.groups.failed = true;
        self.counters.write_failed = 1;
        for slot in (0..self.ranges.len()).map(RangeSlot) {
            self.ranges[slot.0].replica.write_failed(&mut self.replica_commands);
            self.obey(now, slot, commands);
        }
    }
}
