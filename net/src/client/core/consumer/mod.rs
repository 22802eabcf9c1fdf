//! The consumer: reads a topic from a cursor, range by range, and keeps the cursor.
//!
//! ```text
//!   parts, one for each span         | r1 @120 | r2 @7 | r3, at its sealed end |
//!   fetches, one under way each          |         |
//!   chunks as they came              [..][..]  [...]        deliver: records of the span, gaps, in offset order
//! ```
//! A part at the end of a sealed range becomes its successors' parts; where a range was merged, the half that is done waits for the
//! other, and both become one part at the child's start. So a record is delivered after every record of its key in the ancestors.
//! What is to be read from the earliest record or from a time begins at the ranges that the topic was created with, whatever became
//! of them.
//!
//! **Invariants**: the parts hold each hash exactly once; a part's `next` is behind all that was delivered of it, so the cursor can be
//! taken between any two records; a part keeps two chunks at most, and asks for no third, so memory is bounded; a part stops only in a
//! range that was active at the start, and of those it reads none beyond the end that it had then.

mod answers;
mod beginning;
mod deliver;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use sealog_engine::api::request::{ControlRequest, ShardRequest};
use sealog_engine::api::response::TopicView;
use sealog_engine::format::record::RecordRef;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{Now, Offset, RangeId};

use self::beginning::Beginning;
pub use self::deliver::{Delivery, Flow};
use self::parts::{Part, State};
use super::Failure;
use super::cursor::{Cursor, CursorEntry, CursorError};
use super::links::Links;
use super::random::Random;
use super::routing::Routing;
use crate::wire::refusal::Refused;
use crate::wire::{client, control};

/// Correlation ids of what is no fetch: above every part's.
const TAG_ROUTES: u64 = 1 << 56;
const TAG_BOUNDS: u64 = 2 << 56;
const TAG_LINEAGE: u64 = 3 << 56;
const TAG_MASK: u64 = 0xff << 56;
/// Chunks that a part keeps: one that is delivered, and the one behind it.
const CHUNKS_MAX: usize = 2;
/// Fewest bytes that a fetch asks for.
const FETCH_BYTES_MIN: u32 = 64 * 1024;
/// Time beyond a fetch's wait after which a connection that says nothing is given up.
const SILENCE_MS: u64 = 10_000;

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record of the topic, in whatever became of the ranges that it was created with.
    Earliest,
    /// Behind the newest record there is.
    Latest,
    /// In each of the ranges that the topic was created with at the first record that is not earlier than this, in ms since the Unix
    /// epoch, by the records' own timestamps; where a range has none, in those that took its place. What comes behind it is delivered,
    /// whatever its timestamp.
    Time(u64),
    /// Where a cursor was taken.
    Cursor(Cursor),
}

/// Where to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the committed ends that the ranges which were active at the start had then.
    Committed,
    /// Nowhere: what comes is followed.
    Never,
}

/// How a consumer works.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    pub topic: String,
    /// The client's name, for people.
    pub client: String,
    pub start: Start,
    pub end: End,
    /// Bytes that all fetches together ask for, shared out among the ranges.
    pub fetch_bytes: u32,
    /// How long a fetch waits at the end for a record, in milliseconds.
    pub wait_ms: u32,
    /// Whether each shard gets a connection of its own.
    pub direct: bool,
    /// Seeds jitter.
    pub seed: u64,
}

impl ConsumerSettings {
    /// The defaults for a topic: from the earliest record to the committed end.
    #[must_use]
    pub fn new(topic: &str, seed: u64) -> Self {
        Self {
            topic: topic.to_owned(),
            client: "sealog".to_owned(),
            start: Start::Earliest,
            end: End::Committed,
            fetch_bytes: 4 << 20,
            wait_ms: 1_000,
            direct: true,
            seed,
        }
    }
}

/// What an application is told, apart from records and gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Reading begins: there is a cursor.
    Ready,
    /// Retention has deleted what lies at the cursor. That range stands still until [`Consumer::go_on`].
    Expired { range: RangeId, next: Offset, resume: Offset },
    /// What was fetched does not verify, more than once. That range stands still.
    Damaged { range: RangeId, next: Offset },
    /// A fetch was refused for good. That range stands still.
    RangeFailed { range: RangeId, next: Offset, refused: Refused },
    /// The cursor cannot be used here.
    BadCursor(CursorError),
    /// The consumer cannot go on.
    Failed(Failure),
}

/// A request that is made once and again until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    Idle,
    /// To be asked at this time.
    Due {
        at_ns: u64,
    },
    Asked,
}

impl Ask {
    fn is_due(self, now: Now) -> bool {
        matches!(self, Self::Due { at_ns } if at_ns <= now.monotonic_ns)
    }

    /// The connection over which it was asked is gone: at once again.
    fn lost(&mut self, now: Now) {
        if *self == Self::Asked {
            *self = Self::Due { at_ns: now.monotonic_ns };
        }
    }
}

/// The consumer.
#[derive(Debug)]
pub struct Consumer {
    settings: ConsumerSettings,
    links: Links,
    random: Random,
    routing: Routing,
    topic: Option<TopicView>,
    routes_ask: Ask,
    beginning: Beginning,
    ready: bool,
    /// The topic is no more.
    ended: bool,
    /// Ascending by span, a partition.
    parts: Vec<Part>,
    next_part: u64,
    /// Parts with chunks, one for each chunk, in the order in which they came.
    arrived: VecDeque<u64>,
    events: VecDeque<Event>,
    next_check_ns: u64,
}

impl Consumer {
    /// A consumer; it reads once its links have brought it routes and bounds.
    #[must_use]
    pub fn new(settings: ConsumerSettings) -> Self {
        let mut random = Random::new(settings.seed);
        let links = Links::new(&settings.client, settings.direct, Random::new(random.next_u64()));
        Self {
            settings,
            links,
            random,
            routing: Routing::default(),
            topic: None,
            routes_ask: Ask::Due { at_ns: 0 },
            beginning: Beginning::default(),
            ready: false,
            ended: false,
            parts: vec![],
            next_part: 0,
            arrived: VecDeque::new(),
            events: VecDeque::new(),
            next_check_ns: 0,
        }
    }

    /// Whether everything up to the end was delivered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ready && self.parts.iter().all(|p| p.state == State::Done)
    }

    /// The position behind all that was delivered; `None` before reading begins.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        if !self.ready {
            return None;
        }
        let cluster = self.links.welcome()?.cluster;
        let entries = self.parts.iter().map(|p| CursorEntry { span: p.span, range: p.range, next: p.next }).collect();
        Some(Cursor::new(cluster, self.topic.as_ref()?.topic, entries).expect("the parts are a partition"))
    }

    /// The next thing that the application is told.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// After `Event::Expired`: reads on at the place that it gave.
    pub fn go_on(&mut self, now: Now, range: RangeId, resume: Offset) {
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            if part.range == range && part.state == State::Failed && part.next < resume {
                part.next = resume;
                part.state = State::Idle;
                self.fetch(now, at);
            }
        }
    }

    /// Asks for what lies behind a part's last chunk, if that is to be had; before the first, if need be, where a time lies in the range.
    fn fetch(&mut self, now: Now, at: usize) {
        let share = self.settings.fetch_bytes / u32::try_from(self.parts.len()).unwrap_or(u32::MAX).max(1);
        let part = &mut self.parts[at];
        if self.ended || part.state != State::Idle || part.chunks.len() >= CHUNKS_MAX {
            return;
        }
        let Some(offset) = part.fetch_at() else {
            if part.chunks.is_empty() {
                part.state = State::Done;
            }
            return;
        };
        let link = match self.routing.route(part.range).copied() {
            Some(route) => self.links.for_shard(route.node, route.shard),
            // Of a range that is not active the node itself knows best where it is.
            None => Links::FIRST,
        };
        if !self.links.is_up(link) {
            return;
        }
        part.transmissions = part.transmissions.wrapping_add(1);
        let silent_ns = (u64::from(self.settings.wait_ms) + SILENCE_MS) * MILLISECOND_NS;
        let give_up_ns = now.monotonic_ns + silent_ns;
        part.state = State::Fetching { link, give_up_ns };
        self.next_check_ns = self.next_check_ns.min(give_up_ns);
        let request = match part.from_ms {
            Some(timestamp_ms) if !part.sought => ShardRequest::Since { range: part.range, timestamp_ms },
            Some(_) | None => ShardRequest::Fetch {
                range: part.range,
                offset,
                bytes_max: share.max(FETCH_BYTES_MIN),
                wait_ms: self.settings.wait_ms,
            },
        };
        client::append_request(self.links.outbound(link), part.correlation(), 0, &request);
    }

    fn fetch_all(&mut self, now: Now) {
        for at in 0..self.parts.len() {
            self.fetch(now, at);
        }
    }

    fn want_routes(&mut self, at_ns: u64) {
        if self.routes_ask == Ask::Idle {
            self.routes_ask = Ask::Due { at_ns };
            self.next_check_ns = self.next_check_ns.min(at_ns);
        }
    }

    /// Sends the questions that are due.
    fn ask(&mut self, now: Now) {
        if self.routes_ask.is_due(now) && self.links.is_up(Links::FIRST) {
            self.routes_ask = Ask::Asked;
            let request = ControlRequest::Routes { topic: self.settings.topic.clone() };
            control::append_request(self.links.outbound(Links::FIRST), TAG_ROUTES, 0, &request);
        }
        if !self.ready && !self.ended {
            self.ask_before_reading(now);
        }
    }

    fn new_part_id(&mut self) -> u64 {
        self.next_part += 1;
        self.next_part
    }

    fn position_of(&self, part: u64) -> Option<usize> {
        self.parts.iter().position(|p| p.id == part)
    }
}
