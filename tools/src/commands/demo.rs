//! `sealog demo`: what this machine's disk can do, what Sealog does on it, and whether every record is there afterwards.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use sealog_bench::load::arrivals::Arrival;
use sealog_bench::load::disturb::{Act, Disturb};
use sealog_bench::load::producers::OnDisconnect;
use sealog_bench::load::settings::{Pace, Settings};
use sealog_bench::report::summary::{Host, Report, Verification};
use sealog_bench::run::{FloorAround, FloorSettings, judge, save, wall_ms};

use super::bench::produce::Printed;
use super::bench::tell;
use super::client::time;
use crate::daemon::config;
use crate::daemon::embedded::{self, Embedded, Scratch};
use crate::daemon::signals::stop_flag;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Seconds before each measured time.
const WARMUP_SECONDS: f64 = 1.0;
/// The open loop's share of what the closed loop reached: busy, and far from saturated.
const OPEN_SHARE: f64 = 0.1;
/// Seconds for the writes and for the echoes of the floor, each.
const FLOOR_SECONDS: f64 = 1.5;

/// Run a node in a folder of its own, load it, split and merge its range meanwhile, and judge it against the device. Takes about a
/// minute.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Time that each of the three loads is measured.
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = time)]
    duration: Duration,
    /// Folder below which the node's own is made; it must be on a real disk.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Folder for report.json.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Demo {
    pub(super) fn run(&self) -> Outcome {
        let mut settings = config::Settings::default();
        settings.engine.shards = 1;
        // Asked to stop, it leaves nothing behind.
        let stop = stop_flag()?;
        let scratch = Scratch::below(self.data_dir.as_deref())?;
        let node = embedded::start_embedded(settings, &scratch)?;
        let report = self.measure(&node, &stop);
        node.stop();
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        let report = report?;
        save(&report, self.report.as_deref(), None)?;
        self.format.print(&Printed { report: &report, comparison: None })?;
        // The demo shows this machine as it is: a noisy one is told, and no failure.
        let kept = report.verification.as_ref().is_none_or(Verification::passed);
        let is_undone = report.phases.iter().flat_map(|phase| &phase.disturbed).any(|act| act.error.is_some());
        Ok(match (kept, is_undone) {
            (false, _) => Exit::NotVerified,
            (true, true) => Exit::Invalid,
            (true, false) => Exit::Done,
        })
    }

    fn measure(&self, node: &Embedded, stop: &AtomicBool) -> Result<Report, Failure> {
        let base = Settings {
            topic: "demo".to_owned(),
            seconds: self.duration.as_secs_f64(),
            warmup_seconds: WARMUP_SECONDS,
            verify: true,
            judged: true,
            embedded: true,
            ..Settings::default()
        };
        let target = node.target();
        let mut report = Report::new(base.clone(), Host::read(), wall_ms());
        target.make_topic(&base)?;
        tell("floor of the device and of the loopback");
        let dir = target.data_dir.clone().unwrap_or_default();
        let floor = FloorSettings { seconds: FLOOR_SECONDS, cpu: None };
        let around = FloorAround::before(&dir, &base, floor)?;
        let mut ledgers = Vec::new();
        let mut rate = 0.0;
        for (name, inflight) in [("one outstanding", 1), ("64 outstanding", 64)] {
            tell(name);
            let settings = Settings { pace: Pace::Closed { inflight }, ..base.clone() };
            let (phase, ledger) = target.load(name, &settings, OnDisconnect::Retry, stop)?;
            rate = phase.achieved_rate;
            report.phases.push(phase);
            ledgers.push(ledger);
            if stop.load(Ordering::Relaxed) {
                return Ok(report);
            }
        }
        let rate = (rate * OPEN_SHARE).max(1_000.0).round();
        tell("steady rate, and meanwhile the topic's range is split, and its halves are merged");
        let settings = Settings {
            pace: Pace::Open { rate, arrival: Arrival::Poisson },
            disturbance: true,
            disturb: vec![
                Disturb { what: Act::Split, at_seconds: base.seconds / 3.0 },
                Disturb { what: Act::Merge, at_seconds: base.seconds * 2.0 / 3.0 },
            ],
            ..base.clone()
        };
        let (phase, ledger) = target.load("steady rate", &settings, OnDisconnect::Retry, stop)?;
        report.phases.push(phase);
        ledgers.push(ledger);
        tell("floor again");
        report.floor = Some(around.after()?);
        tell("reading everything back");
        let mut verification = Verification::default();
        for ledger in &ledgers {
            verification.add(&judge(&target, ledger, base.timeout_ms)?);
        }
        // Each reading met the records of the other loads.
        verification.foreign = 0;
        report.verification = Some(verification);
        report.server = target.status.as_ref().and_then(|status| status());
        report.relate_to_floor();
        Ok(report)
    }
}
