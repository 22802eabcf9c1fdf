//! What a probe found: data for programs, words for people.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::kernel::{KernelVersion, LEAST_KERNEL};
use crate::types::limits::BLOCK;

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Kernel,
    IoUring,
    LockedMemory,
    DataDirectory,
    FileSystem,
    DirectIo,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kernel => "kernel",
            Self::IoUring => "io_uring",
            Self::LockedMemory => "locked memory",
            Self::DataDirectory => "data directory",
            Self::FileSystem => "file system",
            Self::DirectIo => "direct I/O",
        })
    }
}

/// Something that keeps this host from running Sealog.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Wrong {
    #[error("Linux {found} is older than {LEAST_KERNEL}")]
    KernelTooOld { found: KernelVersion },
    #[error("the kernel's version cannot be read from its release name")]
    KernelUnknown,
    #[error("the kernel has no io_uring")]
    IoUringAbsent,
    #[error("io_uring is switched off: kernel.io_uring_disabled is {setting}")]
    IoUringDisabled { setting: u8 },
    #[error("io_uring is forbidden to this process, by a seccomp filter or a security module")]
    IoUringForbidden,
    #[error("a ring cannot be set up: {}", io::Error::from_raw_os_error(*errno))]
    IoUringFailed { errno: i32 },
    #[error("io_uring lacks {}", missing.join(", "))]
    OperationsMissing { missing: Vec<&'static str> },
    #[error("{needed} bytes of memory must be locked for {shards} shards, {limit} are allowed")]
    LockedMemory { limit: u64, needed: u64, shards: u16 },
    #[error("a file cannot be made in {}: {}", path.display(), io::Error::from_raw_os_error(*errno))]
    DataDirectory { path: PathBuf, errno: i32 },
    #[error("it is in memory ({name}): nothing there outlives the machine")]
    FileSystemInMemory { name: &'static str },
    #[error("the file system cannot be asked: {}", io::Error::from_raw_os_error(*errno))]
    FileSystemUnknown { errno: i32 },
    #[error("a file cannot be opened for direct I/O: {}", io::Error::from_raw_os_error(*errno))]
    NoDirectIo { errno: i32 },
    #[error("a block cannot be written and read back: {}", io::Error::from_raw_os_error(*errno))]
    DirectIoFailed { errno: i32 },
    #[error("a block that was written reads back otherwise")]
    DirectIoLies,
    #[error(
        "direct I/O must be aligned to {memory} bytes in memory and {offset} in the file; Sealog's block is {BLOCK}"
    )]
    DirectIoAlignment { memory: u32, offset: u32 },
}

impl Wrong {
    /// How to mend it, for a person.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::KernelTooOld { .. } | Self::KernelUnknown => "run a newer kernel, or this machine's image with one",
            Self::IoUringAbsent => "run a kernel built with CONFIG_IO_URING",
            Self::IoUringDisabled { .. } => {
                "sysctl kernel.io_uring_disabled=0, or 1 with this user in the group kernel.io_uring_group"
            }
            Self::IoUringForbidden => {
                "in a container, allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile; \
                 under systemd, in SystemCallFilter"
            }
            Self::IoUringFailed { errno: libc::ENOMEM } => {
                "raise the limit of locked memory (ulimit -l), or free memory"
            }
            Self::IoUringFailed { .. } => "look at the kernel's log; nothing here is known to cause it",
            Self::OperationsMissing { .. } => "run a newer kernel, or lift what restricts its io_uring",
            Self::LockedMemory { .. } => {
                "raise the hard limit: LimitMEMLOCK=infinity (systemd), --ulimit memlock=-1 (containers), memlock in \
                 /etc/security/limits.conf (logins); or run fewer shards"
            }
            Self::DataDirectory { errno: libc::ENOENT, .. } => "make the directory, or name another",
            Self::DataDirectory { errno: libc::EACCES | libc::EPERM, .. } => {
                "give the directory to the user that runs Sealog"
            }
            Self::DataDirectory { errno: libc::EROFS, .. } => "mount the file system for writing",
            Self::DataDirectory { errno: libc::ENOSPC | libc::EDQUOT, .. } => "make room on the file system",
            Self::DataDirectory { .. } | Self::FileSystemUnknown { .. } => {
                "look at the file system and the kernel's log"
            }
            Self::FileSystemInMemory { .. } => "put the data directory on a disk",
            Self::NoDirectIo { .. } => "put the data directory on ext4 or xfs",
            Self::DirectIoFailed { .. } => "look at the disk and the kernel's log",
            Self::DirectIoLies => "replace the disk, or whatever stands between it and the file system",
            Self::DirectIoAlignment { .. } => "use a disk or file system with blocks of 4096 bytes or less",
        }
    }
}

/// One thing looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub what: Subject,
    /// `None`: as it should be.
    pub wrong: Option<Wrong>,
}

impl Finding {
    /// How to mend what is wrong.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        self.wrong.as_ref().map(Wrong::remedy)
    }
}

/// Everything looked at, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProbeReport {
    pub findings: Vec<Finding>,
}

impl ProbeReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.findings.iter().all(|finding| finding.wrong.is_none())
    }

    pub(super) fn add<T>(&mut self, what: Subject, outcome: Result<T, Wrong>) -> Option<T> {
        match outcome {
            Ok(fact) => {
                self.findings.push(Finding { what, wrong: None });
                Some(fact)
            }
            Err(wrong) => {
                self.findings.push(Finding { what, wrong: Some(wrong) });
                None
            }
        }
    }
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, Finding { what, wrong }) in self.findings.iter().enumerate() {
            let separator = if line == 0 { "" } else { "\n" };
            match wrong {
                None => write!(f, "{separator}{what:<14}  ok")?,
                Some(wrong) => write!(f, "{separator}{what:<14}  {wrong}\n{:<14}  to mend it: {}", "", wrong.remedy())?,
            }
        }
        Ok(())
    }
}

/// This host cannot run Sealog.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("this host is not fit\n{report}")]
pub struct Unfit {
    pub report: ProbeReport,
}

impl Unfit {
    /// All that is wrong.
    pub fn wrong(&self) -> impl Iterator<Item = &Wrong> {
        self.report.findings.iter().filter_map(|finding| finding.wrong.as_ref())
    }
}
