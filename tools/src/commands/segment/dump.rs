//! `sealog segment dump`.
//!
//! With `--records --format json` the lines are those that `produce --format json` takes: so what is left of a damaged directory can be
//! brought into another node.

use std::io::{self, BufWriter, Write};

use sealog_engine::format::PlacedBatch;
use sealog_engine::inspect::{Site, Source, walk};
use sealog_engine::types::SegmentId;
use serde::Serialize;

use super::{Opened, Options, Wrong, cannot_inspect};
use crate::commands::json_record::Record;
use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// A batch as it is printed.
#[derive(Serialize)]
struct Line {
    file: String,
    position: u64,
    /// `null` behind damage.
    batch: Option<u64>,
    from: u64,
    to: u64,
    epoch: u64,
    producer: String,
    producer_epoch: u32,
    run: u32,
    sequence: u64,
    records: u32,
    bytes: usize,
    timestamp_ms_min: u64,
    timestamp_ms_max: u64,
    append_time_ms: u64,
}

pub(super) fn run(options: &Options, id: SegmentId, records: bool) -> Outcome {
    let Opened { mut store, directory, _hold } = options.open()?;
    let segment = options.find(&directory, id)?;
    let mut out = BufWriter::with_capacity(1 << 18, io::stdout().lock());
    if options.format == Format::Text {
        writeln!(
            out,
            "{:>12}  {:>20}  {:>6}  {:>12}  {:>10}  {:>8}  {:>13} to {:>13}",
            "position", "offsets", "epoch", "producer", "sequence", "records", "least ms", "greatest ms"
        )?;
    }
    let mut printed = Ok(());
    let findings = walk(&mut store, segment, &mut |site, batch| {
        if printed.is_ok() {
            printed = print(&mut out, options.format, records, site, batch);
        }
    })
    .map_err(|error| cannot_inspect(&options.data_dir, error))?;
    printed?;
    out.flush()?;
    for finding in &findings {
        eprintln!("sealog: {}", Wrong::from(finding));
    }
    let (end, known) = (segment.record.checkpoint.end, segment.now().checkpoint.end);
    match segment.source {
        Source::Nobody => {
            eprintln!("sealog: no catalog and no journal knows {id}: it is what an unfinished writing left")
        }
        Source::Deletion => eprintln!("sealog: the topic of {id} is deleted: its files are being removed"),
        Source::Catalog | Source::Journal if end < known || segment.source == Source::Journal => {
            eprintln!(
                "sealog: the journal holds more of {id}, up to offset {}: a start writes it to the file",
                known.0
            );
        }
        Source::Catalog | Source::Journal | Source::Itself => {}
    }
    Ok(if findings.is_empty() { Exit::Done } else { Exit::NotVerified })
}

fn print(out: &mut impl Write, format: Format, records: bool, site: Site, placed: &PlacedBatch<'_>) -> io::Result<()> {
    let line = Line::new(site, placed);
    match format {
        Format::Json if records => {}
        Format::Json => {
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        Format::Text => writeln!(
            out,
            "{:>12}  {:>20}  {:>6}  {:>12}  {:>10}  {:>8}  {:>13} to {:>13}",
            line.position,
            format!("{} to {}", line.from, line.to),
            line.epoch,
            line.producer,
            line.sequence,
            line.records,
            line.timestamp_ms_min,
            line.timestamp_ms_max
        )?,
    }
    if !records {
        return Ok(());
    }
    // A record that makes no sense is a finding of the walk, and the end of what can be told of its batch.
    for record in placed.batch().records().map_while(Result::ok) {
        let indent = if format == Format::Text { "    " } else { "" };
        writeln!(out, "{indent}{}", Record::of(&record).line())?;
    }
    Ok(())
}

impl Line {
    fn new(site: Site, placed: &PlacedBatch<'_>) -> Self {
        let (place, batch) = (placed.place(), placed.batch());
        Self {
            file: site.file.to_string(),
            position: site.position,
            batch: site.number,
            from: place.offset.0,
            to: placed.end().0,
            epoch: place.epoch.0,
            producer: batch.producer().to_string(),
            producer_epoch: batch.producer_epoch().0,
            run: batch.run().0,
            sequence: batch.sequence().0,
            records: batch.record_count(),
            bytes: placed.bytes().len(),
            timestamp_ms_min: batch.timestamp_ms_min(),
            timestamp_ms_max: batch.timestamp_ms_max(),
            append_time_ms: place.append_time_ms,
        }
    }
}
