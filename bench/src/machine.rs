//! What a load cost the machine, and the phase of a report that comes of it all.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sealog_engine::io::device;

use crate::load::driver::Clock;
use crate::load::producers::{Phases, Produced};
use crate::load::samples::Span;
use crate::load::settings::{Pace, Settings};
use crate::load::watch::Watched;
use crate::report::causes;
use crate::report::detail::{Detail, Interval};
use crate::report::disturbance::Disturbance;
use crate::report::summary::{Errors, Percentile, Phase};

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
