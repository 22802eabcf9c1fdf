//! `sealog bench`: the load test.

mod compare;
mod floor;
mod load;
mod null;
pub(crate) mod produce;
mod reading;
mod report;
mod sweep;
mod verify;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use sealog_bench::load::status::{StatusSource, over_http};
use sealog_bench::report::objective::Objectives;
use sealog_bench::report::summary::Report;
use sealog_bench::run::{FloorSettings, RunError, Target};
use sealog_engine::types::{ClusterId, NodeId};
use sealog_net::client::blocking::Admin;

use super::client;
use crate::exit::{Exit, Failure, Outcome};

/// Measure a node against the device that it writes to.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Produce(Box<produce::BenchProduce>),
    Tail(Box<reading::BenchTail>),
    Catchup(Box<reading::BenchCatchup>),
    Mixed(Box<reading::BenchMixed>),
    Sweep(Box<sweep::BenchSweep>),
    Floor(floor::BenchFloor),
    Null(null::BenchNull),
    Compare(compare::BenchCompare),
    Report(report::BenchReport),
    Verify(verify::BenchVerify),
}

impl Bench {
    pub(super) fn run(&self) -> Outcome {
        match &self.what {
            What::Produce(produce) => produce.run(),
            What::Tail(tail) => tail.run(),
            What::Catchup(catchup) => catchup.run(),
            What::Mixed(mixed) => mixed.run(),
            What::Sweep(sweep) => sweep.run(),
            What::Floor(floor) => floor.run(),
            What::Null(null) => null.run(),
            What::Compare(compare) => compare.run(),
            What::Report(report) => report.run(),
            What::Verify(verify) => verify.run(),
        }
    }
}

/// How the floor is measured.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FloorArgs {
    /// Seconds for the durable writes and for the echo, each.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    floor_seconds: f64,
    /// Core that the writer and the echo server are kept on.
    #[arg(long, value_name = "N")]
    floor_cpu: Option<usize>,
}

impl FloorArgs {
    pub(crate) fn settings(&self) -> FloorSettings {
        FloorSettings { seconds: self.floor_seconds, cpu: self.floor_cpu }
    }
}

/// How long the node is waited for that is asked who it is.
const WHO_TIMEOUT: Duration = Duration::from_secs(2);

/// A node reached over the network. What it says of itself is asked at `http`, if that answers and is of the same node.
pub(crate) fn target(addresses: &[String], http: Option<SocketAddr>, data_dir: Option<&Path>) -> Target {
    let status = http.map(over_http).filter(|status| {
        let welcome = Admin::connect(addresses, WHO_TIMEOUT).ok().map(|admin| *admin.welcome());
        welcome.is_some_and(|welcome| status().is_some_and(|status| is_of(&status, welcome.cluster, welcome.node)))
    });
    let told = |status: &StatusSource| status()?["data_dir"].as_str().map(PathBuf::from);
    let local = |dir: &PathBuf| dir.is_dir();
    let data_dir = data_dir.map(Path::to_owned).or_else(|| status.as_ref().and_then(told).filter(local));
    Target { addresses: addresses.to_vec(), status, data_dir }
}

/// Whether a status is that of this node: several nodes of a machine have one HTTP port each, and the directory of another one has another
/// floor.
fn is_of(status: &serde_json::Value, cluster: ClusterId, node: NodeId) -> bool {
    status["cluster"] == format!("{:032x}", cluster.0) && status["node"] == node.to_string()
}

/// Tells people what begins; programs see only the report.
pub(crate) fn tell(what: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("… {what}");
    }
}

/// How a run ends the process. What was lost counts before what was not measured, and that before what was not reached.
pub(crate) fn exit_of(report: &Report, objectives: &Objectives) -> Exit {
    if report.verification.as_ref().is_some_and(|found| !found.passed()) {
        return Exit::NotVerified;
    }
    if report.flaw().is_some() {
        return Exit::Invalid;
    }
    let missed = objectives.0.iter().filter(|o| !report.phases.iter().all(|phase| o.kept(phase)));
    let mut exit = Exit::Done;
    for objective in missed {
        eprintln!("objective missed: {objective}");
        exit = Exit::Missed;
    }
    exit
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        use sealog_bench::load::ledger::LedgerError;
        use sealog_bench::load::producers::LoadError;
        use sealog_bench::load::reader::ReaderError;
        use sealog_bench::report::page::ReadError;
        let exit = match &error {
            RunError::Settings { .. } | RunError::Address { .. } => Exit::Usage,
            RunError::Topic { error, .. } => client::exit_of(error),
            RunError::Load(LoadError::NotReady { .. }) | RunError::Reading(ReaderError::Stalled(_)) => Exit::TryAgain,
            RunError::Read(ReadError::Json { .. } | ReadError::Version { .. } | ReadError::Log { .. })
            | RunError::Ledger(LedgerError::Format { .. } | LedgerError::Version { .. }) => Exit::Configuration,
            RunError::Reading(ReaderError::Damaged { .. } | ReaderError::Expired { .. }) => Exit::NotVerified,
            RunError::Floor(_)
            | RunError::Read(ReadError::Io { .. })
            | RunError::Load(_)
            | RunError::Reading(_)
            | RunError::Ledger(LedgerError::Io { .. })
            | RunError::Output { .. } => Exit::Failed,
        };
        Self::new(exit, error)
    }
}

#[cfg(test)]
mod tests {
    use sealog_bench::load::disturb::{Act, Disturbed};
    use sealog_bench::load::recorder::Recorder;
    use sealog_bench::load::settings::Settings;
    use sealog_bench::report::summary::{Floor, FloorPair, Host, Phase, Quantiles, Verification};

    use super::*;

    /// A run with a p99 of 1 ms.
    fn report() -> Report {
        let mut times = Recorder::default();
        (0..1_000).for_each(|_| times.record(0, 0, 1_000_000));
        let mut report = Report::new(Settings::default(), Host::default(), 0);
        report.phases.push(Phase::new("load", 1.0, Some(1_000.0), 1_000.0, &times));
        report
    }

    #[test]
    fn a_status_of_another_node_is_not_believed() {
        let status = serde_json::json!({"cluster": format!("{:032x}", 9), "node": "n1"});
        assert!(is_of(&status, ClusterId(9), NodeId(1)));
        assert!(!is_of(&status, ClusterId(8), NodeId(1)));
        assert!(!is_of(&status, ClusterId(9), NodeId(2)));
    }

    #[test]
    fn a_missed_objective_ends_with_3_a_saturated_run_or_a_floor_that_drifts_with_4_and_a_lost_record_with_5() {
        let exit = |report: &Report, slo: &str| exit_of(report, &slo.parse().expect("objectives"));
        let mut report = report();
        assert_eq!(exit(&report, "p99<2ms"), Exit::Done);
        assert_eq!(exit(&report, "p99<500us"), Exit::Missed);
        assert_eq!(exit(&report, "p99.9<1s"), Exit::Missed, "a thousand samples have no p99.9");
        let floor = |p50_us: f64| Floor {
            method: String::new(),
            write: Quantiles::default(),
            echo: Quantiles::default(),
            sum: Quantiles { p50_us: Some(p50_us), ..Quantiles::default() },
        };
        let pair = |after| FloorPair {
            before: floor(100.0),
            after: Some(floor(after)),
            device_cache: None,
            request_bytes: 0,
            reply_bytes: 0,
        };
        report.floor = Some(pair(130.0));
        assert_eq!(exit(&report, "p99<2ms"), Exit::Invalid, "the floor drifted");
        assert!(report.to_string().contains("NOT A MEASUREMENT: the floors before and after differ"), "{report}");
        report.floor = Some(pair(120.0));
        assert_eq!(exit(&report, "p99<2ms"), Exit::Done);
        let error = Some("the load had ended".to_owned());
        report.phases[0].disturbed = vec![Disturbed {
            what: Act::Roll,
            at_seconds: 9.0,
            seconds: 0.0,
            ranges: 0,
            parents: vec![],
            successors: vec![],
            error,
            near_p99_us: None,
            stall_us: None,
        }];
        assert_eq!(exit(&report, "p99<2ms"), Exit::Invalid, "what was asked for did not happen");
        report.phases[0].disturbed.clear();
        report.phases[0].saturated = true;
        assert_eq!(exit(&report, "p99<500us"), Exit::Invalid);
        report.verification = Some(Verification { lost: 1, ..Verification::default() });
        assert_eq!(exit(&report, "p99<2ms"), Exit::NotVerified);
    }
}
