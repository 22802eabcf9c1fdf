//! What a shard wants done. Each carries every decision: a performer has one arm a command and decides nothing.

use std::sync::Arc;

use crate::api::port::{DataFile, Fill, Folder};
use crate::api::request::ReplyTo;
use crate::api::response::Response;
use crate::replica::message::ToController;
use crate::shard::event::FileToken;
use crate::types::AlignedBuffer;

/// To do.
#[derive(Debug)]
pub enum Command {
    /// Answer a request.
    Reply { to: ReplyTo, response: Response },
    /// Write one journal group and make it durable. Answered by `Event::GroupWritten`, in order. Of two that are given, the second is begun
    /// when the first is durable, and not at all if that failed.
    WriteGroup {
        /// File of the shard's ring.
        file: u16,
        /// Byte position in that file, a block boundary.
        position: u64,
        /// Written from its beginning.
        buffer: Box<AlignedBuffer>,
        /// Bytes, whole blocks.
        length: usize,
        /// False for the idle marker: written, not synced, and nobody waits.
        sync: bool,
    },
    /// One file operation. Answered by `Event::FileDone`. Operations may be done in any order: one that must wait for another is
    /// not given before that has been answered.
    File { token: FileToken, operation: FileOperation },
    /// Tell the controller.
    Tell(ToController),
}

/// An operation on a file of the data directory. Positions and lengths are whole blocks.
#[derive(Debug)]
pub enum FileOperation {
    /// Make the file and its folder; an existing one of that name is replaced.
    Create { file: DataFile, bytes: u64, fill: Fill },
    /// Write the first `length` bytes of the buffer.
    Write { file: DataFile, position: u64, buffer: Arc<AlignedBuffer>, length: usize },
    /// Make what was written durable.
    Sync { file: DataFile },
    /// Make creations and removals in the folder durable, and the folder in its parents.
    SyncFolder { folder: Folder },
    /// Read up to `length` bytes.
    Read { file: DataFile, position: u64, length: usize },
    /// Remove the file.
    Remove { file: DataFile },
}

/// Commands in the order in which they are to be given. Reused: a step adds, the performer drains.
pub type Commands = Vec<Command>;
