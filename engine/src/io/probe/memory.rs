//! Locked memory: glommio refuses an executor below 512 KiB, and registers its I/O memory with three rings, which for a user
//! without `CAP_IPC_LOCK` counts each time. Where that does not fit it goes on unregistered, slower and without a word.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::report::Wrong;

/// Bytes of I/O memory that an executor is to be given (glommio's `io_memory`, whose own default is ten times this).
pub const IO_MEMORY_BYTES: u64 = 1 << 20;

const EXECUTOR_BYTES_LEAST: u64 = 512 << 10;
const RINGS: u64 = 3;

/// How much memory this process may lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLock {
    /// Bytes, `None` for no limit.
    pub limit: Option<u64>,
    /// Whether the kernel counts at all for this process.
    pub is_counted: bool,
}

/// Raises the limit as far as this process may, and judges it for so many shards.
pub(super) fn check(shards: u16) -> Result<MemoryLock, Wrong> {
    let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
    // Refused only if the limit is lowered meanwhile; then what it was is judged.
    let raised = current != maximum && setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }).is_ok();
    let capable = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    judge(MemoryLock { limit: if raised { maximum } else { current }, is_counted: !capable }, shards)
}

fn judge(lock: MemoryLock, shards: u16) -> Result<MemoryLock, Wrong> {
    let needed = if lock.is_counted {
        u64::from(shards) * (EXECUTOR_BYTES_LEAST + RINGS * IO_MEMORY_BYTES)
    } else {
        EXECUTOR_BYTES_LEAST
    };
    match lock.limit {
        Some(limit) if limit < needed => Err(Wrong::LockedMemory { limit, needed, shards }),
        Some(_) | None => Ok(lock),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_by_shards_only_where_the_kernel_counts() {
        let judged = |limit, is_counted, shards| judge(MemoryLock { limit, is_counted }, shards);
        assert!(judged(None, true, 1000).is_ok());
        assert!(judged(Some(7 << 20), true, 2).is_ok());
        assert_eq!(
            judged(Some(8 << 20), true, 3),
            Err(Wrong::LockedMemory { limit: 8 << 20, needed: 3 * (7 << 19), shards: 3 })
        );
        assert!(judged(Some(512 << 10), false, 64).is_ok());
        assert!(judged(Some((512 << 10) - 1), false, 1).is_err(), "glommio asks this of everybody");
    }
}
