//! Looks at the machine and at the node again and again while a load runs, on a thread of its own: steal, rolls, checkpoints. What was done
//! to the node is an event as well.
//!
//! ```text
//! look ──── 100 ms ──── look ──── 100 ms ──── look
//!            └ two rolls ┘   the counter grew by 2, the time is that of the last: the other one was somewhere in between
//! ```
//! A node tells how many rolls and checkpoints there were, and when the last of each was. Where there were more of a kind than one
//! within a look, the others are known to lie between the looks only: an event that is not *exact*, as long as that time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sealog_engine::io::cpu;
use serde_json::Value;

use super::disturb::{Act, Acted};
use super::driver::Clock;
use super::samples::Span;
use super::status::{StatusSource, shards};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);
/// Hundredths of a second: the unit of `/proc/stat`.
const TICKS_A_SECOND: f64 = 100.0;

/// What disturbs a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    Roll,
    Checkpoint,
    Split,
    Merge,
}

/// A roll, a checkpoint, a split or a merge; or several of one kind between two looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub kind: EventKind,
    /// On the clock of the load.
    pub span: Span,
    pub count: u64,
    /// Whether the node told its time; else it lies somewhere in the span.
    pub exact: bool,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    pub events: Vec<Event>,
    /// Time of a look, and the steal ticks since boot.
    steal: Vec<(u64, u64)>,
}

/// A thread that looks.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Watched>,
}

impl Watch {
    /// Begins to look, at the node if there is a source.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(source: Option<StatusSource>, clock: Clock) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
            let mut watched = Watched::default();
            let mut last: Option<(u64, Value)> = None;
            loop {
                let over = stopped.load(Ordering::Acquire);
                watched.look_at_steal(clock.now().monotonic_ns, cpu::steal_ticks());
                if let Some(status) = source.as_ref().and_then(|source| source()) {
                    let at_ns = clock.now().monotonic_ns;
                    if let Some((last_ns, before)) = &last {
                        let between = Span { begin_ns: *last_ns, end_ns: at_ns };
                        watched.compare(before, &status, between, clock.wall_start_ms());
                    }
                    last = Some((at_ns, status));
                }
                if over {
                    return watched;
                }
                std::thread::sleep(LOOK);
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Looks once more, and gives what was seen.
    ///
    /// # Panics
    /// If the thread did.
    #[must_use]
    pub fn finish(self) -> Watched {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the watch does not panic")
    }
}

impl Watched {
    fn look_at_steal(&mut self, at_ns: u64, ticks: Option<u64>) {
        self.steal.extend(ticks.map(|ticks| (at_ns, ticks)));
    }

    /// Notes what has happened between two looks.
    fn compare(&mut self, before: &Value, after: &Value, between: Span, wall_start_ms: u64) {
        let number = |shard: &Value, name: &str| shard[name].as_u64().unwrap_or(0);
        let ns = |wall_ms: u64| wall_ms.saturating_sub(wall_start_ms) * 1_000_000;
        for (old, new) in shards(before).zip(shards(after)) {
            for (kind, counter, begin, end) in [
                (EventKind::Roll, "rolls", "last_roll_wall_ms", "last_roll_wall_ms"),
                (EventKind::Checkpoint, "checkpoints", "last_checkpoint_begin_wall_ms", "last_checkpoint_end_wall_ms"),
            ] {
                let count = number(new, counter).saturating_sub(number(old, counter));
                if count == 0 {
                    continue;
                }
                let span = Span { begin_ns: ns(number(new, begin)), end_ns: ns(number(new, end)) };
                self.events.push(Event { kind, span, count: 1, exact: true });
                if count > 1 {
                    let span = Span { begin_ns: between.begin_ns, end_ns: span.end_ns.max(between.begin_ns) };
                    self.events.push(Event { kind, span, count: count - 1, exact: false });
                }
            }
        }
    }

    /// Notes the splits and merges that were ordered, with the times in which they were under way. A roll that was ordered is seen at the
    /// node, as any other.
    pub(crate) fn note_acts(&mut self, acts: &[Acted]) {
        for Acted { asked, span, error, .. } in acts {
            let kind = match asked.what {
                Act::Roll => continue,
                Act::Split => EventKind::Split,
                Act::Merge => EventKind::Merge,
            };
            let span = span.filter(|_| error.is_none());
            self.events.extend(span.map(|span| Event { kind, span, count: 1, exact: true }));
        }
    }

    /// The times of the events of some kinds.
    pub(crate) fn spans_of(&self, kinds: &[EventKind]) -> Vec<Span> {
        self.events.iter().filter(|event| kinds.contains(&event.kind)).map(|event| event.span).collect()
    }

    /// How many of a kind ended from `from_ns` to `until_ns`, exclusive.
    #[must_use]
    pub fn count(&self, kind: EventKind, from_ns: u64, until_ns: u64) -> u64 {
        self.within(from_ns, until_ns).filter(|event| event.kind == kind).map(|event| event.count).sum()
    }

    /// The events that ended from `from_ns` to `until_ns`, exclusive.
    pub fn within(&self, from_ns: u64, until_ns: u64) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| from_ns <= event.span.end_ns && event.span.end_ns < until_ns)
    }

    /// Share of the machine's time that the hypervisor gave to others from one moment to another, 0 to 1. `None` without looks.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "times and ticks of a run are far below 2^53")]
    pub fn steal_share(&self, from_ns: u64, until_ns: u64) -> Option<f64> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let seconds = until_ns.saturating_sub(from_ns).max(1) as f64 / 1e9;
        let ticks = self.ticks_at(until_ns)? - self.ticks_at(from_ns)?;
        Some(ticks / TICKS_A_SECOND / cpus / seconds)
    }

    /// Ticks at a moment, between two looks as if they went evenly.
    #[expect(clippy::cast_precision_loss, reason = "times and ticks of a run are far below 2^53")]
    fn ticks_at(&self, at_ns: u64) -> Option<f64> {
        let behind = self.steal.partition_point(|(look_ns, _)| *look_ns <= at_ns);
        let Some((after_ns, after)) = self.steal.get(behind).copied() else {
            return self.steal.last().map(|(_, ticks)| *ticks as f64);
        };
        let Some((before_ns, before)) = behind.checked_sub(1).map(|index| self.steal[index]) else {
            return Some(after as f64);
        };
        let share = (at_ns - before_ns) as f64 / (after_ns - before_ns).max(1) as f64;
        Some(before as f64 + share * after.saturating_sub(before) as f64)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MS: u64 = 1_000_000;

    fn status(rolls: u64, roll_ms: u64, checkpoints: u64, checkpoint_ms: (u64, u64)) -> Value {
        json!({"counters": [{
            "rolls": rolls, "last_roll_wall_ms": roll_ms, "checkpoints": checkpoints,
            "last_checkpoint_begin_wall_ms": checkpoint_ms.0, "last_checkpoint_end_wall_ms": checkpoint_ms.1,
        }]})
    }

    fn span(begin_ms: u64, end_ms: u64) -> Span {
        Span { begin_ns: begin_ms * MS, end_ns: end_ms * MS }
    }

    #[test]
    fn an_event_has_the_time_that_the_node_tells_on_the_clock_of_the_load() {
        let mut watched = Watched::default();
        watched.compare(&status(7, 4_000, 0, (0, 0)), &status(7, 4_000, 0, (0, 0)), span(0, 100), 5_000);
        assert_eq!(watched.events, [], "nothing happened");
        watched.compare(&status(7, 4_000, 0, (0, 0)), &status(8, 5_150, 1, (5_120, 5_160)), span(100, 200), 5_000);
        let exact = |kind, span| Event { kind, span, count: 1, exact: true };
        assert_eq!(
            watched.events,
            [exact(EventKind::Roll, span(150, 150)), exact(EventKind::Checkpoint, span(120, 160))]
        );
    }

    #[test]
    fn of_three_rolls_within_a_look_two_lie_somewhere_in_it() {
        let mut watched = Watched::default();
        watched.compare(&status(1, 0, 0, (0, 0)), &status(4, 5_180, 0, (0, 0)), span(100, 200), 5_000);
        let rolls: Vec<_> = watched.events.iter().map(|e| (e.span, e.count, e.exact)).collect();
        assert_eq!(rolls, [(span(180, 180), 1, true), (span(100, 180), 2, false)]);
        assert_eq!(watched.count(EventKind::Roll, 0, 1_000 * MS), 3);
    }

    #[test]
    fn events_of_the_warm_up_do_not_count() {
        let mut watched = Watched::default();
        watched.compare(&status(0, 0, 0, (0, 0)), &status(1, 5_050, 0, (0, 0)), span(0, 100), 5_000);
        watched.compare(&status(1, 5_050, 0, (0, 0)), &status(2, 5_150, 0, (0, 0)), span(100, 200), 5_000);
        assert_eq!(watched.count(EventKind::Roll, 100 * MS, 200 * MS), 1);
    }

    #[test]
    fn two_shards_that_roll_at_once_are_two_events() {
        let both = |rolls: u64| json!({"counters": [{"rolls": rolls}, {"rolls": rolls}]});
        let mut watched = Watched::default();
        watched.compare(&both(0), &both(1), span(0, 100), 0);
        assert_eq!(watched.count(EventKind::Roll, 0, u64::MAX), 2);
    }

    #[test]
    fn steal_between_two_looks_is_shared_out_evenly() {
        let mut watched = Watched::default();
        assert_eq!(watched.steal_share(0, 1), None);
        for (at_ms, ticks) in [(0, 0), (1_000, 10), (2_000, 10)] {
            watched.look_at_steal(at_ms * MS, Some(ticks));
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let share =
            |from_ms: u64, until_ms: u64| watched.steal_share(from_ms * MS, until_ms * MS).expect("looks") * cpus;
        assert!((share(0, 500) - 0.1).abs() < 1e-9, "five of ten ticks in half a second");
        assert!(share(1_000, 2_000).abs() < 1e-9 && share(3_000, 4_000).abs() < 1e-9);
    }
}
