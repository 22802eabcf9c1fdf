//! Proves that the simulator finds what it is there to find: each mutant is a patch that breaks one promise, applied to a copy of
//! the tree, built, and run until a seed fails.
//!
//! ```text
//! engine/sim/mutants/NAME.patch       first lines: what is broken; then a unified diff against the root
//! target/mutants/tree                 the copy, the same for all, so that a build reuses the last one
//! target/mutants/build                its target folder
//! ```
//! A patch whose first lines have a line `Seeds: beyond` breaks what is promised of a damaged disk: its seeds are all of those faults.
//! A mutant that no seed of the first [`SEEDS`] finds fails the proof, and so does a patch that does not apply.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::str::FromStr;

use thiserror::Error;

/// Seeds within which a mutant must be found.
pub const SEEDS: u64 = 200;

/// The line of a patch by which its seeds are those of a damaged disk.
const BEYOND: &str = "Seeds: beyond";

/// Which mutants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    /// Those whose files differ from the main branch's.
    Changed,
    /// The `N`-th five, counted round.
    Rotate(u64),
    Named(Vec<String>),
}

impl FromStr for Which {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once(':') {
            Some(("rotate", number)) => Self::Rotate(number.parse()?),
            Some(_) | None if text == "all" => Self::All,
            Some(_) | None if text == "changed" => Self::Changed,
            Some(_) | None => Self::Named(text.split(',').map(str::to_owned).collect()),
        })
    }
}

/// The proof cannot be run.
#[derive(Debug, Error)]
pub enum ProveError {
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("there is no mutant {name}")]
    Unknown { name: String },
    #[error("{what} failed:\n{output}")]
    Tool { what: &'static str, output: String },
}

/// One mutant.
struct Mutant {
    name: String,
    patch: PathBuf,
    /// Files that it changes.
    files: BTreeSet<String>,
    /// It shows on a damaged disk only.
    is_beyond: bool,
}

/// How one ended.
enum Verdict {
    Found {
        how: String,
    },
    NotFound,
    /// The patch does not apply, or the mutant does not compile, or it cannot run.
    Stale {
        why: String,
    },
}

/// The root of the tree that the driver is run in: a target folder may be shared by several.
fn root() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let found = here.ancestors().find(|folder| folder.join("engine/sim/mutants").is_dir());
    found.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), Path::to_path_buf)
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ProveError {
    let path = path.to_owned();
    move |source| ProveError::Io { what, path, source }
}

/// Runs the proof: each mutant runs while the next one is built. Returns whether every mutant was found.
///
/// # Errors
/// It cannot be run.
pub fn prove(which: &Which) -> Result<bool, ProveError> {
    let mutants = choose(all()?, which)?;
    println!("{} mutants", mutants.len());
    let tree = root().join("target/mutants/tree");
    let mut proved = true;
    let mut running = None;
    for mutant in &mutants {
        let built = build(mutant, &tree)?;
        if let Some((name, child)) = running.take() {
            proved &= tell(name, &judge(child)?);
        }
        match built {
            Ok(program) => running = Some((&mutant.name, start(&program, mutant.is_beyond)?)),
            Err(stale) => proved &= tell(&mutant.name, &stale),
        }
    }
    if let Some((name, child)) = running {
        proved &= tell(name, &judge(child)?);
    }
    Ok(proved)
}

/// Prints how a mutant ended. Returns whether it was found.
fn tell(name: &str, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Found { how } => println!("{name:<44} found: {how}"),
        Verdict::NotFound => println!("{name:<44} NOT FOUND within {SEEDS} seeds"),
        Verdict::Stale { why } => println!("{name:<44} STALE: {why}"),
    }
    matches!(verdict, Verdict::Found { .. })
}

fn all() -> Result<Vec<Mutant>, ProveError> {
    let folder = root().join("engine/sim/mutants");
    let mut mutants = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(io("list", &folder))? {
        let patch = entry.map_err(io("list", &folder))?.path();
        if patch.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let text = std::fs::read_to_string(&patch).map_err(io("read", &patch))?;
        let name = patch.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(str::to_owned).collect();
        let is_beyond = text.lines().take_while(|line| !line.starts_with("diff ")).any(|line| line == BEYOND);
        mutants.push(Mutant { name, patch, files, is_beyond });
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

fn choose(all: Vec<Mutant>, which: &Which) -> Result<Vec<Mutant>, ProveError> {
    const FIVE: u64 = 5;
    Ok(match which {
        Which::All => all,
        Which::Rotate(number) => {
            let count = all.len().max(1) as u64;
            let chosen: BTreeSet<u64> = (0..FIVE.min(count)).map(|n| (number * FIVE + n) % count).collect();
            (0u64..).zip(all).filter(|(n, _)| chosen.contains(n)).map(|(_, mutant)| mutant).collect()
        }
        Which::Changed => {
            let changed =
                run("git diff", Command::new("git").args(["diff", "--name-only", "main"]).current_dir(root()))?;
            let changed: BTreeSet<String> = changed.lines().map(str::to_owned).collect();
            all.into_iter().filter(|mutant| !mutant.files.is_disjoint(&changed)).collect()
        }
        Which::Named(names) => {
            for name in names {
                if !all.iter().any(|mutant| mutant.name == *name) {
                    return Err(ProveError::Unknown { name: name.clone() });
                }
            }
            all.into_iter().filter(|mutant| names.contains(&mutant.name)).collect()
        }
    })
}

fn run(what: &'static str, command: &mut Command) -> Result<String, ProveError> {
    let output = command.output().map_err(io("run", Path::new(what)))?;
    if !output.status.success() {
        return Err(ProveError::Tool { what, output: String::from_utf8_lossy(&output.stderr).into_owned() });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes the copy the same as the tree is now. What is the same is not written, so that little is built anew.
fn copy_tree(tree: &Path) -> Result<(), ProveError> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let listed = run("git ls-files", &mut list)?;
    let mut wanted = BTreeSet::new();
    for name in listed.lines() {
        let (from, to) = (root().join(name), tree.join(name));
        // A file that is deleted and not yet committed is still listed.
        let Ok(bytes) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).ok().is_none_or(|there| there != bytes) {
            let folder = to.parent().unwrap_or(tree);
            std::fs::create_dir_all(folder).map_err(io("make", folder))?;
            std::fs::write(&to, bytes).map_err(io("write", &to))?;
        }
        wanted.insert(to);
    }
    remove_others(tree, &wanted)
}

fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<(), ProveError> {
    for entry in std::fs::read_dir(folder).map_err(io("list", folder))? {
        let path = entry.map_err(io("list", folder))?.path();
        if path.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            std::fs::remove_file(&path).map_err(io("remove", &path))?;
        }
    }
    Ok(())
}

/// What is built anew for each mutant is one crate of many functions of which one differs: an incremental build at a low level is done
/// in a fraction of the time, and few seeds are needed to find a mutant. What others wrote is built once, at the level of the profile.
const QUICK_BUILD: [(&str, &str); 4] = [
    ("CARGO_PROFILE_SIM_INCREMENTAL", "true"),
    ("CARGO_PROFILE_SIM_CODEGEN_UNITS", "64"),
    ("CARGO_PROFILE_SIM_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_SIM_DEBUG", "0"),
];

/// Applies a mutant to the copy and builds it. Returns its program, or why there is none.
fn build(mutant: &Mutant, tree: &Path) -> Result<Result<PathBuf, Verdict>, ProveError> {
    copy_tree(tree)?;
    let patched = Command::new("patch")
        .args(["-p1", "--fuzz=0", "--no-backup-if-mismatch", "-i"])
        .arg(&mutant.patch)
        .current_dir(tree)
        .output()
        .map_err(io("run", Path::new("patch")))?;
    if !patched.status.success() {
        return Ok(Err(Verdict::Stale { why: text(&patched) }));
    }
    let target = tree.with_file_name("build");
    let built = Command::new("cargo")
        .args(["build", "--quiet", "--offline", "--profile", "sim", "-p", "sealog-sim"])
        .args(["--config", "profile.sim.package.\"*\".opt-level=3"])
        .env("CARGO_TARGET_DIR", &target)
        .envs(QUICK_BUILD)
        .current_dir(tree)
        .output()
        .map_err(io("run", Path::new("cargo")))?;
    if !built.status.success() {
        return Ok(Err(Verdict::Stale { why: text(&built) }));
    }
    // It runs while the next one is built, under a name that no build writes to.
    let (program, own) = (target.join("sim/sealog-sim"), target.join(format!("mutant-{}", mutant.name)));
    std::fs::copy(&program, &own).map_err(io("copy", &program))?;
    Ok(Ok(own))
}

fn start(program: &Path, is_beyond: bool) -> Result<(PathBuf, Child), ProveError> {
    let mode: &[&str] = if is_beyond { &["--mode", "beyond"] } else { &[] };
    let child = Command::new(program)
        .args(["--allow-zero-rows", "--seeds", &format!("0..{SEEDS}")])
        .args(mode)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io("run", program))?;
    Ok((program.to_owned(), child))
}

/// Waits for a mutant's end.
fn judge((program, child): (PathBuf, Child)) -> Result<Verdict, ProveError> {
    let ran = child.wait_with_output().map_err(io("run", &program))?;
    std::fs::remove_file(&program).map_err(io("remove", &program))?;
    if ran.status.success() {
        return Ok(Verdict::NotFound);
    }
    let all = text(&ran);
    let how =
        all.lines().find(|line| line.starts_with("seed ") && (line.contains("failed") || line.contains("panicked")));
    Ok(match how {
        Some(how) => Verdict::Found { how: how.chars().take(160).collect() },
        None => Verdict::Stale { why: format!("it ended with {}, and no seed had failed:\n{all}", ran.status) },
    })
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(names: &[&str]) -> Vec<Mutant> {
        let mutant = |name: &&str| Mutant {
            name: (*name).to_owned(),
            patch: PathBuf::new(),
            files: BTreeSet::from([format!("{name}.rs")]),
            is_beyond: false,
        };
        names.iter().map(mutant).collect()
    }

    fn chosen(names: &[&str], which: &Which) -> Vec<String> {
        choose(mutants(names), which).unwrap().into_iter().map(|mutant| mutant.name).collect()
    }

    #[test]
    fn a_rotation_comes_to_every_mutant() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(chosen(&names, &Which::Rotate(0)), ["a", "b", "c", "d", "e"]);
        assert_eq!(chosen(&names, &Which::Rotate(1)), ["a", "b", "c", "f", "g"]);
        assert_eq!(chosen(&["a", "b"], &Which::Rotate(9)), ["a", "b"]);
    }

    #[test]
    fn a_mutant_that_is_not_there_is_an_error() {
        assert!(matches!(
            choose(mutants(&["a"]), &Which::Named(vec!["z".to_owned()])),
            Err(ProveError::Unknown { .. })
        ));
        assert_eq!("rotate:3".parse::<Which>(), Ok(Which::Rotate(3)));
        assert_eq!("all".parse::<Which>(), Ok(Which::All));
        assert_eq!("x,y".parse::<Which>(), Ok(Which::Named(vec!["x".to_owned(), "y".to_owned()])));
    }
}
