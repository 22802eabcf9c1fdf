//! The highest rate under an objective.
//!
//! ```text
//! coarse   1,000  2,000  4,000  8,000 ✗        doubled until one is missed
//! fine            4,000 < 5,657 < 8,000        the geometric middle, until both ends are within 5 %
//! ```
//! One measurement of a machine that others use too decides nothing: a rate is kept if two of three loads keep it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::load::arrivals::Arrival;
use crate::load::producers::OnDisconnect;
use crate::load::settings::{Pace, Settings};
use crate::report::objective::Objectives;
use crate::report::summary::{Errors, Phase, Quantiles, Report};
use crate::run::{RunError, Target};

/// Ends of the search that are this close are one.
const RESOLUTION: f64 = 1.05;
/// Share of records above what an objective needs: a load may have a few less than its rate times its time.
const SPARE: f64 = 1.02;
/// Loads that decide a rate: the one for which this many speak wins.
const VOTES: u32 = 2;

/// The search: which rate to try next.
#[derive(Clone, Debug)]
pub struct Search {
    start: f64,
    /// Highest rate that was kept; 0: none.
    kept: f64,
    /// Lowest rate that was missed.
    missed: f64,
    /// No rate below this is tried.
    least: f64,
}

impl Search {
    /// Begins at a rate, and tries none below `least`.
    #[must_use]
    pub fn new(start: f64, least: f64) -> Self {
        let least = least.floor().max(1.0);
        Self { start: start.max(least), kept: 0.0, missed: f64::INFINITY, least }
    }

    /// The next rate to try, in whole records a second; `None`: the search is over.
    #[must_use]
    pub fn next(&self) -> Option<f64> {
        let next = match (self.kept > 0.0, self.missed.is_finite()) {
            (false, false) => self.start,
            (true, false) => self.kept * 2.0,
            (false, true) => self.missed / 2.0,
            (true, true) if self.missed / self.kept <= RESOLUTION => return None,
            (true, true) => (self.kept * self.missed).sqrt(),
        };
        let next = next.round();
        (next >= self.least && next > self.kept && next < self.missed).then_some(next)
    }

    /// A rate was tried.
    pub fn judge(&mut self, rate: f64, kept: bool) {
        if kept {
            self.kept = self.kept.max(rate);
        } else {
            self.missed = self.missed.min(rate);
        }
    }

    /// The highest rate that was kept.
    #[must_use]
    pub fn highest(&self) -> Option<f64> {
        (self.kept > 0.0).then_some(self.kept)
    }
}

/// What a sweep found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    pub objective: String,
    /// Records a second; `null` if no rate kept the objective.
    pub highest_rate: Option<f64>,
    /// Every load, in order.
    pub steps: Vec<Step>,
}

/// One load of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub offered_rate: f64,
    pub achieved_rate: f64,
    pub response: Quantiles,
    pub saturated: bool,
    /// Records not stored or unknown.
    #[serde(default)]
    pub errors: u64,
    pub kept: bool,
}

/// Name of the phase of a sweep that has found a rate, whatever the rate: two sweeps can be put beside each other.
const HIGHEST: &str = "highest rate kept";

/// The rate below which a load of so many seconds has too few records for the objectives' percentiles: it would miss them however quick
/// its answers.
fn rate_min(objectives: &Objectives, seconds: f64) -> f64 {
    objectives.samples_min() * SPARE / seconds
}

/// Runs a sweep from a rate on, and puts it into a report: its phase is the last load of the highest rate that was kept, or the first
/// load if none was. The topic exists. It ends early when `stop` is set.
///
/// # Errors
/// A load could not be made.
pub fn sweep(
    target: &Target,
    settings: &Settings,
    start: f64,
    objectives: &Objectives,
    report: &mut Report,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    let mut search = Search::new(start, rate_min(objectives, settings.seconds));
    let mut steps = Vec::new();
    let mut best: Option<Phase> = None;
    while let Some(rate) = search.next().filter(|_| !stop.load(Ordering::Relaxed)) {
        let (mut kept, mut missed) = (0, 0);
        let mut holding = None;
        while kept < VOTES && missed < VOTES && !stop.load(Ordering::Relaxed) {
            tell(&format!("{rate:.0} records/s"));
            let settings = Settings { pace: Pace::Open { rate, arrival: Arrival::Constant }, ..settings.clone() };
            let (phase, _) =
                target.load(&format!("{rate:.0} records a second"), &settings, OnDisconnect::Retry, stop)?;
            let holds = !phase.saturated && phase.errors == Errors::default() && objectives.kept(&phase);
            if holds {
                kept += 1
            } else {
                missed += 1
            }
            steps.push(Step {
                offered_rate: rate,
                achieved_rate: phase.achieved_rate,
                response: phase.response,
                saturated: phase.saturated,
                errors: phase.errors.not_stored + phase.errors.unknown,
                kept: holds,
            });
            // A sweep that finds nothing shows the first load that missed.
            if holds {
                holding = Some(Phase { name: HIGHEST.to_owned(), ..phase });
            } else if best.is_none() {
                best = Some(phase);
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if kept >= VOTES {
            // Kept rates only rise, so the last of them is the result.
            best = holding;
        }
        search.judge(rate, kept >= VOTES);
    }
    report.phases.extend(best);
    report.sweep = Some(Sweep { objective: objectives.to_string(), highest_rate: search.highest(), steps });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a machine that keeps every rate up to `most`.
    fn found(start: f64, most: f64) -> (Option<f64>, usize) {
        let mut search = Search::new(start, 1.0);
        let mut tried = 0;
        while let Some(rate) = search.next() {
            tried += 1;
            assert!(tried < 100, "a search ends");
            search.judge(rate, rate <= most);
        }
        (search.highest(), tried)
    }

    #[test]
    fn the_highest_rate_is_found_within_five_percent_from_below_and_from_above() {
        for start in [1.0, 1_000.0, 5_000_000.0] {
            for most in [37.0, 12_345.0, 790_000.0] {
                let (highest, tried) = found(start, most);
                let highest = highest.expect("a rate");
                assert!(highest <= most && highest > most / 1.06 - 1.0, "{start} {most}: {highest}");
                assert!(tried < 32, "{tried} tries");
            }
        }
    }

    #[test]
    fn a_machine_that_keeps_no_rate_has_none() {
        assert_eq!(found(1_000.0, 0.5).0, None);
    }

    #[test]
    fn no_rate_is_tried_at_which_the_objective_cannot_be_measured() {
        let objectives = "p99<5ms,p99.9<10ms".parse().expect("objectives");
        let least = rate_min(&objectives, 2.0);
        assert!((least - 5_100.0).abs() < 1.0, "10,000 samples in 2 s, and a few to spare: {least}");
        let mut search = Search::new(1_000.0, least);
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
            tried.push(rate);
            search.judge(rate, false);
        }
        assert_eq!(tried, [5_100.0], "it begins there and goes no lower");
    }

    #[test]
    fn two_sweeps_of_one_machine_from_different_rates_agree_within_ten_percent() {
        let (a, b) = (found(1_000.0, 98_765.0).0.expect("a rate"), found(7_000.0, 98_765.0).0.expect("a rate"));
        assert!((a / b - 1.0).abs() < 0.1, "{a} {b}");
    }
}
