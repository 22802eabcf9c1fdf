//! Reads a topic back from its beginning to its end, and judges it.
//!
//! ```text
//!  pass 1: from the beginning to the end that the node tells      acknowledged records missing, or records of the load came?
//!  pass 2: from there to the end that it tells now                     |  yes: another pass, while `patience` lasts
//!  ...                                                                 |  no:  the judgement
//! ```
//! An end that is told too early would hide a loss (and a record that was stored twice behind it), or make one of records that are
//! there. So no end is believed that comes before all that was acknowledged, nor the first that comes behind it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sealog_engine::api::response::GapCause;
use sealog_net::client::core::consumer::{Consumer, ConsumerSettings, Delivery, Event, Flow, Start};
use sealog_net::client::core::{Cursor, CursorError, Failure};
use sealog_net::wire::frame::FRAME_BYTES_CEILING;
use thiserror::Error;

use super::driver::{Clock, Driver};
use super::ledger::{Judge, Ledger};
use crate::report::summary::Verification;

#[cfg(test)]
mod tests;

/// Bytes that all fetches together ask for.
const FETCH_BYTES: u32 = 8 << 20;
/// Time before the node is asked again for an end that lies further on.
const PAUSE: Duration = Duration::from_millis(50);

/// Reading back could not be finished.
#[derive(Debug, Error)]
pub enum VerifyError {
    #[error("the client's sockets: {0}")]
    Io(#[from] io::Error),
    #[error("nothing came for {} s", .0.as_secs())]
    Stalled(Duration),
    #[error("the node does not give the topic: {0}")]
    Failed(Failure),
    #[error("bytes of range {range} at {next} do not verify")]
    Damaged { range: String, next: String },
    #[error("range {range} at {next}: {text}")]
    Refused { range: String, next: String, text: String },
    #[error("records of range {range} at {next} have been deleted by retention")]
    Expired { range: String, next: String },
    #[error(transparent)]
    Cursor(CursorError),
}

/// What a gap's cause is called in reports and in JSON.
#[must_use]
pub fn cause_name(cause: GapCause) -> &'static str {
    match cause {
        GapCause::Interrupted => "interrupted",
        GapCause::Unreadable => "unreadable",
        GapCause::Forced => "forced",
    }
}

/// Reads back the topic of a ledger. An acknowledged record is lost if it has not come when no record of the load has come for
/// `patience`.
///
/// # Errors
/// The topic cannot be read to an end that the node tells; also if nothing comes before that for `patience`.
pub fn verify(ledger: &Ledger, addresses: Vec<SocketAddr>, patience: Duration) -> Result<Verification, VerifyError> {
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
        let pass = Pass { addresses: addresses.clone(), clock, patience };
        let before = judge.read();
        start = Start::Cursor(pass.read(settings, &mut judge)?);
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

/// One reading to the end that the node tells.
struct Pass {
    addresses: Vec<SocketAddr>,
    clock: Clock,
    patience: Duration,
}

impl Pass {
    /// Gives where it has ended.
    fn read(self, settings: ConsumerSettings, judge: &mut Judge<'_>) -> Result<Cursor, VerifyError> {
        let Self { addresses, clock, patience } = self;
        let mut driver = Driver::new(addresses, vec![Consumer::new(settings)], clock, FRAME_BYTES_CEILING)?;
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let mut progress_ns = clock.now().monotonic_ns;
        loop {
            let now = clock.now();
            let consumer = driver.client(0);
            let flow = consumer.deliver(now, &mut |delivery| {
                progress_ns = now.monotonic_ns;
                match delivery {
                    Delivery::Record { record, .. } => judge.record(record.key.key(), record.value),
                    Delivery::Gap { gap, .. } => judge.gap(cause_name(gap.cause)),
                }
                Flow::Continue(())
            });
            debug_assert!(flow.is_continue(), "the sink takes everything");
            while let Some(event) = consumer.poll_event() {
                judge_event(event)?;
            }
            if consumer.is_done() {
                return Ok(consumer.cursor().expect("what has been read has begun"));
            }
            let until_ns = progress_ns.saturating_add(patience_ns);
            if now.monotonic_ns >= until_ns {
                return Err(VerifyError::Stalled(patience));
            }
            driver.write()?;
            driver.wait(until_ns, |_, _, _| ())?;
        }
    }
}

/// Everything that a consumer tells but its beginning keeps the topic from being read to its end.
pub(super) fn judge_event(event: Event) -> Result<(), VerifyError> {
    match event {
        Event::Ready => Ok(()),
        Event::Failed(failure) => Err(VerifyError::Failed(failure)),
        Event::BadCursor(error) => Err(VerifyError::Cursor(error)),
        Event::Expired { range, next, .. } => {
            Err(VerifyError::Expired { range: range.to_string(), next: next.to_string() })
        }
        Event::Damaged { range, next } => {
            Err(VerifyError::Damaged { range: range.to_string(), next: next.to_string() })
        }
        Event::RangeFailed { range, next, refused } => {
            Err(VerifyError::Refused { range: range.to_string(), next: next.to_string(), text: refused.text })
        }
    }
}
