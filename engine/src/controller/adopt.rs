//! Tells shards what is committed: all of it when they are ready, and what follows from each change.

use std::collections::VecDeque;

use super::command::{Command, Commands};
use super::controller::Controller;
use crate::failover::tidy;
use crate::metadata::{Applied, Change, Rejected};
use crate::replica::message::{SegmentOpen, ToController, ToReplica};
use crate::types::{RangeId, SegmentId, ShardId};

/// Ranges that are sealed in the background at one time.
const SETTLING_MAX: usize = 64;

impl Controller {
    pub(super) fn tell(&self, message: ToReplica, commands: &mut Commands) {
        commands.push(Command::Tell { shard: self.shard_of(message.range()), message });
    }

    /// Tells the shard of a range what is committed of it, if it is ready to hear it.
    pub(super) fn adopt(&self, range: RangeId, commands: &mut Commands) {
        if let Some(mut view) = self.state.range_view(range).filter(|_| self.is_ready(self.shard_of(range))) {
            // What is open in this life is told by `Open`: the replica would take it for what an earlier one left.
            view.open.retain(|open| (open.primary, open.life) != (self.node, self.life));
            self.tell(ToReplica::Adopt(view), commands);
        }
    }

    /// A shard is ready, once or again.
    pub(super) fn shard_ready(&mut self, now_ns: u64, shard: ShardId, commands: &mut Commands) {
        let Some(ready) = self.ready.get_mut(usize::from(shard.0)) else { return };
        *ready = true;
        if self.started {
            self.adopt_shard(now_ns, shard, commands);
        }
    }

    /// This life is the node's newest: the shards that were ready before may go on.
    pub(super) fn adopt_all(&mut self, now_ns: u64, commands: &mut Commands) {
        for shard in (0..self.config.shards).map(ShardId) {
            if self.is_ready(shard) {
                self.adopt_shard(now_ns, shard, commands);
            }
        }
    }

    fn adopt_shard(&mut self, now_ns: u64, shard: ShardId, commands: &mut Commands) {
        let deleted: Vec<RangeId> = self.state.deleted_of(self.node, shard).collect();
        for range in deleted {
            self.tell(ToReplica::Deleted { range }, commands);
        }
        let ranges: Vec<RangeId> = self.state.ranges_of(self.node, shard).map(|(range, _)| range).collect();
        for range in ranges {
            self.adopt(range, commands);
            let of_earlier_life = self
                .state
                .range(range)
                .and_then(|state| state.chain.open())
                .is_some_and(|open| (open.primary, open.life) != (self.node, self.life));
            if self.work.contains_key(&range) {
                self.drive(now_ns, range, commands);
            } else if of_earlier_life {
                self.unsettled.push_back(range);
            }
        }
    }

    /// Seals what earlier lives left open and nobody waits for, a few at a time.
    pub(super) fn settle_some(&mut self, now_ns: u64, commands: &mut Commands) {
        while self.settling.len() < SETTLING_MAX
            && !self.log.has_failed()
            && let Some(range) = self.unsettled.pop_front()
        {
            let open = self.state.range(range).and_then(|state| state.chain.open());
            let open = open.filter(|open| (open.primary, open.life) != (self.node, self.life));
            if let Some(segment) = open.map(|open| open.segment) {
                self.settling.insert(range);
                self.work.entry(range).or_default().want_seal = Some(segment);
                self.drive(now_ns, range, commands);
            }
        }
    }

    /// A range's change is committed.
    pub(super) fn range_changed(
        &mut self,
        now_ns: u64,
        range: RangeId,
        change: &Change,
        outcome: Result<Applied, Rejected>,
        commands: &mut Commands,
    ) {
        if self.state.range(range).is_none() {
            // Its topic was deleted while the change was under way.
            self.forget_work(range);
            return;
        }
        let mut told = VecDeque::new();
        let work = self.work.entry(range).or_default();
        work.pending = None;
        match (outcome, change) {
            (Err(rejected), _) => tracing::warn!(%range, %rejected, "a change came too late"),
            (Ok(_), Change::Sealed { sealed, open, .. }) => {
                told.push_back(ToReplica::Sealed { range, sealed: sealed.clone() });
                if let Some(open) = open {
                    work.want_open = false;
                    told.push_back(ToReplica::Open { range, open: *open });
                }
            }
            (Ok(_), Change::Open { open, .. }) => {
                work.want_open = false;
                told.push_back(ToReplica::Open { range, open: *open });
            }
            (Ok(_), Change::Prepare { after, open, .. }) => {
                work.want_successor = None;
                told.push_back(ToReplica::Prepared { range, after: *after, open: *open });
            }
            (Ok(_), Change::Rolled { sealed, .. }) => {
                work.rolled = None;
                told.push_back(ToReplica::Sealed { range, sealed: sealed.clone() });
            }
            (
                Ok(_),
                Change::BeginSeal { .. }
                | Change::NodeStarted { .. }
                | Change::CreateTopic { .. }
                | Change::ProducerEpoch { .. }
                | Change::ProducerBlock { .. }
                | Change::RetentionTick { .. }
                | Change::DeleteTopic { .. }
                | Change::RangeGone { .. }
                | Change::Split { .. }
                | Change::Merge { .. }
                | Change::Holes { .. },
            ) => {}
        }
        if outcome.is_ok() && matches!(change, Change::Rolled { .. }) {
            self.balance(now_ns, range);
        }
        for message in told {
            self.tell(message, commands);
        }
        self.drive(now_ns, range, commands);
    }

    /// A shard says something. What is done about it follows from the committed state.
    pub(super) fn message(&mut self, now_ns: u64, message: ToController, commands: &mut Commands) {
        let range = match message {
            ToController::Ready { shard } => {
                self.shard_ready(now_ns, shard, commands);
                return;
            }
            ToController::Stopped { range } => {
                self.range_stopped(range, commands);
                return;
            }
            ToController::Noted { range } => {
                self.range_noted(range, commands);
                return;
            }
            ToController::Unreadable { range, segment, span } => {
                self.unreadable(range, segment, span, commands);
                return;
            }
            ToController::NeedOpen { range } => {
                self.work.entry(range).or_default().want_open = true;
                range
            }
            ToController::NeedSeal { range, segment, .. } => {
                self.need_seal(range, segment, commands);
                range
            }
            ToController::NeedSuccessor { range, segment } => {
                self.work.entry(range).or_default().want_successor = Some(segment);
                range
            }
            ToController::Rolled { range, mark, cause } => {
                self.work.entry(range).or_default().rolled = Some((mark, cause));
                range
            }
            ToController::Promised { range, segment, epoch, answer } => {
                let state = self.state.range(range).filter(|state| state.epoch == epoch);
                let base = state.and_then(|state| state.chain.open()).and_then(|open| open.base);
                if let Some(base) = base.filter(|_| self.is_asked(range, segment)) {
                    let work = self.work.entry(range).or_default();
                    work.round.of(segment, epoch).answers.insert(self.node, tidy(base, answer));
                }
                range
            }
            ToController::PromiseRefused { range, segment, promised } => {
                let epoch = self.state.range(range).map(|state| state.epoch).filter(|epoch| promised > *epoch);
                if let Some(epoch) = epoch.filter(|_| self.is_asked(range, segment)) {
                    let work = self.work.entry(range).or_default();
                    work.round.of(segment, epoch).promised = Some(promised);
                }
                range
            }
        };
        self.drive(now_ns, range, commands);
    }

    /// Whether a committed round on this segment is under way.
    fn is_asked(&self, range: RangeId, segment: SegmentId) -> bool {
        let sealing = self.state.range(range).and_then(|state| state.sealing);
        sealing.is_some_and(|sealing| sealing.segment == segment)
    }

    fn need_seal(&mut self, range: RangeId, segment: SegmentId, commands: &mut Commands) {
        let Some(state) = self.state.range(range) else { return };
        let chain = &state.chain;
        let of_tail = |open: &SegmentOpen| open.segment == segment;
        if chain.prepared().is_some_and(of_tail) || chain.open().is_some_and(of_tail) {
            // The tail is sealed from its first segment on.
            let first = chain.open().map(|open| open.segment);
            self.work.entry(range).or_default().want_seal = first;
        } else if let Some(sealed) = chain.find_sealed(segment) {
            self.tell(ToReplica::Sealed { range, sealed: sealed.clone() }, commands);
        } else {
            // Dropped, or never heard of: all that is committed says so.
            self.adopt(range, commands);
        }
    }
}
