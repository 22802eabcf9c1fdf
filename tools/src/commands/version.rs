//! `sealog version`.

use std::fmt;

use clap::Args;
use sealog_engine::format::FORMAT_VERSION;
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

/// Which build this is.
#[derive(Serialize)]
struct Build {
    version: &'static str,
    commit: &'static str,
    /// The newest format of a data directory that it writes and reads.
    data_format: u32,
    /// How it was built.
    features: Vec<&'static str>,
}

impl Build {
    fn this() -> Self {
        let checked = if cfg!(debug_assertions) { "debug-assertions" } else { "optimised" };
        let features = vec!["io_uring", "mimalloc", checked, std::env::consts::ARCH];
        Self { version: env!("CARGO_PKG_VERSION"), commit: sealog_bench::COMMIT, data_format: FORMAT_VERSION, features }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, commit, data_format, features } = self;
        writeln!(f, "sealog {version} (commit {commit}, data format {data_format}; {})", features.join(", "))
    }
}

impl Version {
    pub(super) fn run(&self) -> Outcome {
        self.format.print(&Build::this())?;
        Ok(Exit::Done)
    }
}
