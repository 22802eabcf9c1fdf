//! Makes a topic, deletes it after a while, and makes another of the same name, again and again, however often an answer is lost.

use sealog_engine::api::error::Refusal;
use sealog_engine::api::request::ControlRequest;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{Now, TopicId};
use sealog_net::client::core::{Client, LinkId, Links};
use sealog_net::session::Answer;
use sealog_net::wire::control;
use sealog_net::wire::frame::{BodyError, Frame};

use crate::random::Random;

/// How long an answer is waited for before it is asked again, in ms.
const PATIENCE_MS: u64 = 300;
/// The name of all its topics.
pub const CHURN_NAME: &str = "passing";

/// What it is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Creating,
    Living { topic: TopicId },
    Deleting { topic: TopicId },
}

/// What has come of it, for the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// There is a topic.
    Created(TopicId),
    /// It is asked to be deleted: whoever uses it may be told so from now on.
    Doomed(TopicId),
    /// It is deleted.
    Gone(TopicId),
}

/// The client.
pub struct Churn {
    links: Links,
    random: Random,
    stage: Stage,
    /// Counts what is asked for: an answer to an earlier request says nothing of the present stage.
    round: u64,
    /// Topics that it will make and delete.
    left: u32,
    stopped: bool,
    ask_at_ns: Option<u64>,
    news: Vec<News>,
}

impl Churn {
    /// One that makes so many topics, and deletes all but the last.
    #[must_use]
    pub fn new(topics: u32, mut random: Random) -> Self {
        let links = Links::new("churn", false, sealog_net::client::core::Random::new(random.word()));
        Self {
            links,
            random,
            stage: Stage::Creating,
            round: 0,
            left: topics,
            stopped: false,
            ask_at_ns: Some(0),
            news: Vec::new(),
        }
    }

    /// It deletes no more, but for what it has already asked for.
    pub fn stop(&mut self) {
        (self.left, self.stopped) = (0, true);
    }

    /// Whether nobody is to use what it makes any more.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The topic that there is, if none is being made or deleted.
    #[must_use]
    pub fn living(&self) -> Option<TopicId> {
        match self.stage {
            Stage::Living { topic } => Some(topic),
            Stage::Creating | Stage::Deleting { .. } => None,
        }
    }

    /// What has happened since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    fn enter(&mut self, now: Now, stage: Stage) {
        self.stage = stage;
        self.round += 1;
        let wait_ms = match stage {
            Stage::Creating | Stage::Deleting { .. } => 0,
            Stage::Living { .. } => self.random.spread_between(1, 200),
        };
        self.ask_at_ns = Some(now.monotonic_ns + wait_ms * MILLISECOND_NS);
    }

    fn ask(&mut self, now: Now) {
        if self.ask_at_ns.is_none_or(|at_ns| now.monotonic_ns < at_ns) {
            return;
        }
        let request = match self.stage {
            Stage::Creating => ControlRequest::CreateTopic {
                name: CHURN_NAME.to_owned(),
                ranges: *self.random.pick(&[1, 2, 4]),
                auto_split: None,
            },
            Stage::Living { .. } if self.left <= 1 => {
                self.ask_at_ns = None;
                return;
            }
            Stage::Living { topic } => {
                self.left -= 1;
                self.news.push(News::Doomed(topic));
                self.enter(now, Stage::Deleting { topic });
                return self.ask(now);
            }
            Stage::Deleting { topic } => {
                ControlRequest::DeleteTopic { name: CHURN_NAME.to_owned(), topic: Some(topic) }
            }
        };
        self.ask_at_ns = Some(now.monotonic_ns + PATIENCE_MS * MILLISECOND_NS);
        if self.links.is_up(Links::FIRST) {
            let patience_ms = u32::try_from(PATIENCE_MS).expect("a short time");
            let out = self.links.outbound(Links::FIRST);
            control::append_request(out, self.round, patience_ms, &request);
            if self.stage == Stage::Creating {
                control::append_request(out, self.round, patience_ms, &ControlRequest::ListTopics);
            }
        }
    }
}

impl Client for Churn {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn closed(&mut self, now: Now, link: LinkId) {
        self.links.closed(now, link);
    }

    fn received(&mut self, now: Now, link: LinkId, frame: &Frame<'_>) -> Result<(), BodyError> {
        let answer = Answer::read(frame)?;
        if let Answer::Welcome(welcome) = answer {
            self.links.welcomed(link, welcome);
            return Ok(());
        }
        if frame.correlation != self.round {
            return Ok(());
        }
        let unknown = Refusal::UnknownTopic.code();
        match (self.stage, answer) {
            (Stage::Creating, Answer::Topic(view)) => self.created(now, view.topic),
            (Stage::Creating, Answer::Topics(views)) => {
                // It was made, and the answer was lost.
                if let Some(view) = views.iter().find(|view| view.name == CHURN_NAME) {
                    self.created(now, view.topic);
                }
            }
            (Stage::Deleting { topic }, Answer::TopicDeleted(_)) => self.deleted(now, topic),
            (Stage::Deleting { topic }, Answer::Refused(refused)) if refused.code == unknown => {
                self.deleted(now, topic)
            }
            (Stage::Creating | Stage::Living { .. } | Stage::Deleting { .. }, _) => {}
        }
        Ok(())
    }

    fn tick(&mut self, now: Now) {
        self.ask(now);
    }

    fn next_ns(&self) -> Option<u64> {
        [self.ask_at_ns, self.links.next_ns()].into_iter().flatten().min()
    }
}

impl Churn {
    fn created(&mut self, now: Now, topic: TopicId) {
        self.news.push(News::Created(topic));
        self.enter(now, Stage::Living { topic });
    }

    fn deleted(&mut self, now: Now, topic: TopicId) {
        self.news.push(News::Gone(topic));
        self.enter(now, Stage::Creating);
    }
}
