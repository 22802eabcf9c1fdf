//! The shard's journal at work: gathers the next group while one is written, hands it out, and tells what became durable.
//!
//! ```text
//!  a small group                                        one as large as the one that is written
//!  device:  |--- group n ---|   |--- group n+1 ---|     device:  |--- group n ---|--- group n+1 ---|
//!  core:      gather n+1     hand out, answer n         core:      gather n+1, hand out; gather n+2   answer n
//! ```
//! The writer begins a group that was handed out early before the shard is told of its predecessor; on a thread of its own, the moment that
//! is durable. What comes later joins the one behind, and waits one group longer; so only a group is closed early that
//! is worth a write of its own.
//!
//! Invariants: two groups are handed out at most, and the writer writes one at a time, each only when its predecessor is durable: so a
//! valid group proves every earlier one. A group that failed is the last: nothing behind it is written, or ever acknowledged.

use std::collections::VecDeque;

use crate::api::config::EngineConfig;
use crate::format::journal::{DirectoryEntry, GroupKind, JournalSeed};
use crate::journal::group::group_bytes_max;
use crate::journal::{Mark, OpenGroup, Ring, compose_empty};
use crate::segment::appender::Placed;
use crate::shard::command::{Command, Commands};
use crate::shard::event::Failed;
use crate::shard::open::RecoveredShard;
use crate::shard::queue::{Body, Kind, Queue, Queued};
use crate::shard::range::{RangeSlot, TailSlot};
use crate::shard::shard::Shard;
use crate::shard::tail::Tail;
use crate::types::limits::BLOCK;
use crate::types::{AlignedBuffer, Epoch, Now, Offset};

/// The journal of one shard.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) queue: Queue,
    pub(super) ring: Ring,
    /// Gathers what waits, up to a full group.
    open: OpenGroup,
    /// Its entries, and the bodies of those that are descriptors.
    open_entries: Vec<Queued>,
    notes: Vec<Vec<u8>>,
    /// It found no room in the ring: it stays as it is until a checkpoint has made some.
    open_waits: bool,
    /// For the groups that may be handed out; each comes back with its group.
    #[expect(clippy::vec_box, reason = "they travel in their boxes: to take one out and make another would allocate")]
    buffers: Vec<Box<AlignedBuffer>>,
    /// Handed out, in their order.
    under_way: VecDeque<UnderWay>,
    /// Lists of entries that are not in use; the entries of a group that has just become durable are in one of them too.
    lists: Vec<Vec<Queued>>,
    /// Ranges whose committed end moved with the last group.
    moved: Vec<RangeSlot>,
    /// Before the first group that is not durable.
    pub(super) durable: Mark,
    /// The last group that was written is a real one and nothing proves it yet; since when, on the monotonic clock.
    unproved_since_ns: Option<u64>,
    pub(super) failed: bool,
}

/// A group that was handed out.
#[derive(Debug)]
struct UnderWay {
    marker: bool,
    length: usize,
    entries: Vec<Queued>,
    /// Behind it.
    mark: Mark,
}

/// Groups that may be handed out: one that is written, and one behind it.
const UNDER_WAY_MAX: usize = 2;

impl Groups {
    pub(super) fn new(recovered: &RecoveredShard, config: &EngineConfig) -> Self {
        let ring = recovered.ring.clone();
        let seed = JournalSeed::new(recovered.generation, recovered.shard);
        let longest = group_bytes_max(config.batch_bytes_max as usize);
        Self {
            queue: Queue::default(),
            open: OpenGroup::new(seed, ring.geometry().group_bytes_max()),
            open_entries: Vec::new(),
            notes: Vec::new(),
            open_waits: false,
            buffers: (0..UNDER_WAY_MAX).map(|_| Box::new(AlignedBuffer::zeroed(longest))).collect(),
            under_way: VecDeque::with_capacity(UNDER_WAY_MAX),
            lists: vec![Vec::new(); UNDER_WAY_MAX + 1],
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
            && (!self.queue.is_empty() || !self.open.is_empty() || self.under_way.iter().any(|group| !group.marker))
    }

    /// Whether the journal has room for `bytes` of produce more: the last eighth of the ring is for promises, seals, roll marks and
    /// checkpoints. All that waits is counted as it will lie in its groups: a checkpoint cuts behind it, so if it did not fit, the cut
    /// would never be passed, nothing released, and the shard would stand still.
    pub(super) fn admits(&self, bytes: usize) -> bool {
        let open = if self.open.is_empty() { 0 } else { self.open.length() };
        let bodies = self.queue.bytes() + (open + bytes) as u64;
        let groups = bodies / self.ring.geometry().group_bytes_max() as u64 + 1;
        self.ring.admits(bodies + groups * BLOCK as u64)
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
        let may = self.under_way.is_empty() && !self.failed && !self.is_busy();
        self.unproved_since_ns.filter(|_| may).map(|since| since + config.idle_marker_us * 1_000)
    }

    /// Whether the open group may be handed out now. Behind one that is written it is closed early: once it is as large, or nothing
    /// else may join it.
    fn may_go(&self, config: &EngineConfig) -> bool {
        let least = config.group_ahead_bytes.max(self.under_way.front().map_or(0, |group| group.length));
        !self.open.is_empty()
            && match self.under_way.len() {
                0 => true,
                1 => self.open.length() >= least || !self.queue.is_empty(),
                _ => false,
            }
    }
}

impl Shard {
    /// Gathers what waits into the next group, and hands that out if it may go.
    pub(super) fn submit_group(&mut self, now: Now, commands: &mut Commands) {
        if self.groups.failed {
            return;
        }
        if !self.groups.open_waits {
            self.fill_group();
        }
        while self.groups.may_go(&self.config) {
            self.groups.open_waits = !self.write_group(commands);
            if self.groups.open_waits {
                return;
            }
            self.groups.unproved_since_ns = Some(now.monotonic_ns);
            self.note_cut();
            self.fill_group();
        }
    }

    /// Takes entries from the queue while they fit the open group; into an empty one, one always does.
    fn fill_group(&mut self) {
        let (groups, tails) = (&mut self.groups, &self.tails);
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
            let (entry, note) = groups.queue.pop().expect("it was looked at");
            let body = match entry.body {
                Body::Entry { tail, placed } => entry_of(tails, tail, placed),
                Body::Note | Body::Nothing => note.as_deref().unwrap_or_default(),
            };
            groups.open.add(line, body);
            groups.open_entries.push(entry);
            groups.notes.extend(note);
        }
    }

    /// Composes the open group for the next place of the ring and hands it out; false if there is no room.
    fn write_group(&mut self, commands: &mut Commands) -> bool {
        let groups = &mut self.groups;
        let length = groups.open.length();
        let Some(place) = groups.ring.slot(length as u64) else { return false };
        let mut buffer = groups.buffers.pop().expect("as many as groups may be handed out");
        let (tails, entries) = (&self.tails, &groups.open_entries);
        let mut notes = groups.notes.iter();
        let closed = groups.open.close(place, &mut buffer, |index, out| match entries[index].body {
            Body::Entry { tail, placed } => out.copy_from_slice(entry_of(tails, tail, placed)),
            Body::Note => out.copy_from_slice(notes.next().expect("a descriptor has a note")),
            Body::Nothing => unreachable!("only what has a body is asked for"),
        });
        groups.open.clear();
        groups.notes.clear();
        let list = groups.lists.pop().expect("one more than groups may be handed out");
        let entries = std::mem::replace(&mut groups.open_entries, list);
        groups.ring.take(place, length as u64, closed.digest);
        groups.under_way.push_back(UnderWay { marker: false, length, entries, mark: groups.ring.next() });
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
        let mut buffer = groups.buffers.pop().expect("as many as groups may be handed out");
        let list = groups.lists.pop().expect("one more than groups may be handed out");
        let closed = compose_empty(GroupKind::Marker, groups.open.seed(), place, &mut buffer);
        let mark = groups.ring.next();
        groups.under_way.push_back(UnderWay { marker: true, length: closed.length, entries: list, mark });
        self.counters.markers += 1;
        let (file, position) = groups.ring.geometry().locate(place.position);
        commands.push(Command::WriteGroup { file, position, buffer, length: closed.length, sync: false });
    }

    /// The first group that was handed out is durable, or failed.
    pub(super) fn group_written(
        &mut self,
        now: Now,
        buffer: Box<AlignedBuffer>,
        outcome: Result<(), Failed>,
        commands: &mut Commands,
    ) {
        self.groups.buffers.push(buffer);
        let UnderWay { marker, entries: mut done, mark, .. } =
            self.groups.under_way.pop_front().expect("a group was under way");
        if outcome.is_err() && !self.groups.failed {
            self.stop_taking(now, commands);
        }
        if self.groups.failed || marker {
            done.clear();
            self.groups.lists.push(done);
            return;
        }
        self.groups.durable = mark;
        // The device does not wait until everybody has been told.
        self.submit_group(now, commands);
        for entry in done.drain(..) {
            self.entry_durable(now, &entry, commands);
        }
        self.groups.lists.push(done);
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

/// An entry as it lies in its segment's memory.
fn entry_of(tails: &[Option<Tail>], tail: TailSlot, placed: Placed) -> &[u8] {
    tails[tail.0].as_ref().expect("a tail in use").appender.entry(placed)
}
