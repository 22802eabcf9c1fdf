//! What the controller wants done.

use crate::api::request::ReplyTo;
use crate::api::response::Response;
use crate::replica::message::ToReplica;
use crate::shard::command::FileOperation;
use crate::shard::event::FileToken;
use crate::types::{AlignedBuffer, ShardId};

/// To do.
#[derive(Debug)]
pub enum Command {
    /// Answer a request.
    Reply { to: ReplyTo, response: Response },
    /// Tell a shard of this node.
    Tell { shard: ShardId, message: ToReplica },
    /// Write one group of the metadata journal and make it durable; exactly one is under way.
    WriteGroup { file: u16, position: u64, buffer: Box<AlignedBuffer>, length: usize },
    /// One file operation on a metadata snapshot. Answered by `Event::FileDone`.
    File { token: FileToken, operation: FileOperation },
}

/// Commands in the order in which they are to be given.
pub type Commands = Vec<Command>;
