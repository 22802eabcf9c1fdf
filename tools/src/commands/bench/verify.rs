//! `sealog bench verify`: judge by a ledger what an earlier load left behind.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use sealog_bench::load::ledger::Ledger;
use sealog_bench::report::summary::Verification;
use sealog_bench::run::{RunError, judge};
use serde::Serialize;

use super::target;
use crate::commands::client::Client;
use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// Read a topic back and judge it by the ledger of `bench produce --ledger`, also after a restart of the node.
///
/// An acknowledged record is lost if it is not there when nothing new has come for the time of --timeout.
#[derive(Debug, Args)]
pub(crate) struct BenchVerify {
    /// The ledger.
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
    #[command(flatten)]
    client: Client,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Judged(Verification);

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl BenchVerify {
    pub(super) fn run(&self) -> Outcome {
        let ledger = Ledger::load(&self.ledger).map_err(RunError::from)?;
        let found = judge(&target(&self.client.addr, None, None), &ledger, self.client.timeout_ms())?;
        let passed = found.passed();
        self.format.print(&Judged(found))?;
        Ok(if passed { Exit::Done } else { Exit::NotVerified })
    }
}
