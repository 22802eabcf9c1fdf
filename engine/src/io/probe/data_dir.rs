//! The data directory: a file can be made there, it is on a disk, and direct I/O in blocks of ours works.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::ReadWriteFlags;

use super::report::Wrong;
use crate::io::store::{Opening, open_direct};
use crate::types::AlignedBuffer;
use crate::types::limits::BLOCK;

/// What the data directory lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// Its magic number, as of statfs(2).
    pub magic: u64,
    /// Its name, where known.
    pub name: Option<&'static str>,
}

/// How direct I/O must be aligned. Sealog's block serves both, whatever they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectIo {
    /// Bytes, or `None` if the kernel (before 6.1) or the file system does not tell.
    pub memory_align: Option<u32>,
    /// As above.
    pub offset_align: Option<u32>,
}

/// Names of file systems; those in memory are refused.
const FILE_SYSTEMS: &[(u64, &str, bool)] = &[
    (0xEF53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683E, "btrfs", false),
    (0xF2F5_2010, "f2fs", false),
    (0x2FC1_2FC1, "zfs", false),
    (0x794C_7630, "overlay", false),
    (0x6969, "nfs", false),
    (0x6573_5546, "fuse", false),
    (0x0102_1997, "9p", false),
    (0xFF53_4D42, "cifs", false),
    (0x0102_1994, "tmpfs", true),
    (0x8584_58F6, "ramfs", true),
];

/// A small file in the data directory, removed with this.
pub(super) struct Trial {
    path: PathBuf,
    file: OwnedFd,
}

impl Drop for Trial {
    fn drop(&mut self) {
        // One that cannot be removed does no harm: the store leaves its name out.
        let _ = fs::remove_file(&self.path);
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Makes the trial file.
pub(super) fn trial_file(data_dir: &Path) -> Result<Trial, Wrong> {
    let path = data_dir.join(format!(".probe-{}", std::process::id()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    match rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok(Trial { path, file }),
        Err(errno) => Err(Wrong::DataDirectory { path: data_dir.to_owned(), errno: errno.raw_os_error() }),
    }
}

/// What the file lies on, if that is a disk.
pub(super) fn file_system(trial: &Trial) -> Result<FileSystem, Wrong> {
    let stat =
        rustix::fs::fstatfs(&trial.file).map_err(|errno| Wrong::FileSystemUnknown { errno: errno.raw_os_error() })?;
    judge_magic(u64::try_from(stat.f_type).expect("a magic number is not negative"))
}

fn judge_magic(magic: u64) -> Result<FileSystem, Wrong> {
    match FILE_SYSTEMS.iter().find(|(known, ..)| *known == magic) {
        Some((_, name, true)) => Err(Wrong::FileSystemInMemory { name }),
        known => Ok(FileSystem { magic, name: known.map(|(_, name, _)| *name) }),
    }
}

/// Writes a block durably past the page cache, reads it back, and asks how direct I/O must be aligned.
pub(super) fn direct_io(trial: &Trial) -> Result<DirectIo, Wrong> {
    let file =
        open_direct(&trial.path, Opening::Existing).map_err(|error| Wrong::NoDirectIo { errno: errno(&error) })?;
    let told = judge_alignment(alignment(&file))?;
    let mut written = AlignedBuffer::zeroed(BLOCK);
    for (byte, place) in written.iter_mut().zip(0u8..=250) {
        *byte = place;
    }
    let mut read = AlignedBuffer::zeroed(BLOCK);
    let mut write_and_read = || {
        let bytes = rustix::io::pwritev2(&file, &[IoSlice::new(&written)], 0, ReadWriteFlags::DSYNC)?;
        let back = rustix::io::pread(&file, &mut read[..], 0)?;
        Ok::<_, rustix::io::Errno>(bytes == BLOCK && back == BLOCK)
    };
    match write_and_read() {
        Err(errno) => Err(Wrong::DirectIoFailed { errno: errno.raw_os_error() }),
        Ok(true) if *read == *written => Ok(told),
        Ok(_) => Err(Wrong::DirectIoLies),
    }
}

/// Alignment in memory and in the file. `None` where the kernel does not tell.
fn alignment(file: &OwnedFd) -> Option<(u32, u32)> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    StatxFlags::from_bits_retain(stat.stx_mask)
        .contains(StatxFlags::DIOALIGN)
        .then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

/// Zeros mean that there is no direct I/O for this file, which a write would only hide by going through the page cache.
fn judge_alignment(told: Option<(u32, u32)>) -> Result<DirectIo, Wrong> {
    match told {
        None => Ok(DirectIo { memory_align: None, offset_align: None }),
        Some((0, _) | (_, 0)) => Err(Wrong::NoDirectIo { errno: libc::EOPNOTSUPP }),
        Some((memory, offset)) if divides_block(memory) && divides_block(offset) => {
            Ok(DirectIo { memory_align: Some(memory), offset_align: Some(offset) })
        }
        Some((memory, offset)) => Err(Wrong::DirectIoAlignment { memory, offset }),
    }
}

fn divides_block(align: u32) -> bool {
    BLOCK.is_multiple_of(align as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_judged_by_whether_our_block_serves() {
        let told = |memory, offset| DirectIo { memory_align: Some(memory), offset_align: Some(offset) };
        assert_eq!(judge_alignment(Some((4, 512))), Ok(told(4, 512)));
        assert_eq!(judge_alignment(Some((4096, 4096))), Ok(told(4096, 4096)));
        assert_eq!(judge_alignment(None), Ok(DirectIo { memory_align: None, offset_align: None }));
        let large = Wrong::DirectIoAlignment { memory: 512, offset: 16384 };
        assert_eq!(judge_alignment(Some((512, 16384))), Err(large));
        assert_eq!(judge_alignment(Some((0, 0))), Err(Wrong::NoDirectIo { errno: libc::EOPNOTSUPP }));
    }

    #[test]
    fn file_systems_in_memory_are_refused_and_unknown_ones_are_not() {
        assert_eq!(judge_magic(0xEF53), Ok(FileSystem { magic: 0xEF53, name: Some("ext4") }));
        assert_eq!(judge_magic(0x0102_1994), Err(Wrong::FileSystemInMemory { name: "tmpfs" }));
        assert_eq!(judge_magic(1), Ok(FileSystem { magic: 1, name: None }));
    }
}
