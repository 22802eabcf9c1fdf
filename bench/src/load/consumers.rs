//! Reads a topic back from its beginning to its end, and judges it.
//!
//! ```text
//!  pass 1: from the beginning to the end that the node tells      acknowledged records missing, or records of the load came?
//!  pass 2: from there to the end that it tells now                     |  yes: another pass, while `patience` lasts
//!  ...                                                                 |  no:  the judgement
//! ```
//! An end that is told too early would hide a loss (and a record that was stored twice behind it), or make one of records that are
//! there. So no end is believed that comes before all that was acknowledged, nor the first that comes behind it.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sealog_engine::api::response::GapCause;
use sealog_engine::types::Now;
use sealog_net::client::core::consumer::{ConsumerSettings, Delivery, Start};

use super::driver::Clock;
use super::ledger::{Judge, Ledger};
use super::reader::{FETCH_BYTES, ReaderError, Reading, Sink};
use crate::report::summary::Verification;

#[cfg(test)]
mod tests;

/// Time before the node is asked again for an end that lies further on.
const PAUSE: Duration = Duration::from_millis(50);

/// What a gap's cause is called in reports and in JSON.
#[must_use]
pub fn cause_name(cause: GapCause) -> &'static str {
    match cause {
        GapCause::Interrupted => "interrupted",
        GapCause::Unreadable => "unreadable",
        GapCause::Forced => "forced",
    }
}

impl Sink for Judge<'_> {
    fn take(&mut self, _now: Now, delivery: Delivery<'_>) {
        match delivery {
            Delivery::Record { record, .. } => self.record(record.key.key(), record.value),
            Delivery::Gap { gap, .. } => self.gap(cause_name(gap.cause)),
        }
    }
}

/// Reads back the topic of a ledger. An acknowledged record is lost if it has not come when no record of the load has come for
/// `patience`.
///
/// # Errors
/// The topic cannot be read to an end that the node tells; also if nothing comes before that for `patience`.
pub fn verify(ledger: &Ledger, addresses: Vec<SocketAddr>, patience: Duration) -> Result<Verification, ReaderError> {
    let clock = Clock::start();
    let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let mut judge = Judge::new(ledger);
    let mut start = Start::Earliest;
    let mut progress_ns = clock.now().monotonic_ns;
    loop {
        let settings = ConsumerSettings {
            client: "sealog-bench".to_owned(),
            fetch_bytes: FETCH_BYTES,
            start,
            ..ConsumerSettings::new(&ledger.topic, ledger.run.0)
        };
        let pass = Reading { addresses: addresses.clone(), clock, patience, stop: &AtomicBool::new(false) };
        let before = judge.read();
        start = Start::Cursor(pass.run(settings, &mut judge)?.expect("nobody stops it"));
        let now_ns = clock.now().monotonic_ns;
        if judge.read() > before {
            progress_ns = now_ns;
        } else if judge.lacking() == 0 || now_ns >= progress_ns.saturating_add(patience_ns) {
            return Ok(judge.finish());
        } else {
            std::thread::sleep(PAUSE);
        }
    }
}
