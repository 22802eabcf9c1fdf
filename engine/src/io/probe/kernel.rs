//! The kernel's version, and its io_uring with every operation that glommio or this crate submits.

use std::fmt;
use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};

use super::report::Wrong;

/// Major and minor number of a Linux release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelVersion {
    pub major: u16,
    pub minor: u16,
}

/// The oldest kernel with everything that is used, and still maintained.
pub(super) const LEAST_KERNEL: KernelVersion = KernelVersion { major: 5, minor: 15 };

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// glommio's own list, as it checks it when its first executor is made; then what our rings submit beyond it; then what both
/// need to end a wait.
const OPERATIONS: &[(u8, &str)] = &[
    (opcode::Nop::CODE, "NOP"),
    (opcode::Readv::CODE, "READV"),
    (opcode::Writev::CODE, "WRITEV"),
    (opcode::Fsync::CODE, "FSYNC"),
    (opcode::ReadFixed::CODE, "READ_FIXED"),
    (opcode::WriteFixed::CODE, "WRITE_FIXED"),
    (opcode::PollAdd::CODE, "POLL_ADD"),
    (opcode::PollRemove::CODE, "POLL_REMOVE"),
    (opcode::SendMsg::CODE, "SENDMSG"),
    (opcode::RecvMsg::CODE, "RECVMSG"),
    (opcode::Timeout::CODE, "TIMEOUT"),
    (opcode::TimeoutRemove::CODE, "TIMEOUT_REMOVE"),
    (opcode::Accept::CODE, "ACCEPT"),
    (opcode::LinkTimeout::CODE, "LINK_TIMEOUT"),
    (opcode::Connect::CODE, "CONNECT"),
    (opcode::Fallocate::CODE, "FALLOCATE"),
    (opcode::OpenAt::CODE, "OPENAT"),
    (opcode::Close::CODE, "CLOSE"),
    (opcode::Statx::CODE, "STATX"),
    (opcode::Read::CODE, "READ"),
    (opcode::Write::CODE, "WRITE"),
    (opcode::Send::CODE, "SEND"),
    (opcode::Recv::CODE, "RECV"),
    (opcode::UnlinkAt::CODE, "UNLINKAT"),
    (opcode::RenameAt::CODE, "RENAMEAT"),
    (opcode::MkDirAt::CODE, "MKDIRAT"),
    (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
];

/// This kernel's version, if it will do.
pub(super) fn version() -> Result<KernelVersion, Wrong> {
    judge_release(&rustix::system::uname().release().to_string_lossy())
}

fn judge_release(release: &str) -> Result<KernelVersion, Wrong> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return Err(Wrong::KernelUnknown) };
    let found = KernelVersion { major, minor };
    if found < LEAST_KERNEL { Err(Wrong::KernelTooOld { found }) } else { Ok(found) }
}

/// Sets up a ring and asks it what it can do.
pub(super) fn io_uring() -> Result<(), Wrong> {
    let disabled =
        fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok().and_then(|text| text.trim().parse().ok());
    let ring = IoUring::new(8).map_err(|error| judge_refusal(&error, disabled))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| judge_refusal(&error, disabled))?;
    judge_operations(|code| probe.is_supported(code))
}

fn judge_refusal(error: &io::Error, disabled: Option<u8>) -> Wrong {
    match (error.raw_os_error(), disabled) {
        (Some(libc::ENOSYS), _) => Wrong::IoUringAbsent,
        (Some(libc::EPERM | libc::EACCES), Some(setting @ 1..)) => Wrong::IoUringDisabled { setting },
        (Some(libc::EPERM | libc::EACCES), _) => Wrong::IoUringForbidden,
        (errno, _) => Wrong::IoUringFailed { errno: errno.unwrap_or(libc::EIO) },
    }
}

fn judge_operations(is_supported: impl Fn(u8) -> bool) -> Result<(), Wrong> {
    let missing: Vec<_> = OPERATIONS.iter().filter(|(code, _)| !is_supported(*code)).map(|(_, name)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(Wrong::OperationsMissing { missing }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_judged_by_its_first_two_numbers() {
        let version = |major, minor| KernelVersion { major, minor };
        assert_eq!(judge_release("6.18.44-cloud-7"), Ok(version(6, 18)));
        assert_eq!(judge_release("5.15.0-91-generic"), Ok(version(5, 15)));
        assert_eq!(judge_release("5.4.0"), Err(Wrong::KernelTooOld { found: version(5, 4) }));
        assert_eq!(judge_release("4.19-rc1"), Err(Wrong::KernelTooOld { found: version(4, 19) }));
        assert_eq!(judge_release("7.0-rc1+"), Ok(version(7, 0)));
        for odd in ["", "six", "6"] {
            assert_eq!(judge_release(odd), Err(Wrong::KernelUnknown), "{odd}");
        }
    }

    #[test]
    fn each_refusal_of_a_ring_has_its_own_cause() {
        let refused = |errno, disabled| judge_refusal(&io::Error::from_raw_os_error(errno), disabled);
        assert_eq!(refused(libc::ENOSYS, None), Wrong::IoUringAbsent);
        assert_eq!(refused(libc::EPERM, Some(2)), Wrong::IoUringDisabled { setting: 2 });
        assert_eq!(refused(libc::EPERM, Some(0)), Wrong::IoUringForbidden);
        assert_eq!(refused(libc::EPERM, None), Wrong::IoUringForbidden);
        assert_eq!(refused(libc::ENOMEM, Some(0)), Wrong::IoUringFailed { errno: libc::ENOMEM });
    }

    #[test]
    fn every_missing_operation_is_named() {
        assert_eq!(judge_operations(|_| true), Ok(()));
        let lacking = |code| code != opcode::RenameAt::CODE && code != opcode::Read::CODE;
        assert_eq!(judge_operations(lacking), Err(Wrong::OperationsMissing { missing: vec!["READ", "RENAMEAT"] }));
    }
}
