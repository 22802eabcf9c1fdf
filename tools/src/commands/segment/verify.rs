//! `sealog segment verify`.

use std::fmt;

use sealog_engine::inspect::walk;
use sealog_engine::types::SegmentId;
use serde::Serialize;

use super::{Opened, Options, Wrong, cannot_inspect};
use crate::exit::{Exit, Outcome};

/// What came of it.
#[derive(Default, Serialize)]
struct Report {
    segments: u64,
    batches: u64,
    records: u64,
    findings: Vec<Wrong>,
    /// Files that do not verify and that nothing needs: what an unfinished writing left. No findings.
    unfinished: Vec<String>,
}

pub(super) fn run(options: &Options, only: Option<SegmentId>) -> Outcome {
    let Opened { mut store, directory, _hold } = options.open()?;
    let segments = match only {
        None => directory.segments.iter().collect(),
        Some(id) => vec![options.find(&directory, id)?],
    };
    let mut report = Report { findings: directory.findings.iter().map(Wrong::from).collect(), ..Report::default() };
    report.unfinished = directory.unfinished.iter().map(ToString::to_string).collect();
    for segment in segments {
        let findings = walk(&mut store, segment, &mut |_, batch| {
            report.batches += 1;
            report.records += u64::from(batch.batch().record_count());
        });
        let findings = findings.map_err(|error| cannot_inspect(&options.data_dir, error))?;
        report.segments += 1;
        report.findings.extend(findings.iter().map(Wrong::from));
    }
    options.format.print(&report)?;
    Ok(if report.findings.is_empty() { Exit::Done } else { Exit::NotVerified })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for file in &self.unfinished {
            writeln!(f, "{file}: left by an unfinished writing, and not needed")?;
        }
        let Self { segments, batches, records, .. } = self;
        write!(f, "{segments} segments, {batches} batches, {records} records: ")?;
        match self.findings.len() {
            0 => writeln!(f, "all verify"),
            1 => writeln!(f, "1 finding"),
            findings => writeln!(f, "{findings} findings"),
        }
    }
}
