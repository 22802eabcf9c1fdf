//! What a phase holds beyond its figures in `report.json`: whole distributions, and what happened when.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::summary::Quantiles;
use crate::load::recorder::Recorder;
use crate::load::samples::Span;
use crate::load::timeline::{Slice, Timeline};
use crate::load::watch::{EventKind, Watched};
use crate::machine::STEAL_SHARE_MAX;

/// Of one phase.
#[derive(Clone, Debug)]
pub struct Detail {
    /// When the measured time began, in milliseconds since the Unix epoch.
    pub started_ms: u64,
    pub times: Recorder,
    pub intervals: Vec<Interval>,
    /// Response times of each interval, in ns.
    pub responses: Vec<Histogram<u64>>,
}

/// A line of `intervals.ndjson`, without its phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// From the begin of the measured time.
    pub start_s: f64,
    pub seconds: f64,
    /// Answers *stored* that came in it, a second.
    pub achieved_rate: f64,
    /// Of the records that were meant to be sent in it.
    pub response: Quantiles,
    /// Share of the machine's time that the hypervisor gave to others, 0 to 1.
    pub steal: Option<f64>,
    /// More than 2 % of it: what was measured in this interval is not this machine's.
    pub stolen: bool,
    pub rolls: u64,
    pub checkpoints: u64,
    /// When each roll and checkpoint was, as far as the node told, and each split and merge that was ordered, from the begin of the measured
    /// time.
    pub events: Vec<Mark>,
}

/// A roll, a checkpoint, a split or a merge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// `roll`, `checkpoint`, `split` or `merge`.
    pub kind: String,
    pub begin_s: f64,
    pub end_s: f64,
}

impl Detail {
    /// Of the deliveries of a load's records; what disturbed the load disturbed them.
    #[must_use]
    pub fn of_deliveries(load: &Self, times: Recorder, timeline: &Timeline, window: Span) -> Self {
        let slices = || timeline.until(window.end_ns);
        let intervals = slices().zip(&load.intervals).map(|((span, slice), of_load)| {
            let delivered = Interval::new(span, window.begin_ns, slice, &Watched::default());
            Interval { achieved_rate: delivered.achieved_rate, response: delivered.response, ..of_load.clone() }
        });
        Self {
            started_ms: load.started_ms,
            times,
            intervals: intervals.collect(),
            responses: slices().map(|(_, slice)| slice.response.clone()).collect(),
        }
    }
}

impl Interval {
    /// Of what was counted in it. `origin_ns` is the begin of the measured time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "times and counts of a run are far below 2^53")]
    pub fn new(span: Span, origin_ns: u64, slice: &Slice, watched: &Watched) -> Self {
        let from_origin = |ns: u64| (ns as f64 - origin_ns as f64) / 1e9;
        let seconds = (span.end_ns - span.begin_ns) as f64 / 1e9;
        let steal = watched.steal_share(span.begin_ns, span.end_ns);
        let count = |kind| watched.count(kind, span.begin_ns, span.end_ns);
        let events = watched.within(span.begin_ns, span.end_ns).map(|event| Mark {
            kind: match event.kind {
                EventKind::Roll => "roll".to_owned(),
                EventKind::Checkpoint => "checkpoint".to_owned(),
                EventKind::Split => "split".to_owned(),
                EventKind::Merge => "merge".to_owned(),
            },
            begin_s: from_origin(event.span.begin_ns),
            end_s: from_origin(event.span.end_ns),
        });
        Self {
            start_s: from_origin(span.begin_ns),
            seconds,
            achieved_rate: slice.answered as f64 / seconds,
            response: Quantiles::of(&slice.response),
            steal,
            stolen: steal.is_some_and(|share| share > STEAL_SHARE_MAX),
            rolls: count(EventKind::Roll),
            checkpoints: count(EventKind::Checkpoint),
            events: events.collect(),
        }
    }
}
