//! Is this host fit? Asked before glommio is touched, which on a host without io_uring panics, prints or exits.
//!
//! Everything is looked at even when something is wrong already, so that one start tells all that must be mended. There is no
//! second way to do disk or network work, so an unfit host is refused (exit 69) rather than served slowly: `linux-only.md` says
//! why.
//!
//! **Invariant**: each check tries the thing itself where it can (a ring is set up, a block is written and read back), and asks
//! for versions only where it cannot.

mod data_dir;
mod kernel;
mod memory;
mod report;

use std::path::Path;

pub use data_dir::{DirectIo, FileSystem};
pub use kernel::KernelVersion;
pub use memory::{IO_MEMORY_BYTES, MemoryLock};
pub use report::{Finding, ProbeReport, Subject, Unfit, Wrong};

/// What is known of a fit host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostFacts {
    pub kernel: KernelVersion,
    pub memory_lock: MemoryLock,
    pub file_system: FileSystem,
    pub direct_io: DirectIo,
    /// All that was looked at.
    pub report: ProbeReport,
}

/// Looks whether this host can run so many shards on this data directory, which is there. Raises the soft limit of locked memory
/// to the hard one.
///
/// # Errors
/// Something is wrong: all of it, each with how to mend it.
pub fn probe(data_dir: &Path, shards: u16) -> Result<HostFacts, Unfit> {
    let mut report = ProbeReport::default();
    let kernel = report.add(Subject::Kernel, kernel::version());
    report.add(Subject::IoUring, kernel::io_uring());
    let memory_lock = report.add(Subject::LockedMemory, memory::check(shards));
    let trial = report.add(Subject::DataDirectory, data_dir::trial_file(data_dir));
    let (mut file_system, mut direct_io) = (None, None);
    if let Some(trial) = &trial {
        file_system = report.add(Subject::FileSystem, data_dir::file_system(trial));
        direct_io = report.add(Subject::DirectIo, data_dir::direct_io(trial));
    }
    match (kernel, memory_lock, file_system, direct_io) {
        (Some(kernel), Some(memory_lock), Some(file_system), Some(direct_io)) if report.is_fit() => {
            Ok(HostFacts { kernel, memory_lock, file_system, direct_io, report })
        }
        _ => Err(Unfit { report }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::io::testing::disk_dir;

    #[test]
    fn a_host_that_runs_these_tests_is_fit_and_nothing_is_left_in_its_data_directory() {
        let Some(dir) = disk_dir() else { return };
        let before = std::fs::read_dir(dir.path()).expect("list").count();
        let facts = match probe(dir.path(), 1) {
            Ok(facts) => facts,
            Err(unfit) => {
                writeln!(std::io::stderr(), "SKIPPED: {unfit}").expect("standard error");
                return;
            }
        };
        assert!(facts.report.findings.iter().all(|finding| finding.wrong.is_none()));
        assert_eq!(facts.report.findings.len(), 6, "{}", facts.report);
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), before);
    }

    #[test]
    fn a_directory_that_is_not_there_is_what_is_wrong_and_the_rest_is_still_looked_at() {
        let absent = Path::new("/nonexistent/data");
        let unfit = probe(absent, 1).expect_err("no such directory");
        assert!(unfit.wrong().any(|wrong| *wrong == Wrong::DataDirectory { path: absent.into(), errno: libc::ENOENT }));
        let looked_at: Vec<_> = unfit.report.findings.iter().map(|finding| finding.what).collect();
        assert_eq!(looked_at, [Subject::Kernel, Subject::IoUring, Subject::LockedMemory, Subject::DataDirectory]);
        let text = unfit.to_string();
        assert!(text.contains("/nonexistent/data") && text.contains("to mend it: "), "{text}");
    }

    #[test]
    fn a_directory_in_memory_is_refused() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            writeln!(std::io::stderr(), "SKIPPED: no /dev/shm here").expect("standard error");
            return;
        };
        let trial = data_dir::trial_file(dir.path()).expect("a file");
        if data_dir::file_system(&trial).is_ok() {
            writeln!(std::io::stderr(), "SKIPPED: /dev/shm is on a disk here").expect("standard error");
            return;
        }
        let unfit = probe(dir.path(), 1).expect_err("memory is not a disk");
        assert!(unfit.wrong().any(|wrong| matches!(wrong, Wrong::FileSystemInMemory { .. })), "{unfit}");
    }
}
