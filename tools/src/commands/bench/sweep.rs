//! `sealog bench sweep`: the highest rate under an objective.
#![expect(clippy::result_large_err, reason = "once in a run")]

use clap::Args;
use sealog_bench::load::arrivals::Arrival;
use sealog_bench::load::settings::Pace;
use sealog_bench::report::objective::Objectives;
use sealog_bench::sweep::sweep;

use super::load::LoadArgs;
use super::produce::objectives;
use crate::daemon::signals::stop_flag;
use crate::exit::{Exit, Outcome};

/// Find the highest rate that still keeps an objective: doubled until it is missed, then narrowed down to 5 %. A rate is kept if two of
/// three loads keep it.
#[derive(Debug, Args)]
pub(crate) struct BenchSweep {
    #[command(flatten)]
    load: LoadArgs,
    /// Bounds that must hold.
    #[arg(long, value_name = "BOUNDS", default_value = "p99<5ms", value_parser = objectives)]
    slo: Objectives,
    /// Records a second to begin with.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    start: u32,
}

impl BenchSweep {
    pub(super) fn run(&self) -> Outcome {
        let stop = stop_flag()?;
        let start = f64::from(self.start);
        let settings = self.load.settings(Pace::Open { rate: start, arrival: Arrival::Constant }, &self.slo);
        let mut found = false;
        // The sweep itself has judged the objective; a load that missed it is how the bound was found.
        let none = Objectives::default();
        let exit = self.load.run(&settings, &none, &stop, |target, report, tell| {
            sweep(target, &settings, start, &self.slo, report, &stop, tell)?;
            found = report.sweep.as_ref().is_some_and(|sweep| sweep.highest_rate.is_some());
            Ok(())
        })?;
        Ok(if exit == Exit::Done && !found { Exit::Missed } else { exit })
    }
}
