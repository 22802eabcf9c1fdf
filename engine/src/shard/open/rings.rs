//! The journals' files: replaying those of the old generation, making and beginning those of the new.

use crate::api::port::{DataFile, Fill, Folder, Store, StoreError};
use crate::format::journal::{GroupKind, JournalSeed};
use crate::journal::{End, FileImage, Geometry, JournalImage, Mark, Ring, compose_empty, replay};
use crate::shard::open::RecoverError;
use crate::shard::open::content::Content;
use crate::types::limits::BLOCK;
use crate::types::{AlignedBuffer, Generation, ShardId};

/// Folds all that the journal of `shard` holds from `first` on into `content`.
pub(super) fn replay_journal(
    store: &mut dyn Store,
    journals: &[DataFile],
    shard: ShardId,
    generation: Generation,
    first: Mark,
    content: &mut Content,
) -> Result<(), RecoverError> {
    let mut read = Vec::new();
    for &name in journals {
        let DataFile::Journal { shard: of, file } = name else { continue };
        if of != shard {
            continue;
        }
        let length = store.length(name)?.unwrap_or(0);
        if usize::from(file) != read.len() || length == 0 {
            return Err(RecoverError::JournalFiles { shard });
        }
        let bytes = store.read(name, 0, usize::try_from(length).expect("a journal file fits memory"))?;
        if bytes.length as u64 != length {
            return Err(RecoverError::JournalFiles { shard });
        }
        read.push(bytes);
    }
    let images: Vec<FileImage<'_>> =
        read.iter().map(|file| FileImage { bytes: &file.bytes, unreadable: &file.unreadable }).collect();
    let image = JournalImage::new(&images).ok_or(RecoverError::JournalFiles { shard })?;
    let mut folded = Ok(());
    let replayed = replay(&image, JournalSeed::new(generation, shard), first, |group| {
        if folded.is_ok() {
            folded = group.entries().try_for_each(|(line, body)| content.take_entry(line, body));
        }
    });
    match replayed.last {
        End::Newer(newer) => return Err(newer.into()),
        End::Damaged(damage) => return Err(RecoverError::Damaged { shard, damage }),
        End::Unknown(_) => return Err(RecoverError::JournalUnreadable { shard, sequence: replayed.end.sequence }),
        End::Stopped | End::Certain | End::Uncertain(_) => {}
    }
    folded?;
    if let End::Uncertain(uncertain) = replayed.last {
        content.take_uncertain(&uncertain.directory);
    }
    Ok(())
}

/// Makes the journal folder hold exactly the rings of `shards` shards. Files of the right size are taken as they are: what lies in
/// them does not verify in the new generation.
///
/// Called only while the superblock says *starting*: until then the old files are needed, and whatever of this is cut short is done again.
/// Surplus files go before the superblock says *running*: a later start takes every file of a shard for a part of its ring.
/// Each file is synced, a new one or not: one that is there with the right size may be of a start that was killed between making it
/// and syncing it, and then only the page cache has it.
pub(super) fn make_files(store: &mut dyn Store, shards: u16, geometry: Geometry) -> Result<(), StoreError> {
    for name in store.list(Folder::Journal)? {
        let DataFile::Journal { shard, file } = name else { continue };
        if shard.0 >= shards || file >= geometry.files() {
            store.remove(name)?;
        }
    }
    for shard in (0..shards).map(ShardId) {
        for file in 0..geometry.files() {
            let name = DataFile::Journal { shard, file };
            if store.length(name)? != Some(geometry.file_bytes()) {
                store.create(name, geometry.file_bytes(), Fill::Zeroed)?;
            }
            store.sync(name)?;
        }
    }
    store.sync_folder(Folder::Journal)
}

/// Writes and syncs the first group of a generation, at its known place.
pub(super) fn begin(
    store: &mut dyn Store,
    shard: ShardId,
    generation: Generation,
    geometry: Geometry,
) -> Result<Ring, StoreError> {
    let mut ring = Ring::new(geometry);
    let slot = ring.slot(BLOCK as u64).expect("an empty ring has room for one block");
    let (file, position) = geometry.locate(slot.position);
    let name = DataFile::Journal { shard, file };
    let mut block = AlignedBuffer::zeroed(BLOCK);
    let first = compose_empty(GroupKind::First, JournalSeed::new(generation, shard), slot, &mut block);
    store.write(name, position, &block)?;
    store.sync(name)?;
    ring.take(slot, BLOCK as u64, first.digest);
    Ok(ring)
}
