//! One question to the controller: asked again until it is answered, however often the answer is lost. A script is its application.

use sealog_engine::api::request::ControlRequest;
use sealog_engine::api::response::RangeLineage;
use sealog_engine::types::Now;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_net::client::core::{Client, LinkId, Links, Random};
use sealog_net::session::Answer;
use sealog_net::wire::control;
use sealog_net::wire::frame::{BodyError, Frame};
use sealog_net::wire::refusal::Refused;

/// How long an answer is waited for before it is asked again, in ms: more than a merge may take.
const PATIENCE_MS: u32 = 5_000;

/// What it was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Lineage(Vec<RangeLineage>),
    Refused(Refused),
}

/// The client.
pub struct Operator {
    links: Links,
    request: ControlRequest,
    ask_again_ns: Option<u64>,
    told: Option<Told>,
}

impl Operator {
    /// One that asks this.
    #[must_use]
    pub fn new(request: ControlRequest, seed: u64) -> Self {
        let links = Links::new("operator", false, Random::new(seed));
        Self { links, request, ask_again_ns: None, told: None }
    }

    /// The answer, once it has come.
    #[must_use]
    pub fn told(&self) -> Option<&Told> {
        self.told.as_ref()
    }

    fn ask(&mut self, now: Now) {
        if self.told.is_some() {
            self.ask_again_ns = None;
            return;
        }
        self.ask_again_ns = Some(now.monotonic_ns + u64::from(PATIENCE_MS) * MILLISECOND_NS);
        if self.links.is_up(Links::FIRST) {
            control::append_request(self.links.outbound(Links::FIRST), 0, PATIENCE_MS, &self.request);
        }
    }
}

impl Client for Operator {
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
            Answer::Lineage { ranges, .. } => self.told = Some(Told::Lineage(ranges)),
            Answer::Refused(refused) => self.told = Some(Told::Refused(refused)),
            Answer::Pong
            | Answer::Bye(_)
            | Answer::Stored(_)
            | Answer::Fetched(_)
            | Answer::Bounds { .. }
            | Answer::Settled(_)
            | Answer::Rolled(_)
            | Answer::Described(_)
            | Answer::Topic(_)
            | Answer::TopicDeleted(_)
            | Answer::Topics(_)
            | Answer::Routes { .. }
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
