//! The files of a run.
//!
//! ```text
//! report.json                 everything, in figures
//! intervals.ndjson            one line an interval of a phase
//! PHASE.hlog                  HdrHistogram log, V2: the response time of each interval, then the three times of the whole phase, by tag; ns
//! PHASE.TIME.hgrm             percentile distribution of one of the three times, us
//! report.html                 all of it in charts, for a browser
//! ```
//! PHASE is the phase's name in lower case with `-` for whatever is no letter or digit.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::{Deserialize, Serialize};

use super::detail::{Detail, Interval};
use super::history::Line;
use super::page::Page;
use super::summary::Report;
use crate::run::RunError;

/// The three times of a phase, as files and tags name them.
pub const TIMES: [&str; 3] = ["response", "service", "send-delay"];
/// Steps in each half of the distance to 100 %, as other tools write them.
const STEPS_PER_HALF: u32 = 5;

/// A line of `intervals.ndjson`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntervalLine {
    pub phase: String,
    #[serde(flatten)]
    pub interval: Interval,
}

/// Makes the folder of a run, so that one that cannot be made costs no run.
///
/// # Errors
/// It cannot be made.
pub fn make_folder(out: &Path) -> Result<(), RunError> {
    fs::create_dir_all(out).map_err(failed(out))
}

/// Writes the files of a run into a folder, which is made if need be, and a line to a history file.
///
/// # Errors
/// A file cannot be written.
pub fn save(report: &Report, out: Option<&Path>, history: Option<&Path>) -> Result<(), RunError> {
    if let Some(out) = out {
        make_folder(out)?;
        let text = serde_json::to_string_pretty(report).expect("a report is plain data");
        write(&out.join("report.json"), (text + "\n").as_bytes())?;
        save_details(report, out)?;
        write_page(out)?;
    }
    if let Some(path) = history {
        let line = serde_json::to_string(&Line::of(report)).expect("a line is plain data");
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(failed(path))?;
    }
    Ok(())
}

/// Makes `report.html` of the other files in a folder.
///
/// # Errors
/// One of them cannot be read, or it cannot be written.
pub fn write_page(dir: &Path) -> Result<(), RunError> {
    write(&dir.join("report.html"), Page::read(dir)?.html().as_bytes())
}

fn save_details(report: &Report, out: &Path) -> Result<(), RunError> {
    let mut lines = Vec::new();
    for phase in &report.phases {
        let Some(detail) = &phase.detail else { continue };
        for interval in &detail.intervals {
            let line = IntervalLine { phase: phase.name.clone(), interval: interval.clone() };
            serde_json::to_writer(&mut lines, &line).expect("an interval is plain data");
            lines.push(b'\n');
        }
        let slug = slug(&phase.name);
        let path = out.join(format!("{slug}.hlog"));
        let file = fs::File::create(&path).map_err(failed(&path))?;
        write_log(detail, BufWriter::new(file)).map_err(failed(&path))?;
        let times = [&detail.times.response, &detail.times.service, &detail.times.delay];
        // A delivery has a response time only.
        for (name, histogram) in TIMES.iter().zip(times).filter(|(_, histogram)| !histogram.is_empty()) {
            write(&out.join(format!("{slug}.{name}.hgrm")), percentile_distribution(histogram).as_bytes())?;
        }
    }
    write(&out.join("intervals.ndjson"), &lines)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path: PathBuf = path.to_owned();
    move |error| RunError::Output { path, error }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    fs::write(path, bytes).map_err(failed(path))
}

/// A phase's name as part of a file's.
#[must_use]
pub fn slug(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// The HdrHistogram log of a phase: intervals without a tag, which a reader takes for the series, then the whole phase by tag.
fn write_log(detail: &Detail, mut out: impl Write) -> io::Result<()> {
    const NS_A_MS: f64 = 1e6;
    let start = std::time::SystemTime::UNIX_EPOCH + Duration::from_millis(detail.started_ms);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("[values in nanoseconds, Interval_Max in milliseconds]")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NS_A_MS)
        .begin_log_with(&mut out, &mut serializer)?;
    let other = |error| io::Error::other(format!("{error:?}"));
    let seconds = |s: f64| Duration::from_secs_f64(s.max(0.0));
    for (interval, histogram) in detail.intervals.iter().zip(&detail.responses) {
        log.write_histogram(histogram, seconds(interval.start_s), seconds(interval.seconds), None).map_err(other)?;
    }
    let whole = seconds(detail.intervals.iter().map(|interval| interval.seconds).sum());
    let times = [&detail.times.response, &detail.times.service, &detail.times.delay];
    for (name, histogram) in TIMES.iter().zip(times).filter(|(_, histogram)| !histogram.is_empty()) {
        log.write_histogram(histogram, Duration::ZERO, whole, Tag::new(name)).map_err(other)?;
    }
    drop(log);
    out.flush()
}

/// The percentile distribution of a histogram of nanoseconds, in microseconds, as HdrHistogram's plotters read it.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "times of a run are far below 2^53 ns")]
pub fn percentile_distribution(histogram: &Histogram<u64>) -> String {
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let us = |ns: u64| ns as f64 / 1e3;
    let mut total = 0;
    for step in histogram.iter_quantiles(STEPS_PER_HALF) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        _ = write!(text, "{:>12.3} {quantile:>2.12} {total:>10}", us(step.value_iterated_to()));
        _ = if quantile < 1.0 { writeln!(text, " {:>14.2}", 1.0 / (1.0 - quantile)) } else { writeln!(text) };
    }
    let (mean, deviation) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
    _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
    _ = writeln!(text, "#[Max     = {:>12.3}, Total count    = {:>12}]", us(histogram.max()), histogram.len());
    _ = writeln!(text, "#[Buckets = {:>12}, SubBuckets     = {:>12}]", histogram.buckets(), 2_048);
    text
}

#[cfg(test)]
pub(super) mod tests;
