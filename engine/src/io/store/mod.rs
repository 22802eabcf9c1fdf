//! The data directory as recovery uses it, before any shard runs: blocking calls on O_DIRECT files, split at `IO_BYTES_MAX`.
//!
//! Direct, because what is read here must be what the device holds: a page cache that still has what a failed write left
//! behind would call lost bytes durable.
//!
//! A new file is made complete under a name that is not ours (`NAME.new`) and then renamed: a crash before the rename leaves
//! the old file, if there was one, and a leftover that `list` leaves out and the next `create` overwrites.
//!
//! **Invariant**: bytes that the device cannot give are told as unreadable, with everything around them read. They are never
//! zeros that look like bytes, and never the end of the file.

mod lock;
mod read;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreAction, StoreError, StoreTarget};
use crate::types::AlignedBuffer;
use crate::types::limits::{BLOCK, IO_BYTES_MAX};

pub use lock::{DirectoryLock, LockError, lock, lock_shared};

/// What is expected of a path that is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// The file is there.
    Existing,
    /// The file is made; one that is there is emptied.
    Create,
}

/// Opens a file for direct reads and writes.
///
/// # Errors
/// The kernel's; EINVAL means that the file system has no direct I/O.
pub fn open_direct(path: &Path, opening: Opening) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let flags = match opening {
        Opening::Existing => flags,
        Opening::Create => flags | OFlags::CREATE | OFlags::TRUNC,
    };
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o640))?)
}

/// Writes all of `bytes` (whole blocks, in a buffer that begins on one) at `position`.
///
/// # Errors
/// The device's. What is then in the file is unknown.
pub fn write_all(file: &OwnedFd, position: u64, bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        let piece = &bytes[written..bytes.len().min(written + IO_BYTES_MAX)];
        match rustix::io::pwrite(file, piece, position + written as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => written += bytes,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Writes zeros over the first `bytes` (whole blocks) of a file and makes them durable, so that later writes of this span
/// change no extent.
///
/// # Errors
/// The device's.
pub fn fill_with_zeros(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let zeros = AlignedBuffer::zeroed(IO_BYTES_MAX);
    // All extents at once: filling alone would allocate piece by piece and scatter the file.
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    let mut position = 0;
    while position < bytes {
        let piece = usize::try_from(bytes - position).unwrap_or(IO_BYTES_MAX).min(IO_BYTES_MAX);
        write_all(file, position, &zeros[..piece])?;
        position += piece as u64;
    }
    Ok(rustix::fs::fsync(file)?)
}

/// Makes the names in a folder durable.
///
/// # Errors
/// The device's.
pub fn sync_path(folder: &Path) -> io::Result<()> {
    let folder = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::fsync(folder)?)
}

/// The data directory on a real file system.
#[derive(Debug)]
pub struct DiskStore {
    root: PathBuf,
    /// Files are opened for buffered reads alone.
    only_read: bool,
    /// The file used last: a write and its sync go through one descriptor, which is what the kernel reports errors by.
    open: Option<(DataFile, OwnedFd)>,
}

impl DiskStore {
    /// The store in `root`, which is there. Take its [`lock`] first.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root, only_read: false, open: None }
    }

    /// The store in `root` to look at, through the page cache: it may be a copy on a file system without direct I/O, or one that may not be
    /// written. What would change a file fails.
    #[must_use]
    pub fn reading(root: PathBuf) -> Self {
        Self { root, only_read: true, open: None }
    }

    /// The path of a file, whether or not it is there.
    #[must_use]
    pub fn path(&self, file: DataFile) -> PathBuf {
        self.root.join(file.to_string())
    }

    /// The path of a folder, whether or not it is there.
    #[must_use]
    pub fn folder_path(&self, folder: Folder) -> PathBuf {
        match folder {
            Folder::Root => self.root.clone(),
            Folder::Journal
            | Folder::Metadata
            | Folder::Catalog
            | Folder::Quarantine
            | Folder::Segments
            | Folder::SegmentsOf(_) => self.root.join(folder.to_string()),
        }
    }

    fn opened(&mut self, file: DataFile) -> io::Result<&OwnedFd> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            let path = self.path(file);
            let opened =
                if self.only_read { fs::File::open(path)?.into() } else { open_direct(&path, Opening::Existing)? };
            self.open = Some((file, opened));
        }
        let (_, fd) = self.open.as_ref().expect("just opened");
        Ok(fd)
    }

    fn make(&self, file: DataFile, bytes: u64, fill: Fill) -> io::Result<()> {
        let path = self.path(file);
        let mut fresh = path.clone().into_os_string();
        fresh.push(".new");
        fs::create_dir_all(self.folder_path(file.folder()))?;
        let fd = open_direct(Path::new(&fresh), Opening::Create)?;
        match fill {
            Fill::Zeroed => fill_with_zeros(&fd, bytes)?,
            Fill::Allocated if bytes > 0 => rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes)?,
            Fill::Allocated => {}
        }
        fs::rename(fresh, path)
    }
}

fn failed(action: StoreAction, file: impl Into<Target>, position: u64) -> impl FnOnce(io::Error) -> StoreError {
    let Target(file) = file.into();
    move |error| StoreError { action, file, position, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

struct Target(StoreTarget);

impl From<DataFile> for Target {
    fn from(file: DataFile) -> Self {
        Self(StoreTarget::File(file))
    }
}

impl From<Folder> for Target {
    fn from(folder: Folder) -> Self {
        Self(StoreTarget::Folder(folder))
    }
}

impl Store for DiskStore {
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError> {
        let entries = match fs::read_dir(self.folder_path(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(StoreAction::List, folder, 0)(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed(StoreAction::List, folder, 0))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = if folder == Folder::Root { name.to_owned() } else { format!("{folder}/{name}") };
            files.extend(DataFile::parse(&path));
        }
        files.sort_unstable();
        Ok(files)
    }

    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError> {
        match fs::metadata(self.path(file)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(StoreAction::Read, file, 0)(error)),
        }
    }

    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        assert!(position.is_multiple_of(BLOCK as u64), "a read of {file} at {position} is not at a block");
        let fd = self.opened(file).map_err(failed(StoreAction::Read, file, position))?;
        read::read(fd, position, length).map_err(failed(StoreAction::Read, file, position))
    }

    fn create(&mut self, file: DataFile, bytes: u64, fill: Fill) -> Result<(), StoreError> {
        assert!(bytes.is_multiple_of(BLOCK as u64), "{file} of {bytes} bytes is not of whole blocks");
        self.open = None;
        self.make(file, bytes, fill).map_err(failed(StoreAction::Create, file, 0))
    }

    fn write(&mut self, file: DataFile, position: u64, blocks: &AlignedBuffer) -> Result<(), StoreError> {
        assert!(position.is_multiple_of(BLOCK as u64), "a write to {file} at {position} is not at a block");
        let fd = self.opened(file).map_err(failed(StoreAction::Write, file, position))?;
        write_all(fd, position, blocks).map_err(failed(StoreAction::Write, file, position))
    }

    fn sync(&mut self, file: DataFile) -> Result<(), StoreError> {
        let fd = self.opened(file).map_err(failed(StoreAction::Sync, file, 0))?;
        rustix::fs::fsync(fd).map_err(|errno| failed(StoreAction::Sync, file, 0)(errno.into()))
    }

    fn sync_folder(&mut self, folder: Folder) -> Result<(), StoreError> {
        // From the inside out: once a folder's name is durable, so is what is in it.
        let mut path = self.folder_path(folder);
        loop {
            sync_path(&path).map_err(failed(StoreAction::Sync, folder, 0))?;
            if path == self.root {
                return Ok(());
            }
            path.pop();
        }
    }

    fn remove(&mut self, file: DataFile) -> Result<(), StoreError> {
        self.open = None;
        match fs::remove_file(self.path(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(StoreAction::Remove, file, 0)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
