//! Splits and merges ranges: the seal round of each parent, then one change that seals it and makes what takes its place.
//!
//! ```text
//!  split   BeginSeal --> asked, promised --> Split: sealed, both halves active and open      --> Retired, Adopt, Open told: answered
//!  merge   BeginSeal of each parent --> each promised --> Merge: both sealed, the child active and open
//!                        one of them not in time: given up, each is sealed by itself and goes on in its own next segment
//! ```
//! Crash before the last change is committed: a split goes on in the next life, for the round's committed reason says so; a merge goes on
//! if the rounds of both had begun for it, and is given up if not. Crash after it: all is done, and the shards are told by `Adopt`.
//!
//! Who asks is answered when it is committed and told. To ask again is harmless: a range is split or merged once at most.

use std::collections::BTreeMap;

use super::command::{Command, Commands};
use super::controller::Controller;
use super::round::{Reshape, Work};
use crate::api::error::Refusal;
use crate::api::request::ReplyTo;
use crate::api::response::{RangeLineage, Response};
use crate::balance::{Wish, decide};
use crate::failover::{Plan, Step, merge};
use crate::metadata::state::FIRST_EPOCH;
use crate::metadata::{Applied, Change, RangeStatus, Rejected, SealReason};
use crate::replica::message::{SealedSegment, ToReplica};
use crate::types::limits::TOPIC_RANGES_MAX;
use crate::types::time::SECOND_NS;
use crate::types::{Offset, RangeId};

/// How long a merge waits for the ends of both ranges.
const MERGE_WAIT_NS: u64 = 2 * SECOND_NS;
/// What a client waits before it asks again for what stands behind another change of the range, in ms.
const RESHAPING_DELAY_MS: u32 = 50;
/// Ranges in one answer about a topic's lineage: a few of them fit no small frame.
const LINEAGE_MAX: usize = 1024;

/// Who waits for a range to be split or merged: by the range, of two the lower half.
#[derive(Debug, Default)]
pub(super) struct Reshapes {
    waiting: BTreeMap<RangeId, Vec<ReplyTo>>,
}

impl Reshapes {
    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    fn answer(&mut self, range: RangeId, response: &Response, commands: &mut Commands) {
        let waiting = self.waiting.remove(&range).unwrap_or_default();
        commands.extend(waiting.into_iter().map(|to| Command::Reply { to, response: response.clone() }));
    }

    /// Nothing is changed any more.
    pub(super) fn abandon(&mut self, commands: &mut Commands) {
        for to in std::mem::take(&mut self.waiting).into_values().flatten() {
            commands.push(Command::Reply { to, response: Response::Refused(Refusal::WriteFailed) });
        }
    }
}

impl Controller {
    /// Part of a topic's lineage.
    pub(super) fn lineage(&self, topic: &str, after: RangeId) -> Option<Response> {
        let (ranges, more) = self.state.lineage(self.state.find_topic(topic)?, after, LINEAGE_MAX)?;
        Some(Response::Lineage { ranges, more })
    }

    /// A range is to be split. `Some`: it was.
    pub(super) fn split_range(
        &mut self,
        now_ns: u64,
        to: ReplyTo,
        topic: &str,
        range: RangeId,
        commands: &mut Commands,
    ) -> Result<Option<Response>, Refusal> {
        let topic = self.state.find_topic(topic).ok_or(Refusal::UnknownTopic)?;
        let state = self.state.range(range).filter(|state| state.topic == topic).ok_or(Refusal::UnknownRange)?;
        if let RangeStatus::Sealed { successors } = &state.status {
            return if successors.len() == 2 {
                Ok(Some(self.lineage_of(successors)))
            } else {
                Err(self.sealed(successors))
            };
        }
        if state.span.halves().is_none() {
            return Err(Refusal::OneHash);
        }
        if self.state.active_count(topic) >= TOPIC_RANGES_MAX as usize {
            return Err(Refusal::TooManyRanges { most: TOPIC_RANGES_MAX });
        }
        if !self.begin_split(range) {
            return Err(Refusal::Reshaping { delay_ms: RESHAPING_DELAY_MS });
        }
        self.reshapes.waiting.entry(range).or_default().push(to);
        self.drive(now_ns, range, commands);
        Ok(None)
    }

    /// Two ranges are to become one. `Some`: they are.
    pub(super) fn merge_ranges(
        &mut self,
        now_ns: u64,
        to: ReplyTo,
        topic: &str,
        ranges: [RangeId; 2],
        commands: &mut Commands,
    ) -> Result<Option<Response>, Refusal> {
        let topic = self.state.find_topic(topic).ok_or(Refusal::UnknownTopic)?;
        let known = |range| self.state.range(range).filter(|state| state.topic == topic).ok_or(Refusal::UnknownRange);
        let (one, other) = (known(ranges[0])?, known(ranges[1])?);
        let is_one_lower = one.span.first() <= other.span.first();
        let [low, high] = if is_one_lower { ranges } else { [ranges[1], ranges[0]] };
        if one.span.buddy() != Some(other.span) {
            return Err(Refusal::NotBuddies);
        }
        match (&one.status, &other.status) {
            (RangeStatus::Active, RangeStatus::Active) => {}
            (RangeStatus::Sealed { successors: ours }, RangeStatus::Sealed { successors: theirs })
                if ours == theirs =>
            {
                return Ok(Some(self.lineage_of(ours)));
            }
            (RangeStatus::Sealed { successors }, _) | (_, RangeStatus::Sealed { successors }) => {
                return Err(self.sealed(successors));
            }
        }
        if !self.begin_merge(now_ns, low, high) {
            return Err(Refusal::Reshaping { delay_ms: RESHAPING_DELAY_MS });
        }
        self.reshapes.waiting.entry(low).or_default().push(to);
        for range in [low, high] {
            self.drive(now_ns, range, commands);
        }
        Ok(None)
    }

    /// From now on the range is to be split. `false`: it is being merged.
    fn begin_split(&mut self, range: RangeId) -> bool {
        let work = self.work.entry(range).or_default();
        if !matches!(work.reshape, None | Some(Reshape::Split)) {
            return false;
        }
        (work.reshape, work.given_up) = (Some(Reshape::Split), false);
        true
    }

    /// From now on the ranges, of which both are known, are to become one. `false`: one of them is being split.
    fn begin_merge(&mut self, now_ns: u64, low: RangeId, high: RangeId) -> bool {
        let until_ns = now_ns + MERGE_WAIT_NS;
        let pairs = [(low, high), (high, low)];
        let is_free = |(range, buddy): (RangeId, RangeId)| {
            let under_way = self.work.get(&range).and_then(|work| work.reshape);
            under_way.is_none_or(|reshape| matches!(reshape, Reshape::Merge { buddy: other, .. } if other == buddy))
        };
        if !pairs.into_iter().all(is_free) {
            return false;
        }
        for (range, buddy) in pairs {
            let work = self.work.entry(range).or_default();
            work.given_up = false;
            work.reshape.get_or_insert(Reshape::Merge { buddy, until_ns });
            self.timers.insert((until_ns, range));
        }
        true
    }

    /// A range has rolled: if its topic looks after itself, that may be the time to split or merge it.
    pub(super) fn balance(&mut self, now_ns: u64, range: RangeId) {
        match decide(&self.state, range) {
            None => {}
            Some(Wish::Split { range }) => {
                self.begin_split(range);
            }
            // Both are driven before this step ends.
            Some(Wish::Merge { low, high }) if self.begin_merge(now_ns, low, high) => {
                self.timers.extend([(now_ns, low), (now_ns, high)]);
            }
            Some(Wish::Merge { .. }) => {}
        }
    }

    fn sealed(&self, successors: &[RangeId]) -> Refusal {
        Refusal::Sealed {
            successors: successors.iter().filter_map(|range| self.state.route(*range)).collect(),
            last: None,
        }
    }

    fn lineage_of(&self, ranges: &[RangeId]) -> Response {
        let ranges: Vec<RangeLineage> = ranges.iter().filter_map(|range| self.state.range_lineage(*range)).collect();
        Response::Lineage { ranges, more: false }
    }

    /// Before a round goes on: what an earlier life has begun is taken up, and what takes too long is given up.
    pub(super) fn keep_or_give_up(&mut self, now_ns: u64, range: RangeId, work: &mut Work, commands: &mut Commands) {
        if work.reshape.is_none() && !work.given_up {
            work.reshape = self.begun(now_ns, range);
        }
        if let Some(Reshape::Merge { until_ns, .. }) = work.reshape {
            if now_ns >= until_ns {
                let delay_ms = RESHAPING_DELAY_MS;
                self.give_up(range, work, &Refusal::MergeGivenUp { delay_ms }, commands);
            } else {
                self.timers.insert((until_ns, range));
            }
        }
    }

    /// What the reason of a committed round says that the range is to become.
    fn begun(&self, now_ns: u64, range: RangeId) -> Option<Reshape> {
        let state = self.state.range(range)?;
        match state.sealing?.reason {
            SealReason::Split => Some(Reshape::Split),
            SealReason::Merge => {
                let buddy = self.state.active_with_span(state.topic, state.span.buddy()?)?;
                let both = self.state.range(buddy)?.sealing.is_some_and(|sealing| sealing.reason == SealReason::Merge);
                both.then_some(Reshape::Merge { buddy, until_ns: now_ns + MERGE_WAIT_NS })
            }
            SealReason::Restart | SealReason::Asked | SealReason::Damage | SealReason::Move | SealReason::Lost => None,
        }
    }

    fn give_up(&mut self, range: RangeId, work: &mut Work, refusal: &Refusal, commands: &mut Commands) {
        let low = match work.reshape {
            Some(Reshape::Merge { buddy, .. }) => self.lower(range, buddy),
            Some(Reshape::Split) | None => range,
        };
        (work.reshape, work.given_up) = (None, true);
        // Whoever was refused while it lasted is not kept waiting.
        work.want_open = true;
        self.reshapes.answer(low, &Response::Refused(refusal.clone()), commands);
    }

    fn lower(&self, range: RangeId, buddy: RangeId) -> RangeId {
        let first = |range| self.state.range(range).map(|state| state.span.first());
        if first(range) <= first(buddy) { range } else { buddy }
    }

    /// The end of a range that merges is known: if its buddy's is too, both are committed.
    pub(super) fn merge_if_both_end(&mut self, now_ns: u64, plan: &Plan, work: &mut Work) {
        let Some(Reshape::Merge { buddy, .. }) = work.reshape else { return };
        let range = plan.range;
        let Some(mut other) = self.work.remove(&buddy) else { return };
        let agrees = matches!(other.reshape, Some(Reshape::Merge { buddy, .. }) if buddy == range);
        let is_open = self.state.range(buddy).is_some_and(|state| state.chain.open().is_some());
        if agrees && is_open && other.pending.is_none() {
            let theirs = self.plan_round(now_ns, buddy, &mut other);
            let both = if self.lower(range, buddy) == range { merge(plan, &theirs) } else { merge(&theirs, plan) };
            if let Some(Step::Merge { parents, fences, .. }) = both {
                let open = Some(self.segment_open(range, Some(Offset::ZERO), FIRST_EPOCH, None));
                let index = self.propose(Change::Merge { parents, fences, open });
                (work.pending, other.pending) = (Some(index), Some(index));
            }
        }
        self.work.insert(buddy, other);
    }

    /// The change is committed that was to split or merge ranges.
    pub(super) fn reshape_committed(
        &mut self,
        now_ns: u64,
        parents: &[(RangeId, &SealedSegment)],
        outcome: Result<Applied, Rejected>,
        commands: &mut Commands,
    ) {
        let Err(rejected) = outcome else { return self.reshaped(parents, commands) };
        for (range, _) in parents {
            tracing::warn!(%range, %rejected, "a range cannot be split or merged so");
            if self.state.range(*range).is_none() {
                // Its topic was deleted while the change was under way.
                self.forget_work(*range);
                self.reshaped_or_gone(*range, commands);
                continue;
            }
            if let Some(work) = self.work.get_mut(range) {
                work.pending = None;
            }
            self.reshape_rejected(*range, rejected, commands);
        }
        for (range, _) in parents {
            self.drive(now_ns, *range, commands);
        }
    }

    /// A split or merge is committed: the parents' shards are told that they are, the children's that there are such.
    fn reshaped(&mut self, parents: &[(RangeId, &SealedSegment)], commands: &mut Commands) {
        let (mut children, mut retired) = (Vec::new(), Vec::new());
        for (range, sealed) in parents {
            self.forget_work(*range);
            let Some(state) = self.state.range(*range) else { continue };
            let RangeStatus::Sealed { successors } = &state.status else { continue };
            let routes = successors.iter().filter_map(|range| self.state.route(*range)).collect();
            children.clone_from(successors);
            let sealed = (*sealed).clone();
            retired.push(ToReplica::Retired { range: *range, sealed, successors: routes });
        }
        for child in &children {
            self.adopt(*child, commands);
            if let Some(open) = self.state.range(*child).and_then(|state| state.chain.open()) {
                self.tell(ToReplica::Open { range: *child, open: *open }, commands);
            }
        }
        // Whoever is sent on by a parent is to find the children there.
        for message in retired {
            self.tell(message, commands);
        }
        let response = self.lineage_of(&children);
        for (range, _) in parents {
            self.reshapes.answer(*range, &response, commands);
        }
    }

    /// A split or merge was refused: what it was for is given up, and the ranges go on.
    fn reshape_rejected(&mut self, range: RangeId, rejected: Rejected, commands: &mut Commands) {
        let Some(mut work) = self.work.remove(&range) else { return };
        let refusal = if let Rejected::TooManyRanges { most } = rejected {
            Refusal::TooManyRanges { most }
        } else {
            Refusal::Reshaping { delay_ms: RESHAPING_DELAY_MS }
        };
        self.give_up(range, &mut work, &refusal, commands);
        self.work.insert(range, work);
    }

    /// A range that somebody waits for is no more what it was.
    pub(super) fn reshaped_or_gone(&mut self, range: RangeId, commands: &mut Commands) {
        let response = match self.state.range(range).map(|state| &state.status) {
            Some(RangeStatus::Sealed { successors }) => self.lineage_of(successors),
            Some(RangeStatus::Active) => return,
            None => Response::Refused(Refusal::UnknownRange),
        };
        self.reshapes.answer(range, &response, commands);
    }
}

#[cfg(test)]
mod tests;
