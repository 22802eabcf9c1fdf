//! `sealog man`.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use super::Cli;
use crate::exit::{Exit, Outcome};

/// Write the manual pages, one a command: sealog.1, sealog-serve.1 and so on.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder for the pages; made if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Man {
    pub(super) fn run(&self) -> Outcome {
        let out = self.out.display();
        fs::create_dir_all(&self.out).with_context(|| format!("cannot make {out}"))?;
        clap_mangen::generate_to(Cli::command(), &self.out)
            .with_context(|| format!("cannot write pages into {out}"))?;
        Ok(Exit::Done)
    }
}
