//! What every measurement of a node is asked for: which node, which records, how long, and where the findings go.
#![expect(clippy::result_large_err, reason = "once in a run")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use sealog_bench::load::disturb::{Act, Disturb};
use sealog_bench::load::settings::{KeyDist, Pace, Settings, SizeShare, mean_bytes};
use sealog_bench::report::compare::Comparison;
use sealog_bench::report::objective::Objectives;
use sealog_bench::report::summary::Report;
use sealog_bench::run::{FloorSettings, RunError, Surroundings, Target, Tell, make_folder, save};
use thiserror::Error;

use super::produce::Printed;
use super::{FloorArgs, exit_of, target, tell};
use crate::commands::client::{Client, size, time};
use crate::daemon::config;
use crate::daemon::embedded::{self, Scratch};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Which node, which records, how long.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(super) client: Client,
    /// Where the node answers /status: its facts, counters and data directory.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7401")]
    http: SocketAddr,
    /// The node's data directory, whose device is the floor; default: as /status says.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Made with --ranges ranges if it does not exist.
    #[arg(long, default_value = "bench")]
    topic: String,
    /// Ranges of the topic, if it is made; a power of two.
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranges: u32,
    /// Connections, which share a rate; --inflight is of each.
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: u32,
    /// Bytes of a value, such as 100 or 16KiB.
    #[arg(long, value_name = "SIZE", default_value = "1024", value_parser = size)]
    size: usize,
    /// A mix of sizes instead, such as 128:70%,1KiB:25%,16KiB:5%.
    #[arg(long, value_name = "SIZE:SHARE%", value_delimiter = ',', value_parser = share, conflicts_with = "size")]
    sizes: Vec<SizeShare>,
    /// Records in a batch.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) batch: u32,
    /// Different keys; each is written by one connection only.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    keys: u32,
    /// Which of its keys a connection writes: uniform, zipf, or zipf:EXPONENT (zipf is zipf:0.99).
    #[arg(long, value_name = "DISTRIBUTION", default_value = "uniform", value_parser = key_dist)]
    key_dist: KeyDist,
    /// Time that is measured, of each load.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
    /// Time before it, left out of the figures.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    warmup: Duration,
    /// Compare records near rolls and checkpoints with the others.
    #[arg(long)]
    events: bool,
    /// Have something happen in the measured time of each load: roll@5s (each range of the topic rolls its segment), split@5s (the range
    /// with the widest key span is split), merge@10s (the two buddies with the narrowest spans are merged); several with commas. Implies
    /// --events.
    #[arg(long, value_name = "WHAT@TIME", value_delimiter = ',', value_parser = disturb)]
    disturb: Vec<Disturb>,
    /// Percentiles that are reported beside the usual ones, such as 95,99.5.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = percentile)]
    percentiles: Vec<f64>,
    /// Seed of keys, sizes, contents and arrivals: the same seed makes the same records again.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not measure the floor.
    #[arg(long)]
    no_floor: bool,
    #[command(flatten)]
    floor: FloorArgs,
    /// Run the node inside this process, in a folder of its own below --data-dir or the current one.
    #[arg(long, conflicts_with = "http")]
    embedded: bool,
    /// A setting of the embedded node, such as node.shards=1; may be given more than once.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", requires = "embedded")]
    assignments: Vec<String>,
    /// Folder for report.json, report.html, intervals.ndjson and the histograms.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// File to which a line about this run is added.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Rolls and checkpoints cannot be seen.
#[derive(Debug, Error)]
#[error(
    "--events and --disturb ask the node for its rolls and checkpoints, and {http} has no /status of this node: say where by --http"
)]
struct NoStatus {
    http: SocketAddr,
}

/// There is no measured load in which anything could happen.
#[derive(Debug, Error)]
#[error("catchup measures a reader and no load: leave --disturb out")]
struct NoLoad;

/// Percentiles that every distribution of a report has.
const USUAL: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// Exponent of a Zipf distribution that has none told: the one that most load tests take.
const ZIPF_EXPONENT: f64 = 0.99;

fn key_dist(text: &str) -> Result<KeyDist, String> {
    let exponent = |text: &str| text.parse().ok().filter(|exponent: &f64| exponent.is_finite() && *exponent > 0.0);
    let found = match text.split_once(':') {
        None if text == "uniform" => Some(KeyDist::Uniform),
        None if text == "zipf" => Some(KeyDist::Zipf { exponent: ZIPF_EXPONENT }),
        Some(("zipf", number)) => exponent(number).map(|exponent| KeyDist::Zipf { exponent }),
        None | Some(_) => None,
    };
    found.ok_or_else(|| "write uniform, zipf, or zipf:EXPONENT with an exponent above 0".to_owned())
}

/// One size of a mix.
fn share(text: &str) -> Result<SizeShare, String> {
    let wrong = || "write a size and its share of the values, such as 1KiB:25%".to_owned();
    let (bytes, percent) = text.split_once(':').ok_or_else(wrong)?;
    let percent = percent.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0).ok_or_else(wrong)?;
    Ok(SizeShare { bytes: size(bytes)?, percent })
}

/// Those that a report does not have anyway, each once.
fn unusual(percentiles: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut kept = Vec::new();
    for percent in percentiles {
        if !USUAL.contains(&percent) && !kept.contains(&percent) {
            kept.push(percent);
        }
    }
    kept
}

fn disturb(text: &str) -> Result<Disturb, String> {
    let (what, at) = text.split_once('@').unwrap_or((text, ""));
    let what = Act::ALL.into_iter().find(|act| act.to_string() == what);
    let what = what.ok_or_else(|| "write roll@TIME, split@TIME or merge@TIME, such as split@5s".to_owned())?;
    Ok(Disturb { what, at_seconds: time(at)?.as_secs_f64() })
}

fn percentile(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| *percent > 0.0 && *percent < 100.0);
    percent.ok_or_else(|| "a percentile lies between 0 and 100".to_owned())
}

impl LoadArgs {
    /// For a command that measures no load.
    pub(super) fn refuse_disturb(&self) -> Result<(), Failure> {
        if self.disturb.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Usage, NoLoad)) }
    }

    /// The load at this pace. What the objectives need is measured.
    pub(super) fn settings(&self, pace: Pace, objectives: &Objectives) -> Settings {
        Settings {
            topic: self.topic.clone(),
            ranges: self.ranges,
            connections: self.connections,
            pace,
            value_bytes: if self.sizes.is_empty() { self.size } else { mean_bytes(&self.sizes) },
            sizes: self.sizes.clone(),
            batch: self.batch,
            keys: self.keys,
            key_dist: self.key_dist,
            seconds: self.duration.as_secs_f64(),
            warmup_seconds: self.warmup.as_secs_f64(),
            verify: false,
            judged: false,
            embedded: self.embedded,
            disturbance: self.looks(),
            disturb: self.disturb.clone(),
            seed: self.seed,
            percentiles: unusual(self.percentiles.iter().copied().chain(objectives.percentiles())),
            timeout_ms: self.client.timeout_ms(),
        }
    }

    /// Whether the node's rolls and checkpoints are asked for.
    fn looks(&self) -> bool {
        self.events || !self.disturb.is_empty()
    }

    pub(super) fn floor(&self) -> Option<FloorSettings> {
        (!self.no_floor).then(|| self.floor.settings())
    }

    /// Measures the node that is named, or one inside this process.
    pub(super) fn with_target<T>(&self, measure: impl FnOnce(&Target) -> Result<T, RunError>) -> Result<T, Failure> {
        if let Some(out) = &self.out {
            make_folder(out)?;
        }
        if !self.embedded {
            let target = target(&self.client.addr, Some(self.http), self.data_dir.as_deref());
            if self.looks() && target.status.is_none() {
                return Err(Failure::new(Exit::Usage, NoStatus { http: self.http }));
            }
            return Ok(measure(&target)?);
        }
        let mut node = config::Settings::default();
        for assignment in &self.assignments {
            let wrong = |error| Failure::new(Exit::Configuration, error);
            node.apply_assignment(assignment).map_err(wrong)?;
        }
        let scratch = Scratch::below(self.data_dir.as_deref())?;
        let node = embedded::start_embedded(node, &scratch)?;
        let measured = measure(&node.target());
        node.stop();
        Ok(measured?)
    }

    /// Measures between two floors, and says what was found.
    pub(super) fn run(
        &self,
        settings: &Settings,
        objectives: &Objectives,
        stop: &Arc<AtomicBool>,
        mut measure: impl FnMut(&Target, &mut Report, &mut Tell<'_>) -> Result<(), RunError>,
    ) -> Outcome {
        let report = self.with_target(|target| {
            let around = Surroundings { target, settings, floor: self.floor(), stop };
            around.measure(&mut |what| tell(what), &mut |report, tell| measure(target, report, tell))
        })?;
        self.finish(&report, None, objectives, stop)
    }

    /// Writes and prints a report, and judges it.
    pub(super) fn finish(
        &self,
        report: &Report,
        comparison: Option<&Comparison>,
        objectives: &Objectives,
        stop: &AtomicBool,
    ) -> Outcome {
        let stopped = stop.load(Ordering::Relaxed);
        // A load that was interrupted is no measurement: the history has none of it.
        let history = self.history.as_deref().filter(|_| !stopped);
        save(report, self.out.as_deref(), history)?;
        self.format.print(&Printed { report, comparison })?;
        if report.floor.is_none() && !self.no_floor {
            eprintln!(
                "no floor was measured: the node's directory is not known here; say --data-dir, or where its /status is by --http ({} has none of this node)",
                self.http
            );
        }
        Ok(if stopped { Exit::Interrupted } else { exit_of(report, objectives) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_of_keys_is_named_with_its_exponent() {
        assert_eq!(key_dist("uniform"), Ok(KeyDist::Uniform));
        assert_eq!(key_dist("zipf"), Ok(KeyDist::Zipf { exponent: 0.99 }));
        assert_eq!(key_dist("zipf:1.3"), Ok(KeyDist::Zipf { exponent: 1.3 }));
        for wrong in ["", "zipf:", "zipf:0", "zipf:-1", "zipf:inf", "zipf:NaN", "uniform:1", "pareto"] {
            assert!(key_dist(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_percentile_that_every_report_has_is_not_told_twice() {
        assert_eq!(unusual([99.0, 99.5, 95.0, 99.5, 99.9].into_iter()), [99.5, 95.0]);
    }

    #[test]
    fn a_disturbance_is_what_and_when() {
        for (text, what) in [("roll@1500ms", Act::Roll), ("split@1500ms", Act::Split), ("merge@1500ms", Act::Merge)] {
            assert_eq!(disturb(text), Ok(Disturb { what, at_seconds: 1.5 }));
        }
        for wrong in ["", "roll", "roll@", "roll@5", "kill@5s", "@5s", "split@", "Merge@5s"] {
            assert!(disturb(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_of_a_mix_is_a_size_and_percent() {
        assert_eq!(share("1KiB:25%"), Ok(SizeShare { bytes: 1024, percent: 25.0 }));
        assert_eq!(share("128:0.5%"), Ok(SizeShare { bytes: 128, percent: 0.5 }));
        for wrong in ["", "128", "128:", "128:5", "128:0%", "128:101%", "128:NaN%", "1MB:5%", ":5%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
