//! `sealog version`.

use std::fmt;

use clap::Args;
use serde::Serialize;

use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// Say which build this is.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Build {
    version: &'static str,
    commit: &'static str,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sealog {} ({})", self.version, self.commit)
    }
}

impl Version {
    pub(super) fn run(&self) -> Outcome {
        self.format.print(&Build { version: env!("CARGO_PKG_VERSION"), commit: sealog_bench::COMMIT })?;
        Ok(Exit::Done)
    }
}
