//! `sealog bench produce`: a produce load.
#![expect(clippy::result_large_err, reason = "once in a run")]

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sealog_bench::load::arrivals::Arrival;
use sealog_bench::load::producers::OnDisconnect;
use sealog_bench::load::settings::{Pace, Settings};
use sealog_bench::report::compare::Comparison;
use sealog_bench::report::objective::Objectives;
use sealog_bench::report::page::read_report;
use sealog_bench::report::summary::Report;
use sealog_bench::run::{ProduceRun, RunError};
use serde::Serialize;

use super::load::LoadArgs;
use super::tell;
use crate::daemon::signals::stop_flag;
use crate::exit::{Exit, Outcome};

/// Load a node with records and time every answer from when its record was meant to be sent.
#[derive(Debug, Args)]
pub(crate) struct BenchProduce {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    pace: PaceArgs,
    /// Read everything back: lost, duplicated, reordered, gaps.
    #[arg(long)]
    verify: bool,
    /// Write down what was acknowledged, for `bench verify` after a restart.
    #[arg(long, value_name = "FILE", conflicts_with = "repeat")]
    ledger: Option<PathBuf>,
    /// What a broken connection means: the library connects again and settles what was under way, or the load ends.
    #[arg(long, value_enum, default_value_t = DisconnectArg::Retry)]
    on_disconnect: DisconnectArg,
    /// Bounds that must hold, such as p99<1ms,rate>20000.
    #[arg(long, value_name = "BOUNDS", default_value = "", value_parser = objectives)]
    slo: Objectives,
    /// Make the load so many times; the median run by p99 is the result.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// An earlier run's folder, or its report.json, to compare with; ends with 4 if the two are not comparable.
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// End with 3 if the p99 is worse than the baseline's, or the rate lower, by more than so many percent.
    #[arg(long, value_name = "PERCENT", requires = "baseline", value_parser = super::compare::tolerance)]
    tolerance: Option<f64>,
}

/// How the records are paced.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PaceArgs {
    /// Open loop: records a second.
    #[arg(long, value_name = "N", default_value_t = 10_000.0, conflicts_with = "closed")]
    rate: f64,
    /// Open loop: how the records are spread.
    #[arg(long, value_enum, default_value_t = ArrivalArg::Constant, conflicts_with = "closed")]
    arrival: ArrivalArg,
    /// Closed loop: a new record for each answer.
    #[arg(long)]
    closed: bool,
    /// Closed loop: unanswered records on each connection.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "closed")]
    inflight: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArrivalArg {
    Constant,
    Poisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DisconnectArg {
    Retry,
    Stop,
}

/// A report as it is printed.
#[derive(Serialize)]
pub(crate) struct Printed<'a> {
    #[serde(flatten)]
    pub(crate) report: &'a Report,
    /// Against the run that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comparison: Option<&'a Comparison>,
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)?;
        self.comparison.map_or(Ok(()), |comparison| comparison.fmt(f))
    }
}

/// Objectives of the command line; an empty text is none.
pub(super) fn objectives(text: &str) -> Result<Objectives, String> {
    if text.is_empty() { Ok(Objectives::default()) } else { text.parse().map_err(|e| format!("{e}")) }
}

impl PaceArgs {
    pub(super) fn pace(self) -> Pace {
        if self.closed {
            return Pace::Closed { inflight: self.inflight };
        }
        let arrival = match self.arrival {
            ArrivalArg::Constant => Arrival::Constant,
            ArrivalArg::Poisson => Arrival::Poisson,
        };
        Pace::Open { rate: self.rate, arrival }
    }
}

impl BenchProduce {
    pub(super) fn run(&self) -> Outcome {
        let stop = stop_flag()?;
        // Before the load: a baseline that cannot be read costs no run.
        let baseline = self.baseline.as_deref().map(read_report).transpose().map_err(RunError::from)?;
        let run = ProduceRun {
            // A ledger that will be judged later needs values that can be.
            settings: Settings {
                verify: self.verify,
                judged: self.verify || self.ledger.is_some(),
                ..self.load.settings(self.pace.pace(), &self.slo)
            },
            on_disconnect: match self.on_disconnect {
                DisconnectArg::Retry => OnDisconnect::Retry,
                DisconnectArg::Stop => OnDisconnect::Stop,
            },
            repeat: self.repeat,
            ledger: self.ledger.clone(),
            stop: stop.clone(),
        };
        let floor = self.load.floor();
        let report = self.load.with_target(|target| run.run(target, floor, &mut |what| tell(what)))?;
        let comparison = baseline.map(|baseline| Comparison::of(&baseline, &report));
        let exit = self.load.finish(&report, comparison.as_ref(), &self.slo, &stop)?;
        Ok(match &comparison {
            Some(comparison) if exit == Exit::Done => super::compare::exit_of(comparison, self.tolerance),
            Some(_) | None => exit,
        })
    }
}
