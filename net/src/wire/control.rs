//! Bodies of control frames: prost messages, so that they can grow.
//!
//! ```text
//! | message bytes (u32) | crc-32c of the message (u32) |   message
//! ```
//! Field numbers, like kinds, are never given to anything else. A field that is not known is ignored; one that is missing has its
//! default, so a new field's default must mean what its absence meant.

use prost::Message;
use sealog_engine::api::request::ControlRequest;
use sealog_engine::api::response::{RangeLineage, Route, TopicView};
use sealog_engine::format::checksum;
use sealog_engine::types::{Epoch, KeyHash, KeySpan, NodeId, ProducerEpoch, ProducerId, RangeId, ShardId, TopicId};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::frame::{self, BodyError, Frame, Head, count_u32};
use super::kind::Kind;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ControlStruct {
    length: U32,
    checksum: U32,
}

#[derive(Clone, PartialEq, Message)]
struct CreateTopicMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint32, tag = "2")]
    ranges: u32,
    /// 0: it does not split by itself.
    #[prost(uint32, tag = "3")]
    auto_split_ranges_max: u32,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteTopicMessage {
    #[prost(string, tag = "1")]
    name: String,
    /// The topic that is meant. Ids begin at 1; 0: whichever has the name.
    #[prost(uint64, tag = "2")]
    topic: u64,
}

#[derive(Clone, PartialEq, Message)]
struct TopicDeletedMessage {
    #[prost(uint64, tag = "1")]
    topic: u64,
}

#[derive(Clone, PartialEq, Message)]
struct TopicMessage {
    #[prost(uint64, tag = "1")]
    topic: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint32, tag = "3")]
    ranges: u32,
    #[prost(uint32, tag = "4")]
    keyspace_version: u32,
    #[prost(uint32, tag = "5")]
    batch_bytes_max: u32,
    /// 0: it does not split by itself.
    #[prost(uint32, tag = "6")]
    auto_split_ranges_max: u32,
}

#[derive(Clone, PartialEq, Message)]
struct ListTopicsMessage {}

#[derive(Clone, PartialEq, Message)]
struct TopicsMessage {
    #[prost(message, repeated, tag = "1")]
    topics: Vec<TopicMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct RoutesMessage {
    #[prost(string, tag = "1")]
    topic: String,
}

#[derive(Clone, PartialEq, Message)]
struct RouteMessage {
    #[prost(uint64, tag = "1")]
    range: u64,
    #[prost(fixed64, tag = "2")]
    span_start: u64,
    #[prost(uint32, tag = "3")]
    span_depth: u32,
    #[prost(uint64, tag = "4")]
    epoch: u64,
    #[prost(uint32, tag = "5")]
    node: u32,
    #[prost(uint32, tag = "6")]
    shard: u32,
}

#[derive(Clone, PartialEq, Message)]
struct RoutesAreMessage {
    #[prost(message, optional, tag = "1")]
    topic: Option<TopicMessage>,
    #[prost(message, repeated, tag = "2")]
    routes: Vec<RouteMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct SplitRangeMessage {
    #[prost(string, tag = "1")]
    topic: String,
    #[prost(uint64, tag = "2")]
    range: u64,
}

#[derive(Clone, PartialEq, Message)]
struct MergeRangesMessage {
    #[prost(string, tag = "1")]
    topic: String,
    #[prost(uint64, tag = "2")]
    one: u64,
    #[prost(uint64, tag = "3")]
    other: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ListRangesMessage {
    #[prost(string, tag = "1")]
    topic: String,
    /// Exclusive. Ids begin at 1.
    #[prost(uint64, tag = "2")]
    after: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RangeMessage {
    #[prost(message, optional, tag = "1")]
    route: Option<RouteMessage>,
    #[prost(uint64, repeated, tag = "2")]
    parents: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    successors: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct LineageMessage {
    #[prost(message, repeated, tag = "1")]
    ranges: Vec<RangeMessage>,
    #[prost(bool, tag = "2")]
    more: bool,
}

/// A producer id with an epoch: what to replace, and what was given.
#[derive(Clone, PartialEq, Message)]
struct ProducerMessage {
    #[prost(uint64, tag = "1")]
    producer: u64,
    #[prost(uint32, tag = "2")]
    epoch: u32,
}

#[derive(Clone, PartialEq, Message)]
struct OpenProducerMessage {
    #[prost(message, optional, tag = "1")]
    replaces: Option<ProducerMessage>,
}

/// Of a field whose absence says that there is none.
fn some_count(count: u32) -> Option<u32> {
    (count != 0).then_some(count)
}

fn append_message(out: &mut Vec<u8>, head: Head, message: &impl Message) {
    let message = message.encode_to_vec();
    let structure = ControlStruct { length: count_u32(message.len()).into(), checksum: checksum(0, &message).into() };
    frame::append(out, head, structure.as_bytes(), &[&message]);
}

fn read_message<M: Message + Default>(frame: &Frame<'_>) -> Result<M, BodyError> {
    let structure: &ControlStruct = frame.body()?;
    let expected = structure.length.get() as usize;
    if frame.bytes.len() != expected {
        return Err(BodyError::BytesLength { found: frame.bytes.len(), expected });
    }
    if checksum(0, frame.bytes) != structure.checksum.get() {
        return Err(BodyError::Checksum { part: "message" });
    }
    M::decode(frame.bytes).map_err(|_| BodyError::Message)
}

impl From<&TopicView> for TopicMessage {
    fn from(view: &TopicView) -> Self {
        Self {
            topic: view.topic.0,
            name: view.name.clone(),
            ranges: view.ranges,
            keyspace_version: u32::from(view.keyspace_version),
            batch_bytes_max: view.batch_bytes_max,
            auto_split_ranges_max: view.auto_split.unwrap_or_default(),
        }
    }
}

impl TryFrom<TopicMessage> for TopicView {
    type Error = BodyError;

    fn try_from(message: TopicMessage) -> Result<Self, BodyError> {
        Ok(Self {
            topic: TopicId(message.topic),
            name: message.name,
            ranges: message.ranges,
            keyspace_version: u8::try_from(message.keyspace_version)
                .map_err(|_| BodyError::Value { field: "topic.keyspace_version" })?,
            batch_bytes_max: message.batch_bytes_max,
            auto_split: some_count(message.auto_split_ranges_max),
        })
    }
}

impl From<&Route> for RouteMessage {
    fn from(route: &Route) -> Self {
        Self {
            range: route.range.0,
            span_start: route.span.first().0,
            span_depth: u32::from(route.span.depth()),
            epoch: route.epoch.0,
            node: route.node.0,
            shard: u32::from(route.shard.0),
        }
    }
}

impl TryFrom<RouteMessage> for Route {
    type Error = BodyError;

    fn try_from(message: RouteMessage) -> Result<Self, BodyError> {
        let span = u8::try_from(message.span_depth).ok().and_then(|d| KeySpan::new(KeyHash(message.span_start), d));
        Ok(Self {
            range: RangeId(message.range),
            span: span.ok_or(BodyError::Value { field: "route.span" })?,
            epoch: Epoch(message.epoch),
            node: NodeId(message.node),
            shard: ShardId(u16::try_from(message.shard).map_err(|_| BodyError::Value { field: "route.shard" })?),
        })
    }
}

impl From<&RangeLineage> for RangeMessage {
    fn from(range: &RangeLineage) -> Self {
        let ids = |ranges: &[RangeId]| ranges.iter().map(|range| range.0).collect();
        Self { route: Some((&range.route).into()), parents: ids(&range.parents), successors: ids(&range.successors) }
    }
}

impl TryFrom<RangeMessage> for RangeLineage {
    type Error = BodyError;

    fn try_from(message: RangeMessage) -> Result<Self, BodyError> {
        let ids = |ranges: Vec<u64>| ranges.into_iter().map(RangeId).collect();
        Ok(Self {
            route: message.route.ok_or(BodyError::Value { field: "range.route" })?.try_into()?,
            parents: ids(message.parents),
            successors: ids(message.successors),
        })
    }
}

/// Appends the frame of a control request.
pub fn append_request(out: &mut Vec<u8>, correlation: u64, deadline_ms: u32, request: &ControlRequest) {
    let head = |kind| Head::request(kind, correlation, deadline_ms);
    match request {
        ControlRequest::CreateTopic { name, ranges, auto_split } => {
            let auto_split_ranges_max = auto_split.unwrap_or_default();
            let message = CreateTopicMessage { name: name.clone(), ranges: *ranges, auto_split_ranges_max };
            append_message(out, head(Kind::CreateTopic), &message);
        }
        ControlRequest::DeleteTopic { name, topic } => {
            let topic = topic.map_or(0, |topic| topic.0);
            append_message(out, head(Kind::DeleteTopic), &DeleteTopicMessage { name: name.clone(), topic });
        }
        ControlRequest::ListTopics => append_message(out, head(Kind::ListTopics), &ListTopicsMessage {}),
        ControlRequest::Routes { topic } => {
            append_message(out, head(Kind::Routes), &RoutesMessage { topic: topic.clone() });
        }
        ControlRequest::SplitRange { topic, range } => {
            append_message(out, head(Kind::SplitRange), &SplitRangeMessage { topic: topic.clone(), range: range.0 });
        }
        ControlRequest::MergeRanges { topic, ranges: [one, other] } => {
            let message = MergeRangesMessage { topic: topic.clone(), one: one.0, other: other.0 };
            append_message(out, head(Kind::MergeRanges), &message);
        }
        ControlRequest::Lineage { topic, after } => {
            append_message(out, head(Kind::ListRanges), &ListRangesMessage { topic: topic.clone(), after: after.0 });
        }
        ControlRequest::OpenProducer { replaces } => {
            let replaces = replaces.map(|(producer, epoch)| ProducerMessage { producer: producer.0, epoch: epoch.0 });
            append_message(out, head(Kind::OpenProducer), &OpenProducerMessage { replaces });
        }
    }
}

/// Reads the body of a request to create a topic.
///
/// # Errors
/// It is not one.
pub fn read_create_topic(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    let CreateTopicMessage { name, ranges, auto_split_ranges_max } = read_message(frame)?;
    Ok(ControlRequest::CreateTopic { name, ranges, auto_split: some_count(auto_split_ranges_max) })
}

/// Reads the body of a request to delete a topic.
///
/// # Errors
/// It is not one.
pub fn read_delete_topic(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    let DeleteTopicMessage { name, topic } = read_message(frame)?;
    Ok(ControlRequest::DeleteTopic { name, topic: (topic != 0).then_some(TopicId(topic)) })
}

/// Reads the body of a question for all topics.
///
/// # Errors
/// It is not one.
pub fn read_list_topics(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    read_message::<ListTopicsMessage>(frame).map(|_| ControlRequest::ListTopics)
}

/// Reads the body of a question for a topic's ranges.
///
/// # Errors
/// It is not one.
pub fn read_routes(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    let RoutesMessage { topic } = read_message(frame)?;
    Ok(ControlRequest::Routes { topic })
}

/// Reads the body of a request to split a range.
///
/// # Errors
/// It is not one.
pub fn read_split_range(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    let SplitRangeMessage { topic, range } = read_message(frame)?;
    Ok(ControlRequest::SplitRange { topic, range: RangeId(range) })
}

/// Reads the body of a request to make one range of two.
///
/// # Errors
/// It is not one.
pub fn read_merge_ranges(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    let MergeRangesMessage { topic, one, other } = read_message(frame)?;
    Ok(ControlRequest::MergeRanges { topic, ranges: [RangeId(one), RangeId(other)] })
}

/// Reads the body of a question for a topic's ranges, sealed ones too.
///
/// # Errors
/// It is not one.
pub fn read_list_ranges(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    let ListRangesMessage { topic, after } = read_message(frame)?;
    Ok(ControlRequest::Lineage { topic, after: RangeId(after) })
}

/// Reads the body of a request for a producer id.
///
/// # Errors
/// It is not one.
pub fn read_open_producer(frame: &Frame<'_>) -> Result<ControlRequest, BodyError> {
    let OpenProducerMessage { replaces } = read_message(frame)?;
    let replaces = replaces.map(|p| (ProducerId(p.producer), ProducerEpoch(p.epoch)));
    Ok(ControlRequest::OpenProducer { replaces })
}

/// Appends the frame of one topic.
pub fn append_topic(out: &mut Vec<u8>, correlation: u64, topic: &TopicView) {
    append_message(out, Head::answer(Kind::Topic, correlation), &TopicMessage::from(topic));
}

/// Appends the frame of a topic's end.
pub fn append_topic_deleted(out: &mut Vec<u8>, correlation: u64, topic: TopicId) {
    append_message(out, Head::answer(Kind::TopicDeleted, correlation), &TopicDeletedMessage { topic: topic.0 });
}

/// Appends the frame of all topics.
pub fn append_topics(out: &mut Vec<u8>, correlation: u64, topics: &[TopicView]) {
    let message = TopicsMessage { topics: topics.iter().map(TopicMessage::from).collect() };
    append_message(out, Head::answer(Kind::Topics, correlation), &message);
}

/// Appends the frame of a topic's ranges.
pub fn append_routes(out: &mut Vec<u8>, correlation: u64, topic: &TopicView, routes: &[Route]) {
    let message =
        RoutesAreMessage { topic: Some(topic.into()), routes: routes.iter().map(RouteMessage::from).collect() };
    append_message(out, Head::answer(Kind::RoutesAre, correlation), &message);
}

/// Appends the frame of ranges with what they were made of and became.
pub fn append_lineage(out: &mut Vec<u8>, correlation: u64, ranges: &[RangeLineage], more: bool) {
    let message = LineageMessage { ranges: ranges.iter().map(RangeMessage::from).collect(), more };
    append_message(out, Head::answer(Kind::Lineage, correlation), &message);
}

/// Appends the frame of a producer id.
pub fn append_producer(out: &mut Vec<u8>, correlation: u64, producer: ProducerId, epoch: ProducerEpoch) {
    let message = ProducerMessage { producer: producer.0, epoch: epoch.0 };
    append_message(out, Head::answer(Kind::Producer, correlation), &message);
}

/// Reads one topic.
///
/// # Errors
/// It is not that.
pub fn read_topic_answer(frame: &Frame<'_>) -> Result<TopicView, BodyError> {
    read_message::<TopicMessage>(frame)?.try_into()
}

/// Reads which topic is deleted.
///
/// # Errors
/// It is not that.
pub fn read_topic_deleted(frame: &Frame<'_>) -> Result<TopicId, BodyError> {
    read_message::<TopicDeletedMessage>(frame).map(|message| TopicId(message.topic))
}

/// Reads all topics.
///
/// # Errors
/// It is not that.
pub fn read_topics_answer(frame: &Frame<'_>) -> Result<Vec<TopicView>, BodyError> {
    let message: TopicsMessage = read_message(frame)?;
    message.topics.into_iter().map(TopicView::try_from).collect()
}

/// Reads a topic's ranges.
///
/// # Errors
/// It is not that.
pub fn read_routes_answer(frame: &Frame<'_>) -> Result<(TopicView, Vec<Route>), BodyError> {
    let message: RoutesAreMessage = read_message(frame)?;
    let topic = message.topic.ok_or(BodyError::Value { field: "routes.topic" })?.try_into()?;
    let routes = message.routes.into_iter().map(Route::try_from).collect::<Result<_, _>>()?;
    Ok((topic, routes))
}

/// Reads ranges with what they were made of and became, and whether there are more.
///
/// # Errors
/// It is not that.
pub fn read_lineage(frame: &Frame<'_>) -> Result<(Vec<RangeLineage>, bool), BodyError> {
    let message: LineageMessage = read_message(frame)?;
    let ranges = message.ranges.into_iter().map(RangeLineage::try_from).collect::<Result<_, _>>()?;
    Ok((ranges, message.more))
}

/// Reads a producer id.
///
/// # Errors
/// It is not that.
pub fn read_producer_answer(frame: &Frame<'_>) -> Result<(ProducerId, ProducerEpoch), BodyError> {
    let message: ProducerMessage = read_message(frame)?;
    Ok((ProducerId(message.producer), ProducerEpoch(message.epoch)))
}
