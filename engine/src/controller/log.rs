//! The metadata log on its small journal. A group of changes is followed by an empty one, both synced, before anything in it is
//! acted upon.
//!
//! ```text
//!  idle -- begin --> writing -- durable --> proving -- durable --> idle : the entries are committed
//!                        \______ failed ______/ \----------> failed, for ever
//! ```
//! Why the second: an uncertain last group was then never acted on and may be dropped at the next start, and a group that was acted on
//! and rotted has a valid one behind it and is told for damage. Strictly one group is in flight.

use crate::controller::command::Command;
use crate::format::journal::{DirectoryEntry, GroupKind, JournalEntryKind, JournalSeed};
use crate::journal::{Mark, OpenGroup, Ring, Slot, compose_empty};
use crate::metadata::Consensus;
use crate::metadata::consensus::Entry;
use crate::shard::event::Failed;
use crate::types::limits::BLOCK;
use crate::types::{AlignedBuffer, Generation, Offset, RangeId, SegmentId};

/// The journal's writing end.
#[derive(Debug)]
pub(super) struct Log {
    ring: Ring,
    group: OpenGroup,
    bodies: Vec<Vec<u8>>,
    /// Lent to the performer while a group is in flight.
    buffer: Option<Box<AlignedBuffer>>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// A group of changes is in flight.
    Writing,
    /// The empty group behind it is in flight.
    Proving,
    Failed,
}

/// What the end of a write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The empty group is next; it is on its way.
    Proving,
    /// The entries of the group are committed.
    Committed,
    /// Nothing more can be committed in this life.
    Failed,
}

impl Log {
    pub(super) fn new(seed: JournalSeed, ring: Ring) -> Self {
        let group = OpenGroup::new(seed, ring.geometry().group_bytes_max());
        Self { ring, group, bodies: Vec::new(), buffer: None, stage: Stage::Idle }
    }

    pub(super) fn generation(&self) -> Generation {
        self.group.seed().generation()
    }

    /// Where the next group goes.
    pub(super) fn next(&self) -> Mark {
        self.ring.next()
    }

    pub(super) fn ring_bytes(&self) -> u64 {
        self.ring.geometry().bytes()
    }

    /// Groups before `mark` may be overwritten.
    pub(super) fn release(&mut self, mark: Mark) {
        self.ring.release(mark);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    pub(super) fn has_failed(&self) -> bool {
        self.stage == Stage::Failed
    }

    /// Writes what is proposed, if nothing is in flight. False: there is no room before a snapshot has been made.
    pub(super) fn begin(&mut self, consensus: &mut Consensus, commands: &mut Vec<Command>) -> bool {
        if self.stage != Stage::Idle || (self.group.is_empty() && !consensus.has_entries()) {
            return true;
        }
        if self.group.is_empty() {
            let (group, bodies) = (&mut self.group, &mut self.bodies);
            consensus.take_entries(|entry| add(group, bodies, entry));
        }
        if !self.has_room() {
            return false;
        }
        let length = self.group.length();
        let slot = self.ring.slot(length as u64).expect("room was just seen");
        let mut buffer = self.buffer(length);
        let bodies = &self.bodies;
        let closed = self.group.close(slot, &mut buffer, |index, out| out.copy_from_slice(&bodies[index]));
        self.ring.take(slot, length as u64, closed.digest);
        self.give(slot, buffer, length, commands);
        self.stage = Stage::Writing;
        true
    }

    /// The group in flight is durable, or it failed.
    ///
    /// # Panics
    /// If none is in flight.
    pub(super) fn written(
        &mut self,
        buffer: Box<AlignedBuffer>,
        outcome: Result<(), Failed>,
        commands: &mut Vec<Command>,
    ) -> Written {
        self.buffer = Some(buffer);
        if outcome.is_err() {
            // A failed sync is not tried again: what the device holds of the group is not known.
            self.stage = Stage::Failed;
            return Written::Failed;
        }
        match self.stage {
            Stage::Writing => {
                self.prove(commands);
                Written::Proving
            }
            Stage::Proving => {
                self.group.clear();
                self.bodies.clear();
                self.stage = Stage::Idle;
                Written::Committed
            }
            Stage::Idle | Stage::Failed => panic!("no group is in flight"),
        }
    }

    fn prove(&mut self, commands: &mut Vec<Command>) {
        let slot = self.ring.slot(BLOCK as u64).expect("room was seen before the group was written");
        let mut buffer = self.buffer(BLOCK);
        let closed = compose_empty(GroupKind::Normal, self.group.seed(), slot, &mut buffer);
        self.ring.take(slot, closed.length as u64, closed.digest);
        self.give(slot, buffer, closed.length, commands);
        self.stage = Stage::Proving;
    }

    /// Whether the group and the empty one behind it can be written.
    fn has_room(&self) -> bool {
        let length = self.group.length() as u64;
        let mut ring = self.ring.clone();
        let Some(slot) = ring.slot(length) else { return false };
        ring.take(slot, length, 0);
        ring.slot(BLOCK as u64).is_some()
    }

    fn buffer(&mut self, length: usize) -> Box<AlignedBuffer> {
        let buffer = self.buffer.take().filter(|buffer| buffer.len() >= length);
        buffer.unwrap_or_else(|| Box::new(AlignedBuffer::zeroed(length)))
    }

    fn give(&self, slot: Slot, buffer: Box<AlignedBuffer>, length: usize, commands: &mut Vec<Command>) {
        let (file, position) = self.ring.geometry().locate(slot.position);
        commands.push(Command::WriteGroup { file, position, buffer, length });
    }
}

fn add(group: &mut OpenGroup, bodies: &mut Vec<Vec<u8>>, entry: &Entry) -> bool {
    let body = entry.change.encode();
    if !group.fits(body.len()) {
        return false;
    }
    let bytes = u32::try_from(body.len()).expect("a change is far below 4 GiB");
    let nowhere = (RangeId(0), SegmentId(0));
    group.add(DirectoryEntry::new(JournalEntryKind::Change, nowhere, (Offset(entry.index.0), 1), bytes), &body);
    bodies.push(body);
    true
}
