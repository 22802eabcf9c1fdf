//! Deleting a topic of a real daemon: for its users, on the disk, and through kills.

mod daemon;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use daemon::{Daemon, folder, sealog, text, wait};
use sealog_engine::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// Longest wait for what happens in the background.
const PATIENCE: Duration = Duration::from_secs(120);
/// Records of some MiB in all, so that there are several segments.
const RECORDS: usize = 30_000;

fn lines(word: &str) -> String {
    (0..RECORDS).map(|n| format!("k{}={word} {n} {}\n", n % 31, "and so on ".repeat(20))).collect()
}

fn fill(daemon: &Daemon, topic: &str) {
    daemon.ok(&["topic", "create", topic, "--ranges", "2"], b"");
    daemon.ok(&["produce", topic, "--key-separator", "="], lines(topic).as_bytes());
}

fn count(daemon: &Daemon, topic: &str) -> usize {
    daemon.ok(&["consume", topic], b"").lines().count()
}

/// Names and ids of the topics.
fn topics(daemon: &Daemon) -> Vec<(String, u64)> {
    let list: serde_json::Value =
        serde_json::from_str(&daemon.ok(&["topic", "list", "--format", "json"], b"")).expect("JSON");
    let id = |line: &serde_json::Value| line["id"].as_str().expect("a text")[1..].parse().expect("a number");
    let name = |line: &serde_json::Value| line["name"].as_str().expect("a text").to_owned();
    list.as_array().expect("a list").iter().map(|line| (name(line), id(line))).collect()
}

fn id_of(daemon: &Daemon, topic: &str) -> u64 {
    topics(daemon).into_iter().find(|(name, _)| name == topic).expect("a topic").1
}

/// Segment files of a topic.
fn files(dir: &Path, topic: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(folders) = std::fs::read_dir(dir.join("segments")) else { return found };
    for folder in folders {
        for file in std::fs::read_dir(folder.expect("a folder").path()).expect("a folder") {
            let path = file.expect("a file").path();
            // It may be removed at this moment.
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let header = bytes.get(..SEGMENT_HEADER_BYTES).and_then(|bytes| SegmentHeader::decode(bytes).ok());
            if header.is_some_and(|header| header.topic.0 == topic) {
                found.push(path);
            }
        }
    }
    found
}

fn wait_until_gone(dir: &Path, topic: u64) {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = files(dir, topic);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "still there: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Everything in the directory verifies, and no segment of it is unlisted.
fn verifies(dir: &Path) {
    let output = sealog().args(["segment", "verify", "--data-dir"]).arg(dir).output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let list = sealog().args(["segment", "list", "--data-dir"]).arg(dir).output().expect("runs");
    assert!(!text(&list.stdout).contains("unlisted"), "{}", text(&list.stdout));
}

#[test]
fn a_deleted_topic_is_gone_for_everybody_and_from_the_disk_and_its_name_begins_anew() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &["--shards", "2"]) else { return };
    fill(&daemon, "kept");
    fill(&daemon, "passing");
    let cursor = dir.path().join("cursor");
    let cursor = cursor.to_str().expect("a text");
    daemon.ok(&["consume", "passing", "--cursor-file", cursor], b"");
    // A stop brings all that is in the journal into segments.
    assert_eq!(daemon.stop().code(), Some(0));
    let daemon = Daemon::start(dir.path(), &["--shards", "2"]).expect("the host was fit before");
    let was = id_of(&daemon, "passing");
    assert!(files(dir.path(), was).len() >= 2, "it lies in files");

    let told = daemon.ok(&["topic", "delete", "passing", "--yes", "--format", "json"], b"");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told, serde_json::json!({ "name": "passing", "id": format!("t{was}"), "deleted": true }));
    assert_eq!(topics(&daemon).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["kept"]);
    for arguments in [&["consume", "passing"][..], &["produce", "passing"], &["topic", "describe", "passing"]] {
        let output = daemon.run_with(arguments, b"a line\n");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("no such topic"), "{}", text(&output.stderr));
    }
    wait_until_gone(dir.path(), was);

    daemon.ok(&["topic", "create", "passing"], b"");
    assert!(id_of(&daemon, "passing") > was);
    assert_eq!(count(&daemon, "passing"), 0);
    let old = daemon.run(&["consume", "passing", "--cursor-file", cursor]);
    assert_eq!(old.status.code(), Some(1));
    assert!(text(&old.stderr).contains(&format!("the cursor belongs to topic t{was}")), "{}", text(&old.stderr));
    daemon.ok(&["produce", "passing"], b"anew\n");
    assert_eq!(daemon.ok(&["consume", "passing"], b""), "anew\n");
    assert_eq!(count(&daemon, "kept"), RECORDS);
    assert_eq!(daemon.stop().code(), Some(0));
    verifies(dir.path());
    let again = Daemon::start(dir.path(), &[]).expect("the host was fit before");
    assert_eq!((count(&again, "kept"), count(&again, "passing")), (RECORDS, 1));
    assert!(files(dir.path(), was).is_empty());
}

#[test]
fn a_consumer_and_a_producer_of_a_topic_that_is_deleted_end_and_say_why() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "passing"], b"");
    daemon.ok(&["produce", "passing"], b"one\n");
    let mut consume = daemon.command(&["consume", "passing", "--follow"]);
    let mut consumer = consume.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut produce = daemon.command(&["produce", "passing"]);
    let mut producer = produce.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut input = producer.stdin.take().expect("a pipe");
    input.write_all(b"two\n").expect("written");
    // Both are at work when the second line has come through.
    let mut out = BufReader::new(consumer.stdout.take().expect("a pipe"));
    let mut line = String::new();
    for expected in ["one\n", "two\n"] {
        line.clear();
        out.read_line(&mut line).expect("a line");
        assert_eq!(line, expected);
    }
    daemon.ok(&["topic", "delete", "passing", "--yes"], b"");
    daemon.ok(&["topic", "create", "passing"], b"");
    input.write_all(b"three\n").expect("written");
    assert_eq!(wait(&mut consumer).code(), Some(1));
    assert_eq!(wait(&mut producer).code(), Some(1));
    drop(input);
    for child in [consumer, producer] {
        let told = text(&child.wait_with_output().expect("ended").stderr);
        assert!(told.contains("was deleted; t2 has its name now") || told.contains("no such topic"), "{told}");
    }
    assert_eq!(count(&daemon, "passing"), 0, "nothing went to the other topic");
}

#[test]
fn after_a_kill_in_the_middle_of_a_deletion_it_goes_on_and_nothing_of_the_topic_comes_back() {
    let dir = folder();
    let data = dir.path().join("data");
    let Some(first) = Daemon::start(&data, &[]) else { return };
    fill(&first, "kept");
    let mut running = first;
    for (round, delay_ms) in [0, 2, 5, 10, 20, 40, 80].into_iter().enumerate() {
        fill(&running, "passing");
        let was = id_of(&running, "passing");
        let mut delete = running.command(&["topic", "delete", "passing", "--yes"]);
        let deleting = delete.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
        std::thread::sleep(Duration::from_millis(delay_ms));
        running.kill();
        let answered = deleting.wait_with_output().expect("an end").status.success();
        // What is there between two lives is told for what it is.
        verifies(&data);
        let shards = if round % 2 == 0 { "2" } else { "1" };
        running = Daemon::start(&data, &["--shards", shards]).expect("it starts on what was left");
        let is_there = topics(&running).iter().any(|(name, _)| name == "passing");
        assert!(!(answered && is_there), "it was said to be deleted");
        if is_there {
            assert_eq!(count(&running, "passing"), RECORDS, "all of it or nothing");
            running.ok(&["topic", "delete", "passing", "--yes"], b"");
        }
        wait_until_gone(&data, was);
        assert_eq!(topics(&running).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["kept"]);
    }
    assert_eq!(count(&running, "kept"), RECORDS);
    assert_eq!(running.stop().code(), Some(0));
    verifies(&data);
}

#[test]
fn what_cannot_be_asked_for_wants_yes_and_a_topic_that_is_not_there_is_told() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "kept"], b"");
    let unasked = daemon.run(&["topic", "delete", "kept"]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(text(&unasked.stderr).contains("--yes"), "{}", text(&unasked.stderr));
    let unknown = daemon.run(&["topic", "delete", "other", "--yes"]);
    assert_eq!(unknown.status.code(), Some(1));
    let told = text(&unknown.stderr);
    assert!(told.contains("there is no topic other") && told.lines().count() == 1, "{told}");
    assert_eq!(topics(&daemon).len(), 1);
}
