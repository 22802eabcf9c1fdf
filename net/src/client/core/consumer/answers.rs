//! What the consumer does with what a node says, and with time.

use sealog_engine::api::error::{Refusal, Retry};
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{Now, Offset, RangeId, TopicId};

use super::parts::{Chunk, Part, State};
use super::{Ask, Consumer, Event, TAG_BOUNDS, TAG_LINEAGE, TAG_MASK, TAG_ROUTES};
use crate::client::core::links::{LinkId, Links};
use crate::client::core::{Client, Failure};
use crate::session::Answer;
use crate::wire::client::FetchedView;
use crate::wire::frame::{BodyError, Frame};
use crate::wire::hello::ByeReason;
use crate::wire::refusal::Refused;

/// Wait after the second refusal in a row, doubled at each further one.
const STRIKE_MS_MIN: u64 = 5;
/// Longest such wait.
const STRIKE_MS_MAX: u64 = 1_000;
/// Shortest wait before a refused question is asked again.
pub(super) const ASK_AGAIN_MS: u64 = 50;

impl Client for Consumer {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn closed(&mut self, now: Now, link: LinkId) {
        self.links.closed(now, link);
        if link == Links::FIRST {
            self.routes_ask.lost(now);
        }
        self.beginning.lost(now, link);
        for part in &mut self.parts {
            if matches!(part.state, State::Fetching { link: l, .. } if l == link) {
                part.state = State::Idle;
            }
        }
    }

    fn received(&mut self, now: Now, link: LinkId, frame: &Frame<'_>) -> Result<(), BodyError> {
        let correlation = frame.correlation;
        match Answer::read(frame)? {
            Answer::Welcome(welcome) => {
                self.links.welcomed(link, welcome);
                self.ask(now);
                self.fetch_all(now);
            }
            Answer::Bye(bye) => {
                let fatal = [ByeReason::NoCommonVersion, ByeReason::ForeignCluster];
                if fatal.iter().any(|r| r.number() == bye.reason) {
                    self.events.push_back(Event::Failed(Failure::Bye(bye)));
                }
            }
            Answer::Refused(refused) => self.refused(now, correlation, refused),
            Answer::Fetched(fetched) => self.fetched(now, correlation, &fetched),
            Answer::Bounds { start, end } if correlation & TAG_MASK == TAG_BOUNDS => {
                self.bounds_are(now, RangeId(correlation & !TAG_MASK), start, end);
            }
            Answer::Bounds { start, .. } => self.sought(now, correlation, start),
            Answer::Lineage { ranges, more } if correlation & TAG_MASK == TAG_LINEAGE => {
                self.lineage_is(now, RangeId(correlation & !TAG_MASK), &ranges, more)?;
            }
            Answer::Routes { topic, .. } if correlation == TAG_ROUTES && self.is_another(topic.topic) => {
                let was = self.topic.as_ref().map(|known| known.topic).unwrap_or_default();
                self.end(Failure::Replaced { was, now: topic.topic });
            }
            Answer::Routes { topic, routes } if correlation == TAG_ROUTES => {
                self.routes_ask = Ask::Idle;
                if !self.routing.replace(routes) {
                    return Err(BodyError::Value { field: "routes" });
                }
                if self.topic.is_none() {
                    self.topic = Some(topic);
                    self.prepare(now);
                } else {
                    self.fetch_all(now);
                }
            }
            Answer::Pong => {}
            Answer::Stored(_)
            | Answer::Settled(_)
            | Answer::Rolled(_)
            | Answer::Described(_)
            | Answer::Topic(_)
            | Answer::TopicDeleted(_)
            | Answer::Topics(_)
            | Answer::Routes { .. }
            | Answer::Lineage { .. }
            | Answer::Producer { .. } => return Err(BodyError::Kind { kind: frame.kind }),
        }
        Ok(())
    }

    fn tick(&mut self, now: Now) {
        if now.monotonic_ns < self.next_check_ns {
            return;
        }
        self.next_check_ns = u64::MAX;
        self.ask(now);
        let before_reading = self.beginning.asks().filter(|_| !self.ready);
        for ask in before_reading.chain([self.routes_ask]) {
            if let Ask::Due { at_ns } = ask
                && at_ns > now.monotonic_ns
            {
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
        }
        for at in 0..self.parts.len() {
            match self.parts[at].state {
                State::Delayed { until_ns } if until_ns <= now.monotonic_ns => {
                    self.parts[at].state = State::Idle;
                    self.fetch(now, at);
                }
                State::Delayed { until_ns } => self.next_check_ns = self.next_check_ns.min(until_ns),
                State::Fetching { link, give_up_ns } if give_up_ns <= now.monotonic_ns => self.links.condemn(link),
                State::Fetching { give_up_ns, .. } => self.next_check_ns = self.next_check_ns.min(give_up_ns),
                State::Idle | State::Waiting { .. } | State::Failed | State::Done => {}
            }
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let check = Some(self.next_check_ns).filter(|ns| *ns != u64::MAX);
        [check, self.links.next_ns()].into_iter().flatten().min()
    }
}

impl Consumer {
    /// The part that awaits this answer.
    fn awaiting(&self, correlation: u64) -> Option<usize> {
        let at = self.position_of(Part::id_of(correlation))?;
        let part = &self.parts[at];
        (part.correlation() == correlation && matches!(part.state, State::Fetching { .. })).then_some(at)
    }

    fn fetched(&mut self, now: Now, correlation: u64, fetched: &FetchedView<'_>) {
        let Some(at) = self.awaiting(correlation) else { return };
        let part = &mut self.parts[at];
        part.state = State::Idle;
        let at_end = part.fetch_at().is_some_and(|from| fetched.next <= from);
        let nothing = fetched.entries.is_empty() && fetched.gaps.is_empty() && at_end;
        if nothing && fetched.successors.is_none() {
            self.fetch(now, at);
            return;
        }
        part.chunks.push_back(Chunk {
            entries: fetched.entries.to_vec(),
            taken: 0,
            gaps: fetched.gaps.clone(),
            next: fetched.next,
            successors: fetched.successors.clone(),
        });
        self.arrived.push_back(part.id);
        self.fetch(now, at);
    }

    /// Below `start` every record of the part's range is earlier than the time that it looks for.
    fn sought(&mut self, now: Now, correlation: u64, start: Offset) {
        let Some(at) = self.awaiting(correlation) else { return };
        let part = &mut self.parts[at];
        if part.is_seeking() {
            part.next = part.next.max(part.stop.map_or(start, |stop| start.min(stop)));
            part.sought = true;
            part.strikes = 0;
        }
        part.state = State::Idle;
        self.fetch(now, at);
    }

    fn refused(&mut self, now: Now, correlation: u64, refused: Refused) {
        let again_ms = match refused.retry {
            Retry::AfterDelay { ms } => Some(u64::from(ms).max(ASK_AGAIN_MS)),
            Retry::Same | Retry::AfterRefresh => Some(ASK_AGAIN_MS),
            Retry::Never => None,
        };
        let again = again_ms.map(|ms| now.monotonic_ns + self.random.jitter(ms * MILLISECOND_NS));
        match (correlation & TAG_MASK, again) {
            (0, _) => self.fetch_refused(now, correlation, refused),
            (TAG_ROUTES, Some(at_ns)) => {
                self.routes_ask = Ask::Due { at_ns };
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
            (TAG_BOUNDS, Some(at_ns)) => {
                if refused.retry == Retry::AfterRefresh {
                    self.want_routes(at_ns);
                }
                self.beginning.bounds_again(RangeId(correlation & !TAG_MASK), at_ns);
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
            (TAG_LINEAGE, Some(at_ns)) => {
                self.beginning.lineage_again(at_ns);
                self.next_check_ns = self.next_check_ns.min(at_ns);
            }
            (TAG_ROUTES | TAG_LINEAGE, None) if self.topic.is_some() => self.end(Failure::Refused(refused)),
            (_, _) => self.events.push_back(Event::Failed(Failure::Refused(refused))),
        }
    }

    fn is_another(&self, topic: TopicId) -> bool {
        self.topic.as_ref().is_some_and(|known| known.topic != topic)
    }

    /// The topic is no more. What was read of it and not yet delivered still is; nothing is asked again.
    fn end(&mut self, failure: Failure) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.routes_ask = Ask::Idle;
        for part in self.parts.iter_mut().filter(|part| part.state != State::Done) {
            part.state = State::Failed;
        }
        self.events.push_back(Event::Failed(failure));
    }

    fn fetch_refused(&mut self, now: Now, correlation: u64, refused: Refused) {
        let Some(at) = self.awaiting(correlation) else { return };
        let part = &mut self.parts[at];
        let (range, next) = (part.range, part.next);
        match refused.retry {
            Retry::AfterDelay { ms } => self.delay(now, at, u64::from(ms.max(1)) * MILLISECOND_NS),
            Retry::Same => self.back_off(now, at),
            Retry::AfterRefresh => {
                self.want_routes(now.monotonic_ns);
                self.ask(now);
                self.back_off(now, at);
            }
            Retry::Never => {
                part.state = State::Failed;
                self.events.push_back(match refused.refusal {
                    Some(Refusal::Expired { resume }) => Event::Expired { range, next, resume },
                    Some(_) | None => Event::RangeFailed { range, next, refused },
                });
            }
        }
    }

    fn delay(&mut self, now: Now, at: usize, delay_ns: u64) {
        let until_ns = now.monotonic_ns + self.random.jitter(delay_ns);
        self.parts[at].state = State::Delayed { until_ns };
        self.next_check_ns = self.next_check_ns.min(until_ns);
    }

    /// Waits longer at each bad answer in a row.
    pub(super) fn back_off(&mut self, now: Now, at: usize) {
        let part = &mut self.parts[at];
        part.strikes += 1;
        let wait_ms = (STRIKE_MS_MIN << part.strikes.min(10)).min(STRIKE_MS_MAX);
        self.delay(now, at, wait_ms * MILLISECOND_NS);
    }
}
