//! The driver: runs seeds, replays one, runs scripts, and proves the simulator by mutants.
//!
//! Exit code 0: nothing was found (or, with `--mutants`, every mutant was). 1: something was. 2: it cannot run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sealog_sim::check::Mode;
use sealog_sim::coverage::Coverage;
use sealog_sim::mutants::{self, Which};
use sealog_sim::scenario::{Options, Report, run};
use sealog_sim::script;

/// Runs a node of Sealog and its clients in virtual time, from seeds, and holds it to its promises.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// Run this seed, and print its last events if it fails.
    #[arg(long)]
    seed: Option<u64>,
    /// Run these seeds: `A..B`, B exclusive.
    #[arg(long, value_parser = parse_range)]
    seeds: Option<Range<u64>>,
    /// Run fresh seeds for so many minutes of this process's CPU time.
    #[arg(long)]
    minutes: Option<f64>,
    /// Run a script; may be given more than once.
    #[arg(long)]
    script: Vec<PathBuf>,
    /// Prove the simulator by mutants: `all`, `changed`, `rotate:N`, or names, comma-separated.
    #[arg(long)]
    mutants: Option<Which>,
    /// Events of a seed, at least.
    #[arg(long, default_value_t = 20_000)]
    events_min: u64,
    /// Only faults that the model survives, or only those beyond it; by default each seed draws.
    #[arg(long)]
    mode: Option<ModeArgument>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Print one line a seed.
    #[arg(long)]
    verbose: bool,
    /// Do not fail for rows of the coverage table that are zero.
    #[arg(long)]
    allow_zero_rows: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum ModeArgument {
    Within,
    Beyond,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("seeds are given as A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options {
        events_min: arguments.events_min,
        mode: arguments.mode.map(|mode| match mode {
            ModeArgument::Within => Mode::Within,
            ModeArgument::Beyond => Mode::Beyond,
        }),
        loud: arguments.trace,
        keeps: arguments.seed.is_some(),
        ..Options::default()
    };
    let outcome = if let Some(which) = &arguments.mutants {
        mutants::prove(which)
    } else if !arguments.script.is_empty() {
        Ok(arguments.script.iter().all(|path| script::run_file(path)))
    } else if let Some(seed) = arguments.seed {
        Ok(run_one(seed, &options))
    } else {
        Ok(run_many(&arguments, &options))
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Lets a panic in the core say which seed it was.
fn announce(seed: u64) {
    std::panic::set_hook(Box::new(move |panic| {
        eprintln!("seed {seed} panicked: {panic}");
        eprintln!("replay: sealog-sim --seed {seed}");
        eprintln!("{}", std::backtrace::Backtrace::capture());
    }));
}

fn run_one(seed: u64, options: &Options) -> bool {
    println!("seed {seed}");
    announce(seed);
    let report = run(seed, options);
    print_report(&report);
    if report.violation.is_some() {
        print!("{}", report.last);
    }
    print_failure(&report)
}

fn print_report(report: &Report) {
    let Report { seed, mode, events, digest, crashes, records, stored, .. } = report;
    let ms = report.virtual_ns / 1_000_000;
    println!(
        "seed {seed}: {mode:?}, {events} events in {ms} ms, {crashes} crashes, {records} records, {stored} stored, \
         digest {digest:016x}"
    );
}

/// Whether there is none.
fn print_failure(report: &Report) -> bool {
    match &report.violation {
        None => true,
        Some(violation) => {
            println!("seed {} failed: {violation}", report.seed);
            println!("replay: sealog-sim --seed {}", report.seed);
            false
        }
    }
}

/// CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = schedstat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let seconds = ns as f64 / 1e9;
    seconds
}

/// A seed that nobody has run: from the wall clock.
fn fresh_seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the driver, not the simulation")]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs()) * 1_000_000
}

/// What the node's answers were: a run whose answers are refusals has done nothing.
fn print_answers(coverage: &Coverage) {
    let share = |count: u64, of: u64| count * 100 / of.max(1);
    for group in ["answer", "refusal"] {
        let rows = coverage.rows_of(group);
        let all = rows.iter().map(|row| row.1).sum::<u64>();
        let mut rows: Vec<_> = rows.iter().filter(|row| row.1 > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.1));
        let words: Vec<_> =
            rows.iter().map(|(name, count)| format!("{name} {count} ({}%)", share(*count, all))).collect();
        println!("{group}s: {all}: {}", words.join(", "));
    }
}

fn run_many(arguments: &Arguments, options: &Options) -> bool {
    let first = fresh_seed();
    let seeds = arguments.seeds.clone().unwrap_or(first..u64::MAX);
    let limit = match (&arguments.seeds, arguments.minutes) {
        (_, Some(minutes)) => minutes * 60.0,
        (Some(_), None) => f64::INFINITY,
        (None, None) => 60.0,
    };
    println!("seeds from {}", seeds.start);
    let (mut events, mut count, mut refused) = (0, 0u64, 0u64);
    let mut coverage = Coverage::default();
    let mut modes: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        if cpu_seconds() >= limit {
            break;
        }
        announce(seed);
        let report = run(seed, options);
        if arguments.verbose {
            print_report(&report);
        }
        if !print_failure(&report) {
            return false;
        }
        events += report.events;
        count += 1;
        refused += u64::from(report.refused_to_start);
        *modes.entry(if report.mode == Mode::Within { "within" } else { "beyond" }).or_default() += 1;
        coverage.add(&report.coverage);
    }
    let seconds = cpu_seconds();
    print!("{coverage}");
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = events as f64 / seconds;
    println!("{count} seeds {modes:?} ({refused} refused to start on a damaged disk), {events} events");
    println!("{seconds:.1} s of CPU time, {rate:.0} events/s");
    print_answers(&coverage);
    let zero = coverage.zero_rows();
    for (group, row) in &zero {
        println!("never: {group}: {row}");
    }
    zero.is_empty() || arguments.allow_zero_rows
}
