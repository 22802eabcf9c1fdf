//! A daemon that ends, in order or not, and is started again on what it left.

mod daemon;

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use daemon::{Daemon, contents, folder, greeted, nothing_is_wrong, sealog, steady_address, text};
use sealog_engine::format::checksum::checksum;
use sealog_net::wire::{Bye, ByeReason, Decoded, decode};

#[test]
fn a_stopped_daemon_ends_with_0_and_gives_everything_back_when_it_is_started_again() {
    let dir = folder();
    let Some(first) = Daemon::start(dir.path(), &[]) else { return };
    first.ok(&["topic", "create", "t", "--ranges", "4"], b"");
    let lines: String = (0..2_000).map(|n| format!("key-{}={n}\n", n % 50)).collect();
    first.ok(&["produce", "t", "--key-separator", "="], lines.as_bytes());
    let before = first.ok(&["consume", "t", "--format", "kv"], b"");
    assert_eq!(before.lines().count(), 2_000);
    assert_eq!(first.stop().code(), Some(0));
    let second = Daemon::start(dir.path(), &[]).expect("the host was fit before");
    assert_eq!(sorted(&second.ok(&["consume", "t", "--format", "kv"], b"")), sorted(&before));
    second.ok(&["produce", "t", "--key-separator", "="], b"key-0=later\n");
    let after = second.ok(&["consume", "t", "--format", "kv"], b"");
    let of_key: Vec<&str> = after.lines().filter(|line| line.starts_with("key-0\t")).collect();
    assert_eq!(of_key.len(), 41);
    assert_eq!(of_key.last(), Some(&"key-0\tlater"));
}

/// The lines of each key in their order; the keys' own order, which nobody promises, taken out.
fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_by_key(|line| line.split('\t').next().unwrap_or_default());
    lines
}

#[test]
fn after_each_kill_every_acknowledged_record_reads_back_once_and_in_order() {
    let rounds = 3;
    let dir = folder();
    let data = dir.path().join("data");
    for round in 0..rounds {
        let Some(daemon) = Daemon::start(&data, &[]) else { return };
        let ledger = dir.path().join(format!("ledger-{round}"));
        let ledger = ledger.to_str().expect("a text");
        let load = daemon
            .command(&["bench", "produce", "--closed", "--inflight", "64", "--ranges", "4", "--duration", "60s"])
            .args(["--warmup", "0s", "--no-floor", "--on-disconnect", "stop", "--ledger", ledger])
            .stdout(Stdio::null())
            .spawn()
            .expect("runs");
        // Long enough for rolls and checkpoints, and another moment in each round.
        std::thread::sleep(Duration::from_millis(1_500 + 373 * round));
        daemon.kill();
        let ended = load.wait_with_output().expect("an end");
        assert!(ended.status.code().is_some_and(|code| code == 0 || code == 4), "{:?}", ended.status);
        let again = Daemon::start(&data, &[]).expect("it starts on what was left");
        let judged = again.ok(&["bench", "verify", "--format", "json", "--ledger", ledger], b"");
        let judged: serde_json::Value = serde_json::from_str(&judged).expect("JSON");
        assert!(judged["acknowledged"].as_u64() > Some(100), "{judged}");
        for kind in ["lost", "duplicated", "reordered", "damaged", "unexpected"] {
            assert_eq!(judged[kind], 0, "round {round}: {judged}");
        }
        assert_eq!(again.stop().code(), Some(0));
    }
}

/// The errors of a load whose node ends by `end` and is started again: its connection broke, and nothing is wrong with what it reads back.
fn outlived(end: impl FnOnce(Daemon)) -> Option<serde_json::Value> {
    let dir = folder();
    let data = dir.path().join("data");
    let listen = steady_address();
    let first = Daemon::start(&data, &["--listen", &listen])?;
    let load = first
        .command(&["bench", "produce", "--rate", "2000", "--keys", "64", "--ranges", "2", "--duration", "8s"])
        .args(["--warmup", "0s", "--no-floor", "--timeout", "60s", "--verify", "--format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    std::thread::sleep(Duration::from_secs(2));
    end(first);
    let second = Daemon::start(&data, &["--listen", &listen]).expect("it starts on what was left");
    let ended = load.wait_with_output().expect("an end");
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("a report");
    let (errors, found) = (&report["phases"][0]["errors"], &report["verification"]);
    assert!(errors["disconnects"].as_u64() > Some(0), "{report}");
    nothing_is_wrong(found);
    assert!(found["acknowledged"].as_u64() > Some(1_000), "{found}");
    drop(second);
    Some(errors.clone())
}

#[test]
fn a_load_that_outlives_a_kill_goes_on_and_nothing_is_lost_or_twice() {
    outlived(Daemon::kill);
}

#[test]
fn a_load_that_outlives_a_restart_in_order_sees_no_error_at_all() {
    let Some(errors) = outlived(|daemon| assert_eq!(daemon.stop().code(), Some(0))) else { return };
    assert_eq!((errors["not_stored"].as_u64(), errors["unknown"].as_u64()), (Some(0), Some(0)), "{errors}");
}

#[test]
fn a_daemon_that_stops_says_goodbye_to_its_clients() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let mut streams: Vec<TcpStream> = (0..3).map(|_| greeted(&daemon.listen)).collect();
    assert_eq!(daemon.stop().code(), Some(0));
    for stream in &mut streams {
        let mut told = Vec::new();
        stream.read_to_end(&mut told).expect("closed and not broken");
        let Ok(Decoded::Frame { frame, length }) = decode(&told, 1 << 16) else { panic!("no frame: {told:02x?}") };
        assert_eq!(Bye::read(&frame).expect("a bye").reason, ByeReason::Stopping.number());
        assert_eq!(length, told.len(), "nothing follows a bye");
    }
}

#[test]
fn two_daemons_cannot_have_one_directory_or_one_port() {
    let (dir, other) = (folder(), folder());
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let started = |arguments: &[&str]| {
        let output = sealog().arg("serve").args(arguments).output().expect("runs");
        (output.status.code(), text(&output.stderr))
    };
    let same_dir = dir.path().to_str().expect("a text");
    let ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir"];
    let (code, told) = started(&[&ports[..], &[same_dir]].concat());
    assert!(code == Some(1) && told.contains("in use"), "{code:?} {told}");
    let other_dir = other.path().to_str().expect("a text");
    let (code, told) = started(&["--listen", &daemon.listen, "--http", "127.0.0.1:0", "--data-dir", other_dir]);
    assert!(code == Some(1) && told.contains("cannot listen on"), "{code:?} {told}");
}

#[test]
fn a_directory_of_a_newer_format_is_refused_with_78_and_not_a_byte_is_changed() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    daemon.ok(&["produce", "t"], b"1\n");
    assert_eq!(daemon.stop().code(), Some(0));
    for copy in ["superblock.0", "superblock.1"] {
        let path = dir.path().join(copy);
        let mut block = std::fs::read(&path).expect("a superblock");
        let version = u32::from_le_bytes(block[8..12].try_into().expect("4 bytes"));
        block[8..12].copy_from_slice(&(version + 1).to_le_bytes());
        let sum = checksum(0, &block[..4092]);
        block[4092..4096].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&path, block).expect("written");
    }
    // The lock is no data: it names the process that last looked.
    let contents = |dir: &Path| {
        let mut files = contents(dir);
        files.remove(&dir.join("lock"));
        files
    };
    let before = contents(dir.path());
    let output = sealog()
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(78), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("version"), "{}", text(&output.stderr));
    let after = contents(dir.path());
    assert!(before.keys().eq(after.keys()), "{:?}", after.keys());
    for (path, bytes) in &before {
        assert!(after[path] == *bytes, "{} was changed", path.display());
    }
}
