//! A data directory that is only read, and that no node may use meanwhile.
//!
//! Nothing is made, not even the lock's file: where it is there, it is locked *shared*, so that several may look, and a node that starts
//! meanwhile is refused.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use rustix::io::Errno;
use sealog_engine::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreAction, StoreError, StoreTarget};
use sealog_engine::io::store::{DirectoryLock, DiskStore, LockError, lock_shared};
use sealog_engine::types::AlignedBuffer;
use thiserror::Error;

use crate::exit::{Exit, Failure};

/// No node begins to use the directory as long as this lives.
#[derive(Debug)]
pub(super) struct Hold {
    _lock: Option<DirectoryLock>,
}

/// A node uses the directory.
#[derive(Debug, Error)]
#[error("{0}: stop the node first")]
struct InUse(LockError);

impl Hold {
    pub(super) fn take(dir: &Path) -> Result<Self, Failure> {
        let cannot = || format!("cannot look into {}", dir.display());
        fs::read_dir(dir).with_context(cannot).map_err(|error| Failure::new(Exit::Configuration, error))?;
        match lock_shared(dir) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err(held @ LockError::Held { .. }) => Err(Failure::new(Exit::Failed, InUse(held))),
            Err(error @ LockError::Io { .. }) => Err(Failure::new(Exit::Failed, error)),
        }
    }
}

/// The directory, read.
#[derive(Debug)]
pub(super) struct FileStore(DiskStore);

impl FileStore {
    pub(super) fn new(root: &Path) -> Self {
        Self(DiskStore::reading(root.to_owned()))
    }
}

/// What would change the directory.
fn refused(action: StoreAction, file: StoreTarget) -> StoreError {
    StoreError { action, file, position: 0, errno: Errno::ROFS.raw_os_error() }
}

impl Store for FileStore {
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError> {
        self.0.list(folder)
    }

    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError> {
        self.0.length(file)
    }

    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        self.0.read(file, position, length)
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
