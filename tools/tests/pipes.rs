//! `produce` and `consume` in pipes and scripts: where reading begins, what a cursor file holds, bytes that are no text, and what
//! is told on which stream.

mod daemon;

use daemon::{Daemon, folder, text};

/// A daemon with a topic `t`.
fn with_topic(dir: &std::path::Path, ranges: &str) -> Option<Daemon> {
    let daemon = Daemon::start(dir, &[])?;
    daemon.ok(&["topic", "create", "t", "--ranges", ranges], b"");
    Some(daemon)
}

#[test]
fn reading_from_a_time_begins_at_the_first_record_of_each_range_that_is_not_older() {
    let dir = folder();
    let Some(daemon) = with_topic(dir.path(), "1") else { return };
    let line = |ms: u64| format!("{{\"key\":\"k\",\"value\":\"at {ms}\",\"timestamp_ms\":{ms}}}\n");
    // Times that go back are kept as they are: what follows the first that is not older is printed.
    let lines: String = [1_000, 2_000, 3_000, 2_500].map(line).concat();
    daemon.ok(&["produce", "t", "--format", "json"], lines.as_bytes());
    assert_eq!(daemon.ok(&["consume", "t", "--from", "time:2000"], b""), "at 2000\nat 3000\nat 2500\n");
    assert_eq!(daemon.ok(&["consume", "t", "--from", "time:2001"], b""), "at 3000\nat 2500\n");
    assert_eq!(daemon.ok(&["consume", "t", "--from", "time:3001"], b""), "");
    assert_eq!(daemon.ok(&["consume", "t", "--from", "time:2000", "--max", "1"], b""), "at 2000\n");
    let refused = daemon.run(&["consume", "t", "--from", "time:noon"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("time:MS"), "{}", text(&refused.stderr));
}

#[test]
fn a_cursor_file_that_is_not_there_yet_begins_where_from_says() {
    let dir = folder();
    let Some(daemon) = with_topic(dir.path(), "2") else { return };
    let file = dir.path().join("cursor");
    let file = file.to_str().expect("a text");
    daemon.ok(&["produce", "t", "--key", "k"], b"old\n");
    let consume = || daemon.ok(&["consume", "t", "--from", "latest", "--cursor-file", file], b"");
    assert_eq!(consume(), "");
    daemon.ok(&["produce", "t", "--key", "k"], b"new\n");
    assert_eq!(consume(), "new\n", "the file counts, not --from");
    assert_eq!(consume(), "");
    assert!(!dir.path().join("cursor.new").exists());
    // A cursor that cannot be saved ends with an error, not in silence.
    let failed = daemon.run(&["consume", "t", "--cursor-file", "/proc/none/cursor"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("cannot save the cursor to /proc/none/cursor"), "{}", text(&failed.stderr));
}

#[test]
fn values_keep_every_byte_and_only_records_are_on_standard_output() {
    let dir = folder();
    let Some(daemon) = with_topic(dir.path(), "1") else { return };
    let all: Vec<u8> = (0..=u8::MAX).filter(|byte| *byte != b'\n').collect();
    let mut input = all.clone();
    input.extend_from_slice(b"\n\nno line break at the end");
    let produced = daemon.run_with(&["produce", "t"], &input);
    assert_eq!((produced.status.code(), text(&produced.stdout)), (Some(0), String::new()));
    assert_eq!(text(&produced.stderr), "stored 3 records\n");
    let consumed = daemon.run(&["consume", "t"]);
    input.push(b'\n');
    assert!(consumed.stdout == input, "every byte comes back");
    assert_eq!(text(&consumed.stderr), "printed 3 records\n");
    let quiet = daemon.run(&["consume", "t", "--quiet"]);
    assert!(quiet.stdout == input && quiet.stderr.is_empty());
    let nothing = daemon.run_with(&["produce", "t"], b"");
    assert_eq!((nothing.status.code(), text(&nothing.stderr)), (Some(0), "stored 0 records\n".to_owned()));
}

#[test]
fn a_topic_that_does_not_exist_ends_both_with_1() {
    let dir = folder();
    let Some(daemon) = with_topic(dir.path(), "1") else { return };
    for command in ["produce", "consume"] {
        let refused = daemon.run_with(&[command, "none"], b"a line\n");
        assert_eq!(refused.status.code(), Some(1), "{command}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("topic"), "{command}: {}", text(&refused.stderr));
    }
}

#[test]
fn ranges_and_a_topic_are_told_with_their_ends() {
    let dir = folder();
    let Some(daemon) = with_topic(dir.path(), "4") else { return };
    let lines: String = (0..100).map(|n| format!("k{n}=v\n")).collect();
    daemon.ok(&["produce", "t", "--key-separator", "="], lines.as_bytes());
    let list: serde_json::Value =
        serde_json::from_str(&daemon.ok(&["range", "list", "t", "--format", "json"], b"")).expect("JSON");
    let ranges = list.as_array().expect("a list");
    assert_eq!(ranges.len(), 4);
    assert_eq!((&ranges[0]["first_hash"], &ranges[3]["last_hash"]), (&"0".repeat(16).into(), &"f".repeat(16).into()));
    let records: u64 = ranges.iter().map(|range| range["end"].as_u64().expect("a number")).sum();
    assert_eq!(records, 100);
    assert!(daemon.ok(&["range", "list", "t"], b"").starts_with("range  first hash"));
    let topic: serde_json::Value =
        serde_json::from_str(&daemon.ok(&["topic", "describe", "t", "--format", "json"], b"")).expect("JSON");
    assert_eq!((&topic["name"], &topic["records_at_most"]), (&"t".into(), &100.into()));
    assert_eq!(topic["ranges"], list);
    let none = daemon.run(&["topic", "describe", "none"]);
    assert_eq!(none.status.code(), Some(1), "{}", text(&none.stderr));
}
