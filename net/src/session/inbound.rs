//! From a client's frame to a request.

use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};

use super::handshake::SessionLimits;
use crate::wire::frame::{BodyError, Frame};
use crate::wire::kind::Kind;
use crate::wire::{client, control};

/// What a frame behind the hello asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inbound<'a> {
    /// For the engine.
    Request(Request<'a>),
    /// For a pong.
    Ping,
    /// A second hello, or the client's bye: the connection ends.
    End,
}

/// Reads a frame of a client whose hello has succeeded. What a fetch asks for is bounded by `limits`.
///
/// # Errors
/// The frame is not a request, or is not what its kind asks for; the answer is `Refusal::BadRequest`, and the connection goes on.
#[inline]
pub fn read<'a>(frame: &Frame<'a>, limits: &SessionLimits) -> Result<Inbound<'a>, BodyError> {
    let unexpected = BodyError::Kind { kind: frame.kind };
    let shard = |request: ShardRequest<'a>| Inbound::Request(Request::Shard(request));
    let control = |request: ControlRequest| Inbound::Request(Request::Control(request));
    Ok(match Kind::from_number(frame.kind).ok_or(unexpected)? {
        Kind::Produce => shard(client::read_produce(frame)?),
        Kind::Fetch => shard(bounded(client::read_fetch(frame)?, limits)),
        Kind::Bounds => shard(client::read_bounds(frame)?),
        Kind::Since => shard(client::read_since(frame)?),
        Kind::Settle => shard(client::read_settle(frame)?),
        Kind::Roll => shard(client::read_roll(frame)?),
        Kind::Describe => shard(client::read_describe(frame)?),
        Kind::CreateTopic => control(control::read_create_topic(frame)?),
        Kind::ListTopics => control(control::read_list_topics(frame)?),
        Kind::Routes => control(control::read_routes(frame)?),
        Kind::OpenProducer => control(control::read_open_producer(frame)?),
        Kind::DeleteTopic => control(control::read_delete_topic(frame)?),
        Kind::SplitRange => control(control::read_split_range(frame)?),
        Kind::MergeRanges => control(control::read_merge_ranges(frame)?),
        Kind::ListRanges => control(control::read_list_ranges(frame)?),
        Kind::Ping => Inbound::Ping,
        Kind::Hello | Kind::Bye => Inbound::End,
        Kind::Welcome
        | Kind::Pong
        | Kind::Refused
        | Kind::Stored
        | Kind::Fetched
        | Kind::BoundsAre
        | Kind::Settled
        | Kind::Rolled
        | Kind::Described
        | Kind::Topic
        | Kind::Topics
        | Kind::RoutesAre
        | Kind::Producer
        | Kind::TopicDeleted
        | Kind::Lineage => return Err(unexpected),
    })
}

fn bounded<'a>(request: ShardRequest<'a>, limits: &SessionLimits) -> ShardRequest<'a> {
    match request {
        ShardRequest::Fetch { range, offset, bytes_max, wait_ms } => {
            ShardRequest::Fetch { range, offset, bytes_max: bytes_max.min(limits.fetch_bytes_max), wait_ms }
        }
        ShardRequest::Produce { .. }
        | ShardRequest::Bounds { .. }
        | ShardRequest::Since { .. }
        | ShardRequest::Settle { .. }
        | ShardRequest::Roll { .. }
        | ShardRequest::Describe { .. } => request,
    }
}
