//! `report.json`: everything that a run found, under a version of its own, so that two runs months apart can be compared.
//!
//! Times are microseconds. A percentile with fewer than ten samples beyond it is not a measurement and is `null`.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::detail::Detail;
use super::disturbance::{Disturbance, SplitsAndMerges};
use crate::load::disturb::Disturbed;
use crate::load::recorder::Recorder;
use crate::load::settings::Settings;
use crate::reading::{Catchup, Mixed};
use crate::sweep::Sweep;

/// Version of `report.json`. Raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Below this share of the offered rate a run is saturated.
const ACHIEVED_SHARE_MIN: f64 = 0.99;
/// Above this p99 of the send delay a run is saturated: the client did not keep its own schedule.
const SEND_DELAY_P99_MAX_US: f64 = 1_000.0;
/// Floors before and after that differ by more than this share make a run invalid: the machine was not the same.
const FLOOR_CHANGE_MAX: f64 = 0.25;
/// Samples that must lie beyond a percentile.
const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub schema_version: u32,
    /// Of the build, with `-dirty` where its tree was changed; `unknown` outside a repository.
    pub commit: String,
    pub version: String,
    /// Milliseconds since the Unix epoch.
    pub started_ms: u64,
    pub host: Host,
    pub settings: Settings,
    /// What the server says of itself, as `/status` gives it.
    pub server: Option<serde_json::Value>,
    pub phases: Vec<Phase>,
    /// All runs of a load that was made several times, in order; `phases` has the median one by p99.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Phase>,
    pub floor: Option<FloorPair>,
    pub verification: Option<Verification>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catchup: Option<Catchup>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed: Option<Mixed>,
}

/// The machine of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    pub memory_bytes: u64,
    /// Frequency governor of the first core; `none` where the machine has none.
    pub governor: String,
    /// The longest time, in microseconds, that a sleeping core may take to wake, by the kernel's PM QoS; `null` if nobody bounds it, or it
    /// cannot be read.
    #[serde(default)]
    pub wake_latency_us: Option<u32>,
}

/// One stretch of load under the same settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    /// Closed loop: a slow answer delays the next send, so its percentiles flatter.
    pub closed: bool,
    pub seconds: f64,
    /// Records a second that were meant to be sent; `null` for a closed loop.
    pub offered_rate: Option<f64>,
    /// Records a second that were stored.
    pub achieved_rate: f64,
    /// Records stored.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    pub errors: Errors,
    pub response: Quantiles,
    pub service: Quantiles,
    pub send_delay: Quantiles,
    pub saturated: bool,
    /// Response time against the floor's; `null` without a floor.
    pub ratios: Option<Ratios>,
    /// Share of the machine's time that the hypervisor gave to others, 0 to 1.
    pub steal: Option<f64>,
    /// Flushes that the device did in this phase.
    pub device_flushes: Option<u64>,
    /// Device flushes for each stored record.
    pub flushes_per_record: Option<f64>,
    /// Records near rolls and checkpoints against all others.
    pub disturbance: Option<Disturbance>,
    /// Records near the splits and merges that were ordered, against all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits_and_merges: Option<SplitsAndMerges>,
    /// What was done to the node, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<Disturbed>,
    /// Percentiles that were asked for.
    #[serde(default)]
    pub percentiles: Vec<Percentile>,
    /// Intervals of which the hypervisor took more than 2 %.
    #[serde(default)]
    pub stolen_intervals: u64,
    /// Time that the client's thread ran for each stored record.
    #[serde(default)]
    pub client_cpu_us_per_record: Option<f64>,
    /// What goes into files of its own.
    #[serde(skip)]
    pub detail: Option<Box<Detail>>,
}

/// Records not stored, by what became of them, and how often each refusal came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    pub not_stored: u64,
    pub unknown: u64,
    /// Connections that broke.
    pub disconnects: u64,
    pub by_cause: BTreeMap<String, u64>,
}

/// A distribution of times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub samples: u64,
    pub p50_us: Option<f64>,
    pub p90_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    pub p9999_us: Option<f64>,
    pub max_us: Option<f64>,
}

/// One percentile of the three times, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// Between 0 and 100.
    pub percent: f64,
    pub response_us: Option<f64>,
    pub service_us: Option<f64>,
    pub send_delay_us: Option<f64>,
}

/// Response time over floor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// What the device and the loopback alone can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// The fastest way to make a write durable here.
    pub method: String,
    /// A durable write of 4 KiB into a zero-filled file.
    pub write: Quantiles,
    /// A round trip of the same frame sizes to a bare server.
    pub echo: Quantiles,
    /// One write and one round trip, the n-th of each added up.
    pub sum: Quantiles,
}

/// The floor before and after the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloorPair {
    pub before: Floor,
    pub after: Option<Floor>,
    /// `write back` or `write through`, as the kernel says.
    pub device_cache: Option<String>,
    pub request_bytes: usize,
    pub reply_bytes: usize,
}

/// What reading everything back found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Records that were acknowledged.
    pub acknowledged: u64,
    /// Records whose fate the client was not told: each may be there or not.
    pub unknown: u64,
    /// Records of this run that were read.
    pub read: u64,
    /// Acknowledged and not there.
    pub lost: u64,
    /// Read more than once.
    pub duplicated: u64,
    /// Read after a later record of their key.
    pub reordered: u64,
    /// Read with other content than was sent.
    pub damaged: u64,
    /// Read although the client was told that they are not stored.
    pub unexpected: u64,
    /// Gap notices by cause.
    pub gaps: BTreeMap<String, u64>,
    /// Records of others in the same topic.
    pub foreign: u64,
}

/// Why a load is not the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saturation {
    /// Less than 99 % of the offered rate was achieved.
    pub achieved: bool,
    /// The client did not keep its own schedule.
    pub late: bool,
}

/// Why a report is not a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The load was not what was asked for.
    Saturated,
    /// What was to be done to the node in the middle of the load was not.
    NotDisturbed,
    /// The floors before and after differ too much.
    FloorMoved,
}

/// A percentile of a histogram of nanoseconds, in microseconds. `None` with fewer than ten samples beyond it.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts and times of a run are far below 2^53")]
pub fn percentile_us(histogram: &Histogram<u64>, percent: f64) -> Option<f64> {
    let quantile = percent / 100.0;
    // The small allowance keeps 10 samples of 1,000 beyond p99 from being 9.999….
    let beyond = histogram.len() as f64 * (1.0 - quantile) + 1e-6;
    (beyond >= SAMPLES_BEYOND_MIN).then(|| histogram.value_at_quantile(quantile) as f64 / 1e3)
}

/// Samples without which a percentile is not measured.
#[must_use]
pub fn samples_min(percent: f64) -> f64 {
    SAMPLES_BEYOND_MIN / (1.0 - percent / 100.0)
}

impl Quantiles {
    /// Of a histogram of nanoseconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "times of a run are far below 2^53")]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let samples = histogram.len();
        Self {
            samples,
            p50_us: percentile_us(histogram, 50.0),
            p90_us: percentile_us(histogram, 90.0),
            p99_us: percentile_us(histogram, 99.0),
            p999_us: percentile_us(histogram, 99.9),
            p9999_us: percentile_us(histogram, 99.99),
            max_us: (samples > 0).then(|| histogram.max() as f64 / 1e3),
        }
    }
}

impl Percentile {
    /// Of what was recorded.
    #[must_use]
    pub fn of(percent: f64, times: &Recorder) -> Self {
        Self {
            percent,
            response_us: percentile_us(&times.response, percent),
            service_us: percentile_us(&times.service, percent),
            send_delay_us: percentile_us(&times.delay, percent),
        }
    }
}

impl Ratios {
    /// Response times against a floor.
    #[must_use]
    pub fn of(response: &Quantiles, floor: &Quantiles) -> Self {
        let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        Self { p50: over(response.p50_us, floor.p50_us), p99: over(response.p99_us, floor.p99_us) }
    }
}

impl Phase {
    /// A phase from what its connections recorded.
    #[must_use]
    pub fn new(name: &str, seconds: f64, offered_rate: Option<f64>, achieved_rate: f64, times: &Recorder) -> Self {
        let send_delay = Quantiles::of(&times.delay);
        Self {
            name: name.to_owned(),
            closed: offered_rate.is_none(),
            seconds,
            offered_rate,
            achieved_rate,
            records: 0,
            bytes: 0,
            errors: Errors::default(),
            response: Quantiles::of(&times.response),
            service: Quantiles::of(&times.service),
            saturated: Saturation::of(offered_rate, achieved_rate, &send_delay).is_some(),
            send_delay,
            ratios: None,
            steal: None,
            device_flushes: None,
            flushes_per_record: None,
            disturbance: None,
            splits_and_merges: None,
            disturbed: Vec::new(),
            percentiles: Vec::new(),
            stolen_intervals: 0,
            client_cpu_us_per_record: None,
            detail: None,
        }
    }
}

impl Phase {
    /// Why it is saturated, if it is.
    #[must_use]
    pub fn saturation(&self) -> Option<Saturation> {
        Saturation::of(self.offered_rate, self.achieved_rate, &self.send_delay)
    }
}

impl Saturation {
    /// A closed loop offers what it achieves and is never saturated.
    fn of(offered_rate: Option<f64>, achieved_rate: f64, send_delay: &Quantiles) -> Option<Self> {
        let achieved = achieved_rate < offered_rate? * ACHIEVED_SHARE_MIN;
        let late = send_delay.p99_us.is_some_and(|p99| p99 > SEND_DELAY_P99_MAX_US);
        (achieved || late).then_some(Self { achieved, late })
    }
}

impl FloorPair {
    /// Whether the machine was another one after the load.
    #[must_use]
    pub fn moved(&self) -> bool {
        let Some(after) = &self.after else { return false };
        match (self.before.sum.p50_us, after.sum.p50_us) {
            (Some(a), Some(b)) => a.max(b) > a.min(b) * (1.0 + FLOOR_CHANGE_MAX),
            _ => false,
        }
    }
}

impl Verification {
    /// Takes in what reading back another load found.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.read += other.read;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
        self.unexpected += other.unexpected;
        self.foreign += other.foreign;
        for (cause, count) in &other.gaps {
            *self.gaps.entry(cause.clone()).or_default() += count;
        }
    }

    /// Whether every promise was kept. Unknown records, gaps that lost nothing and foreign records are no failures.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.reordered == 0 && self.damaged == 0 && self.unexpected == 0
    }
}

impl Report {
    /// An empty report of this build on this host.
    #[must_use]
    pub fn new(settings: Settings, host: Host, started_ms: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            commit: crate::COMMIT.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_ms,
            host,
            settings,
            server: None,
            phases: Vec::new(),
            runs: Vec::new(),
            floor: None,
            verification: None,
            sweep: None,
            catchup: None,
            mixed: None,
        }
    }

    /// Takes the runs of one load: the median one by p99 of the response time becomes the phase. Of an even number it is the slower
    /// of the two in the middle; a run without a p99 counts as slow.
    ///
    /// # Panics
    /// If there are no runs.
    pub fn take_runs(&mut self, mut runs: Vec<Phase>) {
        assert!(!runs.is_empty(), "a load is made at least once");
        let p99 = |phase: &Phase| phase.response.p99_us.unwrap_or(f64::INFINITY);
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by(|a, b| p99(&runs[*a]).total_cmp(&p99(&runs[*b])));
        let median = order[order.len() / 2];
        if runs.len() == 1 {
            self.phases.append(&mut runs);
        } else {
            self.phases.push(runs[median].clone());
            self.runs = runs;
        }
    }

    /// Why it is not a measurement, if it is not.
    #[must_use]
    pub fn flaw(&self) -> Option<Flaw> {
        if self.floor.as_ref().is_some_and(FloorPair::moved) {
            return Some(Flaw::FloorMoved);
        }
        let is_undone = |phase: &Phase| phase.disturbed.iter().any(|act| act.error.is_some());
        if self.phases.iter().chain(&self.runs).any(is_undone) {
            return Some(Flaw::NotDisturbed);
        }
        // A sweep saturates on purpose, and says itself which of its loads did.
        let saturated = self.sweep.is_none() && self.phases.iter().any(|phase| phase.saturated);
        saturated.then_some(Flaw::Saturated)
    }

    /// Puts the ratios beside the figures, against the floor before the load.
    pub fn relate_to_floor(&mut self) {
        let Some(floor) = &self.floor else { return };
        for phase in self.phases.iter_mut().chain(&mut self.runs) {
            phase.ratios = Some(Ratios::of(&phase.response, &floor.before.sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recorder::histogram;

    fn quantiles(samples: u64) -> Quantiles {
        let mut histogram = histogram();
        histogram.record_n(5_000, samples).expect("in bounds");
        Quantiles::of(&histogram)
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        assert_eq!(quantiles(0), Quantiles::default());
        assert_eq!((quantiles(19).p50_us, quantiles(20).p50_us.is_some()), (None, true));
        assert_eq!((quantiles(999).p99_us, quantiles(1_000).p99_us.is_some()), (None, true));
        assert_eq!((quantiles(9_999).p999_us, quantiles(10_000).p999_us.is_some()), (None, true));
        assert_eq!((quantiles(99_999).p9999_us, quantiles(100_000).p9999_us.is_some()), (None, true));
        assert!(quantiles(1).max_us.is_some());
    }

    #[test]
    fn the_median_of_several_runs_is_a_run_and_all_are_kept() {
        let run = |p99_us: Option<f64>| {
            let mut phase = Phase::new("load", 1.0, None, 1.0, &Recorder::default());
            phase.response.p99_us = p99_us;
            phase
        };
        let median = |runs: &[Option<f64>]| {
            let mut report = Report::new(Settings::default(), Host::default(), 0);
            report.take_runs(runs.iter().map(|p99| run(*p99)).collect());
            (report.phases[0].response.p99_us, report.phases.len(), report.runs.len())
        };
        assert_eq!(median(&[Some(9.0), Some(1.0), Some(3.0), None, Some(2.0)]), (Some(3.0), 1, 5));
        assert_eq!(median(&[Some(1.0), Some(2.0)]), (Some(2.0), 1, 2));
        assert_eq!(median(&[Some(4.0)]), (Some(4.0), 1, 0), "one run is no series");
    }

    #[test]
    fn a_run_below_its_rate_or_behind_its_schedule_is_saturated() {
        let calm = Recorder::default();
        assert!(!Phase::new("load", 1.0, Some(1_000.0), 991.0, &calm).saturated);
        assert!(Phase::new("load", 1.0, Some(1_000.0), 989.0, &calm).saturated);
        assert!(!Phase::new("load", 1.0, None, 5.0, &calm).saturated, "a closed loop has no rate to miss");
        let mut late = Recorder::default();
        (0..1_000).for_each(|_| late.record(0, 1_100_000, 1_200_000));
        assert!(Phase::new("load", 1.0, Some(1_000.0), 1_000.0, &late).saturated);
    }

    #[test]
    fn floors_a_quarter_apart_are_another_machine() {
        let floor = |p50| Floor {
            method: String::new(),
            write: Quantiles::default(),
            echo: Quantiles::default(),
            sum: Quantiles { p50_us: Some(p50), ..Quantiles::default() },
        };
        let pair = |before, after| FloorPair {
            before: floor(before),
            after: Some(floor(after)),
            device_cache: None,
            request_bytes: 0,
            reply_bytes: 0,
        };
        assert!(!pair(100.0, 124.0).moved() && !pair(124.0, 100.0).moved());
        assert!(pair(100.0, 126.0).moved() && pair(126.0, 100.0).moved());
    }
}
