//! `sealog doctor`: is this host fit, and how fast can it make a write durable?

mod sync_test;

use std::fmt;

use clap::Args;
use serde::Serialize;

use self::sync_test::SyncTest;
use crate::daemon::config::{Given, Settings};
use crate::daemon::fitness::{Absent, Finding, Fitness, look};
use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// Look whether this host is fit for a node with these settings.
///
/// Says of everything that is not as it should be how to mend it. Ends with 69 if a node could not run; makes no data directory and
/// leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    given: Given,
    /// Also measure how long a durable write takes, by each way to sync, with the shards' cores kept busy; takes some seconds.
    #[arg(long)]
    iotest: bool,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What is printed.
#[derive(Serialize)]
struct Report {
    fit: bool,
    #[serde(flatten)]
    fitness: Fitness,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<SyncTest>,
}

impl Doctor {
    pub(super) fn run(&self) -> Outcome {
        let settings = Settings::load(&self.given)?;
        let mut fitness = look(&settings, Absent::LookAbove);
        let mut sync = None;
        // On a host that is unfit the test would only fail at the same thing again.
        if self.iotest && fitness.is_fit() {
            match sync_test::measure(&settings) {
                Ok(test) => {
                    fitness.findings.extend(test.findings(settings.sync));
                    sync = Some(test);
                }
                Err(error) => fitness.findings.push(Finding::wrong(
                    "sync",
                    error.to_string(),
                    "make room for 8MiB on the file system, or look at the disk and the kernel's log",
                )),
            }
        }
        let fit = fitness.is_fit();
        self.format.print(&Report { fit, fitness, sync })?;
        Ok(if fit { Exit::Done } else { Exit::Unfit })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fitness { data_dir, shards, findings } = &self.fitness;
        for finding in findings {
            writeln!(f, "{finding}")?;
        }
        if let Some(sync) = &self.sync {
            write!(f, "\n{sync}\n")?;
        }
        let (plural, verdict) = (if *shards == 1 { "" } else { "s" }, if self.fit { "fit" } else { "NOT fit" });
        writeln!(f, "this host is {verdict} for {shards} shard{plural} on {data_dir}")
    }
}
