//! One process to a data directory: an flock on its file `lock`, which names the holder. The kernel lets it go when the process
//! ends, however it ends, so there is no stale lock to remove.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use thiserror::Error;

/// The lock, held as long as this lives.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// The data directory could not be locked.
#[derive(Debug, Error)]
pub enum LockError {
    #[error("the data directory {} is in use by {}", dir.display(), Holder(*.pid))]
    Held {
        dir: PathBuf,
        /// As the holder wrote it into the lock file; of its own pid namespace.
        pid: Option<u32>,
    },
    #[error("cannot lock the data directory {}: {error}", dir.display())]
    Io { dir: PathBuf, error: io::Error },
}

struct Holder(Option<u32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

/// Locks a data directory, which is there, for this process.
///
/// # Errors
/// Another process holds it, or the file `lock` cannot be made.
pub fn lock(dir: &Path) -> Result<DirectoryLock, LockError> {
    let io = |error| LockError::Io { dir: dir.to_owned(), error };
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(dir.join("lock")).map_err(io)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(held(dir, file)),
        Err(errno) => return Err(io(errno.into())),
    }
    let mut name = || {
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        writeln!(file, "{}", std::process::id())
    };
    name().map_err(io)?;
    Ok(DirectoryLock { _file: file })
}

/// Keeps others from locking a data directory that this process only reads, together with others that do. `None` if there is no file
/// `lock`: nothing is made, and nobody can be kept from a directory that no node has used.
///
/// # Errors
/// A process holds it, or the file cannot be opened.
pub fn lock_shared(dir: &Path) -> Result<Option<DirectoryLock>, LockError> {
    let io = |error| LockError::Io { dir: dir.to_owned(), error };
    let file = match File::open(dir.join("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(DirectoryLock { _file: file })),
        Err(Errno::WOULDBLOCK) => Err(held(dir, file)),
        Err(errno) => Err(io(errno.into())),
    }
}

fn held(dir: &Path, file: File) -> LockError {
    let mut holder = String::new();
    let pid = file.take(32).read_to_string(&mut holder).ok().and_then(|_| holder.trim().parse().ok());
    LockError::Held { dir: dir.to_owned(), pid }
}
