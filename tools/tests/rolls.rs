//! `sealog range roll` on a real daemon: what is rolled, that nothing is lost by it, and what is told where nothing can be.

mod daemon;

use std::process::Stdio;

use daemon::{Daemon, folder, nothing_is_wrong, sealog, text};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Names and numbers of segments of a topic's ranges.
fn ranges(daemon: &Daemon, topic: &str) -> Vec<(String, u64)> {
    let listed = json(&daemon.ok(&["range", "list", topic, "--format", "json"], b""));
    let range = |range: &Value| {
        (range["range"].as_str().expect("a text").to_owned(), range["segments"].as_u64().expect("a number"))
    };
    listed.as_array().expect("a list").iter().map(range).collect()
}

fn roll(daemon: &Daemon, topic: &str, range: &str) -> Value {
    json(&daemon.ok(&["range", "roll", topic, range, "--format", "json"], b""))
}

#[test]
fn a_rolled_range_has_another_segment_and_every_record_reads_back_in_order_also_after_a_kill() {
    let dir = folder();
    let data = dir.path().join("data");
    let Some(daemon) = Daemon::start(&data, &["--shards", "2"]) else { return };
    daemon.ok(&["topic", "create", "t", "--ranges", "4"], b"");
    let mut sent = String::new();
    for round in 0..3 {
        let lines: String = (0..500).map(|n| format!("k=round {round} line {n}\n")).collect();
        daemon.ok(&["produce", "t", "--key-separator", "="], lines.as_bytes());
        sent += &lines.replace("k=", "");
        let before = ranges(&daemon, "t");
        let told: Vec<Value> = before.iter().map(|(range, _)| roll(&daemon, "t", range)).collect();
        let rolled: Vec<&Value> = told.iter().filter(|told| told["rolled"] == true).collect();
        let [rolled] = rolled[..] else { panic!("one key lies in one range: {told:?}") };
        assert_eq!((&rolled["topic"], &rolled["end"]), (&"t".into(), &(500 * (round + 1)).into()));
        for ((range, before), (_, after)) in before.iter().zip(ranges(&daemon, "t")) {
            let more = u64::from(rolled["range"] == **range);
            assert_eq!(after, before + more, "{range} in {told:?}");
        }
        let range = rolled["range"].as_str().expect("a text");
        let again = daemon.ok(&["range", "roll", "t", range], b"");
        assert_eq!(again, format!("nothing to roll in {range} of t: all of it, up to {}, is sealed\n", rolled["end"]));
    }
    assert_eq!(daemon.ok(&["consume", "t", "--quiet"], b""), sent);
    daemon.kill();

    let daemon = Daemon::start(&data, &[]).expect("it starts on what was left");
    assert_eq!(daemon.ok(&["consume", "t", "--quiet"], b""), sent);
    daemon.ok(&["produce", "t", "--key-separator", "="], b"k=the last\n");
    let number = |text: &str| text.trim_start_matches('r').to_owned();
    let told: String =
        ranges(&daemon, "t").iter().map(|(range, _)| daemon.ok(&["range", "roll", "t", &number(range)], b"")).collect();
    let rolled: Vec<&str> = told.lines().filter(|line| line.starts_with("rolled r")).collect();
    let [rolled] = rolled[..] else { panic!("{told}") };
    assert!(rolled.contains(" is sealed at 1501, s") && rolled.ends_with(" takes records now"), "{rolled}");
    assert_eq!(daemon.ok(&["consume", "t", "--quiet"], b""), sent + "the last\n");
    assert_eq!(daemon.stop().code(), Some(0));
    let verified = sealog().args(["segment", "verify", "--data-dir"]).arg(&data).output().expect("runs");
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stdout));
}

#[test]
fn a_load_whose_ranges_are_rolled_all_the_while_sees_no_error_and_loses_nothing() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &["--shards", "2"]) else { return };
    let mut load = daemon
        .command(&["bench", "produce", "--closed", "--inflight", "16", "--keys", "64", "--ranges", "2"])
        .args(["--duration", "4s", "--warmup", "0s", "--no-floor", "--verify", "--format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut rolled = 0;
    while load.try_wait().expect("a child").is_none() {
        let topics = json(&daemon.ok(&["topic", "list", "--format", "json"], b""));
        let Some(topic) = topics[0]["name"].as_str() else { continue };
        for (range, _) in ranges(&daemon, topic) {
            rolled += u64::from(roll(&daemon, topic, &range)["rolled"] == true);
        }
    }
    let ended = load.wait_with_output().expect("an end");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("a report");
    nothing_is_wrong(&report["verification"]);
    assert!(report["verification"]["acknowledged"].as_u64() > Some(100), "{report}");
    let errors = &report["phases"][0]["errors"];
    assert!(errors["not_stored"] == 0 && errors["unknown"] == 0, "{errors}");
    assert!(rolled >= 4, "{rolled} rolls");
}

#[test]
fn what_cannot_be_rolled_is_told_once_with_what_to_do() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    let ended = |arguments: &[&str]| {
        let output = daemon.run(&[&["range", "roll"], arguments].concat());
        assert_eq!(text(&output.stdout), "");
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(ended(&["nowhere", "r1"]), (Some(1), "sealog: topic nowhere: no such topic\n".to_owned()));
    let (code, told) = ended(&["t", "r77"]);
    let expected = "sealog: topic t has no active range r77; `sealog range list t` shows those that it has\n";
    assert_eq!((code, told.as_str()), (Some(1), expected));
    let (code, told) = ended(&["t", "first"]);
    assert!(code == Some(2) && told.contains("write it as `range list` does, such as r3"), "{told}");
    let listen = daemon.listen.clone();
    daemon.kill();
    let gone = sealog().args(["range", "roll", "t", "r1", "--timeout", "300ms", "--addr", &listen]).output();
    assert_eq!(gone.expect("runs").status.code(), Some(75));
}
