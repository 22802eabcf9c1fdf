//! A report in a real browser: its charts are drawn, nothing is complained of, and nothing is asked for over any network, in light and in
//! dark. Without a Chromium on the path the test is skipped, and says so.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sealog_bench::load::arrivals::Arrival;
use sealog_bench::load::disturb::{Act, Disturbed};
use sealog_bench::load::producers::OnDisconnect;
use sealog_bench::load::settings::{KeyDist, Pace, Settings, SizeShare, mean_bytes};
use sealog_bench::null::NullNode;
use sealog_bench::reading::{Catchup, Mixed};
use sealog_bench::report::detail::Mark;
use sealog_bench::report::disturbance::SplitsAndMerges;
use sealog_bench::report::summary::{Floor, FloorPair, Host, Phase, Report, Verification};
use sealog_bench::run::{Target, save};
use sealog_bench::sweep::{Step, Sweep};
use serde_json::{Value, json};

/// Names under which a Chromium is installed.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// The charts of the report: rounds, rates, percentiles, and one over time for each of its two phases.
const CHARTS: usize = 5;

/// Looks at the page from within: notes what it may not do, and how much of each canvas is painted.
const LISTEN: &str = r"<script>
addEventListener('securitypolicyviolation', (e) => { document.documentElement.dataset.violation = e.blockedURI; });
addEventListener('error', (e) => { document.documentElement.dataset.error = e.message; });
</script>";
const LOOK: &str = r"<script>
for (const canvas of document.querySelectorAll('canvas')) {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const colors = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 200) colors.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  canvas.dataset.colors = colors.size;
}
document.documentElement.dataset.requests = performance.getEntriesByType('resource').length;
document.documentElement.dataset.paper = getComputedStyle(document.body).backgroundColor;
document.documentElement.dataset.overflows = document.documentElement.scrollWidth > document.documentElement.clientWidth;
</script>";

fn skipped(why: impl std::fmt::Display) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").expect("standard error");
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

/// A node that rolls a segment and makes a checkpoint at each look.
fn restless(mut target: Target) -> Target {
    let looks = Arc::new(AtomicU64::new(0));
    target.status = Some(Arc::new(move || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let ms = u64::try_from(now).expect("milliseconds");
        Some(json!({"commit": "abc", "shards": 1, "sync": "linked", "counters": [{
            "rolls": look / 4, "last_roll_wall_ms": ms - 20, "checkpoints": look / 3,
            "last_checkpoint_begin_wall_ms": ms - 60, "last_checkpoint_end_wall_ms": ms - 10,
        }]}))
    }));
    target
}

/// A report that has all that a report can have, measured against a node with nothing behind it.
fn report(node: &NullNode) -> Report {
    let target = restless(Target { addresses: vec![node.address().to_string()], status: None, data_dir: None });
    let sizes = vec![SizeShare { bytes: 64, percent: 90.0 }, SizeShare { bytes: 1024, percent: 10.0 }];
    let settings = Settings {
        pace: Pace::Open { rate: 4_000.0, arrival: Arrival::Poisson },
        value_bytes: mean_bytes(&sizes),
        sizes,
        key_dist: KeyDist::Zipf { exponent: 0.99 },
        seconds: 2.5,
        warmup_seconds: 0.0,
        disturbance: true,
        timeout_ms: 60_000,
        percentiles: vec![99.5],
        ..Settings::default()
    };
    let stop = AtomicBool::new(false);
    let mut report = Report::new(settings.clone(), Host::read(), 1);
    let load = |name: &str| target.load(name, &settings, OnDisconnect::Stop, &stop).expect("a load").0;
    let mut runs = Vec::new();
    for name in ["alone", "beside a reader"] {
        let both = [load(name), load(name)];
        runs.extend(both.iter().cloned());
        report.take_runs(both.to_vec());
    }
    report.runs = runs;
    report.phases[0].errors.not_stored = 3;
    report.phases[0].errors.by_cause.insert("overloaded".to_owned(), 3);
    split_and_merged(&mut report.phases[0]);
    let steps = (1..).zip(&report.runs).map(|(nth, run): (u32, _)| Step {
        offered_rate: 1_000.0 * f64::from(nth.div_ceil(2)),
        achieved_rate: run.achieved_rate,
        response: run.response,
        saturated: nth == 4,
        errors: 0,
        kept: nth < 3,
    });
    let objective = "p99<1ms".to_owned();
    report.sweep = Some(Sweep { objective, highest_rate: Some(1_000.0), steps: steps.collect() });
    let floor = Floor {
        method: "linked".to_owned(),
        write: report.phases[0].service,
        echo: report.phases[0].service,
        sum: report.phases[0].response,
    };
    report.floor = Some(FloorPair {
        before: floor.clone(),
        after: Some(floor),
        device_cache: Some("write back".to_owned()),
        request_bytes: 1_000,
        reply_bytes: 60,
    });
    report.relate_to_floor();
    report.server = target.status.as_ref().and_then(|status| status());
    let read =
        Catchup { records: 10, bytes: 10_000, seconds: 1.5, records_a_second: 6.7, bytes_a_second: 6_667.0, gaps: 0 };
    report.catchup = Some(read);
    let (alone_p99_us, beside_p99_us) = (report.phases[0].response.p99_us, report.phases[1].response.p99_us);
    report.mixed = Some(Mixed { rounds: 2, alone_p99_us, beside_p99_us, ratio_p99: Some(1.0), reader: read });
    report.verification = Some(Verification { acknowledged: 7, read: 7, ..Verification::default() });
    report
}

/// Gives a phase a split and a merge that were done, and a merge that could not be.
fn split_and_merged(phase: &mut Phase) {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let split = Disturbed {
        what: Act::Split,
        at_seconds: 1.0,
        seconds: 0.02,
        ranges: 1,
        parents: names(&["r1"]),
        successors: names(&["r2", "r3"]),
        error: None,
        near_p99_us: Some(900.0),
        stall_us: Some(9_100.0),
    };
    let merge = Disturbed {
        what: Act::Merge,
        at_seconds: 2.0,
        ranges: 2,
        parents: names(&["r2", "r3"]),
        successors: names(&["r4"]),
        ..split.clone()
    };
    let undone = Disturbed {
        at_seconds: 2.2,
        ranges: 0,
        parents: vec![],
        successors: vec![],
        error: Some("there is nothing to merge".to_owned()),
        near_p99_us: None,
        stall_us: None,
        ..merge.clone()
    };
    let detail = phase.detail.as_mut().expect("a load has one");
    for act in [&split, &merge] {
        let mark = Mark { kind: act.what.to_string(), begin_s: act.at_seconds, end_s: act.at_seconds + act.seconds };
        detail.intervals[0].events.push(mark);
    }
    phase.disturbed = vec![split, merge, undone];
    phase.splits_and_merges = Some(SplitsAndMerges {
        splits: 1,
        merges: 1,
        near: phase.response,
        others: phase.response,
        ratio_p99: Some(1.0),
        act_p99_max_us: Some(900.0),
        stall_median_us: Some(9_100.0),
        stall_max_us: Some(9_100.0),
    });
}

/// What the browser made of a file: its elements, and what it logged.
struct Seen {
    dom: String,
    log: String,
}

impl Seen {
    fn open(browser: &Path, page: &Path, dark: bool) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(browser);
        command.args(["--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking"]);
        command.args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-sandbox"]);
        command.args(["--enable-logging=stderr", "--window-size=1200,3000", "--virtual-time-budget=10000"]);
        command.arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)));
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.arg("--dump-dom").arg(format!("file://{}", page.display()));
        let output = command.output().expect("the browser runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (dom, log) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && dom.contains("</html>"), "{}: {log}", output.status);
        Self { dom, log }
    }

    /// The value of an attribute of the root element.
    fn root(&self, name: &str) -> Option<&str> {
        let from = self.dom.find("<html")?;
        attribute(&self.dom[from..from + self.dom[from..].find('>')?], name)
    }

    fn canvases(&self) -> Vec<&str> {
        self.dom.split("<canvas").skip(1).map(|rest| rest.split('>').next().expect("an end")).collect()
    }
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    element.split_once(&format!("{name}=\""))?.1.split('"').next()
}

#[test]
fn a_report_is_drawn_in_a_browser_without_a_complaint_and_without_a_request() {
    let Some(browser) = browser() else { return skipped("no Chromium on the path") };
    let node = match NullNode::start(None, None) {
        Ok(node) => node,
        Err(error) => return skipped(format!("no executor here: {error}")),
    };
    let dir = tempfile::tempdir().expect("a folder");
    save(&report(&node), Some(dir.path()), None).expect("written");
    let page = dir.path().join("report.html");

    // As it is.
    let seen = Seen::open(&browser, &page, false);
    assert!(!seen.log.contains("CONSOLE"), "{}", seen.log);
    assert_eq!(seen.root("data-drawn"), Some(CHARTS.to_string().as_str()), "{}", seen.log);
    let number = |element: &str, name: &str| attribute(element, name).and_then(|text| text.parse::<u32>().ok());
    for canvas in seen.canvases() {
        let (width, height) = (number(canvas, "width"), number(canvas, "height"));
        assert!(width > Some(300) && height > Some(200), "{canvas}");
    }
    for told in [
        "overloaded: 3",
        "alone, run 2",
        "beside a reader (median run)",
        "zipf",
        "from the beginning",
        "p99.5",
        "1 split, 1 merge",
        "r2, r3",
        "9.10 ms",
        "there is nothing to merge",
    ] {
        assert!(seen.dom.to_lowercase().contains(&told.to_lowercase()), "{told}");
    }
    let (_, shown) = seen.dom.split_once("<main>").expect("a body");
    let (shown, _) = shown.split_once("</main>").expect("its end");
    assert!(!shown.contains("NaN") && !shown.contains("undefined") && !shown.contains("Infinity"), "{shown}");

    // The same page with somebody who looks at it from within.
    let html = fs::read_to_string(&page).expect("a page");
    let watched =
        html.replacen("<head>", &format!("<head>{LISTEN}"), 1).replacen("</body>", &format!("{LOOK}</body>"), 1);
    fs::write(&page, watched).expect("written");
    let papers = [false, true].map(|dark| {
        let seen = Seen::open(&browser, &page, dark);
        assert!(!seen.log.contains("CONSOLE"), "{}", seen.log);
        assert_eq!((seen.root("data-error"), seen.root("data-violation")), (None, None));
        assert_eq!(seen.root("data-requests"), Some("0"));
        assert_eq!(seen.root("data-overflows"), Some("false"), "wider than the window");
        for canvas in seen.canvases() {
            assert!(number(canvas, "data-colors") > Some(10), "an empty chart: {canvas}");
        }
        assert_eq!(seen.canvases().len(), CHARTS);
        seen.root("data-paper").map(str::to_owned)
    });
    assert!(papers[0].is_some() && papers[0] != papers[1], "light and dark look the same: {papers:?}");
}

#[test]
fn the_page_of_a_run_without_details_is_no_empty_promise() {
    let Some(browser) = browser() else { return skipped("no Chromium on the path") };
    let dir = tempfile::tempdir().expect("a folder");
    let mut report = Report::new(Settings::default(), Host::default(), 0);
    report.catchup = Some(Catchup::default());
    save(&report, Some(dir.path()), None).expect("written");
    let seen = Seen::open(&browser, &dir.path().join("report.html"), false);
    assert!(!seen.log.contains("CONSOLE"), "{}", seen.log);
    assert_eq!(seen.root("data-drawn"), Some("0"));
    let read: Value = serde_json::from_slice(&fs::read(dir.path().join("report.json")).expect("a file")).expect("JSON");
    assert_eq!(read["phases"], json!([]));
}
