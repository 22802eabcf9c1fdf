//! What is to happen, in the order of virtual time, and the clocks that read it.
//!
//! ```text
//! at (ns, ascending) | tie (a number given when the event is put in) | event
//! ```
//! Two events at one time happen in the order in which they were put in: with that the order is total, and a seed has one run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sealog_engine::types::Now;
use sealog_engine::types::time::MILLISECOND_NS;

/// One event that waits.
struct Scheduled<E> {
    at_ns: u64,
    tie: u64,
    event: E,
}

impl<E> Scheduled<E> {
    fn order(&self) -> (u64, u64) {
        (self.at_ns, self.tie)
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// Events that wait, and the virtual time, which is that of the last one taken.
pub struct Queue<E> {
    waiting: BinaryHeap<Reverse<Scheduled<E>>>,
    now_ns: u64,
    tie: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { waiting: BinaryHeap::new(), now_ns: 0, tie: 0 }
    }
}

impl<E> Queue<E> {
    /// Virtual time in ns since the simulation began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts an event in, to happen at `at_ns`, or now if that has passed.
    pub fn put(&mut self, at_ns: u64, event: E) {
        let at_ns = at_ns.max(self.now_ns);
        self.tie += 1;
        self.waiting.push(Reverse(Scheduled { at_ns, tie: self.tie, event }));
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse(next)| next.at_ns)
    }

    /// Takes the next event, if there is one at or before `until_ns`, and moves the time to it.
    pub fn take(&mut self, until_ns: u64) -> Option<E> {
        if self.next_ns()? > until_ns {
            return None;
        }
        let Reverse(next) = self.waiting.pop()?;
        self.now_ns = next.at_ns;
        Some(next.event)
    }

    /// Moves the time on where nothing happens before `to_ns`.
    ///
    /// # Panics
    /// If an event waits before that.
    pub fn skip_to(&mut self, to_ns: u64) {
        assert!(self.next_ns().is_none_or(|next| next >= to_ns), "no event may be skipped");
        self.now_ns = self.now_ns.max(to_ns);
    }
}

/// The clocks of one machine: a monotonic one that begins anywhere at each start of a process, and a wall clock that jumps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What the monotonic clock shows at `began_ns`.
    origin_ns: u64,
    /// Virtual time at which the process began.
    began_ns: u64,
    /// What the wall clock shows at virtual time 0.
    wall_ms: i64,
}

/// 2026-01-01 in ms since the Unix epoch: where wall clocks begin.
const WALL_START_MS: i64 = 1_767_225_600_000;

impl Default for Clock {
    fn default() -> Self {
        Self { origin_ns: 0, began_ns: 0, wall_ms: WALL_START_MS }
    }
}

impl Clock {
    /// A process begins at virtual time `now_ns`, with its monotonic clock at `origin_ns`.
    pub fn restart(&mut self, now_ns: u64, origin_ns: u64) {
        self.origin_ns = origin_ns;
        self.began_ns = now_ns;
    }

    /// The wall clock jumps, either way. It never shows a time before 1970.
    pub fn jump(&mut self, by_ms: i64) {
        self.wall_ms = self.wall_ms.saturating_add(by_ms);
    }

    /// Both clocks at virtual time `at_ns`.
    #[must_use]
    pub fn read(&self, at_ns: u64) -> Now {
        let elapsed_ms = i64::try_from(at_ns / MILLISECOND_NS).expect("virtual time fits 63 bits of ms");
        Now {
            monotonic_ns: self.origin_ns + (at_ns - self.began_ns),
            wall_ms: u64::try_from(self.wall_ms.saturating_add(elapsed_ms)).unwrap_or(0),
        }
    }

    /// The virtual time at which the monotonic clock shows `monotonic_ns`; the process's beginning for what lies before.
    #[must_use]
    pub fn virtual_ns(&self, monotonic_ns: u64) -> u64 {
        self.began_ns.saturating_add(monotonic_ns.saturating_sub(self.origin_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_the_order_of_time_and_then_of_being_put_in() {
        let mut queue = Queue::default();
        for (at, event) in [(20, 'c'), (10, 'a'), (20, 'd'), (10, 'b')] {
            queue.put(at, event);
        }
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(20).map(|event| (queue.now_ns(), event))).collect();
        assert_eq!(taken, [(10, 'a'), (10, 'b'), (20, 'c'), (20, 'd')]);
    }

    #[test]
    fn an_event_of_the_past_happens_now_and_one_behind_the_bound_waits() {
        let mut queue = Queue::default();
        queue.skip_to(100);
        queue.put(5, "late");
        queue.put(200, "later");
        assert_eq!(queue.take(150), Some("late"));
        assert_eq!(queue.now_ns(), 100);
        assert_eq!(queue.take(150), None);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_wall_clock_jumps_and_a_monotonic_one_does_not() {
        let mut clock = Clock::default();
        clock.restart(5 * MILLISECOND_NS, 77);
        let before = clock.read(9 * MILLISECOND_NS);
        clock.jump(-4_000_000_000_000);
        let after = clock.read(10 * MILLISECOND_NS);
        assert_eq!(before.monotonic_ns, 77 + 4 * MILLISECOND_NS);
        assert_eq!(after.monotonic_ns, 77 + 5 * MILLISECOND_NS);
        assert_eq!((before.wall_ms, after.wall_ms), (1_767_225_600_009, 0));
        assert_eq!(clock.virtual_ns(after.monotonic_ns), 10 * MILLISECOND_NS);
        assert_eq!(clock.virtual_ns(3), 5 * MILLISECOND_NS);
    }
}
