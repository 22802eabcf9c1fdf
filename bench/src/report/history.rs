//! `bench/results/history.ndjson`: one line a run, so that figures of different commits can be put beside each other. Lines are only
//! ever added.

use serde::Serialize;

use super::disturbance::{Disturbance, SplitsAndMerges};
use super::summary::{Errors, Host, Quantiles, Ratios, Report};
use crate::load::settings::Settings;
use crate::reading::{Catchup, Mixed};

/// Version of a line.
const VERSION: u32 = 2;

/// One run in short.
#[derive(Clone, Debug, Serialize)]
pub struct Line<'a> {
    version: u32,
    commit: &'a str,
    started_ms: u64,
    host: &'a Host,
    settings: &'a Settings,
    phases: Vec<PhaseLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<SweepLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catchup: Option<&'a Catchup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mixed: Option<&'a Mixed>,
    floor_p50_us: Option<f64>,
    floor_p99_us: Option<f64>,
    verified: Option<bool>,
    valid: bool,
}

/// A sweep without its loads.
#[derive(Clone, Debug, Serialize)]
struct SweepLine<'a> {
    objective: &'a str,
    highest_rate: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct PhaseLine<'a> {
    name: &'a str,
    closed: bool,
    achieved_rate: f64,
    errors: &'a Errors,
    response: &'a Quantiles,
    ratios: &'a Option<Ratios>,
    disturbance: &'a Option<Disturbance>,
    #[serde(skip_serializing_if = "Option::is_none")]
    splits_and_merges: Option<&'a SplitsAndMerges>,
}

impl<'a> Line<'a> {
    /// Of a report.
    #[must_use]
    pub fn of(report: &'a Report) -> Self {
        let floor = report.floor.as_ref().map(|pair| &pair.before.sum);
        Self {
            version: VERSION,
            commit: &report.commit,
            started_ms: report.started_ms,
            host: &report.host,
            settings: &report.settings,
            phases: report
                .phases
                .iter()
                .map(|phase| PhaseLine {
                    name: &phase.name,
                    closed: phase.closed,
                    achieved_rate: phase.achieved_rate,
                    errors: &phase.errors,
                    response: &phase.response,
                    ratios: &phase.ratios,
                    disturbance: &phase.disturbance,
                    splits_and_merges: phase.splits_and_merges.as_ref(),
                })
                .collect(),
            sweep: report
                .sweep
                .as_ref()
                .map(|sweep| SweepLine { objective: &sweep.objective, highest_rate: sweep.highest_rate }),
            catchup: report.catchup.as_ref(),
            mixed: report.mixed.as_ref(),
            floor_p50_us: floor.and_then(|sum| sum.p50_us),
            floor_p99_us: floor.and_then(|sum| sum.p99_us),
            verified: report.verification.as_ref().map(super::summary::Verification::passed),
            valid: report.flaw().is_none(),
        }
    }
}
