//! The commands against a real daemon, as a shell sees them: what is printed, and how they end.

mod daemon;

use std::io::Read;
use std::process::Stdio;

use daemon::{Daemon, folder, sealog, text};

#[test]
fn a_version_is_told_as_text_and_as_json() {
    let output = sealog().arg("version").output().expect("runs");
    assert!(text(&output.stdout).starts_with("sealog "), "{}", text(&output.stdout));
    let output = sealog().args(["version", "--format", "json"]).output().expect("runs");
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["commit"].as_str().is_some_and(|commit| commit.len() >= 7), "{version}");
    assert!(version["features"].as_array().is_some_and(|features| features.contains(&"io_uring".into())), "{version}");
}

#[test]
fn every_command_has_a_manual_page_and_its_completions() {
    let dir = folder();
    let ended = |arguments: &[&str]| {
        let output = sealog().args(arguments).output().expect("runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let out = dir.path().join("man1");
    ended(&["man", "--out", out.to_str().expect("a text")]);
    for page in ["sealog.1", "sealog-serve.1", "sealog-config-show.1", "sealog-doctor.1", "sealog-topic-create.1"] {
        let page = std::fs::read_to_string(out.join(page)).expect(page);
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    let serve = std::fs::read_to_string(out.join("sealog-serve.1")).expect("the page");
    assert!(serve.contains("drain"), "{serve}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(ended(&["completions", shell]).contains("doctor"), "{shell}");
    }
    let bash = ended(&["completions", "bash"]);
    let checked = std::process::Command::new("bash").args(["-n", "-c", &bash]).output();
    assert!(checked.is_ok_and(|checked| checked.status.success() && checked.stderr.is_empty()));
}

#[test]
fn what_is_not_understood_ends_with_2_and_a_setting_that_is_none_with_78() {
    let ended = |arguments: &[&str]| {
        let output = sealog().args(arguments).output().expect("runs");
        (output.status.code(), text(&output.stderr))
    };
    let (code, told) = ended(&["serve", "--no-such-flag"]);
    assert!(code == Some(2) && told.contains("--no-such-flag"), "{told}");
    let (code, told) = ended(&["serve", "--set", "journal.siez=1"]);
    assert!(code == Some(78) && told.contains("did you mean `journal.size`?"), "{told}");
    let (code, told) = ended(&["serve", "--journal-size", "1MB"]);
    assert!(code == Some(78) && told.contains("`1MB` cannot be `journal.size`"), "{told}");
    let (code, told) = ended(&["serve", "--journal-size", "4097"]);
    assert!(code == Some(78) && told.contains("journal.size is 4097"), "{told}");
    let (code, told) = ended(&["consume", "t", "--from", "cursor:AAAAAAAAAAAAAAAA"]);
    assert!(code == Some(2) && told.contains("this is not a cursor"), "{told}");
}

#[test]
fn nobody_there_ends_with_75() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let output =
        sealog().args(["topic", "list", "--timeout", "300ms", "--addr", &free.to_string()]).output().expect("runs");
    assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
}

#[test]
fn topics_are_created_once_and_listed_by_name() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    assert_eq!(daemon.ok(&["topic", "create", "b", "--ranges", "4"], b""), "created topic b with 4 ranges\n");
    daemon.ok(&["topic", "create", "a"], b"");
    let again = daemon.run(&["topic", "create", "a"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("a topic of this name exists"), "{}", text(&again.stderr));
    let topics: serde_json::Value =
        serde_json::from_str(&daemon.ok(&["topic", "list", "--format", "json"], b"")).expect("JSON");
    let named: Vec<_> = topics.as_array().expect("a list").iter().map(|t| (&t["name"], &t["ranges"])).collect();
    assert_eq!(named, [(&"a".into(), &1.into()), (&"b".into(), &4.into())]);
}

#[test]
fn lines_are_stored_and_printed_again_in_order() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    let lines: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
    let produced = daemon.run_with(&["produce", "t", "--key", "k"], lines.as_bytes());
    assert_eq!((produced.status.code(), text(&produced.stderr)), (Some(0), "stored 5000 records\n".to_owned()));
    assert_eq!(daemon.ok(&["consume", "t", "--quiet"], b""), lines);
    assert_eq!(daemon.ok(&["consume", "t", "--max", "2", "--format", "kv"], b""), "k\tline 0\nk\tline 1\n");
    assert_eq!(daemon.ok(&["consume", "t", "--from", "latest"], b""), "");
}

#[test]
fn json_that_is_printed_is_json_that_is_taken() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    for topic in ["a", "b"] {
        daemon.ok(&["topic", "create", topic], b"");
    }
    let lines = concat!(
        r#"{"key":"k","value":"v","headers":{"z":"1","a":"2"},"timestamp_ms":5}"#,
        "\n",
        r#"{"key_b64":"/w==","timestamp_ms":6}"#,
        "\n",
        r#"{"value":"no key","timestamp_ms":7}"#,
        "\n",
    );
    daemon.ok(&["produce", "a", "--format", "json"], lines.as_bytes());
    let printed = daemon.ok(&["consume", "a", "--format", "json"], b"");
    assert_eq!(printed, lines);
    daemon.ok(&["produce", "b", "--format", "json"], printed.as_bytes());
    assert_eq!(daemon.ok(&["consume", "b", "--format", "json"], b""), lines);
}

#[test]
fn a_line_that_is_no_record_ends_with_1_and_says_what_was_stored() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    let output = daemon.run_with(&["produce", "t", "--key-separator", "="], b"a=1\nb\nc=2\n");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("stored 1 records") && told.contains("line 2 is not stored"), "{told}");
    assert_eq!(daemon.ok(&["consume", "t"], b""), "1\n");
}

#[test]
fn a_saved_cursor_goes_on_where_it_was_and_a_forged_one_is_refused() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    for topic in ["t", "other"] {
        daemon.ok(&["topic", "create", topic, "--ranges", "2"], b"");
    }
    let file = dir.path().join("cursor");
    let consume = |arguments: &[&str]| {
        let with_file = ["consume", "t", "--cursor-file", file.to_str().expect("a text")];
        daemon.ok(&[&with_file, arguments].concat(), b"")
    };
    daemon.ok(&["produce", "t", "--key", "k"], b"1\n2\n3\n");
    assert_eq!(consume(&["--max", "2"]), "1\n2\n");
    assert_eq!(consume(&[]), "3\n");
    daemon.ok(&["produce", "t", "--key", "k"], b"4\n");
    assert_eq!(consume(&[]), "4\n");
    let cursor = std::fs::read_to_string(&file).expect("a cursor");
    let from = format!("cursor:{}", cursor.trim());
    assert_eq!(daemon.ok(&["consume", "t", "--from", &from], b""), "");
    let foreign = daemon.run(&["consume", "other", "--from", &from]);
    assert_eq!(foreign.status.code(), Some(1));
    assert!(text(&foreign.stderr).contains("the cursor belongs to topic"), "{}", text(&foreign.stderr));
    let mut forged = cursor.into_bytes();
    forged[10] ^= 1;
    std::fs::write(&file, forged).expect("written");
    let refused = daemon.run(&["consume", "t", "--cursor-file", file.to_str().expect("a text")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("this is not a cursor"), "{}", text(&refused.stderr));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    let lines = "a line of some length, so that a pipe is soon full\n".repeat(20_000);
    daemon.ok(&["produce", "t"], lines.as_bytes());
    let mut child =
        daemon.command(&["consume", "t"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut some = [0; 100];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("read");
    let mut told = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut told).expect("read");
    assert_eq!((daemon::wait(&mut child).code(), told.as_str()), (Some(0), ""));
}

#[test]
fn a_follower_prints_what_comes_and_keeps_its_cursor_when_it_is_interrupted() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    daemon.ok(&["produce", "t"], b"before\n");
    let file = dir.path().join("cursor");
    let mut child = daemon
        .command(&["consume", "t", "--follow", "--cursor-file", file.to_str().expect("a text")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut out = child.stdout.take().expect("a pipe");
    let mut read = |expected: &str| {
        let mut bytes = vec![0; expected.len()];
        out.read_exact(&mut bytes).expect("read");
        assert_eq!(text(&bytes), expected);
    };
    read("before\n");
    daemon.ok(&["produce", "t"], b"after\n");
    read("after\n");
    let asked = std::process::Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(asked.expect("kill runs").success());
    assert_eq!(daemon::wait(&mut child).code(), Some(130));
    assert_eq!(daemon.ok(&["consume", "t", "--cursor-file", file.to_str().expect("a text")], b""), "");
}

#[test]
fn health_readiness_and_counters_are_told_over_http() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    daemon.ok(&["produce", "t"], b"1\n2\n");
    assert_eq!(daemon.get("/health"), (200, "ok\n".to_owned()));
    assert_eq!(daemon.get("/ready"), (200, "ok\n".to_owned()));
    let (status, metrics) = daemon.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.lines().any(|l| l == "sealog_records_taken_total{shard=\"0\"} 2"), "{metrics}");
    let status: serde_json::Value = serde_json::from_str(&daemon.get("/status").1).expect("JSON");
    assert_eq!((&status["ready"], &status["counters"][0]["records_taken"]), (&true.into(), &2.into()));
    assert_eq!(daemon.get("/none").0, 404);
}
