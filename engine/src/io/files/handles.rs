//! The descriptors of a shard: one a file, as many as are in use and a bounded number that are not.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::port::{DataFile, Folder};
use crate::io::ring::DiskFile;

/// Files kept open beyond those in use.
const FILES_MAX: usize = 256;

pub(super) struct Handles {
    root: DiskFile,
    files: BTreeMap<DataFile, Handle>,
    folders: BTreeMap<Folder, DiskFile>,
    /// Folders that are known to be there.
    made: BTreeSet<Folder>,
    uses: u64,
}

struct Handle {
    file: DiskFile,
    /// Number of its last use, over all files.
    used: u64,
}

impl Handles {
    pub(super) fn new(root: DiskFile) -> Self {
        Self { root, files: BTreeMap::new(), folders: BTreeMap::new(), made: BTreeSet::from([Folder::Root]), uses: 0 }
    }

    pub(super) fn root(&self) -> &DiskFile {
        &self.root
    }

    /// The file, if it is open.
    pub(super) fn file(&mut self, file: DataFile) -> Option<DiskFile> {
        let handle = self.files.get_mut(&file)?;
        self.uses += 1;
        handle.used = self.uses;
        Some(handle.file.clone())
    }

    /// Keeps a file that was just opened. If it had been opened meanwhile, that descriptor is the one to use.
    pub(super) fn keep(&mut self, file: DataFile, opened: DiskFile) -> DiskFile {
        if let Some(kept) = self.file(file) {
            return kept;
        }
        self.replace(file, opened.clone());
        opened
    }

    /// Keeps a file that has taken the place of one of the same name.
    pub(super) fn replace(&mut self, file: DataFile, opened: DiskFile) {
        self.uses += 1;
        self.files.insert(file, Handle { file: opened, used: self.uses });
        if self.files.len() > FILES_MAX {
            let unused = self.files.iter().filter(|(kept, handle)| **kept != file && handle.file.is_unshared());
            if let Some(oldest) = unused.min_by_key(|(_, handle)| handle.used).map(|(file, _)| *file) {
                self.files.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&mut self, file: DataFile) {
        self.files.remove(&file);
    }

    pub(super) fn folder(&self, folder: Folder) -> Option<&DiskFile> {
        if folder == Folder::Root { Some(&self.root) } else { self.folders.get(&folder) }
    }

    pub(super) fn keep_folder(&mut self, folder: Folder, opened: DiskFile) {
        self.folders.insert(folder, opened);
    }

    pub(super) fn is_made(&self, folder: Folder) -> bool {
        self.made.contains(&folder)
    }

    pub(super) fn made(&mut self, folder: Folder) {
        self.made.insert(folder);
    }
}
