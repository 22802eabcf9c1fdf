//! Deletes a range whose topic is deleted: at once for everybody who asks, durably by the next checkpoint, and on the disk after that,
//! file by file.
//!
//! ```text
//!  Deleted --> stopped: nobody finds the range        catalog in memory: segments --> files that are to go
//!    |  checkpoint: the catalog is durable, and the journal is covered up to the last that it holds of the range     --> Noted
//!    |  remove a file -> its bytes go back in pieces -> the next ... -> sync the folders
//!    v  catalog: nothing is left to be known                                                  with the next checkpoint
//! ```
//! A file must not go before the catalog that forgets it is durable: a start after a crash would look for it, to write to its end what
//! the journal says of it. Crash before that is durable: the metadata still names the range, and all is done again. Crash after it:
//! the catalog names the files, and the next life removes those that are left; what the journal has of the range behind an earlier
//! checkpoint is passed over.
//!
//! One file at a time, and each in pieces (`io/files`): ext4 gives back a large file's extents in one go when its name and its last
//! descriptor go, some 64 ms for 256 MiB with discards, in which the device does nothing for the journal.

use std::collections::{BTreeSet, VecDeque};

use crate::api::error::Refusal;
use crate::api::port::{DataFile, Folder};
use crate::replica::message::{ToController, ToReplica};
use crate::segment::catalog::Catalog;
use crate::shard::command::{Command, Commands, FileOperation};
use crate::shard::event::{Failed, FileToken};
use crate::shard::range::RangeSlot;
use crate::shard::shard::{Shard, refuse};
use crate::types::{Now, RangeId};

/// The deletions of a shard.
#[derive(Debug)]
pub(super) struct Deletions {
    /// Ranges that this life was told are deleted.
    told: BTreeSet<RangeId>,
    /// Of those, the ones whose checkpoint is to begin.
    fresh: BTreeSet<RangeId>,
    /// Ranges whose files may go.
    due: VecDeque<RangeId>,
    removal: Option<Removal>,
    token: Option<FileToken>,
}

/// A range whose files are being removed.
#[derive(Debug)]
struct Removal {
    range: RangeId,
    /// The first is under way.
    files: VecDeque<DataFile>,
    /// Those that were removed were in these; the first is being synced, when no file is left.
    folders: BTreeSet<Folder>,
}

impl Deletions {
    /// What earlier lives have left of theirs.
    pub(super) fn new(catalog: &Catalog) -> Self {
        let due = catalog.deletions().keys().copied().collect();
        Self { told: BTreeSet::new(), fresh: BTreeSet::new(), due, removal: None, token: None }
    }

    /// Whether the range is deleted, as this life was told.
    pub(super) fn has(&self, range: RangeId) -> bool {
        self.told.contains(&range)
    }

    /// Whether a checkpoint is wanted for their sake.
    pub(super) fn want_checkpoint(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// A checkpoint begins: its cut lies behind all that was ever taken for these.
    pub(super) fn cut(&mut self) -> BTreeSet<RangeId> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether the answer to `token` belongs here.
    pub(super) fn owns(&self, token: FileToken) -> bool {
        self.token == Some(token)
    }
}

impl Shard {
    /// The range's topic is deleted, as committed.
    pub(super) fn delete_range(&mut self, now: Now, range: RangeId, commands: &mut Commands) {
        if self.deletions.told.insert(range) {
            if let Some(slot) = self.by_range.remove(&range) {
                self.stop_range(now, slot, commands);
            }
            if self.catalog.deletions().contains_key(&range) {
                // An earlier life has written it down, and the metadata had not heard of it.
                commands.push(Command::Tell(ToController::Noted { range }));
            } else {
                self.catalog.delete_range(range);
                self.deletions.fresh.insert(range);
            }
        }
        commands.push(Command::Tell(ToController::Stopped { range }));
        self.advance_checkpoint(now, commands);
    }

    /// Ends all that is under way for a range, but for what its entries in the journal still need.
    fn stop_range(&mut self, now: Now, slot: RangeSlot, commands: &mut Commands) {
        let range = &mut self.ranges[slot.0];
        range.deleted = true;
        range.chain = Vec::new();
        let id = range.range;
        range.replica.message(ToReplica::Deleted { range: id }, &mut self.replica_commands);
        self.obey(now, slot, commands);
        self.refuse_reads(slot, commands);
        for tail in self.tails.iter_mut().flatten().filter(|tail| tail.slot == slot) {
            tail.doomed = true;
        }
        self.counters.ranges -= 1;
    }

    /// The catalog that knows of these deletions is durable, and the journal is covered behind the last entry of their ranges.
    pub(super) fn note_deletions(&mut self, commands: &mut Commands) {
        for range in std::mem::take(&mut self.checkpoint.deleted) {
            commands.push(Command::Tell(ToController::Noted { range }));
            self.deletions.due.push_back(range);
        }
        self.remove_files(commands);
    }

    /// Goes on removing, unless a file is under way.
    pub(super) fn remove_files(&mut self, commands: &mut Commands) {
        while self.deletions.token.is_none() {
            let Some(removal) = &self.deletions.removal else {
                let Some(range) = self.deletions.due.pop_front() else { return };
                let files = self.catalog.deletions().get(&range).map_or(&[][..], Vec::as_slice);
                let files = files.iter().map(|&(segment, part)| DataFile::Segment { segment, part }).collect();
                self.deletions.removal = Some(Removal { range, files, folders: BTreeSet::new() });
                continue;
            };
            let operation = match (removal.files.front(), removal.folders.first()) {
                (Some(file), _) => FileOperation::Remove { file: *file },
                (None, Some(folder)) => FileOperation::SyncFolder { folder: *folder },
                (None, None) => {
                    self.catalog.deletion_done(removal.range);
                    self.deletions.removal = None;
                    continue;
                }
            };
            let token = self.token();
            self.deletions.token = Some(token);
            commands.push(Command::File { token, operation });
        }
    }

    /// A file is removed, or a folder synced.
    pub(super) fn removal_done(&mut self, outcome: Result<(), Failed>, commands: &mut Commands) {
        self.deletions.token = None;
        let mut removal = self.deletions.removal.take().expect("a removal is under way");
        match outcome {
            Ok(()) => {
                if let Some(file) = removal.files.pop_front() {
                    removal.folders.insert(file.folder());
                } else {
                    removal.folders.pop_first();
                }
                self.deletions.removal = Some(removal);
            }
            // The catalog goes on naming the files: the next life tries again.
            Err(failed) => {
                tracing::warn!(range = %removal.range, errno = failed.errno, "a deleted file cannot be removed")
            }
        }
        self.remove_files(commands);
    }

    fn refuse_reads(&mut self, slot: RangeSlot, commands: &mut Commands) {
        for to in self.reads.take_waiting(slot) {
            refuse(to, Refusal::UnknownRange, commands);
        }
    }
}
