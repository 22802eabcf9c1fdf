//! `sealog bench` against a daemon, as a user runs it: what a stall of the daemon looks like, what each command leaves behind, and what is
//! told where one cannot be made.

mod daemon;

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use daemon::{Daemon, folder, nothing_is_wrong, sealog, signal, text};
use sealog_bench::report::page::read_response;
use serde_json::Value;

/// How long the daemon stands still.
const STALL: Duration = Duration::from_millis(200);

/// Runs a command that must end with this code, and gives the JSON that it prints.
fn bench(daemon: &Daemon, code: i32, arguments: &[&str]) -> Value {
    let mut all = vec!["bench"];
    all.extend(arguments);
    all.extend(["--no-floor", "--format", "json", "--http", &daemon.http]);
    let output = daemon.run(&all);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_str(&text(&output.stdout)).expect("one document")
}

/// The records that the daemon has taken.
fn taken(daemon: &Daemon) -> u64 {
    let status: Value = serde_json::from_str(&daemon.get("/status").1).expect("JSON");
    status["counters"].as_array().expect("shards").iter().map(|s| s["records_taken"].as_u64().expect("a number")).sum()
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a text")
}

#[test]
fn a_daemon_that_stands_still_is_seen_by_every_record_that_was_due_meanwhile() {
    let (dir, out) = (folder(), folder());
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let mut load = daemon
        .command(&["bench", "produce", "--rate", "1000", "--duration", "5s", "--warmup", "0s", "--no-floor"])
        .args(["--out", name(out.path()), "--http", &daemon.http])
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    let until = Instant::now() + Duration::from_secs(60);
    while taken(&daemon) < 200 {
        assert!(Instant::now() < until, "no load came");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(daemon.pid(), "-STOP");
    std::thread::sleep(STALL);
    signal(daemon.pid(), "-CONT");
    daemon::wait(&mut load);
    let response = read_response(out.path(), "load").expect("a log");
    assert_eq!(response.len(), 5_000, "each record that was due was sent and answered");
    // Due in the first half: answered behind the end, half the stall later at the least. One each millisecond.
    let half = u64::try_from(STALL.as_nanos() / 2).expect("ns");
    let slow = response.count_between(half - half / 100, u64::MAX);
    assert!(slow >= 95, "{slow} records waited for half of a stall in whose first half 100 were due");
    let any = response.count_between(half / 10, u64::MAX);
    assert!(any >= 185, "{any} records saw a stall in which 200 were due");
}

#[test]
fn a_mix_of_sizes_under_zipf_is_stored_whole_and_the_report_says_how_to_make_it_again() {
    let (dir, out) = (folder(), folder());
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let load = ["produce", "--closed", "--inflight", "16", "--duration", "1s", "--warmup", "0s", "--keys", "50"];
    let made = ["--sizes", "64:60%,1KiB:30%,16KiB:10%", "--key-dist", "zipf:1.1", "--seed", "77", "--verify"];
    let history = out.path().join("history.ndjson");
    let kept = ["--out", name(out.path()), "--history", name(&history)];
    let report = bench(&daemon, 0, &[&load[..], &made[..], &kept[..]].concat());
    nothing_is_wrong(&report["verification"]);
    assert!(report["verification"]["acknowledged"].as_u64() > Some(0));
    let wanted = serde_json::json!([
        {"bytes": 64, "percent": 60.0}, {"bytes": 1024, "percent": 30.0}, {"bytes": 16384, "percent": 10.0}
    ]);
    let line: Value =
        serde_json::from_str(&std::fs::read_to_string(&history).expect("a history")).expect("one line of JSON");
    for settings in [&report["settings"], &line["settings"]] {
        assert_eq!((&settings["sizes"], &settings["seed"]), (&wanted, &Value::from(77)));
        assert_eq!(settings["key_dist"], serde_json::json!({"distribution": "zipf", "exponent": 1.1}));
    }
    let (bytes, records) = (report["phases"][0]["bytes"].as_f64(), report["phases"][0]["records"].as_f64());
    let mean = bytes.expect("bytes") / records.expect("records");
    assert!((1_000.0..4_000.0).contains(&mean), "the mean of the mix is 1,984 and 9 of the key: {mean}");
    // Beside itself it has not changed its settings; beside another seed's load it is comparable too, beside other sizes it is not.
    let same = bench(&daemon, 0, &[&load[..], &made[..], &["--baseline", name(out.path())]].concat());
    assert_eq!(same["comparison"]["valid"], true, "{}", same["comparison"]);
    let other = bench(&daemon, 4, &[&load[..], &["--verify", "--baseline", name(out.path())]].concat());
    assert!(other["comparison"]["differences"].to_string().contains("sizes was"), "{}", other["comparison"]);
}

#[test]
fn each_load_with_a_reader_leaves_its_figures_and_its_page() {
    let (dir, out) = (folder(), folder());
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let short = ["--duration", "1s", "--warmup", "0s"];
    let page = |name: &str| std::fs::read_to_string(out.path().join(name).join("report.html")).expect("a page");
    let into = |name: &str| out.path().join(name).to_str().expect("a text").to_owned();

    let at = into("catchup");
    let caught = bench(&daemon, 0, &[&["catchup", "--fill", "1s", "--out", &at], &short[..]].concat());
    let records = caught["catchup"]["records"].as_u64().expect("a number");
    assert!(records > 0 && page("catchup").contains("\"catchup\":{"));
    let again = bench(&daemon, 0, &["catchup", "--fill", "0s"]);
    assert_eq!(again["catchup"]["records"].as_u64(), Some(records), "it reads what is there");

    let at = into("mixed");
    let loaded = ["mixed", "--closed", "--inflight", "4", "--rounds", "2", "--fill", "0s", "--out", &at];
    let mixed = bench(&daemon, 0, &[&loaded[..], &short[..]].concat());
    let names: Vec<&str> =
        mixed["runs"].as_array().expect("runs").iter().map(|run| run["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["alone", "alone", "beside a reader", "beside a reader"]);
    assert!(mixed["mixed"]["reader"]["records"].as_u64() >= Some(records), "the reader read it all at least once");
    assert_eq!((mixed["mixed"]["rounds"].as_u64(), page("mixed").contains("\"mixed\":{")), (Some(2), true));

    let at = into("tail");
    let tail = bench(&daemon, 0, &[&["tail", "--closed", "--inflight", "4", "--out", &at], &short[..]].concat());
    let phases = tail["phases"].as_array().expect("phases");
    assert_eq!((&phases[0]["name"], &phases[1]["name"]), (&Value::from("load"), &Value::from("delivery")));
    assert_eq!(phases[0]["records"], phases[1]["records"], "each record that was stored was delivered");
    assert!(page("tail").contains("delivery"));

    let output = sealog().args(["bench", "report", &into("tail")]).output().expect("runs");
    assert_eq!(text(&output.stdout), format!("{}\n", out.path().join("tail/report.html").display()));
    let output = sealog().args(["bench", "compare", &into("tail"), &into("tail")]).output().expect("runs");
    assert!(text(&output.stdout).contains("delivery"), "{}", text(&output.stdout));
}

#[test]
fn a_roll_that_was_ordered_in_the_middle_of_a_load_comes_to_pass_there() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    // So little that no segment is full by itself.
    let load = ["produce", "--closed", "--size", "64", "--ranges", "2", "--duration", "2s", "--warmup", "500ms"];
    let report = bench(&daemon, 0, &[&load[..], &["--disturb", "roll@500ms,roll@1s"]].concat());
    let phase = &report["phases"][0];
    let refused = daemon.run(&["bench", "catchup", "--disturb", "roll@1s"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let disturbed = phase["disturbed"].as_array().expect("a list");
    let seen: Vec<_> = disturbed.iter().map(|d| (&d["what"], d["ranges"].as_u64(), &d["error"])).collect();
    assert_eq!(seen, vec![(&Value::from("roll"), Some(2), &Value::Null); 2]);
    assert!(disturbed[0]["at_seconds"].as_f64() >= Some(0.5) && disturbed[1]["at_seconds"].as_f64() >= Some(1.0));
    assert_eq!(phase["disturbance"]["rolls"].as_u64(), Some(4), "{phase}");
}

#[test]
fn twenty_splits_and_merges_in_the_middle_of_a_load_cost_no_record_and_the_report_has_the_stall_of_each() {
    let (dir, out) = (folder(), folder());
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let acts: Vec<String> = (0..20)
        .map(|number| format!("{}@{}ms", if number % 4 < 2 { "split" } else { "merge" }, 200 + number * 100))
        .collect();
    let load =
        ["produce", "--closed", "--inflight", "2", "--size", "64", "--duration", "3s", "--warmup", "0s", "--verify"];
    let history = out.path().join("history.ndjson");
    let kept = ["--out", name(out.path()), "--history", name(&history), "--disturb", &acts.join(",")];
    let report = bench(&daemon, 0, &[&load[..], &kept].concat());
    nothing_is_wrong(&report["verification"]);
    let phase = &report["phases"][0];
    let errors = &phase["errors"];
    assert!(errors["not_stored"] == 0 && errors["unknown"] == 0, "{errors}");
    let disturbed = phase["disturbed"].as_array().expect("a list");
    assert_eq!(disturbed.len(), 20);
    let names = |list: &Value| list.as_array().map_or(0, Vec::len);
    let mut begun = 0.0;
    for (number, act) in disturbed.iter().enumerate() {
        let (what, ranges, parents, successors) = if number % 4 < 2 { ("split", 1, 1, 2) } else { ("merge", 2, 2, 1) };
        assert_eq!((&act["what"], act["ranges"].as_u64(), &act["error"]), (&what.into(), Some(ranges), &Value::Null));
        assert_eq!((names(&act["parents"]), names(&act["successors"])), (parents, successors), "{act}");
        let at = act["at_seconds"].as_f64().expect("a time");
        assert!(at >= begun && act["stall_us"].as_f64() > Some(0.0), "{act}");
        begun = at;
    }
    let line: Value = serde_json::from_str(&std::fs::read_to_string(&history).expect("a history")).expect("one line");
    for found in [&phase["splits_and_merges"], &line["phases"][0]["splits_and_merges"]] {
        assert_eq!((found["splits"].as_u64(), found["merges"].as_u64()), (Some(10), Some(10)));
        let stalls = [&found["stall_median_us"], &found["stall_max_us"]].map(|us| us.as_f64().expect("a time"));
        assert!(found["near"]["samples"].as_u64() > Some(0) && stalls[0] <= stalls[1], "{found}");
    }
    let marks = std::fs::read_to_string(out.path().join("intervals.ndjson")).expect("intervals");
    assert_eq!((marks.matches(r#""kind":"split""#).count(), marks.matches(r#""kind":"merge""#).count()), (10, 10));
}

#[test]
fn a_merge_where_there_is_nothing_to_merge_makes_the_run_no_measurement() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let load = ["produce", "--rate", "200", "--duration", "1s", "--warmup", "0s", "--disturb", "merge@200ms"];
    let report = bench(&daemon, 4, &load);
    let act = &report["phases"][0]["disturbed"][0];
    assert_eq!((act["ranges"].as_u64(), &act["stall_us"]), (Some(0), &Value::Null));
    assert!(act["error"].as_str().is_some_and(|error| error.starts_with("there is nothing to merge")), "{act}");
    assert_eq!(report["phases"][0]["splits_and_merges"], Value::Null);
}

/// One line on standard error that has all of these, nothing on standard output, and this code.
fn one_line(output: &Output, code: i32, told: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.lines().count() == 1 && told.iter().all(|part| error.contains(part)), "{told:?}: {error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn where_no_load_can_be_made_one_line_says_why() {
    let dir = folder();
    let run = |arguments: &[&str]| sealog().arg("bench").args(arguments).output().expect("runs");
    // A port that was free a moment ago: nobody listens there.
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a socket").local_addr().expect("its address").to_string();
    for command in ["produce", "tail", "catchup", "mixed", "sweep"] {
        one_line(&run(&[command, "--addr", &free, "--timeout", "300ms"]), 75, &[&free]);
    }
    one_line(&run(&["produce", "--addr", &free, "--events"]), 2, &["--events", "--http"]);
    let nothing = dir.path().join("nothing");
    for arguments in [&["compare", name(&nothing), name(&nothing)][..], &["report", name(&nothing)][..]] {
        one_line(&run(arguments), 1, &["cannot read", "/nothing"]);
    }
    one_line(&run(&["produce", "--addr", &free, "--baseline", name(&nothing)]), 1, &["cannot read", "/nothing"]);
    // Before the load, which would be for nothing.
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    one_line(&run(&["produce", "--addr", &free, "--out", name(&file.join("run"))]), 1, &["cannot write", "/file/run"]);
    std::fs::write(dir.path().join("report.json"), "{").expect("written");
    one_line(&run(&["report", name(dir.path())]), 78, &["report.json", "not understood"]);
    for (arguments, told) in [
        (&["sweep", "--slo", "p99"][..], "p99<1ms"),
        (&["produce", "--sizes", "128:70"], "1KiB:25%"),
        (&["produce", "--key-dist", "pareto"], "zipf:EXPONENT"),
        (&["produce", "--sizes", "128:70%,1KiB:29%"], "add up to 100 %"),
        (&["produce", "--size", "39"], "at least 40 bytes"),
        (&["produce", "--size", "1KiB", "--sizes", "64:100%"], "cannot be used with"),
    ] {
        let output = run(&[arguments, &["--addr", &free][..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(told), "{arguments:?}: {}", text(&output.stderr));
    }
}
