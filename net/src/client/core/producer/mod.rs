//! The producer: routes records by key, joins them into batches, numbers the batches of each range, keeps many under way, and
//! settles each record as stored, not stored or unknown. It retries by the outcome and the advice of a refusal.
//!
//! ```text
//! send --> table --> range --> open batch --> queue --(turn)--> link's outbound bytes
//!                                ^                                        |
//!                                |  sealed: what is not stored            v
//!                                +------------------------------- answers: Stored, Refused, lost
//! ```
//! **Invariants**
//! - A batch that may be stored keeps its (run, sequence), and so its bytes, until an answer or its deadline settles it.
//! - In one range and run, batches are first sent in sequence order, and sent again in order from the refused one on.
//! - The next run begins only when every batch of the last one is stored, known not to be, or told as unknown.
//! - A record behind one that is not settled waits, in the order of the sends, whatever becomes of its range.
//! - Every record is told exactly once, by its deadline at the latest.
//!
//! Call contract: as of [`Client`](super::Client); and end each turn with [`turn`](Producer::turn), then write the links' bytes.

mod answers;
mod batches;
mod deadlines;
mod ranges;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use sealog_engine::api::error::Outcome;
use sealog_engine::api::request::{ControlRequest, ShardRequest};
use sealog_engine::format::batch::Stamp;
use sealog_engine::format::record::RecordKey;
use sealog_engine::types::time::{MICROSECOND_NS, MILLISECOND_NS};
use sealog_engine::types::{KeyHash, Now, ProducerEpoch, ProducerId, TopicId};
use thiserror::Error;

use self::batches::{BatchState, Batches, TokenRun};
use self::ranges::{Mode, Range};
use super::Failure;
use super::links::Links;
use super::random::Random;
use super::routing::Routing;
use crate::wire::client;
use crate::wire::control;

/// Correlation ids of what is no produce: above every slot.
const TAG_ROUTES: u64 = 1 << 56;
const TAG_OPEN: u64 = 2 << 56;
const TAG_SETTLE: u64 = 3 << 56;
const TAG_MASK: u64 = 0xff << 56;

/// How a producer works.
#[derive(Clone, Debug)]
pub struct ProducerSettings {
    pub topic: String,
    /// The client's name, for people.
    pub client: String,
    /// The producer id and epoch to go on from; `None`: a new id.
    pub replaces: Option<(ProducerId, ProducerEpoch)>,
    /// Bytes at which a batch is closed, unless the topic's largest is smaller.
    pub batch_bytes: u32,
    /// Each record is a batch of its own.
    pub one_record_a_batch: bool,
    /// How long a batch waits for more records, in microseconds. 0: until the turn's end.
    pub linger_us: u64,
    /// Records that may be sent and not yet told.
    pub records_in_flight: u32,
    /// Bytes of records that may be sent and not yet told.
    pub bytes_in_flight: u64,
    /// Time from `send` until the record must have been told, in milliseconds.
    pub timeout_ms: u32,
    /// Whether each shard gets a connection of its own.
    pub direct: bool,
    /// Seeds the hashes of keyless records, and jitter. Two producers must not have the same.
    pub seed: u64,
}

impl ProducerSettings {
    /// The defaults for a topic.
    #[must_use]
    pub fn new(topic: &str, seed: u64) -> Self {
        Self {
            topic: topic.to_owned(),
            client: "sealog".to_owned(),
            replaces: None,
            batch_bytes: 256 * 1024,
            one_record_a_batch: false,
            linger_us: 0,
            records_in_flight: 16_384,
            bytes_in_flight: 32 << 20,
            timeout_ms: 10_000,
            direct: true,
            seed,
        }
    }
}

/// What an application sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// `None`: spread over the ranges, with no order.
    pub key: Option<&'a [u8]>,
    /// `None` is not an empty one.
    pub value: Option<&'a [u8]>,
    /// Name and value, in order; names may repeat.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// Milliseconds since the Unix epoch; `None`: now.
    pub timestamp_ms: Option<u64>,
}

/// A record was not taken. Nothing is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    #[error("the producer is not ready yet")]
    NotReady,
    #[error("as much as may be is under way")]
    Full,
    #[error("the record would make a batch of {bytes} bytes; {most} are allowed")]
    TooLarge { bytes: usize, most: usize },
}

/// What an application is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Records can be sent.
    Ready { producer: ProducerId, epoch: ProducerEpoch },
    /// How `count` records ended, those with the tokens from `first` on. `code` is the refusal's number; 0: none.
    Done { first: u64, count: u32, outcome: Outcome, code: u16 },
    /// The producer cannot go on; records under way end by their deadlines, or have all been told because the topic is no more.
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

/// The producer.
#[derive(Debug)]
pub struct Producer {
    settings: ProducerSettings,
    links: Links,
    random: Random,
    routing: Routing,
    ranges: Vec<Range>,
    batches: Batches,
    identity: Option<(ProducerId, ProducerEpoch)>,
    /// The topic that had the name when it was first asked for: another of the name is another.
    topic: Option<TopicId>,
    ready: bool,
    /// The topic is no more.
    ended: bool,
    open_ask: Ask,
    routes_ask: Ask,
    next_token: u64,
    records_in_flight: u32,
    bytes_in_flight: u64,
    bytes_in_flight_max: u64,
    /// Records moved to a range that took the place of a sealed one.
    moved: u64,
    events: VecDeque<Event>,
    /// Ranges with something to close or to send.
    dirty: Vec<usize>,
    looked_at: Vec<usize>,
    /// No deadline, delay or linger ends before this time.
    next_check_ns: u64,
}

impl Producer {
    /// A producer; it is ready once its links have brought it an identity and routes.
    #[must_use]
    pub fn new(settings: ProducerSettings) -> Self {
        let mut random = Random::new(settings.seed);
        let links = Links::new(&settings.client, settings.direct, Random::new(random.next_u64()));
        Self {
            bytes_in_flight_max: settings.bytes_in_flight,
            settings,
            links,
            random,
            routing: Routing::default(),
            ranges: vec![],
            batches: Batches::new(0),
            identity: None,
            topic: None,
            ready: false,
            ended: false,
            open_ask: Ask::Due { at_ns: 0 },
            routes_ask: Ask::Due { at_ns: 0 },
            next_token: 0,
            records_in_flight: 0,
            bytes_in_flight: 0,
            moved: 0,
            events: VecDeque::with_capacity(1024),
            dirty: vec![],
            looked_at: vec![],
            next_check_ns: 0,
        }
    }

    /// Its id and epoch, once they are given.
    #[must_use]
    pub fn identity(&self) -> Option<(ProducerId, ProducerEpoch)> {
        self.identity
    }

    /// The topic that it writes to, once it is known.
    #[must_use]
    pub fn topic(&self) -> Option<TopicId> {
        self.topic
    }

    /// Whether records can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Records that were sent and not yet told.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.records_in_flight
    }

    /// Records that were moved to a range that took the place of a sealed one, each as often as it was.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Takes one record; its token comes back in `Event::Done`. It is written to a link by the next [`turn`](Self::turn).
    ///
    /// # Errors
    /// It is not taken.
    pub fn send(&mut self, now: Now, record: &Record<'_>) -> Result<u64, SendError> {
        if !self.ready {
            return Err(SendError::NotReady);
        }
        let cost = record_cost(record);
        // One record always may be under way, however large.
        let room = self.bytes_in_flight == 0 || self.bytes_in_flight + cost <= self.bytes_in_flight_max;
        if self.records_in_flight >= self.settings.records_in_flight || !room {
            return Err(SendError::Full);
        }
        let key = match record.key {
            Some(key) => RecordKey::Key(key),
            None => RecordKey::Keyless(KeyHash(self.random.next_u64())),
        };
        let deadline_ns = now.monotonic_ns + u64::from(self.settings.timeout_ms) * MILLISECOND_NS;
        let parts = RecordParts {
            key,
            value: record.value,
            headers: record.headers,
            timestamp_ms: record.timestamp_ms.unwrap_or(now.wall_ms),
            cost,
        };
        let token = self.next_token;
        self.add(now, &parts, token, deadline_ns)?;
        self.next_token += 1;
        Ok(token)
    }

    /// Ends a driver's turn: closes the batches that have waited long enough, and writes what can be sent to the links.
    pub fn turn(&mut self, now: Now) {
        self.settle_dirty(now, false);
    }

    /// As [`turn`](Self::turn), but every open batch is closed.
    pub fn flush(&mut self, now: Now) {
        self.settle_dirty(now, true);
    }

    /// The next thing that the application is told.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Adds a record to the batch that it belongs to.
    fn add(&mut self, now: Now, record: &RecordParts<'_>, token: u64, deadline_ns: u64) -> Result<(), SendError> {
        let range = self.routing.slot(record.key.hash()).ok_or(SendError::NotReady)?;
        loop {
            let slot = match self.ranges[range].open {
                Some(slot) => slot,
                None => self.batches.open(range, now.monotonic_ns, deadline_ns),
            };
            let batch = self.batches.get(slot);
            match batch.builder.push(record.key, record.value, record.headers, record.timestamp_ms) {
                Ok(()) => {
                    match batch.tokens.last_mut() {
                        Some(run) if run.first + u64::from(run.count) == token => run.count += 1,
                        Some(_) | None => batch.tokens.push(TokenRun { first: token, count: 1 }),
                    }
                    batch.cost += record.cost;
                    batch.deadline_ns = batch.deadline_ns.min(deadline_ns);
                    let full = self.settings.one_record_a_batch
                        || batch.builder.bytes_bound() >= self.settings.batch_bytes as usize;
                    self.ranges[range].open = Some(slot);
                    self.records_in_flight += 1;
                    self.bytes_in_flight += record.cost;
                    self.next_check_ns = self.next_check_ns.min(deadline_ns);
                    if full {
                        self.close_open(range);
                    }
                    self.mark_dirty(range);
                    return Ok(());
                }
                Err(full) if batch.builder.is_empty() => {
                    self.batches.release(slot);
                    return Err(SendError::TooLarge { bytes: full.bytes, most: full.max });
                }
                Err(_) => self.close_open(range),
            }
        }
    }

    /// The open batch of a range takes no more records.
    fn close_open(&mut self, range: usize) {
        let range = &mut self.ranges[range];
        if let Some(slot) = range.open.take() {
            self.batches.get(slot).state = BatchState::Waiting;
            range.queue.push_back(slot);
        }
    }

    fn mark_dirty(&mut self, range: usize) {
        let entry = &mut self.ranges[range];
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(range);
        }
    }

    fn settle_dirty(&mut self, now: Now, force: bool) {
        std::mem::swap(&mut self.dirty, &mut self.looked_at);
        let mut looked_at = std::mem::take(&mut self.looked_at);
        for range in looked_at.drain(..) {
            self.ranges[range].dirty = false;
            if let Some(slot) = self.ranges[range].open {
                let due_ns = self.batches.get(slot).opened_ns + self.settings.linger_us * MICROSECOND_NS;
                if force || due_ns <= now.monotonic_ns {
                    self.close_open(range);
                } else {
                    self.next_check_ns = self.next_check_ns.min(due_ns);
                }
            }
            self.transmit(now, range);
        }
        self.looked_at = looked_at;
    }

    /// Writes what a range's queue may send to its link.
    fn transmit(&mut self, now: Now, range: usize) {
        let entry = &mut self.ranges[range];
        let Some((producer, epoch)) = self.identity else { return };
        if entry.mode != Mode::Sending || !self.links.is_up(entry.link) {
            return;
        }
        while entry.sent < entry.queue.len() && !entry.waits_for_a_try(&mut self.batches) {
            if entry.sent == entry.numbered {
                entry.number(&mut self.batches);
            }
            let slot = entry.queue[entry.sent];
            entry.sent += 1;
            if self.batches.get(slot).state != BatchState::Waiting {
                continue;
            }
            let correlation = self.batches.transmit(slot);
            let batch = self.batches.get(slot);
            let left_ns = batch.deadline_ns.saturating_sub(now.monotonic_ns);
            let deadline_ms = u32::try_from(left_ns / MILLISECOND_NS).unwrap_or(u32::MAX).max(1);
            let stamp = Stamp { producer, epoch, run: entry.run, sequence: batch.sequence, last: false };
            let request = ShardRequest::Produce { range: entry.id, epoch: entry.epoch, batch: batch.bytes(stamp) };
            client::append_request(self.links.outbound(entry.link), correlation, deadline_ms, &request);
        }
    }

    /// Tells the application how a batch ended. The slot stays with its range's queue.
    fn tell(&mut self, slot: usize, outcome: Outcome, code: u16) {
        let batch = self.batches.get(slot);
        batch.state = BatchState::Done;
        batch.unanswered = 0;
        self.records_in_flight -= batch.builder.count();
        self.bytes_in_flight -= batch.cost;
        for run in &batch.tokens {
            self.events.push_back(Event::Done { first: run.first, count: run.count, outcome, code });
        }
    }

    /// Asks for routes, if they are not already asked for.
    fn want_routes(&mut self, at_ns: u64) {
        if self.routes_ask == Ask::Idle {
            self.routes_ask = Ask::Due { at_ns };
            self.next_check_ns = self.next_check_ns.min(at_ns);
        }
    }

    /// Sends the control requests that are due.
    fn ask(&mut self, now: Now) {
        if !self.links.is_up(Links::FIRST) {
            return;
        }
        let due = |ask: Ask| matches!(ask, Ask::Due { at_ns } if at_ns <= now.monotonic_ns);
        let deadline_ms = self.settings.timeout_ms;
        if due(self.open_ask) {
            self.open_ask = Ask::Asked;
            let request = ControlRequest::OpenProducer { replaces: self.settings.replaces };
            control::append_request(self.links.outbound(Links::FIRST), TAG_OPEN, deadline_ms, &request);
        }
        if due(self.routes_ask) {
            self.routes_ask = Ask::Asked;
            let request = ControlRequest::Routes { topic: self.settings.topic.clone() };
            control::append_request(self.links.outbound(Links::FIRST), TAG_ROUTES, deadline_ms, &request);
        }
    }
}

/// A record with what was decided of it.
struct RecordParts<'a> {
    key: RecordKey<'a>,
    value: Option<&'a [u8]>,
    headers: &'a [(&'a [u8], &'a [u8])],
    timestamp_ms: u64,
    cost: u64,
}

/// Bytes that a record counts for in the bound of bytes under way: its own, and what a batch of it alone takes besides.
fn record_cost(record: &Record<'_>) -> u64 {
    const OVERHEAD: usize = 128;
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let own = record.key.map_or(8, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
    (own + headers + OVERHEAD) as u64
}
