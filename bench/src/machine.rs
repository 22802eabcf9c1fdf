//! What a load cost the machine, and the phase of a report that comes of it all.

use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use sealog_engine::io::device;

use crate::load::driver::Clock;
use crate::load::producers::{Phases, Produced};
use crate::load::samples::{Samples, Span};
use crate::load::settings::{Pace, Settings};
use crate::load::watch::{EventKind, Watched};
use crate::report::causes;
use crate::report::detail::{Detail, Interval};
use crate::report::summary::{Disturbance, Errors, Percentile, Phase, Quantiles};

/// Share of an interval's time above which what the hypervisor took marks it.
pub const STEAL_SHARE_MAX: f64 = 0.02;

/// Counters at a moment.
#[derive(Clone, Copy, Default)]
struct Reading {
    flushes: Option<u64>,
    /// Time that the calling thread has run.
    thread: Duration,
}

/// Reads counters when the measured time begins and ends, on the thread that makes the load.
pub struct Machine<'a> {
    data_dir: Option<&'a Path>,
    begin: Reading,
    end: Reading,
}

impl<'a> Machine<'a> {
    /// Of this machine, and of the device under a data directory.
    #[must_use]
    pub fn new(data_dir: Option<&'a Path>) -> Self {
        Self { data_dir, begin: Reading::default(), end: Reading::default() }
    }

    fn read(&self) -> Reading {
        let thread = clock_gettime(ClockId::ThreadCPUTime);
        Reading {
            flushes: self.data_dir.and_then(device::flushes),
            thread: Duration::new(
                u64::try_from(thread.tv_sec).unwrap_or(0),
                u32::try_from(thread.tv_nsec).expect("below a second"),
            ),
        }
    }

    /// The phase of a load.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
    pub fn phase(
        &self,
        name: &str,
        settings: &Settings,
        produced: &Produced,
        watched: &Watched,
        clock: Clock,
    ) -> Phase {
        let offered = match settings.pace {
            Pace::Open { rate, .. } => Some(rate),
            Pace::Closed { .. } => None,
        };
        let mut phase = Phase::new(name, produced.seconds, offered, produced.achieved_rate, &produced.times);
        phase.records = produced.records;
        phase.bytes = produced.bytes;
        phase.errors = Errors {
            not_stored: produced.not_stored,
            unknown: produced.unknown,
            disconnects: produced.disconnects,
            by_cause: produced.causes.iter().map(|(code, count)| (causes::name(*code), *count)).collect(),
        };
        phase.percentiles =
            settings.percentiles.iter().map(|percent| Percentile::of(*percent, &produced.times)).collect();
        let Span { begin_ns, end_ns } = produced.window;
        phase.steal = watched.steal_share(begin_ns, end_ns);
        let stored = (phase.achieved_rate * phase.seconds).max(1.0);
        let flushes = self.end.flushes.zip(self.begin.flushes);
        phase.device_flushes = flushes.map(|(end, begin)| end.saturating_sub(begin));
        phase.flushes_per_record = phase.device_flushes.map(|flushes| flushes as f64 / stored);
        let cpu = self.end.thread.saturating_sub(self.begin.thread);
        phase.client_cpu_us_per_record = (!cpu.is_zero()).then(|| cpu.as_secs_f64() * 1e6 / stored);
        if let Some(samples) = &produced.samples {
            phase.disturbance = Some(Disturbance::new(watched, produced.window, samples));
        }
        let intervals: Vec<Interval> = produced
            .timeline
            .until(end_ns)
            .map(|(span, slice)| Interval::new(span, begin_ns, slice, watched))
            .collect();
        phase.stolen_intervals = intervals.iter().filter(|interval| interval.stolen).count() as u64;
        phase.detail = Some(Box::new(Detail {
            started_ms: clock.wall_start_ms() + begin_ns / 1_000_000,
            times: produced.times.clone(),
            intervals,
            responses: produced.timeline.until(end_ns).map(|(_, slice)| slice.response.clone()).collect(),
        }));
        phase
    }
}

impl Phases for Machine<'_> {
    fn begin(&mut self) {
        self.begin = self.read();
    }

    fn end(&mut self) {
        self.end = self.read();
    }
}

impl Disturbance {
    /// Records near the rolls and checkpoints of the measured time, against the others. Those before and behind it are near as
    /// well, but do not count.
    fn new(watched: &Watched, window: Span, samples: &Samples) -> Self {
        let spans: Vec<Span> = watched.events.iter().map(|event| event.span).collect();
        let count = |kind| watched.count(kind, window.begin_ns, window.end_ns);
        let exact = watched.within(window.begin_ns, window.end_ns).filter(|event| event.exact).count();
        let (near, others) = samples.split(&spans);
        Self::of(count(EventKind::Roll), count(EventKind::Checkpoint), exact as u64, &near, &others, samples.dropped())
    }

    fn of(
        rolls: u64,
        checkpoints: u64,
        exact: u64,
        near: &Histogram<u64>,
        others: &Histogram<u64>,
        dropped: u64,
    ) -> Self {
        let (near, others) = (Quantiles::of(near), Quantiles::of(others));
        Self {
            rolls,
            checkpoints,
            events_seen: exact,
            near,
            others,
            ratio_p999: near.p999_us.zip(others.p999_us).map(|(near, others)| near / others),
            dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::watch::Event;

    const MS: u64 = 1_000_000;

    #[test]
    fn records_near_an_event_of_the_warm_up_are_near_but_it_does_not_count() {
        let at = |ms: u64| Span { begin_ns: ms * MS, end_ns: ms * MS };
        let event = |kind, ms| Event { kind, span: at(ms), count: 1, exact: true };
        let events = vec![
            event(EventKind::Roll, 950),
            event(EventKind::Roll, 1_500),
            event(EventKind::Checkpoint, 1_700),
            Event { count: 2, exact: false, ..event(EventKind::Roll, 1_500) },
        ];
        let mut watched = Watched::default();
        watched.events = events;
        let mut samples = Samples::new(100_000);
        for us in 0..100_000 {
            let intended_ns = 1_000 * MS + us * 10_000;
            let quick = intended_ns > 1_050 * MS && intended_ns.abs_diff(1_500 * MS) > 100 * MS;
            samples.add(intended_ns, intended_ns + if quick { MS } else { 3 * MS });
        }
        let window = Span { begin_ns: 1_000 * MS, end_ns: 2_000 * MS };
        let found = Disturbance::new(&watched, window, &samples);
        assert_eq!((found.rolls, found.checkpoints, found.events_seen, found.dropped), (3, 1, 2, 0));
        assert_eq!(found.near.samples + found.others.samples, 100_000);
        assert!(found.near.samples.abs_diff(45_000) < 10, "50 ms, 200 ms and 200 ms of 1 s: {}", found.near.samples);
        assert!(found.ratio_p999.is_some_and(|ratio| (ratio - 3.0).abs() < 0.01), "{:?}", found.ratio_p999);
    }
}
