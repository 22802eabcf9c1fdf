//! Makes the topics of a run: asks for each until it is there, however often the answer is lost.

use sealog_engine::api::request::ControlRequest;
use sealog_engine::types::Now;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_net::client::core::{Client, LinkId, Links, Random};
use sealog_net::session::Answer;
use sealog_net::wire::control;
use sealog_net::wire::frame::{BodyError, Frame};

/// How long an answer is waited for before it is asked again, in ms.
const PATIENCE_MS: u64 = 1_000;

/// A topic that is to be made.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: String,
    pub ranges: u32,
    /// It splits by itself, up to so many ranges.
    pub auto_split: Option<u32>,
}

/// The client that makes topics.
pub struct Admin {
    links: Links,
    /// Those that are not known to be there.
    wanted: Vec<Wanted>,
    ask_again_ns: Option<u64>,
}

impl Admin {
    /// One that wants these topics.
    #[must_use]
    pub fn new(topics: Vec<Wanted>, seed: u64) -> Self {
        Self { links: Links::new("admin", false, Random::new(seed)), wanted: topics, ask_again_ns: None }
    }

    /// Topics that are not known to be there.
    #[must_use]
    pub fn left(&self) -> usize {
        self.wanted.len()
    }

    fn ask(&mut self, now: Now) {
        let Some(Wanted { name, ranges, auto_split }) = self.wanted.last() else {
            self.ask_again_ns = None;
            return;
        };
        self.ask_again_ns = Some(now.monotonic_ns + PATIENCE_MS * MILLISECOND_NS);
        if self.links.is_up(Links::FIRST) {
            let request = ControlRequest::CreateTopic { name: name.clone(), ranges: *ranges, auto_split: *auto_split };
            let patience_ms = u32::try_from(PATIENCE_MS).expect("a short time");
            control::append_request(self.links.outbound(Links::FIRST), 0, patience_ms, &request);
            control::append_request(self.links.outbound(Links::FIRST), 1, patience_ms, &ControlRequest::ListTopics);
        }
    }
}

impl Client for Admin {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn closed(&mut self, now: Now, link: LinkId) {
        self.links.closed(now, link);
    }

    fn received(&mut self, now: Now, link: LinkId, frame: &Frame<'_>) -> Result<(), BodyError> {
        match Answer::read(frame)? {
            Answer::Welcome(welcome) => {
                self.links.welcomed(link, welcome);
                self.ask(now);
            }
            Answer::Topic(topic) => {
                self.wanted.retain(|wanted| wanted.name != topic.name);
                self.ask(now);
            }
            Answer::Topics(topics) => {
                let before = self.wanted.len();
                self.wanted.retain(|wanted| topics.iter().all(|topic| topic.name != wanted.name));
                if self.wanted.len() < before {
                    self.ask(now);
                }
            }
            Answer::Refused(_)
            | Answer::Pong
            | Answer::Bye(_)
            | Answer::TopicDeleted(_)
            | Answer::Stored(_)
            | Answer::Fetched(_)
            | Answer::Bounds { .. }
            | Answer::Settled(_)
            | Answer::Rolled(_)
            | Answer::Described(_)
            | Answer::Routes { .. }
            | Answer::Lineage { .. }
            | Answer::Producer { .. } => {}
        }
        Ok(())
    }

    fn tick(&mut self, now: Now) {
        if self.ask_again_ns.is_some_and(|at_ns| at_ns <= now.monotonic_ns) {
            self.ask(now);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        [self.ask_again_ns, self.links.next_ns()].into_iter().flatten().min()
    }
}
