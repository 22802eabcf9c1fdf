//! A power cut at any moment of a loaded node: the node starts on what is left and gives back all that it had acknowledged.
//!
//! ```text
//!  load (some lives of a node) --recorder--> timeline
//!  each cut:  the disk at that place, unsynced acts kept, dropped or torn --> a folder --> a node --> the checkers
//!             of every third, a second cut within the start and the checks themselves
//! ```
//! Killing a process proves nothing about syncs: the page cache and the device survive it. `SEALOG_CUT_POINTS` says how many cuts are made,
//! `SEALOG_CUT_SEED` which, and `SEALOG_CUT_DIR` in which folder, by default on the disk that this is built on. Cuts are made in processes of
//! their own, so that one which ends a process is a finding, and because executors leave something behind in theirs.
#![cfg(feature = "glommio")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::wildcard_enum_match_arm, unreachable_pub)]

mod check;
mod client;
mod disk;
mod history;
mod load;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use check::{Findings, check};
use disk::{Disk, Image, Lie};
use history::History;
use sealog_engine::api::port::DataFile;
use sealog_engine::io::recorder::{Act, Recorded, Recorder, Recording};
use sealog_engine::types::random::Generator;

const CUTS: u64 = 48;
const CUTS_OF_A_LIE: u64 = 24;
/// Cuts made by one process.
const BATCH: u64 = 50;

/// What a process of cuts is given, in its environment.
struct Batch {
    recording: PathBuf,
    dir: PathBuf,
    seed: u64,
    cuts: u64,
    lie: Lie,
}

/// What all cuts found.
#[derive(Debug, Default)]
struct Summary {
    cuts: u64,
    second_cuts: u64,
    found: Findings,
}

impl Summary {
    fn add(&mut self, found: Findings) {
        let sum = &mut self.found;
        sum.violations.extend(found.violations);
        sum.acknowledged += found.acknowledged;
        sum.records += found.records;
        sum.unacknowledged += found.unacknowledged;
        sum.gaps += found.gaps;
        sum.gap_records += found.gap_records;
    }

    fn line(&self) -> String {
        let Findings { acknowledged, records, unacknowledged, gaps, gap_records, violations } = &self.found;
        let (cuts, second) = (self.cuts, self.second_cuts);
        let broken = violations.len();
        format!("summary {cuts} {second} {acknowledged} {records} {unacknowledged} {gaps} {gap_records} {broken}")
    }

    fn read(&mut self, line: &str) {
        let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
        self.cuts += numbers[0];
        self.second_cuts += numbers[1];
        self.add(Findings {
            acknowledged: numbers[2],
            records: numbers[3],
            unacknowledged: numbers[4],
            gaps: numbers[5],
            gap_records: numbers[6],
            violations: Vec::new(),
        });
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn folder() -> tempfile::TempDir {
    let root = std::env::var("SEALOG_CUT_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    tempfile::tempdir_in(root).expect("a folder on a disk")
}

/// Places of the timeline: most anywhere, some within starts, some behind acts on names, which are few.
fn choose(recording: &Recording, cuts: u64, draw: &mut Generator) -> Vec<usize> {
    let mut history = History::default();
    let (mut starts, mut names) = (Vec::new(), Vec::new());
    for (at, event) in recording.events().enumerate() {
        match event {
            Recorded::Note(note) => history.note(note),
            Recorded::Begun { act: Act::Rename { .. } | Act::Remove { .. } | Act::SyncFolder { .. }, .. } => {
                names.push(at + 1);
            }
            Recorded::Begun { .. } | Recorded::Ended(_) => {}
        }
        if history.starting {
            starts.push(at);
        }
    }
    let mut below = |most: usize| usize::try_from(draw.draw() % most as u64).expect("below a length");
    let mut chosen: Vec<usize> = (0..cuts)
        .map(|cut| match cut % 8 {
            0 | 1 if !starts.is_empty() => starts[below(starts.len())],
            2 if !names.is_empty() => names[below(names.len())],
            _ => below(recording.len() + 1),
        })
        .collect();
    chosen.sort_unstable();
    chosen
}

fn run(batch: &Batch) -> Summary {
    let recording = Recording::open(&batch.recording).expect("a recording");
    let mut draw = Generator::new(batch.seed);
    let mut summary = Summary::default();
    let mut disk = Disk::new(batch.lie, &Image::default());
    let (mut history, mut at) = (History::default(), 0);
    for cut in choose(&recording, batch.cuts, &mut draw) {
        while at < cut {
            let event = recording.event(at);
            disk.step(event);
            if let Recorded::Note(note) = event {
                history.note(note);
            }
            at += 1;
        }
        let seed = draw.draw();
        println!("cut {cut} {seed}");
        let image = disk.cut(&mut Generator::new(seed));
        check_cut(batch, &image, &history, (cut, seed), &mut summary);
        if batch.lie != Lie::None && !summary.found.violations.is_empty() {
            break;
        }
    }
    summary
}

/// Checks one image, and now and then another that a cut within this leaves.
fn check_cut(batch: &Batch, image: &Image, history: &History, (cut, seed): (usize, u64), summary: &mut Summary) {
    let mut draw = Generator::new(seed ^ 1);
    let own = tempfile::tempdir_in(&batch.dir).expect("a folder");
    let (first, second, path) = (own.path().join("first"), own.path().join("second"), own.path().join("recording"));
    let found = check_one(&first, image, history, &path, &mut draw);
    for violation in &found.violations {
        println!("violation cut {cut} seed {seed}: {violation}");
    }
    let is_clean = found.violations.is_empty();
    summary.cuts += 1;
    summary.add(found);
    if !is_clean || !draw.draw().is_multiple_of(3) {
        return;
    }
    let recording = Recording::open(&path).expect("a recording");
    let (mut disk, mut history) = (Disk::new(batch.lie, image), history.clone());
    let again = choose(&recording, 8, &mut draw)[usize::try_from(draw.draw() % 8).expect("small")];
    for at in 0..again {
        let event = recording.event(at);
        disk.step(event);
        if let Recorded::Note(note) = event {
            history.note(note);
        }
    }
    let image = disk.cut(&mut draw);
    let found = check_one(&second, &image, &history, &own.path().join("again"), &mut draw);
    for violation in &found.violations {
        println!("violation cut {cut} seed {seed} again {again}: {violation}");
    }
    summary.second_cuts += 1;
    summary.add(found);
}

fn check_one(dir: &Path, image: &Image, history: &History, path: &Path, draw: &mut Generator) -> Findings {
    std::fs::create_dir(dir).expect("a folder can be made");
    image.write(dir);
    let recorder = Recorder::create(path).expect("a recording");
    let found = check(dir, &Arc::new(history.clone()), &recorder, draw);
    recorder.flush();
    found
}

/// The task of this process, if it is one of cuts.
fn task() -> Option<Batch> {
    Some(Batch {
        recording: std::env::var_os("SEALOG_CUT_RECORDING")?.into(),
        dir: std::env::var_os("SEALOG_CUT_DIR").expect("set with the rest").into(),
        seed: number("SEALOG_CUT_SEED", 0),
        cuts: number("SEALOG_CUT_POINTS", 0),
        lie: Lie::parse(&std::env::var("SEALOG_CUT_LIE").expect("set with the rest")),
    })
}

/// Makes the cuts of a batch in a process of its own: the test below once more, with its task in the environment.
fn spawn(batch: &Batch, summary: &mut Summary) {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "what_was_acknowledged_is_there_after_a_power_cut_at_any_moment", "--nocapture"])
        .env("SEALOG_CUT_RECORDING", &batch.recording)
        .env("SEALOG_CUT_DIR", &batch.dir)
        .env("SEALOG_CUT_SEED", batch.seed.to_string())
        .env("SEALOG_CUT_POINTS", batch.cuts.to_string())
        .env("SEALOG_CUT_LIE", format!("{:?}", batch.lie))
        .output()
        .expect("this test can be started again");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut last_cut = "";
    let mut has_ended = false;
    for line in out.lines() {
        // The harness writes the test's name in front of what it prints first.
        let line = line.split_once("... ").map_or(line, |(_, rest)| rest);
        if line.starts_with("cut ") {
            last_cut = line;
        } else if line.starts_with("violation ") {
            summary.found.violations.push(line.to_owned());
        } else if line.starts_with("summary ") {
            summary.read(line);
            has_ended = true;
        }
    }
    if !has_ended || !output.status.success() {
        let end: Vec<&str> = err.lines().filter(|line| !line.is_empty()).take(12).collect();
        let end = end.join(" | ");
        summary.found.violations.push(format!("the process ended at {last_cut} of seed {}: {end}", batch.seed));
    }
}

/// One load at a time: each wants the cores.
static LOAD: Mutex<()> = Mutex::new(());

fn recorded(dir: &Path) -> PathBuf {
    let (data, recording) = (dir.join("data"), dir.join("recording"));
    std::fs::create_dir(&data).expect("a folder can be made");
    load::record(&data, &recording);
    std::fs::remove_dir_all(&data).expect("it can be removed");
    recording
}

/// How often the load came to what is rare.
fn coverage(recording: &Path) -> BTreeMap<&'static str, u64> {
    let recording = Recording::open(recording).expect("a recording");
    let rows = [
        "journal wraps",
        "idle markers",
        "segments made",
        "catalog deltas",
        "catalog snapshots",
        "removals",
        "metadata snapshots",
        "records of starts",
    ];
    let mut counts: BTreeMap<_, u64> = rows.into_iter().map(|row| (row, 0)).collect();
    let mut history = History::default();
    for event in recording.events() {
        if history.starting && matches!(event, Recorded::Begun { .. }) {
            *counts.get_mut("records of starts").expect("a row") += 1;
        }
        let row = match event {
            Recorded::Note(note) => {
                history.note(note);
                continue;
            }
            Recorded::Ended(_) => continue,
            Recorded::Begun { act, .. } => match act {
                Act::Write { file: DataFile::Journal { .. }, durable: false, .. } => "idle markers",
                Act::Write { file: DataFile::Journal { file: 0, .. }, position: 0, .. } => "journal wraps",
                Act::Rename { file: DataFile::Segment { .. } } => "segments made",
                Act::Rename { file: DataFile::CatalogDelta { .. } } => "catalog deltas",
                Act::Rename { file: DataFile::CatalogSnapshot { .. } } => "catalog snapshots",
                Act::Rename { file: DataFile::MetadataSnapshot { .. } } => "metadata snapshots",
                Act::Remove { .. } => "removals",
                _ => continue,
            },
        };
        *counts.get_mut(row).expect("a row") += 1;
    }
    counts
}

fn is_covered(coverage: &BTreeMap<&'static str, u64>) -> bool {
    coverage.values().all(|count| *count > 0)
}

#[test]
fn what_was_acknowledged_is_there_after_a_power_cut_at_any_moment() {
    if let Some(batch) = task() {
        return println!("{}", run(&batch).line());
    }
    let _alone = LOAD.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = folder();
    let recording = recorded(dir.path());
    let (cuts, seed) = (number("SEALOG_CUT_POINTS", CUTS), number("SEALOG_CUT_SEED", 1));
    let mut summary = Summary::default();
    let mut left = cuts;
    for batch in 0.. {
        let cuts = left.min(BATCH);
        if cuts == 0 {
            break;
        }
        left -= cuts;
        let (recording, dir, seed) = (recording.clone(), dir.path().to_owned(), seed << 20 | batch);
        spawn(&Batch { recording, dir, seed, cuts, lie: Lie::None }, &mut summary);
        println!("{}", summary.line());
    }
    println!("{}", words(&summary, &recording));
    let coverage = coverage(&recording);
    println!("{coverage:?}");
    assert!(summary.found.violations.is_empty(), "{:#?}", summary.found.violations);
    assert_eq!(summary.cuts, cuts);
    assert!(is_covered(&coverage), "the load did not come to all that it is for: {coverage:?}");
    assert!(summary.found.acknowledged > 0 && summary.second_cuts > 0, "there was something to check");
}

fn words(summary: &Summary, recording: &Path) -> String {
    let recording = Recording::open(recording).expect("a recording");
    let Findings { acknowledged, records, unacknowledged, gaps, gap_records, violations } = &summary.found;
    format!(
        "timeline of {} events; {} cuts and {} second cuts within a start after one; acknowledged batches checked: {acknowledged}; \
         records read back: {records}; batches kept though not acknowledged: {unacknowledged}; gaps: {gaps} with at most {gap_records} \
         records; violations: {}",
        recording.len(),
        summary.cuts,
        summary.second_cuts,
        violations.len()
    )
}

#[test]
fn syncs_that_do_nothing_are_noticed_whichever_they_are() {
    let _alone = LOAD.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = folder();
    let recording = recorded(dir.path());
    for lie in Lie::ALL {
        let mut summary = Summary::default();
        let (recording, dir, cuts) = (recording.clone(), dir.path().to_owned(), CUTS_OF_A_LIE);
        spawn(&Batch { recording, dir, seed: 7, cuts, lie }, &mut summary);
        println!(
            "{lie:?}: {} violations, the first: {:?}",
            summary.found.violations.len(),
            summary.found.violations.first()
        );
        assert!(!summary.found.violations.is_empty(), "{lie:?}: nobody noticed");
    }
}
