//! Batches under way, each in a slot that keeps its memory from one batch to the next.
//!
//! A *transmission* is one writing of a batch to a connection; its number goes out as correlation id together with the slot, so an
//! answer finds its batch without a search, and an answer to an earlier transmission, or to a batch that is no longer there, is known
//! as such.
//!
//! ```text
//! correlation   | tag, 8 bits = 0 | slot, 24 bits | transmission, 32 bits |
//! ```

use sealog_engine::format::BatchBuilder;
use sealog_engine::format::batch::Stamp;
use sealog_engine::types::Sequence;

/// Slots that there can be.
const SLOTS_MAX: usize = 1 << 24;

/// Tokens of consecutive numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TokenRun {
    pub(super) first: u64,
    pub(super) count: u32,
}

/// How far a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BatchState {
    /// Nobody's.
    Free,
    /// Records are still added.
    Open,
    /// To be sent, or sent again.
    Waiting,
    /// Sent; an answer is awaited.
    Sent,
    /// The application has been told how it ended.
    Done,
}

/// One batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) builder: BatchBuilder,
    pub(super) tokens: Vec<TokenRun>,
    /// Bytes that its records count for in the bound of bytes under way.
    pub(super) cost: u64,
    /// When the application must have been told, on the monotonic clock.
    pub(super) deadline_ns: u64,
    /// When its first record came.
    pub(super) opened_ns: u64,
    /// The range's slot.
    pub(super) range: usize,
    /// Its number, once it is numbered.
    pub(super) sequence: Sequence,
    pub(super) state: BatchState,
    /// First and last transmission; `None` before the first.
    transmissions: Option<(u32, u32)>,
    /// Transmissions whose answer may still come.
    pub(super) unanswered: u32,
    /// The answer to some transmission was lost with its connection: it may be stored.
    pub(super) lost: bool,
    /// Code of the last refusal; 0: none.
    pub(super) code: u16,
}

impl Batch {
    /// It may be stored, for all that is known here.
    pub(super) fn may_be_stored(&self) -> bool {
        self.lost || self.unanswered > 0
    }

    /// Its bytes under a stamp. The same stamp gives the same bytes.
    pub(super) fn bytes(&mut self, stamp: Stamp) -> &[u8] {
        self.builder.finish(stamp)
    }

    /// Forgets every transmission: no answer to one will find it.
    pub(super) fn forget_transmissions(&mut self) {
        self.transmissions = None;
        self.unanswered = 0;
        self.lost = false;
    }
}

/// All slots.
#[derive(Debug)]
pub(super) struct Batches {
    slots: Vec<Batch>,
    free: Vec<usize>,
    next_transmission: u32,
    batch_bytes_max: usize,
}

impl Batches {
    pub(super) fn new(batch_bytes_max: usize) -> Self {
        Self { slots: vec![], free: vec![], next_transmission: 0, batch_bytes_max }
    }

    /// An empty open batch.
    pub(super) fn open(&mut self, range: usize, opened_ns: u64, deadline_ns: u64) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            assert!(self.slots.len() < SLOTS_MAX, "records under way are bounded below the slots");
            self.slots.push(Batch {
                builder: BatchBuilder::new(self.batch_bytes_max),
                tokens: Vec::with_capacity(1),
                cost: 0,
                deadline_ns: 0,
                opened_ns: 0,
                range: 0,
                sequence: Sequence(0),
                state: BatchState::Free,
                transmissions: None,
                unanswered: 0,
                lost: false,
                code: 0,
            });
            self.slots.len() - 1
        });
        let batch = &mut self.slots[slot];
        debug_assert_eq!(batch.state, BatchState::Free);
        batch.state = BatchState::Open;
        batch.range = range;
        batch.opened_ns = opened_ns;
        batch.deadline_ns = deadline_ns;
        batch.cost = 0;
        batch.code = 0;
        slot
    }

    /// Gives a slot back.
    pub(super) fn release(&mut self, slot: usize) {
        let batch = &mut self.slots[slot];
        batch.state = BatchState::Free;
        batch.builder.clear();
        batch.tokens.clear();
        batch.forget_transmissions();
        self.free.push(slot);
    }

    #[inline]
    pub(super) fn get(&mut self, slot: usize) -> &mut Batch {
        &mut self.slots[slot]
    }

    /// Notes one more transmission and gives its correlation id.
    #[inline]
    pub(super) fn transmit(&mut self, slot: usize) -> u64 {
        let number = self.next_transmission;
        self.next_transmission = number.wrapping_add(1);
        let batch = &mut self.slots[slot];
        let first = batch.transmissions.map_or(number, |t| t.0);
        batch.transmissions = Some((first, number));
        batch.unanswered += 1;
        batch.state = BatchState::Sent;
        (slot as u64) << 32 | u64::from(number)
    }

    /// The batch that an answer is for, and whether to its last transmission; `None` if it is not awaited any more.
    #[inline]
    pub(super) fn answered(&mut self, correlation: u64) -> Option<(usize, bool)> {
        let slot = usize::try_from(correlation >> 32).ok()?;
        let number = u32::try_from(correlation & u64::from(u32::MAX)).ok()?;
        let batch = self.slots.get_mut(slot)?;
        if matches!(batch.state, BatchState::Free | BatchState::Open | BatchState::Done) {
            return None;
        }
        let (first, last) = batch.transmissions?;
        if number.wrapping_sub(first) > last.wrapping_sub(first) {
            return None;
        }
        batch.unanswered = batch.unanswered.saturating_sub(1);
        Some((slot, number == last && batch.state == BatchState::Sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_finds_its_batch_and_only_while_it_is_awaited() {
        let mut batches = Batches::new(1024);
        let slot = batches.open(3, 0, 100);
        assert_eq!(batches.answered((slot as u64) << 32), None);
        let first = batches.transmit(slot);
        let second = batches.transmit(slot);
        assert_eq!(batches.answered(first), Some((slot, false)));
        assert!(batches.get(slot).may_be_stored());
        assert_eq!(batches.answered(second), Some((slot, true)));
        assert!(!batches.get(slot).may_be_stored());
        assert_eq!(batches.answered(second + 1), None);
        assert_eq!(batches.answered(9 << 32), None);
        batches.release(slot);
        assert_eq!(batches.answered(second), None);
        let again = batches.open(4, 0, 100);
        assert_eq!(again, slot);
        let third = batches.transmit(again);
        assert_eq!(batches.answered(second), None);
        assert_eq!(batches.answered(third), Some((slot, true)));
    }
}
