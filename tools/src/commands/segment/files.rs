//! A data directory that is only read, and that no node may use meanwhile.
//!
//! Plain buffered reads: the directory may be a copy on a file system without direct I/O, or one that may not be written. Nothing is
//! made, not even the lock's file: where it is there, it is locked *shared*, so that several may look, and a node that starts meanwhile
//! is refused.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sealog_engine::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreAction, StoreError, StoreTarget};
use sealog_engine::types::AlignedBuffer;
use sealog_engine::types::limits::BLOCK;
use thiserror::Error;

use crate::exit::{Exit, Failure};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 18;

/// No node begins to use the directory as long as this lives.
#[derive(Debug)]
pub(super) struct Hold {
    _lock: Option<File>,
}

/// A node uses the directory.
#[derive(Debug, Error)]
#[error("the data directory {} is in use by {holder}: stop the node first", dir.display())]
struct Held {
    dir: PathBuf,
    holder: String,
}

impl Hold {
    pub(super) fn take(dir: &Path) -> Result<Self, Failure> {
        let cannot = || format!("cannot look into {}", dir.display());
        fs::read_dir(dir).with_context(cannot).map_err(|error| Failure::new(Exit::Configuration, error))?;
        let mut lock = match File::open(dir.join("lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { _lock: None }),
            Err(error) => return Err(anyhow::Error::from(error).context(cannot()).into()),
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Self { _lock: Some(lock) }),
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let holder = match lock.read_to_string(&mut pid) {
                    Ok(_) if !pid.trim().is_empty() => format!("process {}", pid.trim()),
                    Ok(_) | Err(_) => "another process".to_owned(),
                };
                Err(Failure::new(Exit::Failed, Held { dir: dir.to_owned(), holder }))
            }
            Err(errno) => Err(anyhow::Error::from(io::Error::from(errno)).context(cannot()).into()),
        }
    }
}

/// The directory, read.
#[derive(Debug)]
pub(super) struct FileStore {
    root: PathBuf,
    open: Option<(DataFile, File)>,
}

impl FileStore {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), open: None }
    }

    fn opened(&mut self, file: DataFile) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            self.open = Some((file, File::open(self.root.join(file.to_string()))?));
        }
        let (_, opened) = self.open.as_ref().expect("just opened");
        Ok(opened)
    }
}

fn error(action: StoreAction, file: StoreTarget, position: u64) -> impl FnOnce(io::Error) -> StoreError {
    move |error| StoreError { action, file, position, errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()) }
}

/// What would change the directory.
fn refused(action: StoreAction, file: StoreTarget) -> StoreError {
    StoreError { action, file, position: 0, errno: Errno::ROFS.raw_os_error() }
}

impl Store for FileStore {
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError> {
        let failed = || error(StoreAction::List, StoreTarget::Folder(folder), 0);
        let path = if folder == Folder::Root { self.root.clone() } else { self.root.join(folder.to_string()) };
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed()(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed())?.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = if folder == Folder::Root { name.to_owned() } else { format!("{folder}/{name}") };
            files.extend(DataFile::parse(&path));
        }
        files.sort_unstable();
        Ok(files)
    }

    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError> {
        match fs::metadata(self.root.join(file.to_string())) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(failed) => Err(error(StoreAction::Read, StoreTarget::File(file), 0)(failed)),
        }
    }

    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        let failed = || error(StoreAction::Read, StoreTarget::File(file), position);
        let opened = self.opened(file).map_err(failed())?;
        let there = opened.metadata().map_err(failed())?.len().saturating_sub(position);
        let length = length.min(usize::try_from(there).unwrap_or(usize::MAX));
        let mut bytes = AlignedBuffer::zeroed(length);
        let unreadable = read_around(opened, position, &mut bytes[..length]);
        Ok(ReadBytes { bytes, length, unreadable })
    }

    fn create(&mut self, file: DataFile, _bytes: u64, _fill: Fill) -> Result<(), StoreError> {
        Err(refused(StoreAction::Create, StoreTarget::File(file)))
    }

    fn write(&mut self, file: DataFile, _position: u64, _blocks: &AlignedBuffer) -> Result<(), StoreError> {
        Err(refused(StoreAction::Write, StoreTarget::File(file)))
    }

    fn sync(&mut self, file: DataFile) -> Result<(), StoreError> {
        Err(refused(StoreAction::Sync, StoreTarget::File(file)))
    }

    fn sync_folder(&mut self, folder: Folder) -> Result<(), StoreError> {
        Err(refused(StoreAction::Sync, StoreTarget::Folder(folder)))
    }

    fn remove(&mut self, file: DataFile) -> Result<(), StoreError> {
        Err(refused(StoreAction::Remove, StoreTarget::File(file)))
    }
}

/// Fills `bytes`, a piece that cannot be read block by block. Gives the blocks that cannot be read, with zeros in them.
fn read_around(file: &File, position: u64, bytes: &mut [u8]) -> Vec<Range<usize>> {
    let mut unreadable = Vec::new();
    let whole = bytes.len();
    for start in (0..whole).step_by(PIECE_BYTES) {
        let end = whole.min(start + PIECE_BYTES);
        if file.read_exact_at(&mut bytes[start..end], position + start as u64).is_ok() {
            continue;
        }
        for block in (start..end).step_by(BLOCK) {
            let span = block..end.min(block + BLOCK);
            if file.read_exact_at(&mut bytes[span.clone()], position + block as u64).is_err() {
                bytes[span].fill(0);
                unreadable.push(block..block + BLOCK);
            }
        }
    }
    unreadable
}
