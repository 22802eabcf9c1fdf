//! An operator who splits and merges ranges while everything else goes on: looks at the topic anew before each wish, asks again until it
//! is told, however often the answer is lost, and now and then asks what cannot be.
//!
//! ```text
//!  look (routes, lineage) --> wish: a split, a merge, or something that cannot be --> asked, again and again --> told, refused, or dropped
//! ```

use sealog_engine::api::error::{Refusal, Retry};
use sealog_engine::api::request::ControlRequest;
use sealog_engine::api::response::{RangeLineage, Route};
use sealog_engine::types::time::{MICROSECOND_NS, MILLISECOND_NS};
use sealog_engine::types::{Now, RangeId};
use sealog_net::client::core::{Client, LinkId, Links};
use sealog_net::session::Answer;
use sealog_net::wire::control;
use sealog_net::wire::frame::{BodyError, Frame};

use crate::random::Random;

/// How long an answer is waited for before it is asked again, in ms: more than a merge may take.
const PATIENCE_MS: u32 = 3_000;
/// Of 100 questions, how many are asked twice at once.
const TWICE_PERCENT: u64 = 20;
/// Of 100 wishes, how many cannot be.
const IMPOSSIBLE_PERCENT: u64 = 8;
/// Of 100 wishes where both can be, how many are splits.
const SPLIT_PERCENT: u64 = 55;
/// Refusals with advice to wait after which a wish is dropped.
const REFUSALS_MOST: u32 = 8;

/// What it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It asks for the ranges of this topic.
    Looking {
        topic: String,
    },
    Wanting {
        topic: String,
        wish: Wish,
    },
}

/// What is to be done to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Split(RangeId),
    Merge([RangeId; 2]),
}

/// How many of what it wanted came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub splits_wanted: u64,
    pub splits_done: u64,
    pub merges_wanted: u64,
    pub merges_done: u64,
    /// Refusals of merges that took too long.
    pub given_up: u64,
    /// Refusals of what cannot be.
    pub impossible: u64,
}

/// The client that asks for splits and merges.
pub struct Reshaper {
    links: Links,
    random: Random,
    topics: Vec<String>,
    /// Active ranges of a topic at which it splits no more.
    ranges_most: usize,
    /// Longest time between two wishes, in µs.
    pause_us_most: u64,
    stage: Option<Stage>,
    /// Of the topic that it looked at last.
    active: Vec<Route>,
    sealed: Vec<RangeId>,
    refusals: u32,
    /// When it does something next, on the monotonic clock.
    next_ns: u64,
    /// Of the last question about `stage`; answers to earlier stages have smaller ones than `first_correlation`.
    correlation: u64,
    first_correlation: u64,
    stopped: bool,
    tally: Tally,
}

impl Reshaper {
    /// One that splits and merges ranges of these topics.
    #[must_use]
    pub fn new(topics: Vec<String>, mut random: Random) -> Self {
        let links = Links::new("reshaper", false, sealog_net::client::core::Random::new(random.word()));
        Self {
            links,
            topics,
            ranges_most: usize::try_from(*random.pick(&[2, 4, 16])).expect("few ranges"),
            pause_us_most: *random.pick(&[1_000, 10_000, 100_000]),
            random,
            stage: None,
            active: Vec::new(),
            sealed: Vec::new(),
            refusals: 0,
            next_ns: 0,
            correlation: 0,
            first_correlation: 1,
            stopped: false,
            tally: Tally::default(),
        }
    }

    /// It wants nothing further.
    pub fn stop(&mut self) {
        self.stopped = true;
        if matches!(self.stage, Some(Stage::Looking { .. })) {
            self.stage = None;
        }
    }

    /// Whether something that it wanted is neither done nor refused.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.stage, Some(Stage::Wanting { .. }))
    }

    /// What came of its wishes.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// When it does something by itself.
    fn own_ns(&self) -> Option<u64> {
        let wants = self.stage.is_some() || !self.stopped;
        (wants && self.links.is_up(Links::FIRST)).then_some(self.next_ns)
    }

    fn ask(&mut self, now: Now) {
        self.next_ns = now.monotonic_ns + u64::from(PATIENCE_MS) * MILLISECOND_NS;
        let stage = match self.stage.take() {
            Some(stage) => stage,
            None => Stage::Looking { topic: self.random.pick(&self.topics).clone() },
        };
        match &stage {
            Stage::Looking { topic } => {
                self.send(&ControlRequest::Lineage { topic: topic.clone(), after: RangeId(0) });
                self.send(&ControlRequest::Routes { topic: topic.clone() });
            }
            Stage::Wanting { topic, wish } => {
                let request = wish.request(topic);
                let again = u64::from(self.random.percent(TWICE_PERCENT));
                for _ in 0..=again {
                    self.send(&request);
                }
            }
        }
        self.stage = Some(stage);
    }

    fn send(&mut self, request: &ControlRequest) {
        self.correlation += 1;
        control::append_request(self.links.outbound(Links::FIRST), self.correlation, PATIENCE_MS, request);
    }

    fn enter(&mut self, stage: Option<Stage>, next_ns: u64) {
        (self.stage, self.next_ns, self.refusals) = (stage, next_ns, 0);
        self.first_correlation = self.correlation + 1;
    }

    /// The wish is done, or cannot be: another follows after a while.
    fn told(&mut self, now: Now) {
        let pause_us = self.random.between(0, self.pause_us_most);
        self.enter(None, now.monotonic_ns + pause_us * MICROSECOND_NS);
    }

    /// The ranges of a topic are known: draws what to do to it.
    fn looked(&mut self, now: Now, topic: String) {
        let impossible = self.random.percent(IMPOSSIBLE_PERCENT);
        let wish = if impossible { self.impossible_wish() } else { self.wish() };
        let Some(wish) = wish.filter(|_| !self.stopped) else { return self.told(now) };
        match wish {
            Wish::Split(_) => self.tally.splits_wanted += 1,
            Wish::Merge(_) => self.tally.merges_wanted += 1,
        }
        self.enter(Some(Stage::Wanting { topic, wish }), now.monotonic_ns);
    }

    fn wish(&mut self) -> Option<Wish> {
        let buddies: Vec<[RangeId; 2]> = self
            .active
            .iter()
            .filter_map(|one| {
                let buddy = one.span.buddy()?;
                let other = self.active.iter().find(|other| other.span == buddy)?;
                Some([one.range, other.range])
            })
            .collect();
        let may_split = self.active.len() < self.ranges_most;
        let splits = may_split && (buddies.is_empty() || self.random.percent(SPLIT_PERCENT));
        if splits {
            return Some(Wish::Split(self.random.pick(&self.active).range));
        }
        (!buddies.is_empty()).then(|| Wish::Merge(*self.random.pick(&buddies)))
    }

    /// A range that is sealed, one that there is not, or two that are no buddies.
    fn impossible_wish(&mut self) -> Option<Wish> {
        let any = self.random.pick(&self.active).range;
        let sealed = (!self.sealed.is_empty()).then(|| *self.random.pick(&self.sealed));
        Some(match (self.random.below(4), sealed) {
            (0, _) | (_, None) => Wish::Split(RangeId(u64::MAX >> 8)),
            (1, Some(sealed)) => Wish::Split(sealed),
            (2, Some(sealed)) => Wish::Merge([any, sealed]),
            (_, Some(_)) => Wish::Merge([any, self.random.pick(&self.active).range]),
        })
    }

    fn lineage_is(&mut self, now: Now, ranges: &[RangeLineage]) {
        match &self.stage {
            Some(Stage::Looking { .. }) => {
                self.sealed =
                    ranges.iter().filter(|range| !range.successors.is_empty()).map(|r| r.route.range).collect();
            }
            Some(Stage::Wanting { wish, .. }) => {
                match wish {
                    Wish::Split(_) => self.tally.splits_done += 1,
                    Wish::Merge(_) => self.tally.merges_done += 1,
                }
                self.told(now);
            }
            None => {}
        }
    }

    fn refused(&mut self, now: Now, retry: Retry, refusal: Option<&Refusal>) {
        let Some(stage) = &self.stage else { return };
        let is_merge = matches!(stage, Stage::Wanting { wish: Wish::Merge(_), .. });
        self.tally.given_up += u64::from(is_merge && matches!(refusal, Some(Refusal::MergeGivenUp { .. })));
        self.refusals += 1;
        match retry {
            Retry::AfterDelay { .. } | Retry::Same if self.stopped => self.told(now),
            Retry::AfterDelay { ms } if self.refusals < REFUSALS_MOST => {
                self.next_ns = now.monotonic_ns + u64::from(ms.max(1)) * MILLISECOND_NS;
            }
            Retry::Same if self.refusals < REFUSALS_MOST => self.next_ns = now.monotonic_ns + MILLISECOND_NS,
            Retry::AfterDelay { .. } | Retry::Same => self.told(now),
            Retry::AfterRefresh | Retry::Never => {
                self.tally.impossible += u64::from(self.waits() && refusal.is_some_and(cannot_be));
                self.told(now);
            }
        }
    }
}

/// Whether a refusal says of a wish that it cannot be.
fn cannot_be(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Sealed { .. }
            | Refusal::UnknownRange
            | Refusal::NotBuddies
            | Refusal::OneHash
            | Refusal::TooManyRanges { .. }
    )
}

impl Wish {
    fn request(self, topic: &str) -> ControlRequest {
        let topic = topic.to_owned();
        match self {
            Self::Split(range) => ControlRequest::SplitRange { topic, range },
            Self::Merge(ranges) => ControlRequest::MergeRanges { topic, ranges },
        }
    }
}

impl Client for Reshaper {
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
            self.next_ns = now.monotonic_ns;
            return Ok(());
        }
        // What was asked twice is answered twice: either answer will do.
        if frame.correlation < self.first_correlation {
            return Ok(());
        }
        match answer {
            Answer::Lineage { ranges, .. } => self.lineage_is(now, &ranges),
            Answer::Routes { routes, .. } => {
                if let Some(Stage::Looking { topic }) = &self.stage {
                    let topic = topic.clone();
                    self.active = routes;
                    self.looked(now, topic);
                }
            }
            // What follows from the first of two answers is not asked anew for the second.
            Answer::Refused(refused) if frame.correlation == self.correlation => {
                self.refused(now, refused.retry, refused.refusal.as_ref());
            }
            Answer::Refused(_)
            | Answer::Welcome(_)
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
