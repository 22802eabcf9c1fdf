//! Snapshots of the running metadata: they let the log go round. The newest two are kept, and the log since the older.
//!
//! ```text
//!  create -> write, 512 KiB at a time -> sync -> sync the folder -> release the log before the older kept -> remove the third
//! ```
//! Crash before the folder's sync: the new file may be missing or torn; the two older and the log since are all there. One operation
//! is under way at a time: this is background work.

use std::collections::VecDeque;
use std::sync::Arc;

use super::open::{SNAPSHOTS_KEPT, aligned};
use crate::api::port::{DataFile, Fill, Folder};
use crate::controller::command::Command;
use crate::journal::Mark;
use crate::shard::command::FileOperation;
use crate::shard::event::{Failed, FileToken};
use crate::types::limits::{IO_BYTES_MAX, round_up_to_block};
use crate::types::time::SECOND_NS;

/// After a failure the next attempt waits so long.
const RETRY_NS: u64 = SECOND_NS;

/// The snapshots there are, and the one being written.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// Durable, oldest first.
    kept: VecDeque<(u64, Mark)>,
    next_index: u64,
    writing: Option<Writing>,
    /// Files that are no longer needed; the first is being removed.
    remove: VecDeque<u64>,
    token: FileToken,
    retry_at_ns: Option<u64>,
}

#[derive(Debug)]
struct Writing {
    index: u64,
    mark: Mark,
    bytes: Vec<u8>,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write { position: usize },
    Sync,
    SyncFolder,
}

impl Snapshots {
    pub(super) fn new(kept: VecDeque<(u64, Mark)>) -> Self {
        let next_index = kept.back().map_or(1, |(index, _)| index + 1);
        let (writing, remove, token, retry_at_ns) = (None, VecDeque::new(), FileToken(0), None);
        Self { kept, next_index, writing, remove, token, retry_at_ns }
    }

    /// Whether one should begin: a quarter of the ring was written since the newest, or the log has no room.
    pub(super) fn is_due(&mut self, next: Mark, ring_bytes: u64, is_full: bool, now_ns: u64) -> bool {
        // A delay that has passed is no deadline any more, whether or not the next attempt can begin at once.
        self.retry_at_ns = self.retry_at_ns.filter(|at| now_ns < *at);
        let newest = self.kept.back().map_or(0, |(_, mark)| mark.position.0);
        let is_grown = next.position.0 - newest >= ring_bytes / 4;
        let may_begin = self.writing.is_none() && self.remove.is_empty();
        may_begin && (is_grown || is_full) && self.retry_at_ns.is_none()
    }

    /// When a failed attempt is made again.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.retry_at_ns
    }

    /// Begins to write `bytes`, the state before `mark`.
    pub(super) fn begin(&mut self, bytes: Vec<u8>, mark: Mark, commands: &mut Vec<Command>) {
        assert!(self.writing.is_none(), "one snapshot at a time");
        let index = self.next_index;
        self.next_index += 1;
        let create = FileOperation::Create {
            file: DataFile::MetadataSnapshot { index },
            bytes: round_up_to_block(bytes.len()) as u64,
            fill: Fill::Allocated,
        };
        self.writing = Some(Writing { index, mark, bytes, step: Step::Create });
        self.give(create, commands);
    }

    /// The operation under way is done. Gives the mark before which the log may now be overwritten.
    ///
    /// # Panics
    /// If it is not the one under way.
    pub(super) fn file_done(
        &mut self,
        token: FileToken,
        outcome: Result<(), Failed>,
        now_ns: u64,
        commands: &mut Vec<Command>,
    ) -> Option<Mark> {
        assert_eq!(token, self.token, "one operation is under way");
        let Some(mut writing) = self.writing.take() else {
            // Removed, or not: a file too many does no harm.
            self.remove.pop_front();
            self.remove_next(commands);
            return None;
        };
        if outcome.is_err() {
            self.remove.push_back(writing.index);
            self.retry_at_ns = Some(now_ns + RETRY_NS);
            self.remove_next(commands);
            return None;
        }
        let written = match writing.step {
            Step::Create => 0,
            Step::Write { position } => position + IO_BYTES_MAX,
            Step::Sync => {
                writing.step = Step::SyncFolder;
                self.writing = Some(writing);
                self.give(FileOperation::SyncFolder { folder: Folder::Metadata }, commands);
                return None;
            }
            Step::SyncFolder => return self.finish(&writing, commands),
        };
        let file = DataFile::MetadataSnapshot { index: writing.index };
        let operation = if let Some(rest) = writing.bytes.get(written..).filter(|rest| !rest.is_empty()) {
            writing.step = Step::Write { position: written };
            let buffer = aligned(&rest[..rest.len().min(IO_BYTES_MAX)]);
            let length = buffer.len();
            FileOperation::Write { file, position: written as u64, buffer: Arc::new(buffer), length }
        } else {
            writing.step = Step::Sync;
            FileOperation::Sync { file }
        };
        self.writing = Some(writing);
        self.give(operation, commands);
        None
    }

    fn finish(&mut self, writing: &Writing, commands: &mut Vec<Command>) -> Option<Mark> {
        self.kept.push_back((writing.index, writing.mark));
        while self.kept.len() > SNAPSHOTS_KEPT {
            self.remove.extend(self.kept.pop_front().map(|(index, _)| index));
        }
        self.remove_next(commands);
        self.kept.front().map(|(_, mark)| *mark)
    }

    fn remove_next(&mut self, commands: &mut Vec<Command>) {
        if let Some(index) = self.remove.front() {
            let file = DataFile::MetadataSnapshot { index: *index };
            self.give(FileOperation::Remove { file }, commands);
        }
    }

    fn give(&mut self, operation: FileOperation, commands: &mut Vec<Command>) {
        self.token = FileToken(self.token.0 + 1);
        commands.push(Command::File { token: self.token, operation });
    }
}
