//! Settings as a shell sees them: where they may stand, which wins, and what is said of those that cannot be.

mod daemon;

use std::path::Path;
use std::process::Command;

use daemon::{folder, sealog, text};

/// How a command ended, and what it said on standard output and standard error.
fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("runs");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A configuration file of this text.
fn file(dir: &Path, content: &str) -> String {
    let path = dir.join("sealog.toml");
    std::fs::write(&path, content).expect("written");
    path.to_str().expect("a text").to_owned()
}

/// The complaint about a file that no node would start with: one message, and 78.
fn refused(content: &str) -> String {
    let dir = folder();
    let file = file(dir.path(), content);
    let (code, out, told) = ended(sealog().args(["config", "check", "--config", &file]));
    assert_eq!((code, out.as_str()), (Some(78), ""), "{told}");
    let serve = ended(sealog().args(["serve", "--config", &file]));
    assert_eq!(serve, (code, out, told.clone()), "serve says the same");
    told.replace(&file, "FILE")
}

#[test]
fn a_file_is_weaker_than_a_variable_and_that_than_a_flag_and_each_value_tells_its_place() {
    let dir = folder();
    let file = file(dir.path(), "[journal]\nsize = \"16MiB\"\nfiles = 3\n[segment]\nsize = 8388608\nage = \"90s\"\n");
    let show = |format: &str| {
        let mut command = sealog();
        command.env("SEALOG_SEGMENT_SIZE", "16MiB").env("SEALOG_JOURNAL_SIZE", "32MiB");
        command.args(["config", "show", "--origin", "--format", format, "--config", &file]);
        command.args(["--set", "journal.size=64MiB", "--journal-size", "128MiB", "--set", "segment.age=2h"]);
        let (code, out, told) = ended(&mut command);
        assert_eq!((code, told.as_str()), (Some(0), ""));
        out
    };
    let shown: serde_json::Value = serde_json::from_str(&show("json")).expect("JSON");
    let at = |key: &str| {
        let part = |part: &str| shown[key][part].as_str().expect("a text").replace(&file, "FILE");
        (part("value"), part("origin"))
    };
    let pair = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(at("journal.size"), pair("128MiB", "--journal-size"));
    assert_eq!(at("segment.size"), pair("16MiB", "SEALOG_SEGMENT_SIZE"));
    assert_eq!(at("segment.age"), pair("2h", "--set"));
    assert_eq!(at("journal.files"), pair("3", "FILE:3"));
    assert_eq!(at("batch.max"), pair("1MiB", "default"));
    let lines = show("text");
    let line = |key: &str| lines.lines().filter(|line| line.starts_with(key)).map(str::to_owned).collect::<Vec<_>>();
    assert!(line("files = 3").len() == 1 && line("files = 3")[0].ends_with(":3"), "{lines}");
}

#[test]
fn what_is_shown_is_a_file_that_is_taken_again() {
    let dir = folder();
    let show = |arguments: &[&str]| {
        let (code, out, told) = ended(sealog().args(["config", "show"]).args(arguments));
        assert_eq!((code, told.as_str()), (Some(0), ""));
        out
    };
    let shown = show(&["--set", "segment.age=90s", "--cpus", "0", "--log", "warn,sealog=debug", "--origin"]);
    let file = file(dir.path(), &shown);
    let again = show(&["--config", &file]);
    let without_origins: String =
        shown.lines().map(|l| l.split(" #").next().unwrap_or(l).trim_end().to_owned() + "\n").collect();
    assert_eq!(again, without_origins);
    let (code, out, _) = ended(sealog().args(["config", "check", "--config", &file, "--format", "json"]));
    let checked: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &checked["good"]), (Some(0), &true.into()));
}

#[test]
fn an_unknown_key_names_the_line_and_the_key_that_was_meant() {
    let told = refused("[journal]\n# slips\nsiez = \"16MiB\"\n");
    assert_eq!(told, "sealog: FILE:3: there is no setting `journal.siez`; did you mean `journal.size`?\n");
    let (code, _, told) = ended(sealog().args(["config", "check"]).env("SEALOG_JOURNAL_SIEZ", "1"));
    let meant = "there is no setting `SEALOG_JOURNAL_SIEZ`; did you mean `SEALOG_JOURNAL_SIZE`?";
    assert_eq!((code, told), (Some(78), format!("sealog: SEALOG_JOURNAL_SIEZ: {meant}\n")));
    let (code, _, told) = ended(sealog().args(["config", "check", "--journal-siez", "1"]));
    assert!(code == Some(2) && told.contains("--journal-size"), "{told}");
}

#[test]
fn a_wrong_unit_says_what_units_there_are() {
    let told = refused("[journal]\nsize = \"16MB\"\n");
    let sizes = "it is not a size: write bytes, or KiB, MiB or GiB, such as 128MiB";
    assert_eq!(told, format!("sealog: FILE:2: `16MB` cannot be `journal.size`: {sizes}\n"));
    let times = "it is not a time: write us, ms, s, m, h or d, such as 500ms or 10s";
    let (code, _, told) = ended(sealog().args(["serve", "--segment-age", "60"]));
    assert_eq!((code, told), (Some(78), format!("sealog: --segment-age: `60` cannot be `segment.age`: {times}\n")));
}

#[test]
fn settings_that_cannot_work_together_say_so_before_anything_is_touched() {
    let told = refused("[node]\ndata_dir = \"/nonexistent/never\"\n[batch]\nmax = \"64MiB\"\n");
    assert!(told.starts_with("sealog: FILE:4: batch.max is 67108864 bytes; the most that"), "{told}");
    let told = refused("[node]\nshards = 2\ncpus = [0]\n");
    assert!(told.starts_with("sealog: FILE:3: node.cpus names 1 cores, and node.shards is 2"), "{told}");
}

#[test]
fn a_file_that_cannot_be_read_or_is_no_toml_is_named() {
    let (code, _, told) = ended(sealog().args(["serve", "--config", "/nonexistent/sealog.toml"]));
    assert_eq!(code, Some(78));
    assert!(told.contains("/nonexistent/sealog.toml") && told.contains("No such file"), "{told}");
    let told = refused("[node\n");
    assert!(told.starts_with("sealog: FILE: TOML parse error at line 1"), "{told}");
}
