//! What time does to the producer: a record's deadline, a delay's end, a linger's end.
//!
//! `next_check_ns` is a bound from below, so that an ordinary turn compares one number; only when it has passed are all ranges looked
//! at, and the bound is set anew.

use sealog_engine::api::error::Outcome;
use sealog_engine::types::Now;
use sealog_engine::types::time::{MICROSECOND_NS, MILLISECOND_NS};

use super::batches::BatchState;
use super::ranges::{Mode, Settle};
use super::{Ask, Producer};

impl Producer {
    pub(super) fn check_time(&mut self, now: Now) {
        if now.monotonic_ns < self.next_check_ns {
            return;
        }
        self.next_check_ns = u64::MAX;
        self.ask(now);
        for range in 0..self.ranges.len() {
            self.check_mode(now, range);
            self.check_open(now, range);
            self.check_deadlines(now, range);
        }
        for ask in [self.open_ask, self.routes_ask] {
            // One that is due and could not be asked waits for its link, not for a time.
            if let Ask::Due { at_ns } = ask
                && at_ns > now.monotonic_ns
            {
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
        }
        self.turn(now);
    }

    fn check_mode(&mut self, now: Now, range: usize) {
        let entry = &mut self.ranges[range];
        let due_ns = match entry.mode {
            Mode::Delayed { until_ns } => until_ns,
            Mode::Leaving { settle: Settle::Due { at_ns } } => at_ns,
            Mode::Sending | Mode::Refreshing | Mode::Draining | Mode::Leaving { .. } | Mode::Gone => return,
        };
        if due_ns > now.monotonic_ns {
            self.next_check_ns = self.next_check_ns.min(due_ns);
            return;
        }
        if matches!(entry.mode, Mode::Delayed { .. }) {
            entry.mode = Mode::Sending;
            self.mark_dirty(range);
        } else {
            entry.mode = Mode::Leaving { settle: Settle::NotAsked };
            self.advance(now, range);
        }
    }

    fn check_open(&mut self, now: Now, range: usize) {
        let Some(slot) = self.ranges[range].open else { return };
        let batch = self.batches.get(slot);
        let linger_ns = batch.opened_ns + self.settings.linger_us * MICROSECOND_NS;
        if batch.deadline_ns <= now.monotonic_ns || linger_ns <= now.monotonic_ns {
            self.close_open(range);
        } else {
            self.next_check_ns = self.next_check_ns.min(linger_ns).min(batch.deadline_ns);
        }
        self.mark_dirty(range);
    }

    /// Tells what must be told by now. A batch that was sent ends its range's run with it.
    fn check_deadlines(&mut self, now: Now, range: usize) {
        let mut given_up = false;
        let mut at = 0;
        while at < self.ranges[range].queue.len() {
            let slot = self.ranges[range].queue[at];
            let batch = self.batches.get(slot);
            if batch.state == BatchState::Done {
                at += 1;
                continue;
            }
            if batch.deadline_ns > now.monotonic_ns {
                self.next_check_ns = self.next_check_ns.min(batch.deadline_ns);
                at += 1;
                continue;
            }
            let code = batch.code;
            let silent = batch.unanswered > 0;
            let outcome = if batch.may_be_stored() { Outcome::Unknown } else { Outcome::NotStored };
            self.tell(slot, outcome, code);
            let link = self.ranges[range].link;
            let timeout_ns = u64::from(self.settings.timeout_ms) * MILLISECOND_NS;
            if silent && self.links.heard_ns(link) + timeout_ns <= now.monotonic_ns {
                self.links.condemn(link);
            }
            if at < self.ranges[range].numbered {
                given_up = true;
                at += 1;
            } else {
                self.ranges[range].queue.remove(at);
                self.batches.release(slot);
            }
        }
        if given_up {
            self.drain(now, range);
        }
    }
}
