//! `sealog bench compare`: two runs beside each other.

use std::path::PathBuf;

use clap::Args;
use sealog_bench::report::compare::Comparison;
use sealog_bench::report::page::read_report;
use sealog_bench::run::RunError;

use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// Put two runs of this tool beside each other, phase by phase.
#[derive(Debug, Args)]
pub(crate) struct BenchCompare {
    /// The run to compare with: a folder or a report.json.
    #[arg(value_name = "BASELINE")]
    baseline: PathBuf,
    /// The other run.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// End with 3 if the p99 of a phase is worse, or its rate lower, by more than so many percent.
    #[arg(long, value_name = "PERCENT", value_parser = tolerance)]
    tolerance: Option<f64>,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How much worse is not worse.
pub(super) fn tolerance(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    percent.ok_or_else(|| "write percent, such as 10".to_owned())
}

impl BenchCompare {
    pub(super) fn run(&self) -> Outcome {
        let baseline = read_report(&self.baseline).map_err(RunError::from)?;
        let run = read_report(&self.run).map_err(RunError::from)?;
        let comparison = Comparison::of(&baseline, &run);
        self.format.print(&comparison)?;
        Ok(exit_of(&comparison, self.tolerance))
    }
}

/// A comparison with what is no measurement is none.
pub(super) fn exit_of(comparison: &Comparison, tolerance: Option<f64>) -> Exit {
    if !comparison.valid {
        return Exit::Invalid;
    }
    if tolerance.is_some_and(|percent| comparison.is_worse_by(percent / 100.0)) { Exit::Missed } else { Exit::Done }
}
