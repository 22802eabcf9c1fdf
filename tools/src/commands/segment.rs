//! `sealog segment`: looks into the data directory of a node that does not run. Reads only.

mod dump;
mod files;
mod list;
mod verify;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use sealog_engine::inspect::{Directory, Finding, InspectError, Segment as Known};
use sealog_engine::types::SegmentId;
use serde::Serialize;
use thiserror::Error;

use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;
use files::{FileStore, Hold};

/// Look into a data directory that no node uses, reading only: what is there, and does it verify?
#[derive(Debug, Args)]
pub(crate) struct Segment {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all segments, one a line.
    List {
        #[command(flatten)]
        options: Options,
    },
    /// Print the batches of one segment, one a line.
    Dump {
        /// The segment, such as s3.
        segment: Id,
        /// Print the records too; with --format json these alone, as consume prints them.
        #[arg(long)]
        records: bool,
        #[command(flatten)]
        options: Options,
    },
    /// Verify everything, or one segment; ends with 5 if something does not verify.
    Verify {
        /// Only this segment, such as s3.
        segment: Option<Id>,
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Debug, Args)]
struct Options {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A segment's id, as it is printed or without its letter.
#[derive(Clone, Copy, Debug)]
struct Id(SegmentId);

/// A text is no segment.
#[derive(Debug, Error)]
#[error("write a segment's id, such as s3")]
struct NoId;

/// There is no such segment.
#[derive(Debug, Error)]
#[error("{} holds no segment {segment}; `sealog segment list` shows what it holds", dir.display())]
struct NoSegment {
    dir: PathBuf,
    segment: SegmentId,
}

/// The directory cannot be looked into.
#[derive(Debug, Error)]
#[error("cannot look into {}: {error}", dir.display())]
struct CannotInspect {
    dir: PathBuf,
    error: InspectError,
}

/// Something wrong, as it is printed.
#[derive(Serialize)]
struct Wrong {
    file: Option<String>,
    position: u64,
    segment: Option<String>,
    batch: Option<u64>,
    from: Option<u64>,
    to: Option<u64>,
    fault: String,
}

/// A directory that is held still as long as this lives.
struct Opened {
    store: FileStore,
    directory: Directory,
    _hold: Hold,
}

impl FromStr for Id {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        let digits = text.strip_prefix('s').unwrap_or(text);
        digits.parse().map(|id| Self(SegmentId(id))).map_err(|_| NoId)
    }
}

impl Segment {
    pub(super) fn run(&self) -> Outcome {
        match &self.action {
            Action::List { options } => list::run(options),
            Action::Dump { segment, records, options } => dump::run(options, segment.0, *records),
            Action::Verify { segment, options } => verify::run(options, segment.map(|id| id.0)),
        }
    }
}

impl Options {
    fn open(&self) -> Result<Opened, Failure> {
        let hold = Hold::take(&self.data_dir)?;
        let mut store = FileStore::new(&self.data_dir);
        let directory = Directory::read(&mut store).map_err(|error| cannot_inspect(&self.data_dir, error))?;
        Ok(Opened { store, directory, _hold: hold })
    }

    fn find<'d>(&self, directory: &'d Directory, segment: SegmentId) -> Result<&'d Known, Failure> {
        directory
            .segment(segment)
            .ok_or_else(|| Failure::new(Exit::Failed, NoSegment { dir: self.data_dir.clone(), segment }))
    }
}

fn cannot_inspect(dir: &Path, error: InspectError) -> Failure {
    let exit = match &error {
        InspectError::Newer(_) | InspectError::UnknownFeatures { .. } | InspectError::NothingThere => {
            Exit::Configuration
        }
        InspectError::Store(_) => Exit::Failed,
    };
    Failure::new(exit, CannotInspect { dir: dir.to_owned(), error })
}

impl From<&Finding> for Wrong {
    fn from(finding: &Finding) -> Self {
        Self {
            file: finding.file.map(|file| file.to_string()),
            position: finding.position,
            segment: finding.segment.map(|segment| segment.to_string()),
            batch: finding.batch,
            from: finding.offsets.map(|offsets| offsets.from.0),
            to: finding.offsets.map(|offsets| offsets.to.0),
            fault: finding.fault.to_string(),
        }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file} at {}: ", self.position)?;
        }
        if let Some(batch) = self.batch {
            write!(f, "batch {batch}, ")?;
        }
        if let (Some(from), Some(to)) = (self.from, self.to) {
            write!(f, "offsets {from} to {to}: ")?;
        }
        f.write_str(&self.fault)
    }
}
