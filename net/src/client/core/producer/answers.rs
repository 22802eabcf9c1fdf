//! What the producer does with what a node says: an answer settles its batch, or sends a range back to an earlier one.
//!
//! | refusal's advice | what happens to the range |
//! |---|---|
//! | same | everything from the refused batch on is sent again, in order |
//! | after delay | the same, not before the delay is over; the delay doubles with each try that is refused |
//! | after refresh | the same, with the route that the refusal carries, or else when routes have come |
//! | never | the batch ends with the refusal's outcome; what follows goes on in the next run |
//!
//! A range that was refused three times in a row is tried with one batch at a time until one is stored: what a node cannot take yet it need
//! not refuse for each batch that waits.
//!
//! Two refusals are looked at by name. *Sealed* carries what settles all at once. *Unknown producer* for a batch with earlier ones
//! unsettled is only out of order; for the first unsettled one it says that nothing of the run is stored there, and the next run
//! begins with it.

use sealog_engine::api::error::{Outcome, Refusal, Retry};
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{Now, TopicId};

use super::batches::BatchState;
use super::ranges::{Mode, Settle};
use super::{Ask, Batches, Event, Producer, TAG_MASK, TAG_OPEN, TAG_ROUTES, TAG_SETTLE};
use crate::client::core::links::{LinkId, Links};
use crate::client::core::{Client, Failure};
use crate::session::Answer;
use crate::wire::client;
use crate::wire::frame::{BodyError, Frame};
use crate::wire::hello::{Bye, ByeReason};
use crate::wire::kind::Kind;
use crate::wire::refusal::Refused;

/// Wait after the second refusal in a row, doubled at each further one.
const STRIKE_MS_MIN: u64 = 5;
/// Longest such wait.
const STRIKE_MS_MAX: u64 = 1_000;
/// An advised delay doubles so many times at most.
const DELAY_DOUBLINGS: u32 = 5;
/// Shortest wait before a refused control request is made again.
const ASK_AGAIN_MS: u64 = 50;

impl Client for Producer {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn closed(&mut self, now: Now, link: LinkId) {
        self.links.closed(now, link);
        if link == Links::FIRST {
            for ask in [&mut self.open_ask, &mut self.routes_ask] {
                if *ask == Ask::Asked {
                    *ask = Ask::Due { at_ns: now.monotonic_ns };
                }
            }
        }
        for at in 0..self.ranges.len() {
            let range = &mut self.ranges[at];
            if range.link != link {
                continue;
            }
            range.lose_answers(&mut self.batches);
            if range.mode == (Mode::Leaving { settle: Settle::Asked }) {
                range.mode = Mode::Leaving { settle: Settle::NotAsked };
            }
            self.advance(now, at);
        }
    }

    fn received(&mut self, now: Now, link: LinkId, frame: &Frame<'_>) -> Result<(), BodyError> {
        self.links.heard(now, link);
        if frame.kind == Kind::Stored.number() {
            client::read_stored(frame)?;
            self.stored(now, frame.correlation);
            return Ok(());
        }
        let unexpected = Err(BodyError::Kind { kind: frame.kind });
        match Answer::read(frame)? {
            Answer::Welcome(welcome) => {
                self.links.welcomed(link, welcome);
                self.link_is_up(now, link);
            }
            Answer::Bye(bye) => self.said_bye(bye),
            Answer::Refused(refused) => self.refused(now, frame.correlation, refused),
            Answer::Routes { topic, .. } if frame.correlation == TAG_ROUTES && self.is_another(topic.topic) => {
                let (was, now) = (self.topic.unwrap_or_default(), topic.topic);
                self.end(Failure::Replaced { was, now });
            }
            Answer::Routes { topic, routes } if frame.correlation == TAG_ROUTES => {
                self.routes_ask = Ask::Idle;
                self.topic = Some(topic.topic);
                if !self.ready {
                    self.size_batches(topic.batch_bytes_max);
                }
                if !self.routing.replace(routes) {
                    return Err(BodyError::Value { field: "routes" });
                }
                self.apply_routes(now);
                self.become_ready();
            }
            Answer::Producer { producer, epoch } if frame.correlation == TAG_OPEN => {
                self.open_ask = Ask::Idle;
                self.identity = Some((producer, epoch));
                self.become_ready();
            }
            Answer::Settled(settled) if frame.correlation & TAG_MASK == TAG_SETTLE => {
                let range = usize::try_from(frame.correlation & !TAG_MASK)
                    .ok()
                    .filter(|r| matches!(self.ranges.get(*r).map(|r| r.mode), Some(Mode::Leaving { .. })));
                if let Some(range) = range {
                    self.settled(now, range, settled.last, settled.doubtful);
                }
            }
            Answer::Pong => {}
            Answer::Stored(_)
            | Answer::Fetched(_)
            | Answer::Bounds { .. }
            | Answer::Settled(_)
            | Answer::Rolled(_)
            | Answer::Described(_)
            | Answer::Topic(_)
            | Answer::TopicDeleted(_)
            | Answer::Topics(_)
            | Answer::Routes { .. }
            | Answer::Lineage { .. }
            | Answer::Producer { .. } => return unexpected,
        }
        Ok(())
    }

    fn tick(&mut self, now: Now) {
        self.check_time(now);
    }

    fn turn(&mut self, now: Now) {
        Self::turn(self, now);
    }

    fn next_ns(&self) -> Option<u64> {
        let check = Some(self.next_check_ns).filter(|ns| *ns != u64::MAX);
        [check, self.links.next_ns()].into_iter().flatten().min()
    }
}

impl Producer {
    fn size_batches(&mut self, topic_bytes_max: u32) {
        let welcome = self.links.welcome().copied();
        let most = welcome.map_or(topic_bytes_max, |w| topic_bytes_max.min(w.batch_bytes_max));
        self.settings.batch_bytes = self.settings.batch_bytes.min(most);
        self.batches = Batches::new(most as usize);
        if let Some(welcome) = welcome {
            self.bytes_in_flight_max = self.bytes_in_flight_max.min(welcome.connection_bytes_max);
        }
    }

    fn become_ready(&mut self) {
        if let Some((producer, epoch)) = self.identity
            && !self.ready
            && !self.ended
            && !self.routing.routes().is_empty()
        {
            self.ready = true;
            self.events.push_back(Event::Ready { producer, epoch });
        }
    }

    fn link_is_up(&mut self, now: Now, link: LinkId) {
        if link == Links::FIRST {
            self.ask(now);
        }
        for at in 0..self.ranges.len() {
            if self.ranges[at].link == link {
                self.mark_dirty(at);
                self.advance(now, at);
            }
        }
        self.turn(now);
    }

    fn said_bye(&mut self, bye: Bye) {
        let fatal = [ByeReason::NoCommonVersion, ByeReason::ForeignCluster];
        if fatal.iter().any(|r| r.number() == bye.reason) {
            self.events.push_back(Event::Failed(Failure::Bye(bye)));
        }
    }

    #[inline]
    fn stored(&mut self, now: Now, correlation: u64) {
        let Some((slot, _)) = self.batches.answered(correlation) else { return };
        let range = self.batches.get(slot).range;
        self.tell(slot, Outcome::Stored, 0);
        let entry = &mut self.ranges[range];
        if entry.strikes > 0 {
            entry.strikes = 0;
            self.mark_dirty(range);
        }
        let entry = &mut self.ranges[range];
        match entry.mode {
            Mode::Sending | Mode::Delayed { .. } | Mode::Refreshing | Mode::Gone => entry.pop_done(&mut self.batches),
            Mode::Draining | Mode::Leaving { .. } => self.advance(now, range),
        }
    }

    fn refused(&mut self, now: Now, correlation: u64, refused: Refused) {
        let again_ns = match refused.retry {
            Retry::AfterDelay { ms } => Some(u64::from(ms).max(ASK_AGAIN_MS)),
            Retry::Same | Retry::AfterRefresh => Some(ASK_AGAIN_MS),
            Retry::Never => None,
        }
        .map(|ms| now.monotonic_ns + self.random.jitter(ms * MILLISECOND_NS));
        match (correlation & TAG_MASK, again_ns) {
            (0, _) => self.produce_refused(now, correlation, &refused),
            (TAG_SETTLE, _) => self.settle_refused(now, correlation & !TAG_MASK, again_ns),
            (TAG_OPEN, Some(at_ns)) => {
                self.open_ask = Ask::Due { at_ns };
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
            (TAG_ROUTES, Some(at_ns)) => {
                self.routes_ask = Ask::Due { at_ns };
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
            (TAG_ROUTES, None) if self.topic.is_some() => self.end(Failure::Refused(refused)),
            (_, _) => self.events.push_back(Event::Failed(Failure::Refused(refused))),
        }
    }

    fn is_another(&self, topic: TopicId) -> bool {
        self.topic.is_some_and(|known| known != topic)
    }

    /// The topic is no more: every record is told now, for no deadline can change its end. Nothing is asked or sent again.
    fn end(&mut self, failure: Failure) {
        if self.ended {
            return;
        }
        (self.ready, self.ended) = (false, true);
        self.routes_ask = Ask::Idle;
        for range in 0..self.ranges.len() {
            self.close_open(range);
            for at in 0..self.ranges[range].queue.len() {
                let slot = self.ranges[range].queue[at];
                let batch = self.batches.get(slot);
                if batch.state != BatchState::Done {
                    let code = batch.code;
                    let outcome = if batch.may_be_stored() { Outcome::Unknown } else { Outcome::NotStored };
                    self.tell(slot, outcome, code);
                }
            }
            self.ranges[range].mode = Mode::Gone;
        }
        self.events.push_back(Event::Failed(failure));
    }

    fn produce_refused(&mut self, now: Now, correlation: u64, refused: &Refused) {
        let Some((slot, last)) = self.batches.answered(correlation) else { return };
        let batch = self.batches.get(slot);
        batch.code = refused.code;
        let range = batch.range;
        if let Some(Refusal::Sealed { successors, last }) = &refused.refusal {
            self.sealed(now, range, successors, *last);
            return;
        }
        match self.ranges[range].mode {
            Mode::Draining | Mode::Leaving { .. } => {
                self.give_up_if_never(now, slot, refused);
                self.advance(now, range);
            }
            // An answer to an earlier transmission: the later one's will say what to do.
            Mode::Sending | Mode::Delayed { .. } | Mode::Refreshing | Mode::Gone if !last => {}
            Mode::Sending | Mode::Delayed { .. } | Mode::Refreshing | Mode::Gone => {
                self.follow_advice(now, slot, refused);
            }
        }
    }

    /// A batch of a range that sends no more was refused: only a final refusal says anything.
    fn give_up_if_never(&mut self, _now: Now, slot: usize, refused: &Refused) {
        let unsettled = matches!(refused.refusal, Some(Refusal::UnknownProducer));
        if refused.retry == Retry::Never && !unsettled {
            let may_be_stored = self.batches.get(slot).may_be_stored();
            let outcome = if may_be_stored { Outcome::Unknown } else { refused.outcome };
            self.tell(slot, outcome, refused.code);
        }
    }

    fn follow_advice(&mut self, now: Now, slot: usize, refused: &Refused) {
        let range = self.batches.get(slot).range;
        let position = self.ranges[range].position(&mut self.batches, slot);
        let first = self.first_unsettled(range) == position;
        match (&refused.refusal, refused.retry) {
            (Some(Refusal::UnknownProducer), _) | (_, Retry::Same) if first => {
                // Nothing before it is unsettled, and yet it is not the next one there: the run is not known any more.
                self.batches.get(slot).state = BatchState::Waiting;
                self.drain(now, range);
            }
            (Some(Refusal::UnknownProducer), _) | (_, Retry::Same) => self.send_again(now, range, position, None),
            (_, Retry::AfterDelay { ms }) => self.send_again(now, range, position, Some(ms)),
            (refusal, Retry::AfterRefresh) => {
                self.ranges[range].go_back(&mut self.batches, position);
                self.refresh(now, range, refusal.as_ref());
            }
            (_, Retry::Never) => {
                self.give_up_if_never(now, slot, refused);
                if refused.outcome == Outcome::Stored {
                    self.ranges[range].pop_done(&mut self.batches);
                    self.mark_dirty(range);
                } else {
                    self.drain(now, range);
                }
            }
        }
    }

    /// Where the first batch stands that is not done.
    fn first_unsettled(&mut self, range: usize) -> usize {
        let entry = &self.ranges[range];
        let undone = entry.queue.iter().position(|slot| self.batches.get(*slot).state != BatchState::Done);
        undone.unwrap_or(entry.queue.len())
    }

    /// Everything from `position` on is sent again, after a delay that grows with each refusal in a row: from the one advised, if one
    /// was.
    fn send_again(&mut self, now: Now, range: usize, position: usize, delay_ms: Option<u32>) {
        let entry = &mut self.ranges[range];
        entry.go_back(&mut self.batches, position);
        // What was sent together is refused together: that is one refusal.
        if delay_ms.is_some() && matches!(entry.mode, Mode::Delayed { .. }) {
            return;
        }
        let delay_ns = match delay_ms {
            Some(ms) => self.strike_advised(range, ms),
            None => self.strike(range),
        };
        self.delay(now, range, delay_ns);
    }

    /// Counts a refusal, and gives the wait that it earns, in nanoseconds, where `ms` is what was advised.
    fn strike_advised(&mut self, range: usize, ms: u32) -> u64 {
        let entry = &mut self.ranges[range];
        let wait_ms = u64::from(ms.max(1)) << entry.strikes.min(DELAY_DOUBLINGS);
        entry.strikes += 1;
        self.random.jitter(wait_ms * MILLISECOND_NS)
    }

    /// Sets a range to go on after a delay; at once, if it is 0.
    pub(super) fn delay(&mut self, now: Now, range: usize, delay_ns: u64) {
        let until_ns = now.monotonic_ns + delay_ns;
        self.ranges[range].mode = if delay_ns == 0 { Mode::Sending } else { Mode::Delayed { until_ns } };
        self.next_check_ns = self.next_check_ns.min(until_ns);
        self.mark_dirty(range);
    }

    /// Counts a refusal, and gives the wait that it earns, in nanoseconds: none for the first.
    pub(super) fn strike(&mut self, range: usize) -> u64 {
        let entry = &mut self.ranges[range];
        entry.strikes += 1;
        let Some(doublings) = entry.strikes.checked_sub(2) else { return 0 };
        let wait_ms = (STRIKE_MS_MIN << doublings.min(10)).min(STRIKE_MS_MAX);
        self.random.jitter(wait_ms * MILLISECOND_NS)
    }

    /// A range's route is not right: takes the newer one that the refusal carries, or asks. What is news has not been tried: it counts
    /// as no refusal.
    fn refresh(&mut self, now: Now, range: usize, refusal: Option<&Refusal>) {
        let entry = &mut self.ranges[range];
        match refusal {
            Some(Refusal::StaleEpoch { current }) if *current > entry.epoch => {
                entry.epoch = *current;
                entry.strikes = 0;
                self.delay(now, range, 0);
            }
            Some(Refusal::NotPrimary { route: Some(route) })
                if route.range == entry.id && route.epoch > entry.epoch =>
            {
                entry.strikes = 0;
                if self.routing.update(std::slice::from_ref(route)) {
                    self.apply_routes(now);
                }
                self.delay(now, range, 0);
            }
            Some(_) | None => {
                let delay_ns = self.strike(range);
                self.ranges[range].mode = Mode::Refreshing;
                self.want_routes(now.monotonic_ns + delay_ns);
                self.ask(now);
            }
        }
    }
}
