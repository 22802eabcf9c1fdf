//! `sealog bench produce`: a produce load.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sealog_bench::load::arrivals::Arrival;
use sealog_bench::load::producers::OnDisconnect;
use sealog_bench::load::settings::{Pace, Settings};
use sealog_bench::report::objective::Objectives;
use sealog_bench::report::summary::Report;
use sealog_bench::run::{ProduceRun, save};
use serde::Serialize;

use super::{FloorArgs, exit_of, target, tell};
use crate::commands::client::{Client, time};
use crate::daemon::config;
use crate::daemon::embedded::{self, Scratch};
use crate::daemon::signals::stop_flag;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Load a node with records and time every answer from when its record was meant to be sent.
#[derive(Debug, Args)]
pub(crate) struct BenchProduce {
    #[command(flatten)]
    client: Client,
    /// Where the node answers /status: its facts, counters and data directory.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7401")]
    http: SocketAddr,
    /// The node's data directory, whose device is the floor; default: as /status says.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Made with --ranges ranges if it does not exist.
    #[arg(long, default_value = "bench")]
    topic: String,
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranges: u32,
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: u32,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Records in a batch.
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: u32,
    #[arg(long, value_name = "N", default_value_t = 1024)]
    keys: u32,
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
    /// Time that is measured.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
    /// Time before it, left out of the figures.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    warmup: Duration,
    /// Read everything back: lost, duplicated, reordered, gaps.
    #[arg(long)]
    verify: bool,
    /// Write down what was acknowledged, for `bench verify` after a restart.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// What a broken connection means: the library connects again and settles what was under way, or the load ends.
    #[arg(long, value_enum, default_value_t = DisconnectArg::Retry)]
    on_disconnect: DisconnectArg,
    /// Compare records near rolls and checkpoints with the others.
    #[arg(long)]
    events: bool,
    /// Bounds that must hold, such as p99<1ms,rate>20000.
    #[arg(long, value_name = "BOUNDS", default_value = "", value_parser = objectives)]
    slo: Objectives,
    /// Folder for report.json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// File to which a line about this run is added.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Do not measure the floor.
    #[arg(long)]
    no_floor: bool,
    #[command(flatten)]
    floor: FloorArgs,
    /// Seed of keys, contents and arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run the node inside this process, in a folder of its own below --data-dir or the current one.
    #[arg(long, conflicts_with = "http")]
    embedded: bool,
    /// A setting of the embedded node, such as node.shards=1; may be given more than once.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", requires = "embedded")]
    assignments: Vec<String>,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
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
#[serde(transparent)]
pub(crate) struct Printed<'a>(pub(crate) &'a Report);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn objectives(text: &str) -> Result<Objectives, String> {
    if text.is_empty() { Ok(Objectives::default()) } else { text.parse().map_err(|e| format!("{e}")) }
}

impl BenchProduce {
    pub(super) fn run(&self) -> Outcome {
        let stop = stop_flag()?;
        let run = ProduceRun {
            settings: self.settings(),
            on_disconnect: match self.on_disconnect {
                DisconnectArg::Retry => OnDisconnect::Retry,
                DisconnectArg::Stop => OnDisconnect::Stop,
            },
            ledger: self.ledger.clone(),
            stop: stop.clone(),
        };
        let floor = (!self.no_floor).then(|| self.floor.settings());
        let report = if self.embedded {
            let mut node = config::Settings::default();
            for assignment in &self.assignments {
                let wrong = |error| Failure::new(Exit::Configuration, error);
                node.apply_assignment(assignment).map_err(wrong)?;
            }
            let scratch = Scratch::below(self.data_dir.as_deref())?;
            let node = embedded::start_embedded(node, &scratch)?;
            let report = run.run(&node.target(), floor, &mut |what| tell(what));
            node.stop();
            report?
        } else {
            let target = target(&self.client.addr, Some(self.http), self.data_dir.as_deref());
            run.run(&target, floor, &mut |what| tell(what))?
        };
        save(&report, self.out.as_deref(), self.history.as_deref())?;
        self.format.print(&Printed(&report))?;
        Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { exit_of(&report, &self.slo) })
    }

    fn settings(&self) -> Settings {
        Settings {
            topic: self.topic.clone(),
            ranges: self.ranges,
            connections: self.connections,
            pace: if self.closed {
                Pace::Closed { inflight: self.inflight }
            } else {
                let arrival = match self.arrival {
                    ArrivalArg::Constant => Arrival::Constant,
                    ArrivalArg::Poisson => Arrival::Poisson,
                };
                Pace::Open { rate: self.rate, arrival }
            },
            value_bytes: self.size,
            batch: self.batch,
            keys: self.keys,
            seconds: self.duration.as_secs_f64(),
            warmup_seconds: self.warmup.as_secs_f64(),
            // A ledger that will be judged later needs values that can be.
            verify: self.verify,
            judged: self.verify || self.ledger.is_some(),
            embedded: self.embedded,
            disturbance: self.events,
            seed: self.seed,
            timeout_ms: self.client.timeout_ms(),
        }
    }
}
