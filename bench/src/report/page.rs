//! `report.html`: the figures and charts in one file, that asks for nothing over the network.
//!
//! ```text
//! page.html   /*{data}*/  /*{uplot.js}*/ …        places
//!                 └ figures, intervals, curves as JSON, with every < written as \u003c, so that no text can end its element
//! ```
//! A policy in the page forbids all requests, whatever a later change to it might ask for.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde::Serialize;
use thiserror::Error;

use super::files::{IntervalLine, TIMES, slug};
use super::summary::{Report, SCHEMA_VERSION, percentile_us};

const PAGE: &str = include_str!("../../page/page.html");
const PAGE_CSS: &str = include_str!("../../page/page.css");
const PAGE_JS: &str = include_str!("../../page/page.js");
const UPLOT_CSS: &str = include_str!("../../page/uplot/uPlot.min.css");
const UPLOT_JS: &str = include_str!("../../page/uplot/uPlot.iife.min.js");

/// Points of a percentile curve in each power of ten of 1/(1-quantile).
const POINTS_A_DECADE: i32 = 24;
/// Powers of ten of a curve: up to 99.9999 %.
const DECADES: i32 = 6;

/// The files of a run cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot read {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("{path} is not understood: {error}")]
    Json { path: String, error: serde_json::Error },
    #[error("{path} is of version {found}, this build reads {SCHEMA_VERSION}")]
    Version { path: String, found: u32 },
    #[error("{path} is no HdrHistogram log that this build wrote")]
    Log { path: String },
}

/// What a page shows.
#[derive(Debug, Serialize)]
pub struct Page {
    report: Report,
    flaw: Option<String>,
    intervals: Vec<IntervalLine>,
    curves: Vec<Curve>,
}

/// The response time of one phase by percentile.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Curve {
    phase: String,
    /// 1/(1-quantile).
    x: Vec<f64>,
    us: Vec<f64>,
}

/// Reads a `report.json`, or the one in a folder.
///
/// # Errors
/// It cannot be read, or is of another version.
pub fn read_report(path: &Path) -> Result<Report, ReadError> {
    let path = if path.is_dir() { path.join("report.json") } else { path.to_owned() };
    let named = || path.display().to_string();
    let bytes = fs::read(&path).map_err(|error| ReadError::Io { path: named(), error })?;
    let json = |error| ReadError::Json { path: named(), error };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(json)?;
    // The version first: what a later one holds need not be understood.
    let found = value["schema_version"].as_u64().and_then(|version| u32::try_from(version).ok()).unwrap_or(0);
    if found != SCHEMA_VERSION {
        return Err(ReadError::Version { path: named(), found });
    }
    serde_json::from_value(value).map_err(json)
}

impl Page {
    /// Of the files in a folder. Intervals and histograms that are not there are left out.
    ///
    /// # Errors
    /// A file cannot be read or is not understood.
    pub fn read(dir: &Path) -> Result<Self, ReadError> {
        let report = read_report(dir)?;
        let path = dir.join("intervals.ndjson");
        let named = || path.display().to_string();
        let text = if path.exists() {
            fs::read_to_string(&path).map_err(|error| ReadError::Io { path: named(), error })?
        } else {
            String::new()
        };
        let json = |error| ReadError::Json { path: named(), error };
        let intervals = text.lines().map(|line| serde_json::from_str(line).map_err(json)).collect::<Result<_, _>>()?;
        let mut curves = Vec::new();
        for phase in &report.phases {
            if log_of(dir, &phase.name).exists() {
                curves.push(Curve::of(&phase.name, &read_response(dir, &phase.name)?));
            }
        }
        curves.retain(|curve| !curve.x.is_empty());
        Ok(Self { flaw: report.flaw().map(|flaw| flaw.to_string()), report, intervals, curves })
    }

    /// The page.
    ///
    /// # Panics
    /// Never: it is plain data.
    #[must_use]
    pub fn html(&self) -> String {
        let data = serde_json::to_string(self).expect("a page is plain data").replace('<', "\\u003c");
        PAGE.replace("/*{uplot.css}*/", UPLOT_CSS)
            .replace("/*{page.css}*/", PAGE_CSS)
            .replace("/*{uplot.js}*/", UPLOT_JS)
            .replace("/*{page.js}*/", PAGE_JS)
            .replace("/*{data}*/", &data)
    }
}

impl Curve {
    fn of(phase: &str, response: &Histogram<u64>) -> Self {
        let points = (0..=DECADES * POINTS_A_DECADE)
            .map(|step| 10f64.powf(f64::from(step) / f64::from(POINTS_A_DECADE)))
            .map_while(|x| Some((x, percentile_us(response, 100.0 - 100.0 / x)?)));
        let (x, us) = points.unzip();
        Self { phase: phase.to_owned(), x, us }
    }
}

fn log_of(dir: &Path, phase: &str) -> PathBuf {
    dir.join(format!("{}.hlog", slug(phase)))
}

/// The response times of a whole phase in ns, from its log in the folder of a run.
///
/// # Errors
/// It cannot be read or is not understood.
pub fn read_response(dir: &Path, phase: &str) -> Result<Histogram<u64>, ReadError> {
    let path = &log_of(dir, phase);
    let named = || path.display().to_string();
    let bytes = fs::read(path).map_err(|error| ReadError::Io { path: named(), error })?;
    let found = IntervalLogIterator::new(&bytes).find_map(|entry| match entry {
        Ok(LogEntry::Interval(interval)) if interval.tag().is_some_and(|tag| tag.as_str() == TIMES[0]) => {
            let encoded = STANDARD.decode(interval.encoded_histogram()).ok()?;
            Deserializer::new().deserialize(&mut encoded.as_slice()).ok()
        }
        _ => None,
    });
    found.ok_or_else(|| ReadError::Log { path: named() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recorder::histogram;
    use crate::report::files::save;
    use crate::report::files::tests::report;

    fn page() -> String {
        let dir = tempfile::tempdir().expect("a folder");
        let mut report = report();
        report.host.cpu = "a </script><script>alert(1)</script> core".to_owned();
        save(&report, Some(dir.path()), None).expect("written");
        fs::read_to_string(dir.path().join("report.html")).expect("a page")
    }

    /// What stands between two texts, the last of them that does.
    fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
        let text = &text[text.find(from).expect(from) + from.len()..];
        &text[..text.find(to).expect(to)]
    }

    #[test]
    fn a_page_holds_the_figures_the_intervals_and_the_curves() {
        let page = page();
        let data = between(&page, r#"<script type="application/json" id="data">"#, "</script>");
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["report"]["phases"][0]["response"]["samples"], 2_000);
        assert_eq!(data["report"]["host"]["cpu"], "a </script><script>alert(1)</script> core");
        assert_eq!(data["intervals"].as_array().map(Vec::len), Some(2));
        assert_eq!(data["curves"][0]["phase"], "64 Outstanding");
        assert!(data["curves"][0]["us"][0].as_f64().is_some_and(|us| (us - 1_000.0).abs() < 2.0));
    }

    #[test]
    fn a_page_asks_for_nothing() {
        let page = page();
        assert!(page.contains("default-src 'none'"));
        for asks in [" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "import("] {
            assert!(!page.contains(asks), "{asks}");
        }
        assert_eq!(page.matches("href=").count(), page.matches(r#"href="data:,""#).count());
        assert!(!page.contains("/*{"), "every place is filled");
    }

    #[test]
    fn a_text_cannot_end_the_element_that_it_stands_in() {
        let page = page();
        assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (3, 3));
    }

    #[test]
    fn the_library_is_the_version_that_is_named_and_its_licence_lies_beside_it() {
        assert!(UPLOT_JS.starts_with("/*! https://github.com/leeoniya/uPlot (v1.6.32) */"));
        assert!(include_str!("../../page/uplot/LICENSE").contains("MIT License"));
    }

    #[test]
    fn a_curve_ends_where_ten_samples_lie_beyond() {
        let mut response = histogram();
        response.record_n(1_000, 1_000).expect("in bounds");
        let curve = Curve::of("load", &response);
        let last = curve.x.last().expect("points");
        assert!((last - 100.0).abs() < 1e-6, "p99 of 1,000 samples: {last}");
        assert!(Curve::of("load", &histogram()).x.is_empty());
    }

    #[test]
    fn a_report_of_another_version_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("report.json"), r#"{"schema_version": 99}"#).expect("written");
        assert!(matches!(read_report(dir.path()), Err(ReadError::Version { found: 99, .. })));
    }
}
