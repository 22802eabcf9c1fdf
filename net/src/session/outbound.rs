//! From a response to its frame.

use sealog_engine::api::error::Refusal;
use sealog_engine::api::response::Response;

use crate::wire::frame::FRAME_BYTES_CEILING;
use crate::wire::{client, control, refusal};

/// Bytes of the longest list of topics that is given; a longer one is refused.
const LIST_BYTES_MAX: usize = FRAME_BYTES_CEILING as usize / 2;
/// Bytes that a topic takes in a list, apart from its name, at most.
const TOPIC_BYTES_MAX: usize = 64;

/// Appends the frame of an answer. One that cannot fit any frame becomes `Refusal::BadRequest`.
#[inline]
pub fn append(out: &mut Vec<u8>, correlation: u64, response: &Response) {
    match response {
        Response::Stored(stored) => client::append_stored(out, correlation, *stored),
        Response::Fetched(fetched) => match client::fetched_fits(fetched) {
            Ok(()) => client::append_fetched(out, correlation, fetched),
            Err(refused) => refusal::append(out, correlation, &refused),
        },
        Response::Bounds { start, end } => client::append_bounds(out, correlation, *start, *end),
        Response::Settled(settled) => client::append_settled(out, correlation, settled),
        Response::Rolled(rolled) => client::append_rolled(out, correlation, rolled),
        Response::Described(described) => client::append_described(out, correlation, described),
        Response::Topic(topic) => control::append_topic(out, correlation, topic),
        Response::TopicDeleted { topic } => control::append_topic_deleted(out, correlation, *topic),
        Response::Topics(topics) => {
            let bytes: usize = topics.iter().map(|t| t.name.len() + TOPIC_BYTES_MAX).sum();
            if bytes <= LIST_BYTES_MAX {
                control::append_topics(out, correlation, topics);
            } else {
                refusal::append(out, correlation, &Refusal::BadRequest);
            }
        }
        Response::Routes { topic, routes } => control::append_routes(out, correlation, topic, routes),
        Response::Lineage { ranges, more } => control::append_lineage(out, correlation, ranges, *more),
        Response::Producer { producer, epoch } => control::append_producer(out, correlation, *producer, *epoch),
        Response::Refused(refused) => refusal::append(out, correlation, refused),
    }
}
