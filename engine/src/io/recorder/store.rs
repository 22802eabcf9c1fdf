//! The data directory as recovery uses it, recorded.

use super::{Act, ActId, Content, Recorder};
use crate::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreError};
use crate::io::store::DiskStore;
use crate::types::AlignedBuffer;

/// A store that takes down all that changes it.
#[derive(Debug)]
pub struct RecordedStore<'a> {
    store: &'a mut DiskStore,
    recorder: Recorder,
}

impl<'a> RecordedStore<'a> {
    /// Records what is done to `store`.
    #[must_use]
    pub fn new(store: &'a mut DiskStore, recorder: Recorder) -> Self {
        Self { store, recorder }
    }

    fn around<T>(
        &mut self,
        act: Act<'_>,
        perform: impl FnOnce(&mut DiskStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let act = self.recorder.begin(act);
        let done = perform(self.store)?;
        self.recorder.ended(act);
        Ok(done)
    }
}

/// A folder and those above it, from the inside out.
fn upwards(folder: Folder) -> impl Iterator<Item = Folder> {
    std::iter::successors(Some(folder), |folder| folder.above())
}

impl Store for RecordedStore<'_> {
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError> {
        self.store.list(folder)
    }

    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError> {
        self.store.length(file)
    }

    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        self.store.read(file, position, length)
    }

    /// What the store does in one call is several acts. The rename is taken down behind the others, as it is the last of them: what a cut
    /// within may leave is among what one before or behind it may.
    fn create(&mut self, file: DataFile, bytes: u64, fill: Fill) -> Result<(), StoreError> {
        let mut folders: Vec<Folder> = upwards(file.folder()).filter(|folder| *folder != Folder::Root).collect();
        folders.reverse();
        let mut begun: Vec<ActId> =
            folders.into_iter().map(|folder| self.recorder.begin(Act::MakeFolder { folder })).collect();
        begun.push(self.recorder.begin(Act::MakeNew { file }));
        let content = Content::New;
        if bytes > 0 {
            begun.push(self.recorder.begin(Act::Extend { file, content, bytes }));
        }
        if fill == Fill::Zeroed {
            begun.push(self.recorder.begin(Act::Zero { file, content, position: 0, bytes }));
        }
        self.store.create(file, bytes, fill)?;
        begun.into_iter().for_each(|act| self.recorder.ended(act));
        if fill == Fill::Zeroed {
            let synced = self.recorder.begin(Act::Sync { file, content });
            self.recorder.ended(synced);
        }
        let renamed = self.recorder.begin(Act::Rename { file });
        self.recorder.ended(renamed);
        Ok(())
    }

    fn write(&mut self, file: DataFile, position: u64, blocks: &AlignedBuffer) -> Result<(), StoreError> {
        let act = Act::Write { file, content: Content::Named, position, bytes: blocks, durable: false };
        self.around(act, |store| store.write(file, position, blocks))
    }

    fn sync(&mut self, file: DataFile) -> Result<(), StoreError> {
        self.around(Act::Sync { file, content: Content::Named }, |store| store.sync(file))
    }

    fn sync_folder(&mut self, folder: Folder) -> Result<(), StoreError> {
        let begun: Vec<ActId> = upwards(folder).map(|folder| self.recorder.begin(Act::SyncFolder { folder })).collect();
        self.store.sync_folder(folder)?;
        begun.into_iter().for_each(|act| self.recorder.ended(act));
        Ok(())
    }

    fn remove(&mut self, file: DataFile) -> Result<(), StoreError> {
        self.around(Act::Remove { file }, |store| store.remove(file))
    }
}
