//! Reads a topic back from its beginning to the end that is committed now, and judges it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sealog_engine::api::response::GapCause;
use sealog_net::client::core::consumer::{Consumer, ConsumerSettings, Delivery, Event, Flow};
use sealog_net::client::core::{CursorError, Failure};
use sealog_net::wire::frame::FRAME_BYTES_CEILING;
use thiserror::Error;

use super::driver::{Clock, Driver};
use super::ledger::{Judge, Ledger};
use crate::report::summary::Verification;

/// Bytes that all fetches together ask for.
const FETCH_BYTES: u32 = 8 << 20;

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

/// Reads back the topic of a ledger. Ends with an error if nothing comes for `patience`.
///
/// # Errors
/// The topic cannot be read to its end.
pub fn verify(ledger: &Ledger, addresses: Vec<SocketAddr>, patience: Duration) -> Result<Verification, VerifyError> {
    let clock = Clock::start();
    let settings = ConsumerSettings {
        client: "sealog-bench".to_owned(),
        fetch_bytes: FETCH_BYTES,
        ..ConsumerSettings::new(&ledger.topic, ledger.run.0)
    };
    let mut driver = Driver::new(addresses, vec![Consumer::new(settings)], clock, FRAME_BYTES_CEILING)?;
    let mut judge = Judge::new(ledger);
    let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let mut progress_ns = clock.now().monotonic_ns;
    loop {
        let now = clock.now();
        let consumer = driver.client(0);
        let mut delivered = false;
        let flow = consumer.deliver(now, &mut |delivery| {
            delivered = true;
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
            return Ok(judge.finish());
        }
        if delivered {
            progress_ns = now.monotonic_ns;
        }
        let until_ns = progress_ns.saturating_add(patience_ns);
        if now.monotonic_ns >= until_ns {
            return Err(VerifyError::Stalled(patience));
        }
        driver.write()?;
        driver.wait(until_ns, |_, _, _| ())?;
    }
}

/// Everything that a consumer tells but its beginning keeps the topic from being read to its end.
fn judge_event(event: Event) -> Result<(), VerifyError> {
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
