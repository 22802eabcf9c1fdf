//! One request, one answer: topics, routes, producer ids, ranges.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sealog_engine::api::error::{Refusal, Retry};
use sealog_engine::api::request::{ControlRequest, ShardRequest};
use sealog_engine::api::response::{RangeDescription, RangeLineage, RangeRolled, Route, TopicView};
use sealog_engine::types::{Offset, ProducerEpoch, ProducerId, RangeId, TopicId};
use thiserror::Error;

use super::{RECEIVE_BYTES, Unreachable, connect, read_some};
use crate::session::Answer;
use crate::wire::frame::{FRAME_BYTES_CEILING, VERSION};
use crate::wire::hello::{Bye, append_ping};
use crate::wire::refusal::Refused;
use crate::wire::{Hello, ReceiveBuffer, Welcome, client, control};

/// Wait before a connection is tried again.
const CONNECT_AGAIN: Duration = Duration::from_millis(50);

/// A request has no answer that says it was done.
#[derive(Debug, Error)]
pub enum RequestError {
    /// No connection, so nothing was done.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// Not done.
    #[error("{}", .0.text)]
    Refused(Refused),
    /// The node ended the connection.
    #[error("the node ended the connection: {}", .0.text)]
    Bye(Bye),
    /// The connection broke while the answer was awaited: it may have been done.
    #[error("the connection broke before the answer came: {0}")]
    Broken(io::Error),
    /// It may have been done.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// What was answered is not an answer to this request.
    #[error("the answer was not understood")]
    Confused,
}

/// A connection for requests that are made one at a time.
#[derive(Debug)]
pub struct Admin {
    stream: TcpStream,
    receive: ReceiveBuffer,
    correlation: u64,
    timeout: Duration,
    welcome: Welcome,
}

/// What was answered, without what it borrows.
enum Owned {
    Welcome(Welcome),
    Topic(TopicView),
    TopicDeleted(TopicId),
    Topics(Vec<TopicView>),
    Routes(TopicView, Vec<Route>),
    Lineage(Vec<RangeLineage>, bool),
    Producer(ProducerId, ProducerEpoch),
    Bounds(Offset, Offset),
    Rolled(RangeRolled),
    Described(RangeDescription),
    Pong,
}

impl Admin {
    /// Connects to the first of `addresses` (`host:port`) that welcomes it. `timeout` bounds this and each request.
    ///
    /// # Errors
    /// None did in time.
    ///
    /// # Panics
    /// If there is no address.
    pub fn connect(addresses: &[String], timeout: Duration) -> Result<Self, RequestError> {
        let deadline = Instant::now() + timeout;
        let mut tried = addresses.iter().cycle();
        loop {
            let address = tried.next().expect("at least one address");
            let error = match connect(address) {
                Ok(stream) => return Self::greet(stream, timeout),
                Err(error) => error,
            };
            if Instant::now() + CONNECT_AGAIN >= deadline {
                return Err(Unreachable { address: address.clone(), error }.into());
            }
            std::thread::sleep(CONNECT_AGAIN);
        }
    }

    fn greet(stream: TcpStream, timeout: Duration) -> Result<Self, RequestError> {
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            features: 0,
            cluster: None,
            shard: None,
            client: "sealog".to_owned(),
            authentication: vec![],
        };
        let mut bytes = vec![];
        hello.append(&mut bytes, 0);
        let receive = ReceiveBuffer::new(RECEIVE_BYTES, FRAME_BYTES_CEILING);
        let mut exchange = Exchange { stream, receive, deadline: Instant::now() + timeout, timeout };
        let Owned::Welcome(welcome) = exchange.once(0, &bytes)? else { return Err(RequestError::Confused) };
        let Exchange { stream, receive, .. } = exchange;
        Ok(Self { stream, receive, correlation: 0, timeout, welcome })
    }

    /// What the node said of itself.
    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Makes a request, and makes it again after a delay while the node says so and there is time. A range that is sealed stays so.
    fn request(&mut self, append: impl Fn(&mut Vec<u8>, u64, u32)) -> Result<Owned, RequestError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            self.correlation += 1;
            let left = deadline.saturating_duration_since(Instant::now());
            let mut bytes = vec![];
            append(&mut bytes, self.correlation, u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
            let stream = self.stream.try_clone().map_err(RequestError::Broken)?;
            let receive = std::mem::replace(&mut self.receive, ReceiveBuffer::new(0, 0));
            let mut exchange = Exchange { stream, receive, deadline, timeout: self.timeout };
            let answer = exchange.once(self.correlation, &bytes);
            self.receive = exchange.receive;
            let again_ms = match &answer {
                Err(RequestError::Refused(Refused { refusal: Some(Refusal::Sealed { .. }), .. })) => return answer,
                Err(RequestError::Refused(Refused { retry: Retry::AfterDelay { ms }, .. })) => *ms,
                Err(RequestError::Refused(Refused { retry: Retry::AfterRefresh | Retry::Same, .. })) => 50,
                _ => return answer,
            };
            let again = Duration::from_millis(u64::from(again_ms).max(1));
            if Instant::now() + again >= deadline {
                return answer;
            }
            std::thread::sleep(again);
        }
    }

    fn control(&mut self, request: &ControlRequest) -> Result<Owned, RequestError> {
        self.request(|out, correlation, deadline_ms| control::append_request(out, correlation, deadline_ms, request))
    }

    fn shard(&mut self, request: &ShardRequest<'_>) -> Result<Owned, RequestError> {
        self.request(|out, correlation, deadline_ms| client::append_request(out, correlation, deadline_ms, request))
    }

    /// Creates a topic of `ranges` (a power of two) ranges.
    ///
    /// # Errors
    /// It was not created, or may have been.
    pub fn create_topic(&mut self, name: &str, ranges: u32) -> Result<TopicView, RequestError> {
        let Owned::Topic(topic) =
            self.control(&ControlRequest::CreateTopic { name: name.to_owned(), ranges, auto_split: None })?
        else {
            return Err(RequestError::Confused);
        };
        Ok(topic)
    }

    /// As [`create_topic`](Self::create_topic), of a topic that splits ranges that fill, up to `ranges_max` of them, and merges those that
    /// do not, down to `ranges`.
    ///
    /// # Errors
    /// It was not created, or may have been.
    pub fn create_splitting_topic(
        &mut self,
        name: &str,
        ranges: u32,
        ranges_max: u32,
    ) -> Result<TopicView, RequestError> {
        let auto_split = Some(ranges_max);
        let Owned::Topic(topic) =
            self.control(&ControlRequest::CreateTopic { name: name.to_owned(), ranges, auto_split })?
        else {
            return Err(RequestError::Confused);
        };
        Ok(topic)
    }

    /// Deletes the topic of this name with all its records, for ever. With `topic` only that one: another of the name that was created
    /// since is not touched.
    ///
    /// # Errors
    /// There is none, or it may have been deleted: then the topics tell.
    pub fn delete_topic(&mut self, name: &str, topic: Option<TopicId>) -> Result<TopicId, RequestError> {
        let Owned::TopicDeleted(topic) = self.control(&ControlRequest::DeleteTopic { name: name.to_owned(), topic })?
        else {
            return Err(RequestError::Confused);
        };
        Ok(topic)
    }

    /// All topics, by name.
    ///
    /// # Errors
    /// There was no answer.
    pub fn list_topics(&mut self) -> Result<Vec<TopicView>, RequestError> {
        let Owned::Topics(topics) = self.control(&ControlRequest::ListTopics)? else {
            return Err(RequestError::Confused);
        };
        Ok(topics)
    }

    /// A topic and its active ranges, by key span.
    ///
    /// # Errors
    /// There is none, or there was no answer.
    pub fn routes(&mut self, topic: &str) -> Result<(TopicView, Vec<Route>), RequestError> {
        let Owned::Routes(topic, routes) = self.control(&ControlRequest::Routes { topic: topic.to_owned() })? else {
            return Err(RequestError::Confused);
        };
        Ok((topic, routes))
    }

    /// Splits a range of a topic at the middle of its key span, and gives its two halves. Split before, it gives those: asking again does
    /// no harm.
    ///
    /// # Errors
    /// It was not split, or may have been.
    pub fn split(&mut self, topic: &str, range: RangeId) -> Result<Vec<RangeLineage>, RequestError> {
        let request = ControlRequest::SplitRange { topic: topic.to_owned(), range };
        let Owned::Lineage(ranges, _) = self.control(&request)? else { return Err(RequestError::Confused) };
        Ok(ranges)
    }

    /// Makes one range of two of a topic, each the other's buddy, in any order, and gives it. Merged before, it gives that: asking again
    /// does no harm.
    ///
    /// # Errors
    /// They were not merged, or may have been.
    pub fn merge(&mut self, topic: &str, ranges: [RangeId; 2]) -> Result<RangeLineage, RequestError> {
        let request = ControlRequest::MergeRanges { topic: topic.to_owned(), ranges };
        let Owned::Lineage(ranges, _) = self.control(&request)? else { return Err(RequestError::Confused) };
        ranges.into_iter().next().ok_or(RequestError::Confused)
    }

    /// The ranges of a topic, sealed ones too, by id, with what they were made of and became.
    ///
    /// # Errors
    /// There is no such topic, or there was no answer.
    pub fn lineage(&mut self, topic: &str) -> Result<Vec<RangeLineage>, RequestError> {
        let mut all: Vec<RangeLineage> = Vec::new();
        loop {
            let after = all.last().map(|last| last.route.range).unwrap_or_default();
            let request = ControlRequest::Lineage { topic: topic.to_owned(), after };
            let Owned::Lineage(ranges, more) = self.control(&request)? else { return Err(RequestError::Confused) };
            let goes_on = more && !ranges.is_empty();
            all.extend(ranges);
            if !goes_on {
                return Ok(all);
            }
        }
    }

    /// A new producer id, or the next epoch of one.
    ///
    /// # Errors
    /// The epoch that it replaces is not the current one, or there was no answer.
    pub fn open_producer(
        &mut self,
        replaces: Option<(ProducerId, ProducerEpoch)>,
    ) -> Result<(ProducerId, ProducerEpoch), RequestError> {
        let Owned::Producer(producer, epoch) = self.control(&ControlRequest::OpenProducer { replaces })? else {
            return Err(RequestError::Confused);
        };
        Ok((producer, epoch))
    }

    /// Where a range begins (inclusive) and its committed end (exclusive).
    ///
    /// # Errors
    /// There is no such range, or there was no answer.
    pub fn bounds(&mut self, range: RangeId) -> Result<(Offset, Offset), RequestError> {
        let answer = self.shard(&ShardRequest::Bounds { range })?;
        let Owned::Bounds(start, end) = answer else { return Err(RequestError::Confused) };
        Ok((start, end))
    }

    /// Where a range begins and ends, and of how many segments it consists.
    ///
    /// # Errors
    /// There is no such range, or there was no answer.
    pub fn describe(&mut self, range: RangeId) -> Result<RangeDescription, RequestError> {
        let answer = self.shard(&ShardRequest::Describe { range })?;
        let Owned::Described(described) = answer else { return Err(RequestError::Confused) };
        Ok(described)
    }

    /// Seals the range's open segment and lets the range go on in its successor, as it does by itself when that is full. All that was
    /// acknowledged before lies in sealed segments then. If no answer came it may be asked again: that rolls at most what has come since.
    ///
    /// # Errors
    /// There is no such range, it is sealed itself, or there was no answer.
    pub fn roll(&mut self, range: RangeId) -> Result<RangeRolled, RequestError> {
        let Owned::Rolled(rolled) = self.shard(&ShardRequest::Roll { range })? else {
            return Err(RequestError::Confused);
        };
        Ok(rolled)
    }

    /// Whether the node answers.
    ///
    /// # Errors
    /// It does not.
    pub fn ping(&mut self) -> Result<(), RequestError> {
        let Owned::Pong = self.request(|out, correlation, _| append_ping(out, correlation))? else {
            return Err(RequestError::Confused);
        };
        Ok(())
    }
}

/// One request under way.
struct Exchange {
    stream: TcpStream,
    receive: ReceiveBuffer,
    deadline: Instant,
    timeout: Duration,
}

impl Exchange {
    fn once(&mut self, correlation: u64, bytes: &[u8]) -> Result<Owned, RequestError> {
        self.stream.write_all(bytes).map_err(RequestError::Broken)?;
        loop {
            let broken = |_| RequestError::Confused;
            while let Some(frame) = self.receive.next_frame().map_err(broken)? {
                let answer = Answer::read(&frame).map_err(|_| RequestError::Confused)?;
                if let Answer::Bye(bye) = answer {
                    return Err(RequestError::Bye(bye));
                }
                if frame.correlation == correlation {
                    return owned(answer);
                }
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RequestError::TimedOut(self.timeout));
            }
            read_some(&mut self.stream, &mut self.receive, left).map_err(RequestError::Broken)?;
        }
    }
}

fn owned(answer: Answer<'_>) -> Result<Owned, RequestError> {
    Ok(match answer {
        Answer::Welcome(welcome) => Owned::Welcome(welcome),
        Answer::Pong => Owned::Pong,
        Answer::Refused(refused) => return Err(RequestError::Refused(refused)),
        Answer::Bounds { start, end } => Owned::Bounds(start, end),
        Answer::Rolled(rolled) => Owned::Rolled(rolled),
        Answer::Described(described) => Owned::Described(described),
        Answer::Topic(topic) => Owned::Topic(topic),
        Answer::TopicDeleted(topic) => Owned::TopicDeleted(topic),
        Answer::Topics(topics) => Owned::Topics(topics),
        Answer::Routes { topic, routes } => Owned::Routes(topic, routes),
        Answer::Lineage { ranges, more } => Owned::Lineage(ranges, more),
        Answer::Producer { producer, epoch } => Owned::Producer(producer, epoch),
        Answer::Bye(_) | Answer::Stored(_) | Answer::Fetched(_) | Answer::Settled(_) => {
            return Err(RequestError::Confused);
        }
    })
}
