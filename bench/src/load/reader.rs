//! A consumer as a load: at full speed from the beginning (*catching up*), or at the end of the topic as records come (*tail*).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use sealog_engine::types::time::MILLISECOND_NS;
use sealog_net::client::core::consumer::{Consumer, ConsumerSettings, Delivery, End, Event, Flow, Start};
use sealog_net::wire::frame::FRAME_BYTES_CEILING;

use super::consumers::{VerifyError, judge_event};
use super::content::{self, LoadRun};
use super::driver::{Clock, Driver};

/// Bytes that all fetches of one that catches up together ask for.
const FETCH_BYTES: u32 = 8 << 20;
/// How often a reader looks whether it is over, at least.
const LOOK_NS: u64 = 20 * MILLISECOND_NS;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caught {
    pub records: u64,
    /// Of keys and values.
    pub bytes: u64,
    pub seconds: f64,
    pub gaps: u64,
}

/// A record of a load that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// When it was meant to be sent, on the clock of the load, in µs and modulo 2^32.
    pub intended_us: u32,
    /// From then to the delivery.
    pub took_us: u32,
}

/// Reads a topic from its beginning to the end that is committed at the start, as fast as it comes. Ends early when `stop` is set, and
/// with an error if nothing comes for `patience`.
///
/// # Errors
/// The topic cannot be read to its end.
pub fn catch_up(
    topic: &str,
    addresses: Vec<SocketAddr>,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<Caught, VerifyError> {
    let clock = Clock::start();
    let settings = ConsumerSettings {
        client: "sealog-bench".to_owned(),
        fetch_bytes: FETCH_BYTES,
        ..ConsumerSettings::new(topic, u64::from(std::process::id()))
    };
    let mut driver = Driver::new(addresses, vec![Consumer::new(settings)], clock, FRAME_BYTES_CEILING)?;
    let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let mut caught = Caught::default();
    let begun_ns = clock.now().monotonic_ns;
    let mut progress_ns = begun_ns;
    loop {
        let now = clock.now();
        let consumer = driver.client(0);
        let before = caught.records + caught.gaps;
        let flow = consumer.deliver(now, &mut |delivery| {
            match delivery {
                Delivery::Record { record, .. } => {
                    caught.records += 1;
                    let length = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| bytes.len() as u64);
                    caught.bytes += length(record.key.key()) + length(record.value);
                }
                Delivery::Gap { .. } => caught.gaps += 1,
            }
            Flow::Continue(())
        });
        debug_assert!(flow.is_continue(), "the sink takes everything");
        while let Some(event) = consumer.poll_event() {
            judge_event(event)?;
        }
        if consumer.is_done() || stop.load(Ordering::Relaxed) {
            caught.seconds = seconds(now.monotonic_ns - begun_ns);
            return Ok(caught);
        }
        if caught.records + caught.gaps > before {
            progress_ns = now.monotonic_ns;
        }
        if now.monotonic_ns >= progress_ns.saturating_add(patience_ns) {
            return Err(VerifyError::Stalled(patience));
        }
        driver.write()?;
        driver.wait(now.monotonic_ns + LOOK_NS, |_, _, _| ())?;
    }
}

/// Reads what one load writes behind the end of its topic, until `stop` is set. `ready` is told when reading begins; `room` is for how
/// many records, and no more are kept.
///
/// # Errors
/// The topic cannot be read.
pub fn tail(
    topic: &str,
    addresses: Vec<SocketAddr>,
    run: LoadRun,
    clock: Clock,
    room: usize,
    ready: &Sender<()>,
    stop: &AtomicBool,
) -> Result<Vec<Delivered>, VerifyError> {
    let settings = ConsumerSettings {
        client: "sealog-bench".to_owned(),
        start: Start::Latest,
        end: End::Never,
        ..ConsumerSettings::new(topic, run.0)
    };
    let mut driver = Driver::new(addresses, vec![Consumer::new(settings)], clock, FRAME_BYTES_CEILING)?;
    let mut delivered = Vec::with_capacity(room);
    loop {
        let now = clock.now();
        let now_us = wrapped_us(now.monotonic_ns);
        let consumer = driver.client(0);
        let flow = consumer.deliver(now, &mut |delivery| {
            if let Delivery::Record { record, .. } = delivery
                && let Some((of, intended_us)) = record.value.and_then(content::intended_us)
                && of == run
                && delivered.len() < delivered.capacity()
            {
                delivered.push(Delivered { intended_us, took_us: now_us.wrapping_sub(intended_us) });
            }
            Flow::Continue(())
        });
        debug_assert!(flow.is_continue(), "the sink takes everything");
        while let Some(event) = consumer.poll_event() {
            if event == Event::Ready {
                // The load waits for it, unless it has failed by itself.
                _ = ready.send(());
            }
            judge_event(event)?;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(delivered);
        }
        driver.write()?;
        driver.wait(now.monotonic_ns + LOOK_NS, |_, _, _| ())?;
    }
}

/// Microseconds on the clock of a load, modulo 2^32: 71 minutes, far above any delivery.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32 is what is wanted")]
pub fn wrapped_us(ns: u64) -> u32 {
    (ns / 1_000) as u32
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
