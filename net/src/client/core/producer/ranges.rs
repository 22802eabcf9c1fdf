//! What the producer knows of each range: where it is, how far its numbering is, and which batches wait for it.
//!
//! ```text
//! queue   | sent … | sent before, to be sent again … | not yet numbered … |   then the open batch
//!         0        sent                              numbered
//! ```
//! The batches up to `numbered` have consecutive sequences of the current run. A batch leaves at the front once it is done.
//!
//! ```text
//!            refused: delay          delay over
//! Sending ------------------> Delayed ---------+       Draining: no batch is sent; when every answer that can come has come,
//!    ^  ^--------------------------------------+       what is known not to be stored is numbered anew in the next run.
//!    |  ---- refused: refresh --> Refreshing --+       Leaving: sealed or gone; when all is settled, what is not stored goes to
//!    +----------- Draining <--- a batch was given up   the ranges that took its place. Gone: only its run is remembered.
//! ```

use std::collections::VecDeque;

use sealog_engine::api::response::Route;
use sealog_engine::types::{Epoch, KeySpan, RangeId, Run, Sequence};

use super::batches::{BatchState, Batches};
use crate::client::core::links::LinkId;

/// What a range's batches wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Nothing.
    Sending,
    /// A time on the monotonic clock.
    Delayed { until_ns: u64 },
    /// Newer routes.
    Refreshing,
    /// The answers still to come; then the next run.
    Draining,
    /// The answers still to come, or what a replica of the sealed range says; then other ranges.
    Leaving { settle: Settle },
    /// Nothing: it is not written any more.
    Gone,
}

/// Whether a replica was asked what is stored of us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Settle {
    NotAsked,
    Asked,
    /// To be asked again at this time.
    Due {
        at_ns: u64,
    },
}

/// Refusals in a row after which a range is tried with one batch at a time.
const STRIKES_OF_DOUBT: u32 = 3;

/// One range.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) id: RangeId,
    pub(super) span: KeySpan,
    pub(super) epoch: Epoch,
    pub(super) link: LinkId,
    pub(super) run: Run,
    /// Sequence of the next batch to be numbered.
    next: Sequence,
    /// The batch that takes records.
    pub(super) open: Option<usize>,
    pub(super) queue: VecDeque<usize>,
    pub(super) numbered: usize,
    pub(super) sent: usize,
    pub(super) mode: Mode,
    /// Refusals since something was last stored.
    pub(super) strikes: u32,
    /// It is in the producer's list of ranges to look at.
    pub(super) dirty: bool,
}

impl Range {
    pub(super) fn new(route: &Route, link: LinkId) -> Self {
        Self {
            id: route.range,
            span: route.span,
            epoch: route.epoch,
            link,
            run: Run(0),
            next: Sequence(0),
            open: None,
            queue: VecDeque::new(),
            numbered: 0,
            sent: 0,
            mode: Mode::Sending,
            strikes: 0,
            dirty: false,
        }
    }

    /// Numbers the first batch that has no number.
    pub(super) fn number(&mut self, batches: &mut Batches) {
        let slot = self.queue[self.numbered];
        batches.get(slot).sequence = self.next;
        self.next = self.next.next();
        self.numbered += 1;
    }

    /// Where a numbered batch stands in the queue.
    pub(super) fn position(&self, batches: &mut Batches, slot: usize) -> usize {
        let front = *self.queue.front().expect("a batch under way is in its range's queue");
        let behind = batches.get(slot).sequence.0 - batches.get(front).sequence.0;
        usize::try_from(behind).expect("a queue is in memory")
    }

    /// All from `position` on is to be sent again, in order.
    pub(super) fn go_back(&mut self, batches: &mut Batches, position: usize) {
        for at in position..self.sent {
            let batch = batches.get(self.queue[at]);
            if batch.state == BatchState::Sent {
                batch.state = BatchState::Waiting;
            }
        }
        self.sent = self.sent.min(position);
    }

    /// The connection is gone: the answers to all that was sent over it are lost.
    pub(super) fn lose_answers(&mut self, batches: &mut Batches) {
        for at in 0..self.numbered {
            let batch = batches.get(self.queue[at]);
            batch.lost |= batch.unanswered > 0;
            batch.unanswered = 0;
        }
        self.go_back(batches, 0);
    }

    /// Releases the batches at the front that are done.
    #[inline]
    pub(super) fn pop_done(&mut self, batches: &mut Batches) {
        while self.numbered > 0 {
            let front = self.queue[0];
            if batches.get(front).state != BatchState::Done {
                return;
            }
            self.queue.pop_front();
            self.numbered -= 1;
            self.sent = self.sent.saturating_sub(1);
            batches.release(front);
        }
    }

    /// Takes every number back: what is done is released, the rest waits without a number. The next run begins at 0.
    pub(super) fn unnumber(&mut self, batches: &mut Batches) {
        let numbered = self.numbered;
        let mut at = 0;
        self.queue.retain(|slot| {
            at += 1;
            let batch = batches.get(*slot);
            if at > numbered {
                return true;
            }
            if batch.state == BatchState::Done {
                batches.release(*slot);
                return false;
            }
            batch.state = BatchState::Waiting;
            batch.forget_transmissions();
            true
        });
        (self.numbered, self.sent) = (0, 0);
        self.run = Run(self.run.0.checked_add(1).expect("a run fits 32 bits"));
        self.next = Sequence(0);
    }

    /// Whether it was refused so often that one batch at a time is enough to find out whether it takes any, and one is on its way.
    pub(super) fn waits_for_a_try(&self, batches: &mut Batches) -> bool {
        let is_tried = |slot: &usize| batches.get(*slot).state == BatchState::Sent;
        self.strikes >= STRIKES_OF_DOUBT && self.queue.iter().take(self.sent).any(is_tried)
    }

    /// Whether some numbered batch has an answer still to come.
    pub(super) fn awaits_answers(&self, batches: &mut Batches) -> bool {
        self.queue.iter().take(self.numbered).any(|slot| batches.get(*slot).unanswered > 0)
    }

    /// Whether some numbered batch may be stored, with no answer to come.
    pub(super) fn lost_answers(&self, batches: &mut Batches) -> bool {
        self.queue.iter().take(self.numbered).any(|slot| {
            let batch = batches.get(*slot);
            batch.lost && batch.state != BatchState::Done
        })
    }
}
