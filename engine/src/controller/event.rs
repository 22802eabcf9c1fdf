//! What can happen to the controller.

use crate::api::request::{ControlRequest, ReplyTo};
use crate::replica::message::ToController;
use crate::shard::event::{Failed, FileResult, FileToken};
use crate::types::AlignedBuffer;

/// Happened.
#[derive(Debug)]
pub enum Event {
    /// A connection asks.
    Request { to: ReplyTo, deadline_ns: u64, request: ControlRequest },
    /// A shard of this node says.
    Message(ToController),
    /// The group of `Command::WriteGroup` is durable, or it failed. The buffer comes back.
    GroupWritten { buffer: Box<AlignedBuffer>, outcome: Result<(), Failed> },
    /// A file operation of `Command::File` is done.
    FileDone { token: FileToken, outcome: Result<FileResult, Failed> },
    /// `next_deadline` has passed.
    Timer,
}
