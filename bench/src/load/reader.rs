//! A consumer as a load: at full speed from the beginning (*catching up*), or at the end of the topic as records come (*tail*). And the
//! reading that these and the judgement of a load have in common.
//!
//! ```text
//! deliver what has come ── done, stopped, or nothing for too long? ── write ── wait ──┐
//!        └────────────────────────────────────────────────────────────────────────────┘
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use sealog_engine::types::Now;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_net::client::core::consumer::{Consumer, ConsumerSettings, Delivery, End, Event, Flow, Start};
use sealog_net::client::core::{Cursor, CursorError, Failure};
use sealog_net::wire::frame::FRAME_BYTES_CEILING;
use thiserror::Error;

use super::content::{self, LoadRun};
use super::driver::{Clock, Driver};

/// Bytes that all fetches of one that catches up together ask for.
pub(super) const FETCH_BYTES: u32 = 8 << 20;
/// How often a reader looks whether it is over, at least.
const LOOK_NS: u64 = 20 * MILLISECOND_NS;

/// A topic cannot be read to its end.
#[derive(Debug, Error)]
pub enum ReaderError {
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

/// Takes what is read.
pub(super) trait Sink {
    /// Reading begins: what is stored from now on is given.
    fn ready(&mut self) {}

    /// The next of it; times are on the clock of the reading.
    fn take(&mut self, now: Now, delivery: Delivery<'_>);
}

/// One reading by one consumer.
pub(super) struct Reading<'a> {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) clock: Clock,
    /// The longest time in which nothing may come.
    pub(super) patience: Duration,
    /// Set by somebody else: it ends now.
    pub(super) stop: &'a AtomicBool,
}

impl Reading<'_> {
    /// Reads to the end that the settings ask for, and gives where that was; `None` if it was stopped before.
    pub(super) fn run(self, settings: ConsumerSettings, sink: &mut dyn Sink) -> Result<Option<Cursor>, ReaderError> {
        let Self { addresses, clock, patience, stop } = self;
        let mut driver = Driver::new(addresses, vec![Consumer::new(settings)], clock, FRAME_BYTES_CEILING)?;
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let mut progress_ns = clock.now().monotonic_ns;
        loop {
            let now = clock.now();
            let consumer = driver.client(0);
            let flow = consumer.deliver(now, &mut |delivery| {
                progress_ns = now.monotonic_ns;
                sink.take(now, delivery);
                Flow::Continue(())
            });
            debug_assert!(flow.is_continue(), "the sink takes everything");
            while let Some(event) = consumer.poll_event() {
                if event == Event::Ready {
                    sink.ready();
                }
                judge_event(event)?;
            }
            if consumer.is_done() {
                return Ok(Some(consumer.cursor().expect("what has been read has begun")));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let until_ns = progress_ns.saturating_add(patience_ns);
            if now.monotonic_ns >= until_ns {
                return Err(ReaderError::Stalled(patience));
            }
            driver.write()?;
            driver.wait(until_ns.min(now.monotonic_ns + LOOK_NS), |_, _, _| ())?;
        }
    }
}

/// Everything that a consumer tells but its beginning keeps the topic from being read to its end.
fn judge_event(event: Event) -> Result<(), ReaderError> {
    match event {
        Event::Ready => Ok(()),
        Event::Failed(failure) => Err(ReaderError::Failed(failure)),
        Event::BadCursor(error) => Err(ReaderError::Cursor(error)),
        Event::Expired { range, next, .. } => {
            Err(ReaderError::Expired { range: range.to_string(), next: next.to_string() })
        }
        Event::Damaged { range, next } => {
            Err(ReaderError::Damaged { range: range.to_string(), next: next.to_string() })
        }
        Event::RangeFailed { range, next, refused } => {
            Err(ReaderError::Refused { range: range.to_string(), next: next.to_string(), text: refused.text })
        }
    }
}

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

impl Sink for Caught {
    fn take(&mut self, _now: Now, delivery: Delivery<'_>) {
        match delivery {
            Delivery::Record { record, .. } => {
                let length = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| bytes.len() as u64);
                self.records += 1;
                self.bytes += length(record.key.key()) + length(record.value);
            }
            Delivery::Gap { .. } => self.gaps += 1,
        }
    }
}

impl Caught {
    /// Takes in another reading, which came behind this one.
    pub fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.gaps += other.gaps;
    }
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
) -> Result<Caught, ReaderError> {
    let clock = Clock::start();
    let settings = ConsumerSettings {
        client: "sealog-bench".to_owned(),
        fetch_bytes: FETCH_BYTES,
        ..ConsumerSettings::new(topic, u64::from(std::process::id()))
    };
    let mut caught = Caught::default();
    Reading { addresses, clock, patience, stop }.run(settings, &mut caught)?;
    caught.seconds = seconds(clock.now().monotonic_ns);
    Ok(caught)
}

/// A reader of what one load writes behind the end of its topic.
pub struct Tail<'a> {
    pub topic: &'a str,
    pub addresses: Vec<SocketAddr>,
    pub run: LoadRun,
    pub clock: Clock,
    /// For how many records there is room: no more are kept.
    pub room: usize,
    /// Told when reading begins.
    pub ready: Sender<()>,
    /// Records that have come, also those without room.
    pub seen: &'a AtomicU64,
    /// Set by somebody else: it ends now.
    pub stop: &'a AtomicBool,
}

/// Records of one load as they come.
struct Kept<'a> {
    run: LoadRun,
    delivered: Vec<Delivered>,
    ready: Sender<()>,
    seen: &'a AtomicU64,
}

impl Sink for Kept<'_> {
    fn ready(&mut self) {
        // The load waits for it, unless it has failed by itself.
        _ = self.ready.send(());
    }

    fn take(&mut self, now: Now, delivery: Delivery<'_>) {
        if let Delivery::Record { record, .. } = delivery
            && let Some((of, intended_us)) = record.value.and_then(content::intended_us)
            && of == self.run
        {
            self.seen.fetch_add(1, Ordering::Relaxed);
            if self.delivered.len() < self.delivered.capacity() {
                let took_us = wrapped_us(now.monotonic_ns).wrapping_sub(intended_us);
                self.delivered.push(Delivered { intended_us, took_us });
            }
        }
    }
}

impl Tail<'_> {
    /// Reads until it is stopped.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn read(self) -> Result<Vec<Delivered>, ReaderError> {
        let Self { topic, addresses, run, clock, room, ready, seen, stop } = self;
        let settings = ConsumerSettings {
            client: "sealog-bench".to_owned(),
            start: Start::Latest,
            end: End::Never,
            ..ConsumerSettings::new(topic, run.0)
        };
        let mut kept = Kept { run, delivered: Vec::with_capacity(room), ready, seen };
        // A load may be silent for as long as it likes.
        Reading { addresses, clock, patience: Duration::MAX, stop }.run(settings, &mut kept)?;
        Ok(kept.delivered)
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
