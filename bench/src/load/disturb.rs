//! What is done to a node in the middle of a load, so that its cost to the records under way is seen: `--disturb roll@5s,split@10s`.
//!
//! ```text
//! load    ─ warm-up ─┬─ measured ───────────────────────────────────┐
//!                  begin          roll                 split       end
//! here    ─ connect ─┴── sleep ───┴ one request a range ┴ one request
//! ```
//! On a thread and a connection of its own: the load must not wait for what it measures. The acts are done one after the other: one that
//! is answered late makes the next one late.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use sealog_engine::api::response::{RangeLineage, Route};
use sealog_engine::types::{KeySpan, RangeId};
use sealog_net::client::blocking::{Admin, RequestError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::driver::Clock;
use super::samples::Span;

#[cfg(test)]
mod tests;

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturb {
    pub what: Act,
    /// From the begin of the measured time.
    pub at_seconds: f64,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// The open segment of each range of the topic is sealed.
    Roll,
    /// The range of the topic with the widest key span is split.
    Split,
    /// The two buddies with the narrowest key spans are merged.
    Merge,
}

/// What became of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbed {
    pub what: Act,
    /// When it began, from the begin of the measured time.
    pub at_seconds: f64,
    /// Until the last range had answered.
    pub seconds: f64,
    /// Ranges that were rolled, split or merged.
    pub ranges: u64,
    /// The ranges that were split or merged, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
    /// Those that took their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub successors: Vec<String>,
    /// Why not all did.
    pub error: Option<String>,
    /// p99 of the response times of the records meant to be sent within 50 ms of it, from its begin to its end.
    #[serde(default)]
    pub near_p99_us: Option<f64>,
    /// The greatest of them: the stall.
    #[serde(default)]
    pub stall_us: Option<f64>,
}

/// An act, on the clock of the load.
#[derive(Clone, Debug)]
pub(crate) struct Acted {
    pub(crate) asked: Disturb,
    /// `None`: the load had ended before.
    pub(crate) span: Option<Span>,
    pub(crate) done: Done,
    pub(crate) error: Option<String>,
}

/// What an act has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Ranges that were rolled, split or merged.
    pub(crate) ranges: u64,
    /// Those that were split or merged.
    pub(crate) parents: Vec<RangeId>,
    /// Those that took their place.
    pub(crate) successors: Vec<RangeId>,
}

/// An act was not done, or not by all ranges.
#[derive(Debug, Error)]
enum ActError {
    #[error("there is nothing to merge: no two active ranges of the topic are each other's buddy")]
    NoBuddies,
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Waits for the load, and disturbs the node.
#[derive(Debug)]
pub(crate) struct Disturber {
    clock: Clock,
    load: Sender<u64>,
    thread: JoinHandle<Vec<Acted>>,
}

/// Whom to disturb.
pub(crate) struct Victim {
    pub(crate) addresses: Vec<String>,
    pub(crate) topic: String,
    pub(crate) timeout: Duration,
}

impl Disturber {
    /// Gets ready. Times are on `clock`, which is the load's.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(victim: Victim, mut acts: Vec<Disturb>, clock: Clock) -> io::Result<Self> {
        acts.sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
        let (load, told) = channel();
        let disturb = move || disturb_all(&victim, &acts, clock, &told);
        Ok(Self { clock, load, thread: std::thread::Builder::new().name("disturb".to_owned()).spawn(disturb)? })
    }

    /// The measured time begins.
    pub(crate) fn begin(&self) {
        // A thread that has failed says so when it ends.
        _ = self.load.send(self.clock.now().monotonic_ns);
    }

    /// The load is over: what did not come to pass by now does not.
    ///
    /// # Panics
    /// If the thread did.
    pub(crate) fn finish(self) -> Vec<Acted> {
        drop(self.load);
        self.thread.join().expect("the disturber does not panic")
    }
}

fn disturb_all(victim: &Victim, acts: &[Disturb], clock: Clock, load: &Receiver<u64>) -> Vec<Acted> {
    let mut admin = Admin::connect(&victim.addresses, victim.timeout);
    let begun_ns = load.recv().ok();
    let now_ns = || clock.now().monotonic_ns;
    let disturb = |asked: &Disturb| {
        let left = begun_ns.map(|begun_ns| {
            let at = Duration::from_secs_f64(asked.at_seconds);
            at.saturating_sub(Duration::from_nanos(now_ns() - begun_ns))
        });
        let mut done = Done::default();
        if left.is_none_or(|left| load.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)) {
            let error = Some("the load had ended".to_owned());
            return Acted { asked: *asked, span: None, done, error };
        }
        let begin_ns = now_ns();
        let error = match &mut admin {
            Err(error) => Some(error.to_string()),
            Ok(admin) => {
                let acted = act(asked.what, admin, &victim.topic, &mut done);
                acted.err().map(|error| error.to_string())
            }
        };
        Acted { asked: *asked, span: Some(Span { begin_ns, end_ns: now_ns() }), done, error }
    };
    acts.iter().map(disturb).collect()
}

/// Does one, and notes what is done of it, also where the rest fails.
fn act(what: Act, admin: &mut Admin, topic: &str, done: &mut Done) -> Result<(), ActError> {
    let (_, routes) = admin.routes(topic)?;
    let names = |ranges: &[RangeLineage]| ranges.iter().map(|made| made.route.range).collect();
    match what {
        Act::Roll => {
            for route in routes {
                done.ranges += u64::from(admin.roll(route.range)?.segments.is_some());
            }
        }
        Act::Split => {
            let widest = widest(&routes).expect("a topic has ranges");
            let halves = admin.split(topic, widest)?;
            *done = Done { ranges: 1, parents: vec![widest], successors: names(&halves) };
        }
        Act::Merge => {
            let pair = deepest_buddies(&routes).ok_or(ActError::NoBuddies)?;
            let whole = admin.merge(topic, pair)?;
            *done = Done { ranges: 2, parents: pair.to_vec(), successors: names(&[whole]) };
        }
    }
    Ok(())
}

/// Of active ranges the one with the widest key span; of several the first by span. `None` if there are no ranges.
#[must_use]
pub fn widest(routes: &[Route]) -> Option<RangeId> {
    routes.iter().min_by_key(|route| (route.span.depth(), route.span.first())).map(|route| route.range)
}

/// Of active ranges two that are each other's buddy, ascending by span: those with the narrowest spans, of several the first by span.
/// `None` if there are no two.
#[must_use]
pub fn deepest_buddies(routes: &[Route]) -> Option<[RangeId; 2]> {
    let ranges: BTreeMap<KeySpan, RangeId> = routes.iter().map(|route| (route.span, route.range)).collect();
    let is_lower = |span: KeySpan| span.buddy().is_some_and(|buddy| span.first() < buddy.first());
    let pairs = ranges.iter().filter(|(span, _)| is_lower(**span)).filter_map(|(span, lower)| {
        let upper = ranges.get(&span.buddy()?)?;
        Some((*span, [*lower, *upper]))
    });
    pairs.min_by_key(|(span, _)| (Reverse(span.depth()), span.first())).map(|(_, pair)| pair)
}

impl Act {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Roll, Self::Split, Self::Merge];
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Roll => "roll",
            Self::Split => "split",
            Self::Merge => "merge",
        })
    }
}
