use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::*;
use crate::load::recorder::Recorder;
use crate::load::samples::Span;
use crate::load::settings::Settings;
use crate::load::timeline::Timeline;
use crate::load::watch::Watched;
use crate::report::summary::{Host, Phase};

const SECOND: u64 = 1_000_000_000;

/// A report of one phase of two seconds: 1 ms in the first, 2 ms in the second.
pub(in crate::report) fn report() -> Report {
    let (mut times, mut timeline) = (Recorder::default(), Timeline::new(0, 2 * SECOND));
    for number in 0..2_000 {
        let (intended_ns, takes_ns) = (number * 1_000_000, if number < 1_000 { 1_000_000 } else { 2_000_000 });
        times.record(intended_ns, intended_ns, intended_ns + takes_ns);
        timeline.stored(intended_ns, intended_ns + takes_ns);
    }
    let mut phase = Phase::new("64 Outstanding", 2.0, Some(1_000.0), 1_000.0, &times);
    let cut = |(span, slice): (Span, &_)| Interval::new(span, 0, slice, &Watched::default());
    phase.detail = Some(Box::new(Detail {
        started_ms: 1_000,
        times,
        intervals: timeline.until(2 * SECOND).map(cut).collect(),
        responses: timeline.until(2 * SECOND).map(|(_, slice)| slice.response.clone()).collect(),
    }));
    let mut report = Report::new(Settings::default(), Host::default(), 0);
    report.phases.push(phase);
    report
}

#[test]
fn a_run_leaves_its_files_and_what_was_written_reads_back() {
    let dir = tempfile::tempdir().expect("a folder");
    save(&report(), Some(dir.path()), None).expect("written");
    let text = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);
    let back: Report = serde_json::from_str(&text("report.json")).expect("a report");
    assert_eq!(back.phases[0].response.samples, 2_000);
    let lines: Vec<IntervalLine> =
        text("intervals.ndjson").lines().map(|line| serde_json::from_str(line).expect("an interval")).collect();
    let seen: Vec<_> =
        lines.iter().map(|l| (l.phase.as_str(), l.interval.start_s, l.interval.response.samples)).collect();
    assert_eq!(seen, [("64 Outstanding", 0.0, 1_000), ("64 Outstanding", 1.0, 1_000)]);
    for time in TIMES {
        assert!(text(&format!("64-outstanding.{time}.hgrm")).contains("Total count    =         2000"));
    }
    assert!(text("64-outstanding.hlog").starts_with("#[Histogram log format version 1.3]\n"));
}

#[test]
fn the_histograms_of_a_log_are_those_of_the_phase() {
    let report = report();
    let detail = report.phases[0].detail.as_ref().expect("a detail");
    let mut log = Vec::new();
    write_log(detail, &mut log).expect("written");
    let mut read = Vec::new();
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.expect("a line") {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(interval.encoded_histogram()).expect("base64");
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).expect("V2");
            read.push((interval.tag().map(|tag| tag.as_str().to_owned()), histogram));
        }
    }
    let tags: Vec<_> = read.iter().map(|(tag, _)| tag.as_deref()).collect();
    assert_eq!(tags, [None, None, Some("response"), Some("service"), Some("send-delay")]);
    assert_eq!(read[1].1, detail.responses[1]);
    assert_eq!(read[2].1, detail.times.response);
}

#[test]
fn a_percentile_distribution_ends_at_the_maximum() {
    let report = report();
    let text = percentile_distribution(&report.phases[0].detail.as_ref().expect("a detail").times.response);
    let rows: Vec<Vec<f64>> = text
        .lines()
        .skip(2)
        .take_while(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().map(|number| number.parse().expect("a number")).collect())
        .collect();
    assert!(rows.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][2] <= pair[1][2]));
    let last = rows.last().expect("rows");
    assert!((last[0] - 2_000.0).abs() < 2.0 && last[1] >= 1.0 && last[2] == 2_000.0, "{last:?}");
}
