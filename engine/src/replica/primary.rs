//! Taking batches and acknowledging them: the produce path of the range's primary. Two words of memory are checked, `phase`
//! and `epoch`; nothing is looked up elsewhere.

use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::{Response, Stored};
use crate::format::batch::Stamp;
use crate::replica::message::ToController;
use crate::replica::producer::Check;
use crate::replica::progress::committed_end;
use crate::replica::replica::{Command, OPENING_DELAY_MS, Pending, Phase, Replica};
use crate::types::{Epoch, Offset, ProducerId, SegmentId};

/// Judgement of a produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Store the batch in this segment, then call `take`.
    Take { segment: SegmentId },
    /// A repeat: call `repeat`.
    Repeat { end: Offset },
}

/// An acknowledgement that has become due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub to: ReplyTo,
    pub stored: Stored,
}

impl Replica {
    /// Whether this replica takes produce in `epoch` now: the check against a stale client or frontend.
    ///
    /// # Errors
    /// Why not. A range at rest asks the controller for a segment.
    pub fn admit_epoch(
        &mut self,
        epoch: Epoch,
        producer: ProducerId,
        commands: &mut Vec<Command>,
    ) -> Result<SegmentId, Refusal> {
        match &self.phase {
            Phase::Open { segment } if epoch == self.epoch => Ok(*segment),
            Phase::Open { .. } => Err(Refusal::StaleEpoch { current: self.epoch }),
            Phase::Retired { successors } => Err(Refusal::Sealed {
                successors: successors.clone(),
                last: self
                    .producers
                    .get(producer)
                    .and_then(|entry| entry.last.map(|last| (entry.epoch, entry.run, last))),
            }),
            Phase::Resting | Phase::Unsettled { .. } => {
                if !self.asked_open {
                    self.asked_open = true;
                    commands.push(Command::Tell(ToController::NeedOpen { range: self.range }));
                }
                Err(Refusal::Opening { delay_ms: OPENING_DELAY_MS })
            }
            Phase::Unknown | Phase::Fenced { .. } => Err(Refusal::Opening { delay_ms: OPENING_DELAY_MS }),
        }
    }

    /// Whether a batch that passed `admit_epoch` is new.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn admit_stamp(&self, segment: SegmentId, stamp: &Stamp) -> Result<Admission, Refusal> {
        match self.producers.check(stamp) {
            Check::Take => Ok(Admission::Take { segment }),
            Check::Repeat { end } => Ok(Admission::Repeat { end }),
            Check::Refuse(refusal) => Err(refusal),
        }
    }

    /// A batch has been placed at the assigned end. It is acknowledged when the committed end has passed it.
    pub fn take(&mut self, stamp: &Stamp, records: u32, to: ReplyTo) {
        self.assigned = self.assigned.plus(u64::from(records));
        self.producers.record(stamp, self.assigned, self.retention_ms);
        self.pending.push_back(Pending { end: self.assigned, to, records, repeat: false });
    }

    /// A repeat of a batch that ends at `end`: stored when the committed end has passed that, and behind all that waits, so
    /// that answers stay in order. `Some` if that is now.
    #[must_use]
    pub fn repeat(&mut self, end: Offset, records: u32, to: ReplyTo) -> Option<Due> {
        let pending = Pending { end, to, records, repeat: true };
        if self.pending.is_empty() && end <= self.committed {
            return Some(pending.due());
        }
        self.pending.push_back(pending);
        None
    }

    /// All below `end` (exclusive) is durable here; what has become due is given in order. True if the committed end moved.
    pub fn durable(&mut self, end: Offset, mut due: impl FnMut(Due)) -> bool {
        assert!(end <= self.assigned, "durable {end} above assigned {}", self.assigned);
        self.durable = self.durable.max(end);
        let committed = committed_end(&mut [self.durable], usize::from(self.quorum));
        let moved = committed > self.committed;
        self.committed = self.committed.max(committed);
        while let Some(pending) = self.pending.front()
            && pending.end <= self.committed
        {
            due(pending.due());
            self.pending.pop_front();
        }
        moved
    }

    /// A fetch wants records that an earlier life wrote and that no seal covers yet: ask for the seal. True if it must wait.
    pub fn settle_for_reader(&mut self, offset: Offset, commands: &mut Vec<Command>) -> bool {
        match self.phase {
            Phase::Unsettled { segment } if offset >= self.committed => {
                if !self.asked_seal && !self.asked_open {
                    self.asked_seal = true;
                    commands.push(Command::Tell(ToController::NeedSeal { range: self.range, segment, urgent: true }));
                }
                true
            }
            Phase::Unknown => true,
            Phase::Fenced { .. } => offset >= self.committed,
            Phase::Unsettled { .. } | Phase::Resting | Phase::Open { .. } | Phase::Retired { .. } => false,
        }
    }

    /// The shard's journal has failed: nothing that waits will be known to be stored.
    pub fn write_failed(&mut self, commands: &mut Vec<Command>) {
        self.refuse_pending(&Refusal::WriteFailed, commands);
    }
}

impl Pending {
    pub(super) fn due(&self) -> Due {
        Due { to: self.to, stored: Stored { records: self.records, repeat: self.repeat } }
    }
}

impl Due {
    /// The answer.
    #[must_use]
    pub fn response(&self) -> Response {
        Response::Stored(self.stored)
    }
}
