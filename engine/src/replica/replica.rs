//! The state of one copy of a range's tail, and what each message does to it.
//!
//! ```text
//!            Adopt                    NeedOpen ... Open
//!  Unknown ---------> Resting -----------------------------> Open
//!     |                  ^                                    |
//!     | Adopt: an        | Sealed                             | Seal
//!     | earlier life's   |                                    v
//!     +-> Unsettled ---- Seal ------------------------------> Fenced        any -- Retired --> Retired
//!         segment
//! ```
//! Invariants: a batch is taken in `Open` only, in the range's epoch only; `committed <= durable <= assigned`; the promise
//! never falls; within one segment offsets are given in one life of one process.

use std::collections::VecDeque;

use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::{Response, Route};
use crate::replica::message::{RangeView, Rolled, SealedSegment, SegmentOpen, ToController, ToReplica};
use crate::replica::producer::ProducerTable;
use crate::types::{Epoch, KeySpan, Offset, RangeId, SegmentId, TopicId};

/// How long a client waits while a segment is being opened or sealed.
pub(super) const OPENING_DELAY_MS: u32 = 1;

/// What the shard does for a replica.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Answer a request.
    Reply { to: ReplyTo, response: Response },
    /// Tell the controller.
    Tell(ToController),
    /// Put a promise into the journal; when it is durable, answer the seal with what the segment holds.
    Promise { segment: SegmentId, epoch: Epoch },
    /// Begin a segment at `base`: its descriptor and its producer table go to the journal before its first batch.
    Begin { open: SegmentOpen, base: Offset },
    /// The end of a segment is committed: cut to it, note it, write its footer.
    Close(SealedSegment),
    /// The committed end has moved, or the range was sealed: waiting fetches are looked at again.
    Wake,
}

/// What a replica may do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The controller has not told the committed state in this life.
    Unknown,
    /// All segments are sealed.
    Resting,
    /// The tail was written in an earlier life and is not sealed yet.
    Unsettled { segment: SegmentId },
    /// Batches are taken into `segment`.
    Open { segment: SegmentId },
    /// `segment` is being sealed.
    Fenced { segment: SegmentId },
    /// The range is sealed.
    Retired { successors: Vec<Route> },
}

/// An acknowledgement that waits for the committed end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Exclusive: it is due when the committed end has reached this.
    pub(super) end: Offset,
    pub(super) to: ReplyTo,
    pub(super) records: u32,

    pub(super) repeat: bool,
}

/// One copy of a range's tail.
#[derive(Debug)]
pub struct Replica {
    pub(super) topic: TopicId,
    pub(super) range: RangeId,
    pub(super) span: KeySpan,
    pub(super) epoch: Epoch,
    pub(super) promised: Epoch,
    pub(super) phase: Phase,
    pub(super) producers: ProducerTable,
    pub(super) assigned: Offset,
    pub(super) durable: Offset,
    pub(super) committed: Offset,
    pub(super) pending: VecDeque<Pending>,
    pub(super) quorum: u8,
    pub(super) retention_ms: u64,
    /// What the controller has been asked for and has not given.
    pub(super) asked_open: bool,
    pub(super) asked_seal: bool,
    pub(super) asked_successor: bool,
    pub(super) successor: Option<SegmentOpen>,
    /// Segments of a range are opened in the order of their ids: what concerns this one or an earlier one is late.
    pub(super) last_sealed: Option<SegmentId>,
    pub(super) roll: Option<super::roll::Roll>,
    /// Who asked for the roll, and waits until it may be reported: nobody, once it was.
    pub(super) rollers: Vec<ReplyTo>,
    /// The roll mark of the last answer to a seal: the tail goes on behind it.
    pub(super) answered_mark: Option<Rolled>,
}

impl Replica {
    /// The replica of a range as recovery found it: what it promised, and the table at the end of what it holds.
    #[must_use]
    pub fn recovered(range: RangeId, promised: Epoch, producers: ProducerTable) -> Self {
        Self {
            topic: TopicId::default(),
            range,
            span: KeySpan::ALL,
            epoch: promised,
            promised,
            phase: Phase::Unknown,
            producers,
            assigned: Offset::ZERO,
            durable: Offset::ZERO,
            committed: Offset::ZERO,
            pending: VecDeque::new(),
            quorum: 1,
            retention_ms: 0,
            asked_open: false,
            asked_seal: false,
            asked_successor: false,
            successor: None,
            last_sealed: None,
            roll: None,
            rollers: Vec::new(),
            answered_mark: None,
        }
    }

    /// What the controller says.
    pub fn message(&mut self, message: ToReplica, commands: &mut Vec<Command>) {
        match message {
            ToReplica::Adopt(view) => self.adopt(view, commands),
            ToReplica::Seal { segment, epoch, .. } => self.seal(segment, epoch, commands),
            ToReplica::Sealed { sealed, .. } => self.sealed(sealed, commands),
            ToReplica::Open { open, .. } => self.open(open, commands),
            ToReplica::Prepared { after, open, .. } => self.prepared(after, open),
            ToReplica::Retired { sealed, successors, .. } => self.retired(sealed, successors, commands),
            // Of what lies on the disk: its shard's affair.
            ToReplica::Holes { .. } => {}
            ToReplica::Deleted { .. } => self.deleted(commands),
        }
    }

    /// The range's topic is deleted. What waits ends now: a repeat of what was stored is stored, and all else is not and never will be, for
    /// nobody has read it and nobody can. The range is forgotten by its shard, and this with it.
    fn deleted(&mut self, commands: &mut Vec<Command>) {
        for pending in self.pending.drain(..) {
            let is_stored = pending.end <= self.committed;
            let response = if is_stored { pending.due().response() } else { Response::Refused(Refusal::UnknownRange) };
            commands.push(Command::Reply { to: pending.to, response });
        }
        // Who waits for a roll.
        self.refuse_pending(&Refusal::UnknownRange, commands);
        self.producers = ProducerTable::default();
        commands.push(Command::Wake);
    }

    fn adopt(&mut self, view: RangeView, commands: &mut Vec<Command>) {
        if self.phase != Phase::Unknown {
            return;
        }
        self.producers.fence(&view.fences);
        self.topic = view.topic;
        self.span = view.span;
        self.epoch = self.epoch.max(view.epoch);
        self.assigned = view.end;
        self.durable = view.end;
        self.committed = view.end;
        self.phase = match (view.successors, view.open.first()) {
            (Some(successors), _) => Phase::Retired { successors },
            (None, Some(open)) => Phase::Unsettled { segment: open.segment },
            (None, None) => Phase::Resting,
        };
        self.last_sealed = view.sealed.last().map(|sealed| sealed.segment);
        for sealed in view.sealed {
            commands.push(Command::Close(sealed));
        }
        commands.push(Command::Wake);
    }

    fn open(&mut self, open: SegmentOpen, commands: &mut Vec<Command>) {
        let opened = match self.phase {
            Phase::Resting => true,
            Phase::Unknown
            | Phase::Unsettled { .. }
            | Phase::Open { .. }
            | Phase::Fenced { .. }
            | Phase::Retired { .. } => false,
        };
        if !opened
            || Some(open.segment) <= self.last_sealed
            || open.epoch < self.promised
            || open.base != Some(self.assigned)
        {
            return;
        }
        self.asked_open = false;
        self.begin(open, commands);
    }

    /// Goes on in `open`, at the assigned end.
    pub(super) fn begin(&mut self, open: SegmentOpen, commands: &mut Vec<Command>) {
        self.epoch = self.epoch.max(open.epoch);
        self.quorum = open.quorum;
        self.retention_ms = open.retention_ms;
        self.asked_successor = false;
        self.phase = Phase::Open { segment: open.segment };
        self.producers.expire(open.retention_ms, super::PRODUCER_EXPIRY_MS);
        commands.push(Command::Begin { open, base: self.assigned });
    }

    fn retired(&mut self, sealed: SealedSegment, successors: Vec<Route>, commands: &mut Vec<Command>) {
        if self.phase == Phase::Unknown {
            // The committed state will tell it.
            return;
        }
        self.epoch = self.epoch.max(sealed.epoch);
        // In one with the end: whoever is told what follows the range is given all of it first.
        self.sealed(sealed, commands);
        self.refuse_pending(&Refusal::Sealed { successors: successors.clone(), last: None }, commands);
        self.phase = Phase::Retired { successors };
        commands.push(Command::Wake);
    }

    /// Answers everything that waits with `refusal`.
    pub(super) fn refuse_pending(&mut self, refusal: &Refusal, commands: &mut Vec<Command>) {
        let waiting = self.pending.drain(..).map(|pending| pending.to).chain(self.rollers.drain(..));
        commands.extend(waiting.map(|to| Command::Reply { to, response: Response::Refused(refusal.clone()) }));
    }

    /// The topic that it belongs to.
    #[must_use]
    pub fn topic(&self) -> TopicId {
        self.topic
    }

    /// Its range.
    #[must_use]
    pub fn range(&self) -> RangeId {
        self.range
    }

    /// The hashes that it takes.
    #[must_use]
    pub fn span(&self) -> KeySpan {
        self.span
    }

    /// The range's epoch as far as it knows.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The greatest epoch promised.
    #[must_use]
    pub fn promised(&self) -> Epoch {
        self.promised
    }

    /// Next offset that it will give.
    #[must_use]
    pub fn assigned(&self) -> Offset {
        self.assigned
    }

    /// Below it readers may see records; exclusive.
    #[must_use]
    pub fn committed(&self) -> Offset {
        self.committed
    }

    /// The producer table at the assigned end.
    #[must_use]
    pub fn producers(&self) -> &ProducerTable {
        &self.producers
    }

    /// The committed retention clock as its open segment began, in ms.
    #[must_use]
    pub fn retention_ms(&self) -> u64 {
        self.retention_ms
    }

    /// The segment that takes batches, if one does.
    #[must_use]
    pub fn open_segment(&self) -> Option<SegmentId> {
        match self.phase {
            Phase::Open { segment } => Some(segment),
            Phase::Unknown
            | Phase::Resting
            | Phase::Unsettled { .. }
            | Phase::Fenced { .. }
            | Phase::Retired { .. } => None,
        }
    }

    /// Where its keys go, if the range is sealed.
    #[must_use]
    pub fn successors(&self) -> Option<&[Route]> {
        match &self.phase {
            Phase::Retired { successors } => Some(successors),
            Phase::Unknown | Phase::Resting | Phase::Unsettled { .. } | Phase::Open { .. } | Phase::Fenced { .. } => {
                None
            }
        }
    }

    /// Whether the committed state has been told in this life: before that, nothing is served.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.phase != Phase::Unknown
    }

    /// Acknowledgements that wait.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }
}
