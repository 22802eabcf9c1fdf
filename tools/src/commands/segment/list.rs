//! `sealog segment list`.

use std::fmt;

use sealog_engine::inspect::{Segment, Source};
use sealog_engine::segment::SegmentState;
use serde::Serialize;

use super::{Options, Wrong};
use crate::commands::columns;
use crate::exit::{Exit, Outcome};

/// A segment as it is printed.
#[derive(Serialize)]
struct Line {
    segment: String,
    topic: String,
    range: String,
    base: u64,
    /// `null` if nobody knows: no catalog can be read.
    end: Option<u64>,
    state: &'static str,
    bytes: Option<u64>,
    records: Option<u64>,
    files: usize,
    holes: usize,
}

#[derive(Serialize)]
#[serde(transparent)]
struct List(Vec<Line>);

pub(super) fn run(options: &Options) -> Outcome {
    let opened = options.open()?;
    let directory = &opened.directory;
    let line = |segment: &Segment| {
        let topic = segment.record.header.topic;
        let name = directory.topics.get(&topic).cloned().unwrap_or_else(|| topic.to_string());
        Line::new(segment, name)
    };
    options.format.print(&List(directory.segments.iter().map(line).collect()))?;
    for finding in &directory.findings {
        eprintln!("sealog: {}", Wrong::from(finding));
    }
    Ok(if directory.findings.is_empty() { Exit::Done } else { Exit::NotVerified })
}

impl Line {
    fn new(segment: &Segment, topic: String) -> Self {
        let record = segment.now();
        let is_known = match segment.source {
            Source::Catalog | Source::Journal => true,
            Source::Itself | Source::Nobody | Source::Deletion => false,
        };
        let state = match (segment.source, &record.state) {
            (Source::Nobody, _) => "unlisted",
            (Source::Itself, _) => "unknown",
            (Source::Deletion, _) => "deleting",
            (Source::Catalog | Source::Journal, SegmentState::Open(_)) => "open",
            (Source::Catalog | Source::Journal, SegmentState::Rolled { .. }) => "rolled",
            (Source::Catalog | Source::Journal, SegmentState::Sealed { .. }) => "sealed",
        };
        let checkpoint = record.checkpoint;
        let end = record.seal().map_or(checkpoint.end, |(seal, _)| seal.end);
        let holes = record.seal().map_or(segment.uncertain.len(), |(_, holes)| holes.len());
        Self {
            segment: record.segment().to_string(),
            topic,
            range: segment.range().to_string(),
            base: record.base().0,
            end: is_known.then_some(end.0),
            state,
            bytes: is_known.then_some(checkpoint.tally.bytes),
            records: is_known.then_some(checkpoint.tally.records),
            files: segment.files.len(),
            holes,
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["segment", "topic", "range", "state", "base", "end", "bytes", "records", "files", "holes"];
        let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let row = |line: &Line| {
            [
                line.segment.clone(),
                line.topic.clone(),
                line.range.clone(),
                line.state.to_owned(),
                line.base.to_string(),
                number(line.end),
                number(line.bytes),
                number(line.records),
                line.files.to_string(),
                line.holes.to_string(),
            ]
        };
        columns::write(f, heading, 4, &self.0.iter().map(row).collect::<Vec<_>>())
    }
}
