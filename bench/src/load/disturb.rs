//! What is done to a node in the middle of a load, so that its cost to the records under way is seen: `--disturb roll@5s`.
//!
//! ```text
//! load    ─ warm-up ─┬─ measured ──────────────────────────┐
//!                  begin          roll                    end
//! here    ─ connect ─┴── sleep ───┴─ one request a range ──  its answers
//! ```
//! On a thread and a connection of its own: the load must not wait for what it measures.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use sealog_net::client::blocking::{Admin, RequestError};
use serde::{Deserialize, Serialize};

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
}

/// What became of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbed {
    pub what: Act,
    /// When it began, from the begin of the measured time.
    pub at_seconds: f64,
    /// Until the last range had answered.
    pub seconds: f64,
    /// Ranges that did it.
    pub ranges: u64,
    /// Why not all did.
    pub error: Option<String>,
}

/// Waits for the load, and disturbs the node.
#[derive(Debug)]
pub(crate) struct Disturber {
    load: Sender<Instant>,
    thread: JoinHandle<Vec<Disturbed>>,
}

/// Whom to disturb.
pub(crate) struct Victim {
    pub(crate) addresses: Vec<String>,
    pub(crate) topic: String,
    pub(crate) timeout: Duration,
}

impl Disturber {
    /// Gets ready.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(victim: Victim, mut acts: Vec<Disturb>) -> io::Result<Self> {
        acts.sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
        let (load, told) = channel();
        let disturb = move || disturb_all(&victim, &acts, &told);
        Ok(Self { load, thread: std::thread::Builder::new().name("disturb".to_owned()).spawn(disturb)? })
    }

    /// The measured time begins.
    pub(crate) fn begin(&self) {
        // A thread that has failed says so when it ends.
        _ = self.load.send(Instant::now());
    }

    /// The load is over: what did not come to pass by now does not.
    ///
    /// # Panics
    /// If the thread did.
    pub(crate) fn finish(self) -> Vec<Disturbed> {
        drop(self.load);
        self.thread.join().expect("the disturber does not panic")
    }
}

fn disturb_all(victim: &Victim, acts: &[Disturb], load: &Receiver<Instant>) -> Vec<Disturbed> {
    let mut admin = Admin::connect(&victim.addresses, victim.timeout);
    let begun = load.recv().ok();
    let disturb = |act: &Disturb| {
        let at = Duration::from_secs_f64(act.at_seconds);
        let left = begun.map(|begun| at.saturating_sub(begun.elapsed()));
        let over = left.is_none_or(|left| load.recv_timeout(left) == Err(RecvTimeoutError::Disconnected));
        let began = Instant::now();
        let (ranges, error) = match &mut admin {
            _ if over => (0, Some("the load had ended".to_owned())),
            Err(error) => (0, Some(error.to_string())),
            Ok(admin) => match act.what {
                Act::Roll => roll(admin, &victim.topic),
            },
        };
        Disturbed {
            what: act.what,
            at_seconds: begun.map_or(act.at_seconds, |begun| (began - begun).as_secs_f64()),
            seconds: began.elapsed().as_secs_f64(),
            ranges,
            error,
        }
    };
    acts.iter().map(disturb).collect()
}

/// Rolls each range of a topic; gives how many had something to seal, and the first error.
fn roll(admin: &mut Admin, topic: &str) -> (u64, Option<String>) {
    let mut rolled = 0;
    let mut all = || {
        let (_, routes) = admin.routes(topic)?;
        for route in routes {
            rolled += u64::from(admin.roll(route.range)?.segments.is_some());
        }
        Ok::<_, RequestError>(())
    };
    let error = all().err().map(|error| error.to_string());
    (rolled, error)
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Roll => "roll",
        })
    }
}
