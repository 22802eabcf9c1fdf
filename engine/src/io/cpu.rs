//! Which cores a thread may run on, and how much of their time the hypervisor took.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on one core.
///
/// # Errors
/// There is no such core, or it is not allowed to this process.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}

/// The cores of the process, as its main thread has them. A thread started by a pinned one inherits the pin; with this it can
/// be let go again.
///
/// # Errors
/// The kernel's.
pub fn allowed() -> io::Result<CpuSet> {
    Ok(sched_getaffinity(Some(rustix::process::getpid()))?)
}

/// The same as a list, lowest first.
///
/// # Errors
/// The kernel's.
pub fn list() -> io::Result<Vec<usize>> {
    let cpus = allowed()?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).collect())
}

/// Lets the calling thread run on every core of the process.
///
/// # Errors
/// The kernel's.
pub fn unpin() -> io::Result<()> {
    Ok(sched_setaffinity(None, &allowed()?)?)
}

/// The lowest core that this thread may run on.
///
/// # Errors
/// The kernel's.
pub fn first() -> io::Result<usize> {
    let cpus = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).find(|cpu| cpus.is_set(*cpu)).expect("a running thread has a core"))
}

/// Hundredths of a second that the hypervisor gave to others while this machine wanted to run, over all cores, since boot.
/// `None` if `/proc/stat` does not tell.
#[must_use]
pub fn steal_ticks() -> Option<u64> {
    steal_of(&fs::read_to_string("/proc/stat").ok()?)
}

/// Field 8 of the first line: cpu user nice system idle iowait irq softirq *steal*.
fn steal_of(stat: &str) -> Option<u64> {
    let mut fields = stat.lines().next()?.split_ascii_whitespace();
    (fields.next()? == "cpu").then_some(())?;
    fields.nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_figure_of_the_first_line() {
        assert_eq!(steal_of("cpu  10 20 30 40 50 60 70 81 90 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"), Some(81));
        assert_eq!(steal_of("cpu 1 2 3"), None);
        assert_eq!(steal_of("intr 1 2 3 4 5 6 7 8 9"), None);
        assert!(steal_ticks().is_some(), "Linux tells it since 2.6.11");
    }

    #[test]
    fn a_thread_started_by_a_pinned_one_can_be_let_go() {
        std::thread::spawn(|| {
            pin(first().expect("a core")).expect("pinning to a core that this thread has");
            std::thread::spawn(|| {
                assert_eq!(sched_getaffinity(None).expect("affinity").count(), 1);
                unpin().expect("unpinning");
                let main = allowed().expect("affinity");
                assert_eq!(sched_getaffinity(None).expect("affinity").count(), main.count());
            })
            .join()
            .expect("inner thread");
        })
        .join()
        .expect("outer thread");
        assert!(pin(CpuSet::MAX_CPU).is_err());
    }
}
