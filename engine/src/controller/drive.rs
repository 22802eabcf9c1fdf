//! Drives one range from where the committed state has it to where somebody wants it: at most one change at a time, decided anew
//! from the state after each.

use super::command::Commands;
use super::controller::Controller;
use super::round::{Reshape, Work};
use crate::failover::{Goal, NextSegment, Plan, RoundView, Step, lint, plan};
use crate::metadata::state::FIRST_EPOCH;
use crate::metadata::{Change, Range, RangeStatus, SealReason};
use crate::replica::message::{RollCause, Rolled, SealedSegment, SegmentOpen, ToReplica};
use crate::types::time::SECOND_NS;
use crate::types::{Epoch, NodeId, Offset, RangeId, SegmentId};

/// A replica that has not answered is asked again after so long.
const ASK_AGAIN_NS: u64 = SECOND_NS;
/// How long a round waits for a copy that may have what nobody else can read.
const DAMAGE_WAIT_NS: u64 = 60 * SECOND_NS;

/// What a range needs next.
enum Next {
    Nothing,
    Propose(Box<Change>),
    Round,
}

impl Controller {
    /// Does what can be done now for a range.
    pub(super) fn drive(&mut self, now_ns: u64, range: RangeId, commands: &mut Commands) {
        if !self.started || self.log.has_failed() {
            return;
        }
        let Some(mut work) = self.work.remove(&range) else { return };
        if work.pending.is_none() {
            match self.next_of(range, &mut work, commands) {
                Next::Nothing => {}
                Next::Propose(change) => work.pending = Some(self.propose(*change)),
                Next::Round => self.run_round(now_ns, range, &mut work, commands),
            }
        }
        if work.is_done() {
            self.settling.remove(&range);
        } else {
            self.work.insert(range, work);
        }
    }

    fn next_of(&mut self, range: RangeId, work: &mut Work, commands: &mut Commands) -> Next {
        let state = self.state.range(range).filter(|state| state.status == RangeStatus::Active);
        let Some(state) = state else {
            // What its shard wants has been overtaken; it wants to know by what.
            *work = Work::default();
            self.reshaped_or_gone(range, commands);
            self.adopt(range, commands);
            return Next::Nothing;
        };
        let Some(open) = state.chain.open().copied() else {
            (work.want_seal, work.want_successor) = (None, None);
            self.late_roll(range, work.rolled.take(), commands);
            // A range that rests is opened before it ends: so its end is fixed by the same round, and its replica says what it knows.
            if !work.want_open && work.reshape.is_none() {
                return Next::Nothing;
            }
            let (base, epoch, predecessor) = (state.chain.end(), state.epoch, state.chain.last_sealed());
            let open = self.segment_open(range, Some(base), epoch, predecessor);
            return Next::Propose(Box::new(Change::Open { range, open }));
        };
        let is_ours = (open.primary, open.life) == (self.node, self.life);
        let ends = work.reshape.is_some();
        if !is_ours || ends || state.sealing.is_some() || work.want_seal == Some(open.segment) {
            // A roll that was not committed in time is found again as the mark in the answers.
            (work.want_seal, work.want_successor, work.rolled) = (Some(open.segment), None, None);
            return Next::Round;
        }
        work.want_seal = None;
        if work.want_open {
            work.want_open = false;
            self.tell(ToReplica::Open { range, open }, commands);
        }
        self.next_of_living(range, &open, work, commands)
    }

    /// The open segment's primary is alive: it rolls, or prepares to.
    fn next_of_living(&mut self, range: RangeId, open: &SegmentOpen, work: &mut Work, commands: &mut Commands) -> Next {
        let state = self.state.range(range).expect("the range is active");
        let (prepared, epoch) = (state.chain.prepared().copied(), state.epoch);
        if let Some((mark, cause)) = work.rolled {
            let base = open.base.expect("an open segment has a base");
            let fits = mark.segment == open.segment
                && mark.end > base
                && prepared.is_some_and(|prepared| prepared.segment == mark.successor);
            if fits {
                let Rolled { segment, end, digest, successor } = mark;
                let sealed = SealedSegment { segment, base, end, digest, holes: Vec::new(), epoch };
                return Next::Propose(Box::new(Change::Rolled { range, sealed, successor, cause }));
            }
            self.late_roll(range, work.rolled.take(), commands);
        }
        match (work.want_successor, prepared) {
            (Some(after), Some(prepared)) if after == open.segment => {
                work.want_successor = None;
                self.tell(ToReplica::Prepared { range, after, open: prepared }, commands);
                Next::Nothing
            }
            (Some(after), None) if after == open.segment => {
                let open = self.segment_open(range, None, epoch, Some(after));
                Next::Propose(Box::new(Change::Prepare { range, after, open }))
            }
            // Its own roll is to be reported and committed first.
            (Some(after), Some(prepared)) if after == prepared.segment => Next::Nothing,
            (Some(_) | None, Some(_) | None) => {
                work.want_successor = None;
                Next::Nothing
            }
        }
    }

    /// The report of a roll that is committed already is answered again.
    fn late_roll(&self, range: RangeId, rolled: Option<(Rolled, RollCause)>, commands: &mut Commands) {
        let found = self.state.range(range).zip(rolled);
        let sealed = found.and_then(|(state, (mark, _))| state.chain.find_sealed(mark.segment));
        if let Some(sealed) = sealed {
            self.tell(ToReplica::Sealed { range, sealed: sealed.clone() }, commands);
        }
    }

    /// The plan for a range's tail, as far as it is known.
    pub(super) fn plan_round(&self, now_ns: u64, range: RangeId, work: &mut Work) -> Plan {
        let view = self.round_view(now_ns, range, work);
        let plan = plan(&view);
        let wrong = lint(&view, &plan);
        assert!(wrong.is_empty(), "an unsafe plan: {wrong:?}\n{plan}");
        plan
    }

    fn run_round(&mut self, now_ns: u64, range: RangeId, work: &mut Work, commands: &mut Commands) {
        self.keep_or_give_up(now_ns, range, work, commands);
        let plan = self.plan_round(now_ns, range, work);
        for step in plan.steps.clone() {
            match step {
                Step::BeginSeal { segment, epoch, reason } => {
                    work.pending = Some(self.propose(Change::BeginSeal { range, segment, epoch, reason }));
                    return;
                }
                Step::Ask { segment, epoch, nodes } => {
                    self.ask(now_ns, (range, segment, epoch), &nodes, work, commands);
                }
                Step::AwaitAnswers { .. } => return,
                Step::AwaitCopies { .. } => {
                    let since = *work.round.unreadable_since_ns.get_or_insert(now_ns);
                    self.timers.insert((since + DAMAGE_WAIT_NS, range));
                    return;
                }
                Step::Repair { .. } => unreachable!("segments have one copy here, and one copy agrees with itself"),
                Step::Seal { sealed, goes_on, open } => {
                    let goes_on = goes_on.is_some();
                    let open = open.map(|next| {
                        let NextSegment { base, epoch, predecessor, .. } = next;
                        self.segment_open(range, Some(base), epoch, predecessor)
                    });
                    work.pending = Some(self.propose(Change::Sealed { range, sealed, goes_on, open }));
                    return;
                }
                Step::Split { sealed, fences, .. } => {
                    let opens =
                        (0..2).map(|_| self.segment_open(range, Some(Offset::ZERO), FIRST_EPOCH, None)).collect();
                    work.pending = Some(self.propose(Change::Split { range, sealed, fences, opens }));
                    return;
                }
                Step::Hold { .. } => return self.merge_if_both_end(now_ns, &plan, work),
                Step::Merge { .. } => unreachable!("made of two plans"),
            }
        }
    }

    fn round_view(&self, now_ns: u64, range: RangeId, work: &mut Work) -> RoundView {
        let state: &Range = self.state.range(range).expect("a round is of a range that is known");
        let first = *state.chain.open().expect("a round is of an open segment");
        let round = work.round.of(first.segment, state.epoch);
        let is_current = self.state.is_current(first.primary, first.life);
        let reason = match work.reshape {
            Some(Reshape::Split) => SealReason::Split,
            Some(Reshape::Merge { .. }) => SealReason::Merge,
            None if is_current => SealReason::Asked,
            None => SealReason::Restart,
        };
        let waited = |since: u64| now_ns.saturating_sub(since) >= DAMAGE_WAIT_NS;
        RoundView {
            range,
            epoch: state.epoch,
            second: state.chain.prepared().copied(),
            predecessor: state.chain.last_sealed(),
            replica_set: vec![first.primary],
            reason: state.sealing.map_or(reason, |sealing| sealing.reason),
            begun: state.sealing.is_some_and(|sealing| sealing.segment == first.segment),
            promised: round.promised,
            answers: round.answers.clone(),
            damage_wait_over: round.unreadable_since_ns.is_some_and(waited),
            goal: goal_of(work),
            first,
        }
    }

    fn ask(
        &mut self,
        now_ns: u64,
        (range, segment, epoch): (RangeId, SegmentId, Epoch),
        nodes: &[NodeId],
        work: &mut Work,
        commands: &mut Commands,
    ) {
        let round = work.round.of(segment, epoch);
        if round.ask_at_ns.is_some_and(|at| now_ns < at) || !self.is_ready(self.shard_of(range)) {
            return;
        }
        if nodes.contains(&self.node) {
            self.tell(ToReplica::Seal { range, segment, epoch }, commands);
        }
        round.ask_at_ns = Some(now_ns + ASK_AGAIN_NS);
        self.timers.insert((now_ns + ASK_AGAIN_NS, range));
    }

    /// How the next segment of a range begins: one copy, here.
    pub(super) fn segment_open(
        &mut self,
        range: RangeId,
        base: Option<Offset>,
        epoch: Epoch,
        predecessor: Option<SegmentId>,
    ) -> SegmentOpen {
        let topic = self.state.range(range).and_then(|state| self.state.topic(state.topic));
        let batch_bytes_max = topic.map_or(self.config.batch_bytes_max, |topic| topic.batch_bytes_max);
        SegmentOpen {
            segment: self.draw_segment(),
            base,
            epoch,
            seed: self.random.draw(),
            predecessor,
            primary: self.node,
            life: self.life,
            replicas: 1,
            quorum: 1,
            batch_bytes_max: batch_bytes_max.min(self.config.batch_bytes_max),
            retention_ms: self.state.retention_ms(),
        }
    }
}

/// What a range's tail is sealed for.
fn goal_of(work: &Work) -> Goal {
    match work.reshape {
        Some(Reshape::Split) => Goal::Split,
        Some(Reshape::Merge { .. }) => Goal::Merge,
        None if work.want_open => Goal::GoOn,
        None => Goal::Rest,
    }
}
