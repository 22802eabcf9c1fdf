//! An operator who has segments rolled while everything else goes on: asks again until it is told, however often the answer is lost.

use sealog_engine::api::error::{Refusal, Retry};
use sealog_engine::api::request::{ControlRequest, ShardRequest};
use sealog_engine::types::time::{MICROSECOND_NS, MILLISECOND_NS};
use sealog_engine::types::{Now, RangeId};
use sealog_net::client::core::{Client, LinkId, Links};
use sealog_net::session::Answer;
use sealog_net::wire::frame::{BodyError, Frame};
use sealog_net::wire::{client, control};

use crate::random::Random;

/// How long an answer is waited for before it is asked again, in ms.
const PATIENCE_MS: u32 = 1_000;
/// Of 100 questions, how many are asked twice at once.
const TWICE_PERCENT: u64 = 20;
/// Of 100 questions, with how many a range is described too.
const DESCRIBE_PERCENT: u64 = 20;

/// The client that asks for rolls.
pub struct Roller {
    links: Links,
    random: Random,
    topics: Vec<String>,
    /// Longest time between two wishes, in µs.
    pause_us_most: u64,
    /// Of all topics, once it has been told.
    ranges: Vec<RangeId>,
    /// To be rolled, until it is told that it is or cannot be.
    wish: Option<RangeId>,
    /// When it does something next, on the monotonic clock.
    next_ns: u64,
    /// Of the last question; never used again.
    correlation: u64,
    stopped: bool,
    wishes: u64,
}

impl Roller {
    /// One that has ranges of these topics rolled.
    #[must_use]
    pub fn new(topics: Vec<String>, mut random: Random) -> Self {
        let links = Links::new("roller", false, sealog_net::client::core::Random::new(random.word()));
        Self {
            links,
            topics,
            pause_us_most: *random.pick(&[2_000, 20_000, 200_000]),
            random,
            ranges: Vec::new(),
            wish: None,
            next_ns: 0,
            correlation: 0,
            stopped: false,
            wishes: 0,
        }
    }

    /// It wants nothing further.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether something that it wanted is neither done nor refused.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.wish.is_some()
    }

    /// How many rolls it has wanted.
    #[must_use]
    pub fn wishes(&self) -> u64 {
        self.wishes
    }

    /// When it does something by itself.
    fn own_ns(&self) -> Option<u64> {
        let wants = self.wish.is_some() || !self.stopped;
        (wants && self.links.is_up(Links::FIRST)).then_some(self.next_ns)
    }

    fn ask(&mut self, now: Now) {
        self.next_ns = now.monotonic_ns + u64::from(PATIENCE_MS) * MILLISECOND_NS;
        if self.ranges.is_empty() {
            for topic in self.topics.clone() {
                let request = ControlRequest::Routes { topic };
                control::append_request(self.links.outbound(Links::FIRST), 0, PATIENCE_MS, &request);
            }
            return;
        }
        let range = *self.wish.get_or_insert_with(|| {
            self.wishes += 1;
            *self.random.pick(&self.ranges)
        });
        let again = u64::from(self.random.percent(TWICE_PERCENT));
        for _ in 0..=again {
            self.ask_shard(&ShardRequest::Roll { range });
        }
        if self.random.percent(DESCRIBE_PERCENT) {
            self.ask_shard(&ShardRequest::Describe { range });
            self.ask_shard(&ShardRequest::Roll { range });
        }
    }

    fn ask_shard(&mut self, request: &ShardRequest<'_>) {
        self.correlation += 1;
        client::append_request(self.links.outbound(Links::FIRST), self.correlation, PATIENCE_MS, request);
    }

    fn told(&mut self, now: Now) {
        self.wish = None;
        self.next_ns = now.monotonic_ns + self.random.between(0, self.pause_us_most) * MICROSECOND_NS;
    }
}

impl Client for Roller {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn closed(&mut self, now: Now, link: LinkId) {
        self.links.closed(now, link);
    }

    fn received(&mut self, now: Now, link: LinkId, frame: &Frame<'_>) -> Result<(), BodyError> {
        let is_last = frame.correlation == self.correlation;
        match Answer::read(frame)? {
            Answer::Welcome(welcome) => {
                self.links.welcomed(link, welcome);
                self.next_ns = now.monotonic_ns;
            }
            Answer::Routes { routes, .. } => {
                let known = routes.iter().map(|route| route.range).filter(|range| !self.ranges.contains(range));
                let known: Vec<RangeId> = known.collect();
                self.ranges.extend(known);
                self.next_ns = now.monotonic_ns;
            }
            Answer::Rolled(_) if is_last => self.told(now),
            Answer::Refused(refused) if is_last && self.wish.is_some() => match refused.retry {
                Retry::AfterDelay { ms } => {
                    self.next_ns = now.monotonic_ns + u64::from(ms.max(1)) * MILLISECOND_NS;
                }
                Retry::AfterRefresh | Retry::Same | Retry::Never => {
                    if matches!(refused.refusal, Some(Refusal::Sealed { .. })) {
                        // It looks anew at what there is.
                        self.ranges.clear();
                    }
                    self.told(now);
                }
            },
            Answer::Refused(_)
            | Answer::Pong
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
            | Answer::Lineage { .. }
            | Answer::Producer { .. } => {}
        }
        Ok(())
    }

    fn tick(&mut self, now: Now) {
        if self.own_ns().is_some_and(|at_ns| at_ns <= now.monotonic_ns) {
            self.ask(now);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        [self.own_ns(), self.links.next_ns()].into_iter().flatten().min()
    }
}
