//! Runs with a reader: catching up alone, at the tail of a load, and beside a load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::load::content::LoadRun;
use crate::load::driver::Clock;
use crate::load::producers::OnDisconnect;
use crate::load::reader::{self, Caught, Delivered, ReaderError, Tail};
use crate::load::recorder::Recorder;
use crate::load::samples::Span;
use crate::load::settings::{Pace, Settings};
use crate::load::timeline::Timeline;
use crate::report::detail::Detail;
use crate::report::summary::{Percentile, Phase, Report};
use crate::run::{RunError, Target};

/// Records in flight while a topic is filled, unless a batch has more.
const FILL_INFLIGHT: u32 = 256;
/// How often is looked whether what a load stored has been delivered.
const LOOK: Duration = Duration::from_millis(10);

/// What a reader that caught up found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Catchup {
    pub records: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub records_a_second: f64,
    pub bytes_a_second: f64,
    pub gaps: u64,
}

/// A load alone against one beside a reader that catches up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mixed {
    pub rounds: u32,
    /// Medians of the rounds, in microseconds.
    pub alone_p99_us: Option<f64>,
    pub beside_p99_us: Option<f64>,
    /// Beside over alone.
    pub ratio_p99: Option<f64>,
    /// All readings together.
    pub reader: Catchup,
}

/// How a topic is filled by batches of so many records: as fast as it goes.
#[must_use]
pub fn fill_pace(batch: u32) -> Pace {
    Pace::Closed { inflight: FILL_INFLIGHT.max(batch) }
}

impl From<Caught> for Catchup {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn from(caught: Caught) -> Self {
        let seconds = caught.seconds.max(f64::MIN_POSITIVE);
        Self {
            records: caught.records,
            bytes: caught.bytes,
            seconds: caught.seconds,
            records_a_second: caught.records as f64 / seconds,
            bytes_a_second: caught.bytes as f64 / seconds,
            gaps: caught.gaps,
        }
    }
}

impl Target {
    /// Writes to a topic for so long, as fast as it goes, so that there is something to read.
    ///
    /// # Errors
    /// The load could not be made.
    pub fn fill(&self, settings: &Settings, seconds: f64, stop: &AtomicBool) -> Result<(), RunError> {
        let pace = fill_pace(settings.batch);
        let settings = Settings {
            pace,
            seconds,
            warmup_seconds: 0.0,
            disturbance: false,
            disturb: Vec::new(),
            ..settings.clone()
        };
        self.load("fill", &settings, OnDisconnect::Retry, stop).map(|_| ())
    }

    /// Reads a topic from its beginning.
    ///
    /// # Errors
    /// It cannot be read to its end.
    pub fn catch_up(&self, settings: &Settings, stop: &AtomicBool) -> Result<Catchup, RunError> {
        let patience = Duration::from_millis(settings.timeout_ms.into());
        Ok(reader::catch_up(&settings.topic, self.sockets()?, patience, stop)?.into())
    }

    /// A load, and a reader at its tail: a phase of the load, and one of the time from the intended send to the delivery.
    ///
    /// # Errors
    /// Load or reader could not be run.
    ///
    /// # Panics
    /// If the reader did.
    pub fn tail(&self, settings: &Settings, stop: &AtomicBool) -> Result<[Phase; 2], RunError> {
        let (clock, run) = (Clock::start(), LoadRun::draw());
        let (addresses, over, seen) = (self.sockets()?, AtomicBool::new(false), AtomicU64::new(0));
        let (ready, is_ready) = mpsc::channel();
        std::thread::scope(|scope| {
            let (over, seen) = (&over, &seen);
            let reader = std::thread::Builder::new().name("tail".to_owned()).spawn_scoped(scope, move || {
                let (topic, room) = (&settings.topic, records_expected(settings));
                Tail { topic, addresses, run, clock, room, ready, seen, stop: over }.read()
            });
            let reader = reader.map_err(crate::load::producers::LoadError::Io)?;
            let patience = Duration::from_millis(settings.timeout_ms.into());
            let loaded = match is_ready.recv_timeout(patience) {
                Ok(()) => {
                    let loaded = self.load_as("load", settings, OnDisconnect::Retry, stop, run, clock);
                    if let Ok((_, ledger, _)) = &loaded {
                        // The slowest deliveries belong to the figures as well: what was stored is waited for.
                        wait_for(ledger.acknowledged(), seen, patience, || reader.is_finished());
                    }
                    Some(loaded)
                }
                Err(_) => None,
            };
            over.store(true, Ordering::Relaxed);
            let delivered = reader.join().expect("the reader does not panic")?;
            let (load, _, window) = loaded.ok_or(ReaderError::Stalled(patience))??;
            let delivery = delivery_phase(&load, &delivered, window, settings);
            Ok([load, delivery])
        })
    }

    /// The same load alone and beside a reader that catches up again and again, alternately. The report's phases are the median runs of
    /// both by p99; `runs` has all of them.
    ///
    /// # Errors
    /// Load or reader could not be run.
    ///
    /// # Panics
    /// If the reader did.
    pub fn mixed(
        &self,
        settings: &Settings,
        rounds: u32,
        report: &mut Report,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), RunError> {
        let (mut alone, mut beside, mut all) = (Vec::new(), Vec::new(), Caught::default());
        for round in 1..=rounds {
            tell(&format!("round {round} of {rounds}: alone"));
            alone.push(self.load("alone", settings, OnDisconnect::Retry, stop)?.0);
            tell(&format!("round {round} of {rounds}: beside a reader"));
            let over = AtomicBool::new(false);
            let (phase, caught) = std::thread::scope(|scope| {
                let reader = scope.spawn(|| self.read_until(settings, &over));
                let phase = self.load("beside a reader", settings, OnDisconnect::Retry, stop);
                over.store(true, Ordering::Relaxed);
                let caught = reader.join().expect("the reader does not panic");
                Ok::<_, RunError>((phase?.0, caught?))
            })?;
            beside.push(phase);
            all.add(&caught);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let mut both = Vec::new();
        for runs in [alone, beside] {
            both.extend(runs.iter().cloned());
            report.take_runs(runs);
        }
        report.runs = both;
        let p99 = |at: usize| report.phases[at].response.p99_us;
        let (alone_p99_us, beside_p99_us) = (p99(0), p99(1));
        let ratio_p99 = beside_p99_us.zip(alone_p99_us).map(|(beside, alone)| beside / alone);
        let rounds = u32::try_from(report.runs.len() / 2).expect("as many as were asked for at most");
        report.mixed = Some(Mixed { rounds, alone_p99_us, beside_p99_us, ratio_p99, reader: all.into() });
        Ok(())
    }

    /// Reads the topic again and again.
    fn read_until(&self, settings: &Settings, over: &AtomicBool) -> Result<Caught, RunError> {
        let patience = Duration::from_millis(settings.timeout_ms.into());
        let mut all = Caught::default();
        while !over.load(Ordering::Relaxed) {
            let caught = reader::catch_up(&settings.topic, self.sockets()?, patience, over)?;
            all.add(&caught);
        }
        Ok(all)
    }
}

/// Waits until so many have been seen, none has come for `patience`, or no more will.
fn wait_for(wanted: u64, seen: &AtomicU64, patience: Duration, is_over: impl Fn() -> bool) {
    let mut last = (seen.load(Ordering::Relaxed), Instant::now());
    while last.0 < wanted && last.1.elapsed() < patience && !is_over() {
        std::thread::sleep(LOOK);
        let now = seen.load(Ordering::Relaxed);
        if now > last.0 {
            last = (now, Instant::now());
        }
    }
}

/// Records of a whole load, for which a reader needs room.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate, bounded")]
fn records_expected(settings: &Settings) -> usize {
    const MOST: usize = 64 << 20;
    match settings.pace {
        Pace::Open { rate, .. } => {
            ((rate * (settings.seconds + settings.warmup_seconds) * 1.1) as usize + 10_000).min(MOST)
        }
        Pace::Closed { .. } => MOST,
    }
}

/// The phase of the deliveries of the records that were meant to be sent in the measured time.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn delivery_phase(load: &Phase, delivered: &[Delivered], window: Span, settings: &Settings) -> Phase {
    let begin_us = reader::wrapped_us(window.begin_ns);
    let long_us = (window.end_ns - window.begin_ns) / 1_000;
    let (mut times, mut timeline) = (Recorder::default(), Timeline::new(window.begin_ns, window.end_ns));
    for record in delivered {
        let behind_us = u64::from(record.intended_us.wrapping_sub(begin_us));
        if behind_us < long_us {
            let (intended_ns, took_ns) = (window.begin_ns + behind_us * 1_000, u64::from(record.took_us) * 1_000);
            times.response.saturating_record(took_ns);
            timeline.stored(intended_ns, intended_ns + took_ns);
        }
    }
    let rate = times.len() as f64 / load.seconds.max(f64::MIN_POSITIVE);
    let mut phase = Phase::new("delivery", load.seconds, load.offered_rate, rate, &times);
    phase.percentiles = settings.percentiles.iter().map(|percent| Percentile::of(*percent, &times)).collect();
    phase.records = times.len();
    // Not delivered while the reader listened, without room in its list, or told as a gap: among the slowest, so never in silence.
    let missed = load.records.saturating_sub(phase.records);
    if missed > 0 {
        phase.errors.unknown = missed;
        phase.errors.by_cause.insert("not delivered while the reader listened".to_owned(), missed);
    }
    phase.detail =
        load.detail.as_ref().map(|detail| Box::new(Detail::of_deliveries(detail, times.clone(), &timeline, window)));
    phase.bytes = load.bytes.checked_div(load.records).unwrap_or(0) * times.len();
    phase
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_count_by_when_their_records_were_meant_also_over_the_end_of_the_clock() {
        let load = Phase::new("load", 1.0, Some(3.0), 3.0, &Recorder::default());
        let begin_ns = (u64::from(u32::MAX) - 10) * 1_000;
        let window = Span { begin_ns, end_ns: begin_ns + 1_000_000 };
        let at = |us: u32| Delivered { intended_us: us, took_us: 500 };
        let delivered = [at(u32::MAX - 11), at(u32::MAX - 10), at(5), at(988), at(989)];
        let mut load = load;
        load.records = 5;
        let settings = Settings { percentiles: vec![99.5], ..Settings::default() };
        let phase = delivery_phase(&load, &delivered, window, &settings);
        assert_eq!((phase.records, phase.response.max_us.map(f64::round)), (3, Some(500.0)));
        assert_eq!((phase.errors.unknown, phase.percentiles.len()), (2, 1), "what was not delivered is told");
        assert_eq!(phase.errors.by_cause.values().sum::<u64>(), 2, "and why");
    }
}
