//! What rolls and checkpoints, splits and merges cost the records under way: those meant to be sent near one, against all others.
//!
//! ```text
//! meant to be sent   ··········[── near ──|event|── near ──]···············[── near ──|event|── near ──]······   · the others
//! ```
//! Near is 100 ms for a roll or a checkpoint, which may have been seen late, and 50 ms for a split or a merge, which was ordered from here.

use serde::{Deserialize, Serialize};

use super::summary::{Quantiles, percentile_us};
use crate::load::disturb::{Act, Acted, Disturbed};
use crate::load::samples::{Samples, Span};
use crate::load::watch::{EventKind, Watched};

/// Records within so many nanoseconds of a roll or a checkpoint are near it.
const NEAR_NS: u64 = 100_000_000;
/// Records within so many nanoseconds of what was done to the node are near that.
const NEAR_ACT_NS: u64 = 50_000_000;

/// Records intended within 100 ms of a roll or a checkpoint, and the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    pub rolls: u64,
    pub checkpoints: u64,
    /// Rolls and checkpoints whose time the node told; each other one is near for the whole time in which it must have been.
    pub events_seen: u64,
    pub near: Quantiles,
    pub others: Quantiles,
    /// p99.9 near over p99.9 of the others.
    pub ratio_p999: Option<f64>,
    /// Records that are in neither, since there was no memory for more.
    #[serde(default)]
    pub dropped: u64,
}

/// Records intended within 50 ms of a split or a merge that was ordered, from its begin to its end, and the others. What was not done
/// does not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitsAndMerges {
    pub splits: u64,
    pub merges: u64,
    pub near: Quantiles,
    pub others: Quantiles,
    /// p99 near over p99 of the others.
    pub ratio_p99: Option<f64>,
    /// The greatest p99 of the records near a single one.
    pub act_p99_max_us: Option<f64>,
    /// The greatest response time near each one is its stall; of an even number the greater of the two in the middle.
    pub stall_median_us: Option<f64>,
    pub stall_max_us: Option<f64>,
}

impl Disturbance {
    /// Records near the rolls and checkpoints of the measured time, against the others. Those before and behind it are near as
    /// well, but do not count.
    pub(crate) fn new(watched: &Watched, window: Span, samples: &Samples) -> Self {
        let kinds = [EventKind::Roll, EventKind::Checkpoint];
        let count = |kind| watched.count(kind, window.begin_ns, window.end_ns);
        let seen = watched.within(window.begin_ns, window.end_ns);
        let exact = seen.filter(|event| event.exact && kinds.contains(&event.kind)).count();
        let (near, others) = samples.split(&watched.spans_of(&kinds), NEAR_NS);
        let (near, others) = (Quantiles::of(&near), Quantiles::of(&others));
        Self {
            rolls: count(EventKind::Roll),
            checkpoints: count(EventKind::Checkpoint),
            events_seen: exact as u64,
            near,
            others,
            ratio_p999: near.p999_us.zip(others.p999_us).map(|(near, others)| near / others),
            dropped: samples.dropped(),
        }
    }
}

impl SplitsAndMerges {
    /// Of what was done, and what it cost by itself. `None` if nothing was split or merged.
    pub(crate) fn new(watched: &Watched, disturbed: &[Disturbed], samples: &Samples) -> Option<Self> {
        let is_one = |act: &&Disturbed| act.error.is_none() && act.what != Act::Roll;
        let done: Vec<&Disturbed> = disturbed.iter().filter(is_one).collect();
        if done.is_empty() {
            return None;
        }
        let number = |what| done.iter().filter(|act| act.what == what).count() as u64;
        let mut stalls: Vec<f64> = done.iter().filter_map(|act| act.stall_us).collect();
        stalls.sort_by(f64::total_cmp);
        let (near, others) = samples.split(&watched.spans_of(&[EventKind::Split, EventKind::Merge]), NEAR_ACT_NS);
        let (near, others) = (Quantiles::of(&near), Quantiles::of(&others));
        Some(Self {
            splits: number(Act::Split),
            merges: number(Act::Merge),
            near,
            others,
            ratio_p99: near.p99_us.zip(others.p99_us).map(|(near, others)| near / others),
            act_p99_max_us: done.iter().filter_map(|act| act.near_p99_us).max_by(f64::total_cmp),
            stall_median_us: stalls.get(stalls.len() / 2).copied(),
            stall_max_us: stalls.last().copied(),
        })
    }
}

impl Disturbed {
    /// Of an act, and of the records near it. The measured time began at `origin_ns`.
    #[expect(clippy::cast_precision_loss, reason = "times of a run are far below 2^53 ns")]
    pub(crate) fn new(act: Acted, origin_ns: u64, samples: Option<&Samples>) -> Self {
        let Acted { asked, span, done, error } = act;
        let near =
            samples.zip(span.filter(|_| error.is_none())).map(|(samples, span)| samples.split(&[span], NEAR_ACT_NS).0);
        let names = |ranges: Vec<_>| ranges.iter().map(ToString::to_string).collect();
        Self {
            what: asked.what,
            at_seconds: span.map_or(asked.at_seconds, |span| (span.begin_ns as f64 - origin_ns as f64) / 1e9),
            seconds: span.map_or(0.0, |span| (span.end_ns - span.begin_ns) as f64 / 1e9),
            ranges: done.ranges,
            parents: names(done.parents),
            successors: names(done.successors),
            error,
            near_p99_us: near.as_ref().and_then(|near| percentile_us(near, 99.0)),
            stall_us: near.as_ref().and_then(|near| Quantiles::of(near).max_us),
        }
    }
}

#[cfg(test)]
mod tests;
