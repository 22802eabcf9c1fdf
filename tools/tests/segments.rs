//! `sealog segment` on directories that a real daemon made: what it tells of a good one, and of one with a flipped byte.

mod daemon;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use daemon::{Daemon, folder, sealog, text};
use serde_json::Value;

const RECORDS: u64 = 40_000;

fn value(n: u64) -> String {
    format!("value number {n} {}", "of several ".repeat(25))
}

/// A directory with several segments of one range, of a node that was stopped, started again and killed: one record is in its journal
/// alone. `None` if this host cannot run a node.
fn made(dir: &Path) -> Option<()> {
    let daemon = Daemon::start(dir, &[])?;
    daemon.ok(&["topic", "create", "words"], b"");
    for from in [0, RECORDS / 2] {
        let line = |n: u64| format!("k{}={}\n", n % 97, value(n));
        let lines: String = (from..from + RECORDS / 2).map(line).collect();
        daemon.ok(&["produce", "words", "--key-separator", "="], lines.as_bytes());
    }
    assert!(daemon.stop().success());
    let daemon = Daemon::start(dir, &[])?;
    daemon.ok(&["produce", "words"], b"one more\n");
    daemon.kill();
    Some(())
}

fn segment(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = sealog();
    command.arg("segment").args(arguments).arg("--data-dir").arg(dir);
    command.output().expect("runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Every file with its bytes and the time of its last change.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                folders.push(entry.path());
                continue;
            }
            let changed = entry.metadata().and_then(|facts| facts.modified()).expect("facts");
            found.insert(entry.path(), (fs::read(entry.path()).expect("read"), changed));
        }
    }
    found
}

fn flip(file: &Path, at: u64) {
    let mut bytes = fs::read(file).expect("read");
    bytes[usize::try_from(at).expect("an index")] ^= 0x20;
    fs::write(file, bytes).expect("written");
}

#[test]
fn a_good_directory_is_listed_dumped_and_verified_and_nothing_of_it_changes() {
    let dir = folder();
    let Some(()) = made(dir.path()) else { return };
    let before = contents(dir.path());
    let list = segment(dir.path(), &["list", "--format", "json"]);
    assert_eq!(list.status.code(), Some(0), "{}", text(&list.stderr));
    let list = json(&list);
    let segments = list.as_array().expect("a list");
    assert!(segments.len() >= 3, "{list}");
    assert!(segments.iter().all(|segment| segment["topic"] == "words"), "{list}");
    let records: u64 = segments.iter().map(|segment| segment["records"].as_u64().expect("a number")).sum();
    assert_eq!(records, RECORDS + 1);
    for pair in segments.windows(2) {
        assert_eq!(pair[0]["end"], pair[1]["base"], "{list}");
    }

    let verified = segment(dir.path(), &["verify", "--format", "json"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stdout));
    assert_eq!(json(&verified)["findings"], Value::Array(Vec::new()));
    assert!(text(&segment(dir.path(), &["verify"]).stdout).contains(": all verify\n"));

    let first = segments[0]["segment"].as_str().expect("a text");
    let dump = segment(dir.path(), &["dump", first, "--format", "json"]);
    assert_eq!(dump.status.code(), Some(0), "{}", text(&dump.stderr));
    let batches: Vec<Value> =
        text(&dump.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(batches[0]["from"], segments[0]["base"]);
    assert_eq!(batches.last().expect("a batch")["to"], segments[0]["end"]);
    let dumped = segment(dir.path(), &["dump", first, "--records", "--format", "json"]);
    let record: Value = serde_json::from_str(text(&dumped.stdout).lines().next().expect("a line")).expect("JSON");
    assert_eq!((&record["key"], &record["value"]), (&"k0".into(), &value(0).into()));
    assert!(text(&segment(dir.path(), &["dump", first]).stdout).starts_with("    position"));
    assert!(contents(dir.path()) == before, "not a byte, and no file, has changed");
}

#[test]
fn one_flipped_byte_is_told_with_file_position_batch_and_offsets() {
    let dir = folder();
    let Some(()) = made(dir.path()) else { return };
    let list = json(&segment(dir.path(), &["list", "--format", "json"]));
    let sealed = list.as_array().expect("a list").iter().find(|s| s["state"] == "sealed").expect("a sealed segment");
    let id = sealed["segment"].as_str().expect("a text");
    let dump = segment(dir.path(), &["dump", id, "--format", "json"]);
    let batches: Vec<Value> =
        text(&dump.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (nth, batch) = (batches.len() / 2, &batches[batches.len() / 2]);
    let name = batch["file"].as_str().expect("a text");
    let file = dir.path().join(name);
    let number = |value: &Value| value.as_u64().expect("a number");
    let (at, last) = (number(&batch["position"]), batches.last().expect("a batch"));
    let behind = number(&last["position"]) + number(&last["bytes"]);
    // Header and placement of the entry, header and body of the batch.
    for within in [0, 9, 20, 63, 100, 161, number(&batch["bytes"]) / 2] {
        flip(&file, at + within);
        let verified = segment(dir.path(), &["verify", "--format", "json"]);
        assert_eq!(verified.status.code(), Some(5), "{within}: {}", text(&verified.stdout));
        let report = json(&verified);
        let finding = &report["findings"][0];
        assert_eq!(report["findings"].as_array().expect("a list").len(), 1, "{within}: {report}");
        assert_eq!((finding["file"].as_str(), number(&finding["position"])), (Some(name), at), "{within}: {report}");
        assert_eq!(finding["batch"], nth, "{within}: {report}");
        assert_eq!((&finding["from"], &finding["to"]), (&batch["from"], &batch["to"]), "{within}: {report}");
        flip(&file, at + within);
    }
    // The segment's header, what follows it, the table, and what the last batch is followed by: a mark, a footer or a pad.
    for at in [8, 191, 1000, 4096, 4120, behind, behind + 40] {
        flip(&file, at);
        let verified = segment(dir.path(), &["verify"]);
        let told = text(&verified.stdout);
        assert_eq!(verified.status.code(), Some(5), "{at}: {told}");
        assert!(told.starts_with(&format!("{name} at ")), "{at}: {told}");
        flip(&file, at);
    }
    assert_eq!(segment(dir.path(), &["verify"]).status.code(), Some(0));
    // What is left of a damaged segment can still be taken out.
    flip(&file, at + 100);
    let dump = segment(dir.path(), &["dump", id, "--records", "--format", "json"]);
    assert_eq!(dump.status.code(), Some(5), "{}", text(&dump.stderr));
    let lost = number(&batch["to"]) - number(&batch["from"]);
    assert_eq!(text(&dump.stdout).lines().count() as u64, number(&sealed["records"]) - lost);
}

#[test]
fn a_damaged_catalog_journal_or_superblock_is_told_and_what_can_be_listed_is() {
    let dir = folder();
    let Some(()) = made(dir.path()) else { return };
    let count = |output: &Output| json(output).as_array().expect("a list").len();
    // Without a catalog, what only a journal holds cannot be told.
    let good = json(&segment(dir.path(), &["list", "--format", "json"]));
    let all = good.as_array().expect("a list").iter().filter(|segment| segment["files"] != 0).count();
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(dir.path().join(folder)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let catalogs = in_folder("catalog");
    catalogs.iter().for_each(|file| flip(file, 70));
    let list = segment(dir.path(), &["list", "--format", "json"]);
    assert_eq!((list.status.code(), count(&list)), (Some(5), all), "{}", text(&list.stderr));
    assert!(text(&list.stderr).contains("catalog"), "{}", text(&list.stderr));
    assert!(text(&segment(dir.path(), &["verify"]).stdout).contains("no snapshot leads"));
    catalogs.iter().for_each(|file| flip(file, 70));

    // The first group of the living generation.
    let journal = in_folder("journal").into_iter().find(|file| file.ends_with("0000.0")).expect("a journal");
    flip(&journal, 20);
    flip(&journal, 4096 - 40);
    let verified = segment(dir.path(), &["verify"]);
    assert_eq!(verified.status.code(), Some(5), "{}", text(&verified.stdout));
    assert!(text(&verified.stdout).contains("the journal of shard-0"), "{}", text(&verified.stdout));
    flip(&journal, 20);
    flip(&journal, 4096 - 40);

    flip(&dir.path().join("superblock.0"), 100);
    assert_eq!(segment(dir.path(), &["verify"]).status.code(), Some(0), "one whole copy is enough");
    flip(&dir.path().join("superblock.1"), 100);
    let list = segment(dir.path(), &["list", "--format", "json"]);
    assert_eq!((list.status.code(), count(&list)), (Some(5), all), "{}", text(&list.stderr));
}

#[test]
fn a_directory_in_use_is_refused_with_the_process_that_uses_it_and_so_is_one_without_data() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let refused = segment(dir.path(), &["list"]);
    assert_eq!(refused.status.code(), Some(1));
    let told = text(&refused.stderr);
    assert!(told.contains(&format!("in use by process {}", daemon.pid())), "{told}");
    assert!(daemon.stop().success());
    assert_eq!(segment(dir.path(), &["list"]).status.code(), Some(0));

    let empty = folder();
    let refused = segment(empty.path(), &["verify"]);
    assert_eq!(refused.status.code(), Some(78), "{}", text(&refused.stderr));
    assert!(fs::read_dir(empty.path()).expect("a folder").next().is_none(), "no file was made");
    let refused = segment(&empty.path().join("none"), &["verify"]);
    assert_eq!(refused.status.code(), Some(78), "{}", text(&refused.stderr));
    let refused = segment(dir.path(), &["dump", "s77"]);
    assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("holds no segment s77"));
}

#[test]
fn a_directory_of_a_newer_format_is_refused_with_78() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    assert!(daemon.stop().success());
    let file = dir.path().join("superblock.1");
    let mut block = fs::read(&file).expect("read");
    block[8] = 9;
    let sum = sealog_engine::format::checksum(0, &block[..4092]);
    block[4092..].copy_from_slice(&sum.to_le_bytes());
    fs::write(&file, block).expect("written");
    let refused = segment(dir.path(), &["verify"]);
    assert_eq!(refused.status.code(), Some(78), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("version 9"), "{}", text(&refused.stderr));
}
