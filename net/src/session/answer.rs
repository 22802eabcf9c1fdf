//! From a node's frame to an answer: the client's side of a session.

use sealog_engine::api::response::{
    ProducerSettled, RangeDescription, RangeLineage, RangeRolled, Route, Stored, TopicView,
};
use sealog_engine::types::{Offset, ProducerEpoch, ProducerId, TopicId};

use crate::wire::client::{self, FetchedView};
use crate::wire::control;
use crate::wire::frame::{BodyError, Frame};
use crate::wire::hello::{Bye, Welcome};
use crate::wire::kind::Kind;
use crate::wire::refusal::Refused;

/// What a node says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    Welcome(Welcome),
    Pong,
    /// The connection is about to be closed.
    Bye(Bye),
    Refused(Refused),
    Stored(Stored),
    Fetched(FetchedView<'a>),
    /// Trimmed start, inclusive, and committed end, exclusive.
    Bounds {
        start: Offset,
        end: Offset,
    },
    Settled(ProducerSettled),
    Rolled(RangeRolled),
    Described(RangeDescription),
    Topic(TopicView),
    /// A topic is deleted.
    TopicDeleted(TopicId),
    Topics(Vec<TopicView>),
    Routes {
        topic: TopicView,
        routes: Vec<Route>,
    },
    /// Ranges, by id; `more`: there are more above the last one.
    Lineage {
        ranges: Vec<RangeLineage>,
        more: bool,
    },
    Producer {
        producer: ProducerId,
        epoch: ProducerEpoch,
    },
}

impl<'a> Answer<'a> {
    /// Reads a frame that a node sent.
    ///
    /// # Errors
    /// It is not an answer, or is not what its kind asks for. The connection cannot be trusted further.
    #[inline]
    pub fn read(frame: &Frame<'a>) -> Result<Self, BodyError> {
        let unexpected = BodyError::Kind { kind: frame.kind };
        Ok(match Kind::from_number(frame.kind).ok_or(unexpected)? {
            Kind::Stored => Self::Stored(client::read_stored(frame)?),
            Kind::Refused => Self::Refused(Refused::read(frame)?),
            Kind::Fetched => Self::Fetched(client::read_fetched(frame)?),
            Kind::BoundsAre => {
                let (start, end) = client::read_bounds_answer(frame)?;
                Self::Bounds { start, end }
            }
            Kind::Settled => Self::Settled(client::read_settled(frame)?),
            Kind::Rolled => Self::Rolled(client::read_rolled(frame)?),
            Kind::Described => Self::Described(client::read_described(frame)?),
            Kind::Topic => Self::Topic(control::read_topic_answer(frame)?),
            Kind::TopicDeleted => Self::TopicDeleted(control::read_topic_deleted(frame)?),
            Kind::Topics => Self::Topics(control::read_topics_answer(frame)?),
            Kind::RoutesAre => {
                let (topic, routes) = control::read_routes_answer(frame)?;
                Self::Routes { topic, routes }
            }
            Kind::Lineage => {
                let (ranges, more) = control::read_lineage(frame)?;
                Self::Lineage { ranges, more }
            }
            Kind::Producer => {
                let (producer, epoch) = control::read_producer_answer(frame)?;
                Self::Producer { producer, epoch }
            }
            Kind::Welcome => Self::Welcome(Welcome::read(frame)?),
            Kind::Pong => Self::Pong,
            Kind::Bye => Self::Bye(Bye::read(frame)?),
            Kind::Hello
            | Kind::Ping
            | Kind::Produce
            | Kind::Fetch
            | Kind::Bounds
            | Kind::Since
            | Kind::Settle
            | Kind::Roll
            | Kind::Describe
            | Kind::CreateTopic
            | Kind::ListTopics
            | Kind::Routes
            | Kind::OpenProducer
            | Kind::DeleteTopic
            | Kind::SplitRange
            | Kind::MergeRanges
            | Kind::ListRanges => return Err(unexpected),
        })
    }
}
