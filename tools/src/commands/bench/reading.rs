//! `sealog bench tail`, `catchup` and `mixed`: runs with a reader.
#![expect(clippy::result_large_err, reason = "once in a run")]

use std::time::Duration;

use clap::Args;
use sealog_bench::reading::fill_pace;
use sealog_bench::report::objective::Objectives;

use super::load::LoadArgs;
use super::produce::{PaceArgs, objectives};
use crate::commands::client::time;
use crate::daemon::signals::stop_flag;
use crate::exit::Outcome;

/// Load a node while a consumer reads at the end of the topic: the time from when a record was meant to be sent to its delivery.
#[derive(Debug, Args)]
pub(crate) struct BenchTail {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    pace: PaceArgs,
    /// Bounds that the load and the delivery must keep.
    #[arg(long, value_name = "BOUNDS", default_value = "", value_parser = objectives)]
    slo: Objectives,
}

/// Read a topic from its beginning as fast as it comes.
#[derive(Debug, Args)]
pub(crate) struct BenchCatchup {
    #[command(flatten)]
    load: LoadArgs,
    /// Write to the topic for so long before, so that there is something to read; 0s: read what is there.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    fill: Duration,
}

/// Load a node alone and beside a consumer that reads the topic from its beginning again and again, alternately.
#[derive(Debug, Args)]
pub(crate) struct BenchMixed {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    pace: PaceArgs,
    /// Rounds of one load alone and one beside the reader.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write to the topic for so long before, so that there is something to read.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    fill: Duration,
    /// Bounds that both median loads must keep.
    #[arg(long, value_name = "BOUNDS", default_value = "", value_parser = objectives)]
    slo: Objectives,
}

impl BenchTail {
    pub(super) fn run(&self) -> Outcome {
        let stop = stop_flag()?;
        let settings = self.load.settings(self.pace.pace(), &self.slo);
        self.load.run(&settings, &self.slo, &stop, |target, report, tell| {
            tell("load, and a reader at its tail");
            report.phases.extend(target.tail(&settings, &stop)?);
            Ok(())
        })
    }
}

impl BenchCatchup {
    pub(super) fn run(&self) -> Outcome {
        self.load.refuse_disturb()?;
        let stop = stop_flag()?;
        let none = Objectives::default();
        let settings = self.load.settings(fill_pace(self.load.batch), &none);
        self.load.run(&settings, &none, &stop, |target, report, tell| {
            if !self.fill.is_zero() {
                tell("filling the topic");
                target.fill(&settings, self.fill.as_secs_f64(), &stop)?;
            }
            tell("reading");
            report.catchup = Some(target.catch_up(&settings, &stop)?);
            Ok(())
        })
    }
}

impl BenchMixed {
    pub(super) fn run(&self) -> Outcome {
        let stop = stop_flag()?;
        let settings = self.load.settings(self.pace.pace(), &self.slo);
        self.load.run(&settings, &self.slo, &stop, |target, report, tell| {
            if !self.fill.is_zero() {
                tell("filling the topic");
                target.fill(&settings, self.fill.as_secs_f64(), &stop)?;
            }
            target.mixed(&settings, self.rounds, report, &stop, tell)
        })
    }
}
