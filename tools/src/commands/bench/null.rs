//! `sealog bench null`: what the client itself costs.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use sealog_bench::load::producers::{LoadError, OnDisconnect};
use sealog_bench::load::settings::{Pace, Settings};
use sealog_bench::null::NullNode;
use sealog_bench::report::objective::Objectives;
use sealog_bench::report::summary::{Host, Report};
use sealog_bench::run::{RunError, Target, make_folder, save, wall_ms};

use super::exit_of;
use super::produce::Printed;
use crate::commands::client::{size, time};
use crate::daemon::signals::stop_flag;
use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// Load a node with nothing behind it: what client and carrying frames cost, and the highest rate that one client thread can drive.
#[derive(Debug, Args)]
pub(crate) struct BenchNull {
    /// Bytes of a value.
    #[arg(long, value_name = "SIZE", default_value = "1024", value_parser = size)]
    size: usize,
    /// Connections of the loads with many unanswered records.
    #[arg(long, value_name = "N", default_value_t = 2)]
    connections: u32,
    /// Time that each of the loads is measured.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    duration: Duration,
    /// Core that the bare node is kept on.
    #[arg(long, value_name = "N")]
    node_cpu: Option<usize>,
    /// Folder for report.json, report.html, intervals.ndjson and the histograms.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl BenchNull {
    pub(super) fn run(&self) -> Outcome {
        let stop = stop_flag()?;
        let base = Settings {
            topic: "null".to_owned(),
            value_bytes: self.size,
            seconds: self.duration.as_secs_f64(),
            warmup_seconds: 1.0,
            ..Settings::default()
        };
        base.check()?;
        if let Some(out) = &self.out {
            make_folder(out)?;
        }
        let node = NullNode::start(self.node_cpu, None).map_err(|error| RunError::from(LoadError::Io(error)))?;
        let target = Target { addresses: vec![node.address().to_string()], status: None, data_dir: None };
        let mut report = Report::new(base.clone(), Host::read(), wall_ms());
        let many = format!("256 outstanding, {} connections", self.connections);
        for (name, connections, inflight) in
            [("one outstanding", 1, 1), ("64 outstanding", 1, 64), (many.as_str(), self.connections, 256)]
        {
            let inflight = (inflight / connections.max(1)).max(1);
            let settings = Settings { connections, pace: Pace::Closed { inflight }, ..base.clone() };
            settings.check()?;
            report.phases.push(target.load(name, &settings, OnDisconnect::Stop, &stop)?.0);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        save(&report, self.out.as_deref(), None)?;
        self.format.print(&Printed { report: &report, comparison: None })?;
        Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { exit_of(&report, &Objectives::default()) })
    }
}
