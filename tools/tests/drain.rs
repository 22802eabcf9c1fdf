//! A daemon that is asked to stop under load.

mod daemon;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use daemon::{Daemon, contents, folder, greeted, nothing_is_wrong, sealog, signal, skipped, steady_address, text};

const ROUNDS: usize = 20;

/// A load that a client makes which tries again, until it is interrupted.
fn load(daemon: &Daemon, ledger: &Path) -> Child {
    daemon
        .command(&["bench", "produce", "--closed", "--inflight", "64", "--keys", "256", "--ranges", "4"])
        .args([
            "--duration",
            "600s",
            "--warmup",
            "0s",
            "--no-floor",
            "--timeout",
            "60s",
            "--format",
            "json",
            "--ledger",
        ])
        .arg(ledger)
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs")
}

/// Records that a daemon has acknowledged in this life.
fn stored(daemon: &Daemon) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&daemon.get("/status").1).expect("JSON");
    let shards = status["counters"].as_array().expect("a list");
    shards.iter().map(|shard| shard["batches_stored"].as_u64().expect("a number")).sum()
}

/// Waits until the load has come back.
fn wait_for_load(daemon: &Daemon) {
    for _ in 0..6_000 {
        if stored(daemon) > 500 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the load does not come back");
}

#[test]
fn stopped_twenty_times_under_full_load_it_ends_in_time_and_nothing_is_lost_twice_or_an_error() {
    let dir = folder();
    let data = dir.path().join("data");
    let listen = steady_address();
    let first = ["--drain-timeout", "20s", "--listen", &listen];
    let Some(mut daemon) = Daemon::start(&data, &first) else { return };
    let ledger = dir.path().join("ledger");
    let load = load(&daemon, &ledger);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for round in 0..ROUNDS {
        wait_for_load(&daemon);
        assert_eq!(daemon.stop().code(), Some(0), "round {round}");
        let shards = if round % 2 == 0 && cores > 1 { "2" } else { "1" };
        let arguments = ["--drain-timeout", "20s", "--listen", &listen, "--shards", shards];
        daemon = Daemon::start(&data, &arguments).expect("it starts on what was left");
    }
    wait_for_load(&daemon);
    signal(load.id(), "-INT");
    let ended = load.wait_with_output().expect("an end");
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("a report");
    let errors = &report["phases"][0]["errors"];
    assert_eq!((&errors["not_stored"], &errors["unknown"]), (&0.into(), &0.into()), "{errors}");
    assert!(errors["disconnects"].as_u64() >= Some(ROUNDS as u64), "{errors}");
    let judged = daemon.ok(&["bench", "verify", "--format", "json", "--ledger", ledger.to_str().expect("a text")], b"");
    let judged: serde_json::Value = serde_json::from_str(&judged).expect("JSON");
    assert!(judged["acknowledged"].as_u64() > Some(500 * ROUNDS as u64), "{judged}");
    nothing_is_wrong(&judged);
    eprintln!("{ROUNDS} drains, {} records acknowledged, {errors}", judged["acknowledged"]);
}

#[test]
fn what_was_drained_is_in_segments_and_not_replayed() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    daemon.ok(&["produce", "t"], &b"a record\n".repeat(1_000));
    let http = daemon.http.clone();
    let in_segments = || {
        let files = contents(dir.path()).into_iter();
        let segments = files.filter(|(path, _)| path.strip_prefix(dir.path()).expect("below").starts_with("segments"));
        segments.map(|(_, bytes)| bytes.windows(8).filter(|bytes| bytes == b"a record").count()).sum::<usize>()
    };
    assert_eq!(in_segments(), 0, "so few records wait in the journal");
    assert_eq!(daemon.stop().code(), Some(0));
    assert!(TcpStream::connect(http).is_err(), "nobody listens any more");
    assert_eq!(in_segments(), 1_000);
    let again = Daemon::start(dir.path(), &[]).expect("it starts on what was left");
    assert_eq!(again.ok(&["consume", "t"], b"").lines().count(), 1_000);
}

#[test]
fn one_that_cannot_drain_ends_at_its_limit_and_one_that_is_asked_twice_at_once() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &["--drain-timeout", "20ms"]) else { return };
    // A client that does not take its goodbye is waited for, for longer than this limit.
    let held = greeted(&daemon.listen);
    assert_eq!(daemon.stop().code(), Some(1));
    drop(held);
    let daemon = Daemon::start(dir.path(), &[]).expect("it starts on what was left");
    let (pid, http, held) = (daemon.pid(), daemon.http.clone(), greeted(&daemon.listen));
    // Stopped by the kernel it hears both at once, in any order, when it goes on.
    signal(pid, "-STOP");
    signal(pid, "-TERM");
    signal(pid, "-INT");
    signal(pid, "-CONT");
    assert_eq!(daemon.ended().code(), Some(130));
    drop(held);
    assert!(TcpStream::connect(http).is_err());
}

#[test]
fn one_that_is_stopped_while_it_starts_ends_with_130_and_the_next_start_is_whole() {
    let dir = folder();
    let data = dir.path().join("data");
    // Journal files are filled before a node is ready: these take their time.
    let mut command = sealog();
    command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--shards", "1"]);
    command.args(["--journal-size", "256MiB", "--sync", "linked", "--data-dir"]).arg(&data);
    let mut child = command.stdout(Stdio::null()).spawn().expect("runs");
    while !data.join("journal").exists() {
        if let Some(status) = child.try_wait().expect("a child") {
            assert_eq!(status.code(), Some(69), "it ended before it began");
            return skipped("this host cannot run a node");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(child.id(), "-TERM");
    assert_eq!(daemon::wait(&mut child).code(), Some(130));
    let again = Daemon::start(&data, &[]).expect("it starts on what was left");
    again.ok(&["topic", "create", "t"], b"");
    again.ok(&["produce", "t"], b"a record\n");
    assert_eq!(again.ok(&["consume", "t"], b"").lines().count(), 1);
}

#[test]
fn logs_are_lines_of_json_where_asked_and_a_log_that_nobody_reads_holds_up_nobody() {
    let dir = folder();
    let mut command = sealog();
    command.args(["serve", "--format", "json", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--shards", "1"]);
    command.args(["--journal-size", "16MiB", "--segment-size", "4MiB", "--sync", "linked"]);
    command.args(["--log", "trace", "--log-format", "json", "--data-dir"]).arg(dir.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let mut unread = child.stderr.take().expect("a pipe");
    if line.is_empty() {
        assert_eq!(daemon::wait(&mut child).code(), Some(69), "it ended before it was ready");
        return skipped("this host cannot run a node");
    }
    let facts: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
    let listen = facts["listen"].as_str().expect("a text");
    let run = |arguments: &[&str]| {
        let output = sealog().args(arguments).env("SEALOG_ADDR", listen).output().expect("runs");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    };
    run(&["topic", "create", "t"]);
    // Far more lines than a pipe and the queue before it hold.
    run(&["bench", "produce", "--closed", "--inflight", "8", "--duration", "2s", "--warmup", "0s", "--no-floor"]);
    signal(child.id(), "-TERM");
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        unread.read_to_end(&mut lines).expect("read");
        lines
    });
    assert_eq!(daemon::wait(&mut child).code(), Some(0));
    let lines = text(&reader.join().expect("the reader"));
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(lines.lines().any(|line| line.contains("\"ready\"")), "{lines}");
}
