//! `sealog range split`, `merge` and `list --all` on a real daemon: what becomes of records and cursors, and what is told where nothing
//! can be done.

mod daemon;

use std::collections::BTreeMap;
use std::time::Duration;

use daemon::{Daemon, folder, sealog, text};
use sealog_engine::types::RangeId;
use sealog_net::client::blocking::Admin;
use serde_json::{Value, json};

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Sends a record of each of 16 keys, three times.
fn produce(daemon: &Daemon, round: u32, sent: &mut BTreeMap<String, Vec<String>>) {
    let mut lines = String::new();
    for n in 0..48 {
        let (key, value) = (format!("k{}", n % 16), format!("round {round} line {n}"));
        lines += &format!("{key}={value}\n");
        sent.entry(key).or_default().push(value);
    }
    daemon.ok(&["produce", "t", "--key-separator", "="], lines.as_bytes());
}

/// What is read, by key.
fn consume(daemon: &Daemon, arguments: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut read_back: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let told = daemon.ok(&[&["consume", "t", "--quiet", "--format", "json"], arguments].concat(), b"");
    for line in told.lines() {
        let record = read(line);
        let of = |name: &str| record[name].as_str().expect("a text").to_owned();
        read_back.entry(of("key")).or_default().push(of("value"));
    }
    read_back
}

/// Names of what took the place of ranges.
fn reshape(daemon: &Daemon, arguments: &[&str]) -> Vec<String> {
    let told = read(&daemon.ok(&[&["range"], arguments, &["--format", "json"]].concat(), b""));
    let names = told["successors"].as_array().expect("a list").iter();
    names.map(|member| member["range"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn records_of_ranges_that_were_split_and_merged_read_back_in_order_also_by_a_cursor_from_before_and_after_a_kill() {
    let dir = folder();
    let data = dir.path().join("data");
    let Some(daemon) = Daemon::start(&data, &["--shards", "2"]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    let mut sent = BTreeMap::new();
    produce(&daemon, 0, &mut sent);
    let cursor = dir.path().join("cursor");
    let cursor = cursor.to_str().expect("a text");
    assert_eq!(consume(&daemon, &["--cursor-file", cursor]), sent);

    let mut later = BTreeMap::new();
    for (round, arguments, successors) in [
        (1, &["split", "t", "r1"][..], &["r2", "r3"][..]),
        (2, &["split", "t", "r2"], &["r4", "r5"]),
        (3, &["merge", "t", "r5", "r4"], &["r6"]),
        (4, &["merge", "t", "r6", "r3"], &["r7"]),
        (5, &["split", "t", "r7"], &["r8", "r9"]),
    ] {
        assert_eq!(reshape(&daemon, arguments), successors);
        produce(&daemon, round, &mut later);
        let all = joined(&sent, &later);
        assert_eq!(consume(&daemon, &["--from", "earliest"]), all, "after {arguments:?}");
        assert_eq!(consume(&daemon, &["--from", "time:0"]), all);
        assert_eq!(reshape(&daemon, arguments), successors, "asked again it does no harm");
    }
    daemon.kill();

    let daemon = Daemon::start(&data, &[]).expect("it starts on what was left");
    assert_eq!(consume(&daemon, &[]), joined(&sent, &later));
    assert_eq!(consume(&daemon, &["--cursor-file", cursor]), later, "the cursor was taken before all splits");
    assert_eq!(consume(&daemon, &["--cursor-file", cursor]), BTreeMap::new());
    assert_eq!(daemon.stop().code(), Some(0));
    let verified = sealog().args(["segment", "verify", "--data-dir"]).arg(&data).output().expect("runs");
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stdout));
}

fn joined(
    first: &BTreeMap<String, Vec<String>>,
    then: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<String, Vec<String>> {
    let mut all = first.clone();
    for (key, values) in then {
        all.entry(key.clone()).or_default().extend(values.iter().cloned());
    }
    all
}

#[test]
fn the_lineage_of_a_topic_is_told_as_a_tree_in_which_a_merged_range_stands_once() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t", "--ranges", "2"], b"");
    let split = daemon.ok(&["range", "split", "t", "r1"], b"");
    assert_eq!(
        split,
        "split r1 of t\n\
         r3 takes the keys of 0000000000000000 to 3fffffffffffffff\n\
         r4 takes the keys of 4000000000000000 to 7fffffffffffffff\n"
    );
    let merged = daemon.ok(&["range", "merge", "t", "4", "3"], b"");
    assert_eq!(merged, "merged r4 and r3 of t\nr5 takes the keys of 0000000000000000 to 7fffffffffffffff\n");
    daemon.ok(&["range", "split", "t", "r5"], b"");

    let listed = daemon.ok(&["range", "list", "t", "--all"], b"");
    // The last column is the epoch, which is as it came.
    let lines: Vec<&str> =
        listed.lines().map(|line| line.rsplit_once(' ').map_or(line, |(rest, _)| rest.trim_end())).collect();
    let row = |branch: &str, first: &str, last: &str, rest: &str| {
        let span = format!("{first:0<16}  {last:f<16}");
        format!("{branch:<11}  {span}  {rest}").trim_end().to_owned()
    };
    assert_eq!(
        lines,
        [
            "range        first hash        last hash         state   became  note".to_owned(),
            row("r1", "0", "7", "sealed  r3 r4"),
            row("├─ r3", "0", "3", "sealed  r5"),
            row("└─ r4", "4", "7", "sealed  r5"),
            row("   └─ r5", "0", "7", "sealed  r6 r7   merged of r3 too"),
            row("      ├─ r6", "0", "3", "active"),
            row("      └─ r7", "4", "7", "active"),
            row("r2", "8", "f", "active"),
        ],
        "{listed}"
    );

    let told = read(&daemon.ok(&["range", "list", "t", "--all", "--format", "json"], b""));
    let facts = |member: &Value| json!([member["range"], member["state"], member["parents"], member["successors"]]);
    let facts: Vec<Value> = told.as_array().expect("a list").iter().map(facts).collect();
    assert_eq!(
        facts,
        [
            json!(["r1", "sealed", [], ["r3", "r4"]]),
            json!(["r3", "sealed", ["r1"], ["r5"]]),
            json!(["r4", "sealed", ["r1"], ["r5"]]),
            json!(["r5", "sealed", ["r3", "r4"], ["r6", "r7"]]),
            json!(["r6", "active", ["r5"], []]),
            json!(["r7", "active", ["r5"], []]),
            json!(["r2", "active", [], []]),
        ]
    );
    let active = read(&daemon.ok(&["range", "list", "t", "--format", "json"], b""));
    let active: Vec<&Value> = active.as_array().expect("a list").iter().map(|range| &range["range"]).collect();
    assert_eq!(active, ["r6", "r7", "r2"]);
}

#[test]
fn what_cannot_be_split_or_merged_is_told_once_with_what_to_do() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t", "--ranges", "2"], b"");
    daemon.ok(&["range", "split", "t", "r1"], b"");
    let ended = |arguments: &[&str]| {
        let output = daemon.run(&[&["range"], arguments].concat());
        assert_eq!(text(&output.stdout), "");
        (output.status.code(), text(&output.stderr))
    };
    let failed = |arguments: &[&str], told: &str| {
        assert_eq!(ended(arguments), (Some(1), format!("sealog: {told}\n")), "{arguments:?}");
    };
    failed(&["split", "nowhere", "r1"], "topic nowhere: no such topic");
    failed(&["list", "nowhere", "--all"], "topic nowhere: no such topic");
    failed(&["merge", "nowhere", "r1", "r2"], "topic nowhere: no such topic");
    failed(&["split", "t", "r9"], "topic t has no range r9; `sealog range list t` shows the active ones");
    failed(&["merge", "t", "r3", "r9"], "topic t has no range r9; `sealog range list t` shows the active ones");
    failed(
        &["merge", "t", "r2", "r1"],
        "range r1 of t is not active any more: it became r3 and r4; name an active one",
    );
    failed(
        &["merge", "t", "r2", "r3"],
        "ranges r2 and r3 of t are not the two halves of one key span, and only such can be merged: \
         r2's other half is no active range, r3's other half is r4",
    );
    daemon.ok(&["range", "merge", "t", "r3", "r4"], b"");
    failed(&["split", "t", "r3"], "range r3 of t is not active any more: it became r5; name an active one");
    for arguments in [&["split", "t", "third"][..], &["split", "t"], &["merge", "t", "r1"]] {
        assert_eq!(ended(arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_range_of_a_single_hash_is_not_split() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    let mut admin =
        Admin::connect(std::slice::from_ref(&daemon.listen), Duration::from_secs(60)).expect("a connection");
    let mut range = RangeId(1);
    for _ in 0..64 {
        range = admin.split("t", range).expect("split")[0].route.range;
    }
    let output = daemon.run(&["range", "split", "t", &range.to_string()]);
    let told = format!("sealog: range {range} of t has a single key hash: it cannot be split\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), told));
}
