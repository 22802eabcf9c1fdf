//! A whole text through the node and back: `consume --format json | produce --format json` into a second topic, record by record.
//!
//! `ROUND_TRIP_FILE` names the text, of at least 100,000 lines with columns between spaces, such as a pronouncing dictionary. It is not
//! generated: what a generator leaves out, a real text has. Without it the test is skipped.

mod daemon;

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::{Daemon, folder, skipped, text};
use serde_json::{Value, json};

/// The records of a topic by key, each in its order, as lines of JSON.
fn by_key(daemon: &Daemon, topic: &str) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in daemon.ok(&["consume", topic, "--format", "json", "--quiet"], b"").lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        let key = record["key"].as_str().expect("a key").to_owned();
        all.entry(key).or_default().push(record);
    }
    all
}

/// Both ends of a pipe, as a shell would join them.
fn copy(daemon: &Daemon, from: &str, to: &str) {
    let mut consume = daemon.command(&["consume", from, "--format", "json", "--quiet"]);
    let mut consume = consume.stdout(Stdio::piped()).spawn().expect("runs");
    let mut produce = daemon.command(&["produce", to, "--format", "json"]);
    produce.stdin(consume.stdout.take().expect("a pipe")).stderr(Stdio::piped());
    let mut produce = produce.spawn().expect("runs");
    let mut told = String::new();
    produce.stderr.take().expect("a pipe").read_to_string(&mut told).expect("read");
    assert_eq!((daemon::wait(&mut produce).code(), daemon::wait(&mut consume).code()), (Some(0), Some(0)), "{told}");
}

#[test]
fn a_real_text_comes_back_record_by_record_from_a_copy_of_its_topic_as_text_and_as_bytes() {
    let Some(path) = std::env::var_os("ROUND_TRIP_FILE") else {
        skipped("ROUND_TRIP_FILE names no text of 100,000 lines");
        return;
    };
    let content = std::fs::read(&path).expect("the text can be read");
    let lines: Vec<&[u8]> =
        content.split_inclusive(|byte| *byte == b'\n').map(|l| l.strip_suffix(b"\n").unwrap_or(l)).collect();
    assert!(lines.len() >= 100_000, "only {} lines", lines.len());
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    for topic in ["text", "text-copy", "bytes", "bytes-copy"] {
        daemon.ok(&["topic", "create", topic, "--ranges", "4"], b"");
    }

    let file = path.to_str().expect("a text");
    let produced = daemon.run(&["produce", "text", "--key-column", "2", "--delimiter", " ", "--file", file]);
    assert_eq!(text(&produced.stderr), format!("stored {} records\n", lines.len()));
    assert_eq!(produced.status.code(), Some(0));
    let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in &lines {
        let line = text(line);
        wanted.entry(line.split(' ').nth(1).expect("a column").to_owned()).or_default().push(line);
    }
    let stored = by_key(&daemon, "text");
    let values =
        |records: &Vec<Value>| records.iter().map(|r| r["value"].as_str().expect("a text").to_owned()).collect();
    let read: BTreeMap<String, Vec<String>> =
        stored.iter().map(|(key, records)| (key.clone(), values(records))).collect();
    assert!(read == wanted, "the topic holds the file, each key in the file's order");
    copy(&daemon, "text", "text-copy");
    assert!(by_key(&daemon, "text-copy") == stored, "the copy holds the same records with the same times");

    // The same with values that are no text: each byte's highest bit turned over.
    let records: String = lines
        .iter()
        .map(|line| {
            let bytes: Vec<u8> = line.iter().map(|byte| byte ^ 0x80).collect();
            let key = text(line).split(' ').nth(1).expect("a column").to_owned();
            format!("{}\n", json!({"key": key, "value_b64": BASE64.encode(bytes)}))
        })
        .collect();
    daemon.ok(&["produce", "bytes", "--format", "json"], records.as_bytes());
    copy(&daemon, "bytes", "bytes-copy");
    let (stored, copied) = (by_key(&daemon, "bytes"), by_key(&daemon, "bytes-copy"));
    assert!(stored == copied, "the copy holds the same bytes");
    for (key, records) in &stored {
        let turned = |record: &Value| {
            let bytes = BASE64.decode(record["value_b64"].as_str().expect("base64")).expect("base64");
            text(&bytes.iter().map(|byte| byte ^ 0x80).collect::<Vec<_>>())
        };
        assert!(records.iter().map(turned).eq(wanted[key].iter().cloned()), "{key}");
    }
    eprintln!("{} lines, {} keys", lines.len(), wanted.len());
}
