//! What can happen to a shard.

use crate::api::request::{ReplyTo, ShardRequest};
use crate::replica::message::ToReplica;
use crate::types::AlignedBuffer;

/// Happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// Recovery is done and the performer is ready. The first event of a life.
    Started,
    /// A connection asks. `deadline_ns` on the monotonic clock.
    Request { to: ReplyTo, deadline_ns: u64, request: ShardRequest<'a> },
    /// All that had arrived together has been given: the open group may go.
    Flush,
    /// A connection of the shard `ReplyTo::shard` is gone.
    Disconnected { to: ReplyTo },
    /// The journal group of the oldest `Command::WriteGroup` not yet answered is durable, or it failed. The buffer comes back.
    GroupWritten { buffer: Box<AlignedBuffer>, outcome: Result<(), Failed> },
    /// A file operation of `Command::File` is done.
    FileDone { token: FileToken, outcome: Result<FileResult, Failed> },
    /// The controller says.
    Message(ToReplica),
    /// `next_deadline` has passed.
    Timer,
    /// No request comes any more and all that came is answered: what is only in the journal goes into segments, so that the next start
    /// has little to replay.
    Stopping,
}

/// Names one file operation that is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileToken(pub u64);

/// The device's answer to an operation that did not do all that it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Of errno(3); a short write or a cancelled sync is `EIO`.
    pub errno: i32,
}

/// What a file operation gave.
#[derive(Debug)]
pub enum FileResult {
    /// Nothing but its being done.
    Done,
    /// The bytes of a read: the buffer, and how many of it are of the file.
    Read { bytes: AlignedBuffer, length: usize },
}
