//! Is this host fit for these settings? What `doctor` prints and `serve` asks first, so that both say the same.
//!
//! The engine's probe tells what cannot work; here come what it found, and what would work badly. **Invariant**: nothing is left behind in
//! the data directory, and whatever is not as it should be comes with how to mend it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use sealog_bench::report::summary::Host;
use sealog_engine::io::cpu;
use sealog_engine::io::device::{self, WriteCache};
use sealog_engine::io::probe::{DirectIo, HostFacts, MemoryLock, Subject, Wrong, probe};
use serde::Serialize;

use super::config::Settings;

/// Fewer files than this are few connections.
const FILES_LEAST: u64 = 16_384;

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Ok,
    /// It works, badly.
    Warning,
    /// It cannot work.
    Wrong,
}

/// One thing looked at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) subject: String,
    pub(crate) state: State,
    pub(crate) found: String,
    /// How to mend it; always there when `state` is not ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// Everything looked at, in order.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fitness {
    pub(crate) data_dir: String,
    pub(crate) shards: u16,
    pub(crate) findings: Vec<Finding>,
}

/// Whether a data directory that is not there is made, as a daemon does, or looked for above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Absent {
    Make,
    LookAbove,
}

/// The host is not fit. Shows what is wrong, and leaves out what is not.
#[derive(Debug)]
pub(crate) struct Unfit(pub(crate) Fitness);

impl std::error::Error for Unfit {}

impl Finding {
    pub(crate) fn ok(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self { subject: subject.into(), state: State::Ok, found: found.into(), remedy: None }
    }

    pub(crate) fn warning(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), state: State::Warning, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn wrong(subject: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject: subject.into(), state: State::Wrong, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn of(subject: Subject, wrong: &Wrong) -> Self {
        Self::wrong(subject.to_string(), wrong.to_string(), wrong.remedy())
    }
}

impl Fitness {
    pub(crate) fn is_fit(&self) -> bool {
        self.findings.iter().all(|finding| finding.state != State::Wrong)
    }
}

/// Looks at this host. Raises the soft limit of locked memory to the hard one.
pub(crate) fn look(settings: &Settings, absent: Absent) -> Fitness {
    let shards = settings.engine.shards;
    let dir = &settings.data_dir;
    let made = if absent == Absent::Make { fs::create_dir_all(dir) } else { Ok(()) };
    let there = if absent == Absent::Make { dir.clone() } else { nearest_there(dir) };
    let mut findings = probed(&there, shards, made.err());
    if there != *dir {
        let found = format!("{} is not there yet: looked at {}", dir.display(), there.display());
        findings.push(Finding::ok("data directory", found));
    }
    findings.push(of_device(&there));
    findings.push(of_cores(shards, &settings.cpus));
    findings.extend(of_governor());
    findings.push(of_files());
    findings.extend(of_space(&there, settings));
    Fitness { data_dir: dir.display().to_string(), shards, findings }
}

/// The path, or the folder above it that is there.
pub(crate) fn nearest_there(dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    // A file in the way is there, and the probe says what is wrong with it.
    let there = absolute.ancestors().find(|path| path.symlink_metadata().is_ok()).map(Path::to_owned);
    if dir.exists() { dir.to_owned() } else { there.unwrap_or(absolute) }
}

fn probed(dir: &Path, shards: u16, not_made: Option<io::Error>) -> Vec<Finding> {
    match probe(dir, shards) {
        Ok(facts) => told(&facts),
        Err(unfit) => {
            let findings = unfit.report.findings.iter();
            let of = |what: Subject, wrong: Option<&Wrong>| match (what, wrong, &not_made) {
                (_, None, _) => Finding::ok(what.to_string(), "as it should be"),
                (Subject::DataDirectory, Some(Wrong::DataDirectory { path, errno }), Some(error)) => {
                    let errno = error.raw_os_error().unwrap_or(*errno);
                    Finding::of(what, &Wrong::DataDirectory { path: path.clone(), errno })
                }
                (_, Some(wrong), _) => Finding::of(what, wrong),
            };
            findings.map(|finding| of(finding.what, finding.wrong.as_ref())).collect()
        }
    }
}

/// What a fit host has.
fn told(facts: &HostFacts) -> Vec<Finding> {
    let HostFacts { kernel, memory_lock, file_system, direct_io, .. } = facts;
    let memory = match memory_lock {
        MemoryLock { is_counted: false, .. } => "not counted for this user".to_owned(),
        MemoryLock { limit: None, .. } => "no limit".to_owned(),
        MemoryLock { limit: Some(bytes), .. } => format!("up to {bytes} bytes"),
    };
    let system = file_system.name.map_or_else(|| format!("number {:#x}", file_system.magic), str::to_owned);
    let direct = match direct_io {
        DirectIo { memory_align: Some(memory), offset_align: Some(offset) } => {
            format!("aligned to {memory} bytes in memory and {offset} in the file")
        }
        DirectIo { .. } => "works; the kernel does not tell its alignment".to_owned(),
    };
    let found = |subject: Subject| match subject {
        Subject::Kernel => format!("Linux {kernel}"),
        Subject::IoUring => "has every operation that is used".to_owned(),
        Subject::LockedMemory => memory.clone(),
        Subject::DataDirectory => "a file can be made".to_owned(),
        Subject::FileSystem => system.clone(),
        Subject::DirectIo => direct.clone(),
    };
    facts.report.findings.iter().map(|finding| Finding::ok(finding.what.to_string(), found(finding.what))).collect()
}

fn of_device(dir: &Path) -> Finding {
    let Some(name) = device::name(dir) else {
        return Finding::ok("device", "the kernel does not tell which it is");
    };
    let cache = match device::write_cache(dir) {
        Some(WriteCache::WriteBack) => "caches writes until a flush",
        Some(WriteCache::WriteThrough) => "says that a completed write is durable",
        None => "does not tell its cache",
    };
    let fua = match device::has_fua(dir) {
        Some(true) => ", can write one block through its cache (FUA)",
        Some(false) | None => "",
    };
    Finding::ok("device", format!("{name} {cache}{fua}"))
}

fn of_cores(shards: u16, wanted: &[usize]) -> Finding {
    let allowed = match cpu::list() {
        Ok(allowed) => allowed,
        Err(error) => return Finding::wrong("cores", format!("cannot be listed: {error}"), "look at the kernel's log"),
    };
    let list = |cores: &[usize]| cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let absent: Vec<usize> = wanted.iter().copied().filter(|core| !allowed.contains(core)).collect();
    let found = format!("{} for {shards} shards", list(&allowed));
    if !absent.is_empty() {
        let found = format!("core {} is not one that this process may use ({})", list(&absent), list(&allowed));
        return Finding::wrong(
            "cores",
            found,
            "name others in node.cpus, or allow these (taskset, AllowedCPUs, cpuset)",
        );
    }
    if allowed.len() < usize::from(shards) {
        let remedy = format!("run {} shards or fewer (node.shards)", allowed.len());
        return Finding::wrong("cores", format!("only {found}: each needs one of its own"), remedy);
    }
    Finding::ok("cores", found)
}

fn of_governor() -> Option<Finding> {
    let governor = Host::read().governor;
    match governor.as_str() {
        "none" => None,
        "powersave" | "conservative" | "ondemand" => Some(Finding::warning(
            "governor",
            format!("{governor}: a core that slept wakes up slow, and latency shows it"),
            "cpupower frequency-set --governor performance",
        )),
        _ => Some(Finding::ok("governor", governor)),
    }
}

fn of_files() -> Finding {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FILES_LEAST => Finding::warning(
            "open files",
            format!("at most {most}: so many connections less the files in use"),
            "raise the hard limit: LimitNOFILE=1048576 (systemd), --ulimit nofile=1048576 (containers)",
        ),
        Some(most) => Finding::ok("open files", format!("up to {most}")),
        None => Finding::ok("open files", "no limit"),
    }
}

/// Whether the journals of a new directory, or a segment of an old one, still fit.
fn of_space(dir: &Path, settings: &Settings) -> Option<Finding> {
    let space = rustix::fs::statvfs(dir).ok()?;
    let free = space.f_bavail * space.f_frsize;
    let engine = &settings.engine;
    let is_new = !dir.join("superblock.0").exists();
    let journals = u64::from(engine.shards) * u64::from(engine.journal_files) * engine.journal_file_bytes;
    let needed = if is_new { journals + 2 * engine.metadata_file_bytes } else { 0 } + engine.segment_bytes;
    if free >= needed {
        return Some(Finding::ok("free space", format!("{free} bytes")));
    }
    let what = if is_new { "the journals and a first segment need" } else { "the next segment needs" };
    Some(Finding::warning(
        "free space",
        format!("{free} bytes; {what} {needed}"),
        "make room on the file system, or set journal.size and segment.size lower",
    ))
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, state, found, remedy } = self;
        let state = match state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Wrong => "WRONG",
        };
        write!(f, "{subject:<14}  {state:<7}  {found}")?;
        match remedy {
            Some(remedy) => write!(f, "\n{:<25}to mend it: {remedy}", ""),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this host is not fit")?;
        for Finding { subject, found, remedy, .. } in self.0.findings.iter().filter(|f| f.state == State::Wrong) {
            write!(f, "\n  {subject}: {found}")?;
            if let Some(remedy) = remedy {
                write!(f, "\n    to mend it: {remedy}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(data_dir: PathBuf) -> Settings {
        let mut settings = Settings::default();
        settings.data_dir = data_dir;
        settings
    }

    #[test]
    fn a_directory_that_is_not_there_is_looked_for_above_and_not_made() {
        let dir = tempfile::tempdir().expect("a folder");
        let absent = dir.path().join("a/b");
        assert_eq!(nearest_there(&absent), dir.path());
        assert_eq!(nearest_there(dir.path()), dir.path());
        let settings = on(absent);
        let fitness = look(&settings, Absent::LookAbove);
        assert!(fitness.findings.iter().any(|f| f.found.contains("is not there yet")), "{fitness:?}");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_told_with_the_cause_of_that() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("written");
        let settings = on(file.join("data"));
        let fitness = look(&settings, Absent::Make);
        assert!(!fitness.is_fit());
        let told = Unfit(fitness).to_string();
        assert!(told.contains("Not a directory") && told.contains("to mend it: "), "{told}");
    }

    #[test]
    fn cores_must_be_enough_and_there() {
        let allowed = cpu::list().expect("cores");
        assert_eq!(of_cores(1, &[]).state, State::Ok);
        assert_eq!(of_cores(u16::MAX, &[]).state, State::Wrong);
        assert_eq!(of_cores(1, &allowed[..1]).state, State::Ok);
        let told = of_cores(1, &[60_000]);
        assert!(told.state == State::Wrong && told.found.contains("core 60000"), "{told:?}");
    }

    #[test]
    fn whatever_is_not_ok_says_how_to_mend_it() {
        let mut settings = on(PathBuf::from("/nonexistent/x"));
        settings.engine.shards = u16::MAX;
        for finding in look(&settings, Absent::LookAbove).findings {
            assert_eq!(finding.state != State::Ok, finding.remedy.is_some(), "{finding:?}");
        }
    }
}
