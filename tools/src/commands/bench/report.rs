//! `sealog bench report`: the page of a run, made again.

use std::path::PathBuf;

use clap::Args;
use sealog_bench::report::files::write_page;

use crate::exit::{Exit, Outcome};

/// Make report.html of the files that a run left in a folder.
#[derive(Debug, Args)]
pub(crate) struct BenchReport {
    /// The folder that was given with --out.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl BenchReport {
    pub(super) fn run(&self) -> Outcome {
        write_page(&self.dir)?;
        println!("{}", self.dir.join("report.html").display());
        Ok(Exit::Done)
    }
}
