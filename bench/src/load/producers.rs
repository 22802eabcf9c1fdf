//! The produce load: sends by the schedule or for each answer, and times every record.
//!
//! ```text
//! connect ─ ready ─┬─ warm-up ─┬─ measured ────────────┬─ drain ─┐
//!                  start       from                    until     every record has been told
//! ```
//! A record belongs to the figures by when it was *meant* to be sent; the achieved rate counts the answers that came in the measured
//! time. Nothing is allocated for a record once the rings have grown to their size.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use sealog_engine::types::time::{MILLISECOND_NS, SECOND_NS};
use sealog_net::client::core::producer::{Event, Record, SendError};
use sealog_net::client::core::{Failure, Producer, ProducerSettings};
use thiserror::Error;

use super::arrivals::Schedule;
use super::content::{self, ContentWriter, LoadRun};
use super::draws::{Draw, Draws};
use super::driver::{Clock, Driver};
use super::ledger::Ledger;
use super::reader::wrapped_us;
use super::recorder::Recorder;
use super::samples::{Samples, Span};
use super::settings::{Pace, Settings};
use super::tally::{Flight, Tally, Window};
use super::timeline::Timeline;

/// Bytes of the largest frame that a node may send to a producer: a list of routes.
const FRAME_BYTES_MAX: u32 = 4 << 20;
/// Records that an open loop may have unanswered on one connection; behind it the client falls behind its schedule.
const OPEN_INFLIGHT_MAX: u32 = 200_000;
/// Time behind the longest timeout in which the client library must have told every record.
const GRACE_NS: u64 = 2 * SECOND_NS;

/// The load could not be made.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("the client's sockets: {0}")]
    Io(#[from] io::Error),
    #[error("no connection stood after {seconds} s: {state}")]
    NotReady { seconds: u64, state: &'static str },
    #[error("the node does not take the load: {0}")]
    Failed(Failure),
    #[error("a record of {bytes} bytes does not fit a batch; {most} are allowed")]
    TooLarge { bytes: usize, most: usize },
}

/// When to give up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDisconnect {
    /// Let the library connect again and settle what was under way.
    Retry,
    /// End the load: what was under way is unknown.
    Stop,
}

/// What a load did.
#[derive(Debug)]
pub struct Produced {
    pub times: Recorder,
    /// Seconds in which it was measured.
    pub seconds: f64,
    /// Records stored of those meant to be sent in the measured time.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Records a second whose answer *stored* came in the measured time.
    pub achieved_rate: f64,
    pub not_stored: u64,
    pub unknown: u64,
    /// Records not stored or unknown, by the code of the refusal; 0 where there was none.
    pub causes: BTreeMap<u16, u64>,
    pub disconnects: u64,
    pub ledger: Ledger,
    pub samples: Option<Samples>,
    pub timeline: Timeline,
    /// The measured time, on the clock of the load.
    pub window: Span,
}

/// Called when the measured time begins and ends.
pub trait Phases {
    fn begin(&mut self);
    fn end(&mut self);
}

/// One connection's side of the load.
pub(super) struct Sender {
    pub(super) schedule: Option<Schedule>,
    draws: Draws,
    /// Records of the due batch that were given to the library already.
    of_batch: u32,
    /// Records that were given to the library, the oldest first that it has not told.
    pub(super) flights: VecDeque<Flight>,
    /// Token of the first of `flights`.
    pub(super) first_token: u64,
    /// Of `flights`: from here on the time of the send is not known yet.
    pub(super) sent: usize,
    inflight: u32,
    pub(super) recorder: Recorder,
    failure: Option<Failure>,
}

/// Makes a load.
pub struct ProduceLoad<'a> {
    pub settings: &'a Settings,
    pub addresses: Vec<SocketAddr>,
    pub on_disconnect: OnDisconnect,
    /// Identifies the load's records.
    pub run: LoadRun,
    pub clock: Clock,
    /// Set by somebody else: the load ends now, with what was measured so far.
    pub stop: &'a AtomicBool,
}

impl ProduceLoad<'_> {
    /// Runs it to its end.
    ///
    /// # Errors
    /// It could not begin. Records that were not stored are no error.
    pub fn run(&self, phases: &mut dyn Phases) -> Result<Produced, LoadError> {
        let settings = self.settings;
        let clock = self.clock;
        let mut driver = Driver::new(self.addresses.clone(), self.producers(), clock, FRAME_BYTES_MAX)?;
        let (_, largest) = settings.value_bytes_range();
        let mut content = ContentWriter::new(self.run, largest, settings.verify || settings.judged, settings.seed);
        let mut senders = self.wait_until_ready(&mut driver)?;
        let start_ns = clock.now().monotonic_ns + MILLISECOND_NS;
        let from_ns = start_ns + ns(settings.warmup_seconds);
        let window = Window { from_ns, until_ns: from_ns + ns(settings.seconds) };
        for (index, sender) in senders.iter_mut().enumerate() {
            sender.schedule = self.schedule(index, start_ns);
        }
        let mut tally = Tally {
            window,
            stored_in_window: 0,
            bytes_in_window: 0,
            answered_in_window: 0,
            not_stored: 0,
            unknown: 0,
            causes: BTreeMap::new(),
            ledger: Ledger::new(self.run, &settings.topic, settings.keys),
            timeline: Timeline::new(window.from_ns, window.until_ns),
            samples: settings.disturbance.then(|| Samples::new(self.records_expected())),
        };
        self.send_and_hear(&mut driver, &mut senders, &mut tally, &mut content, phases)?;
        let mut times = Recorder::default();
        for sender in &mut senders {
            tally.give_up_all(sender);
            times.merge(&sender.recorder);
        }
        let seconds = seconds(tally.window.until_ns.saturating_sub(from_ns).max(1));
        Ok(Produced {
            seconds,
            records: tally.stored_in_window,
            bytes: tally.bytes_in_window,
            achieved_rate: rate(tally.answered_in_window, seconds),
            not_stored: tally.not_stored,
            unknown: tally.unknown,
            causes: tally.causes,
            disconnects: driver.disconnects(),
            ledger: tally.ledger,
            samples: tally.samples,
            timeline: tally.timeline,
            window: Span { begin_ns: from_ns, end_ns: tally.window.until_ns },
            times,
        })
    }

    fn producers(&self) -> Vec<Producer> {
        let settings = self.settings;
        let (_, largest) = settings.value_bytes_range();
        let record_bytes = largest + content::KEY_BYTES + 32;
        let inflight = match settings.pace {
            Pace::Closed { inflight } => inflight.max(settings.batch),
            Pace::Open { .. } => OPEN_INFLIGHT_MAX,
        };
        (0..settings.connections)
            .map(|index| {
                Producer::new(ProducerSettings {
                    client: "sealog-bench".to_owned(),
                    batch_bytes: u32::try_from(record_bytes * settings.batch as usize).unwrap_or(u32::MAX),
                    one_record_a_batch: settings.batch == 1,
                    records_in_flight: inflight,
                    bytes_in_flight: u64::MAX / 2,
                    timeout_ms: settings.timeout_ms,
                    ..ProducerSettings::new(&settings.topic, settings.seed ^ self.run.0 ^ u64::from(index) << 48)
                })
            })
            .collect()
    }

    /// The schedule of one of the connections; they are spread over one interval.
    fn schedule(&self, index: usize, start_ns: u64) -> Option<Schedule> {
        let Pace::Open { rate, arrival } = self.settings.pace else { return None };
        let batches = rate / f64::from(self.settings.batch) / f64::from(self.settings.connections);
        let apart_ns = ns(1.0 / batches) / u64::from(self.settings.connections);
        Some(Schedule::new(arrival, batches, start_ns + apart_ns * index as u64, self.settings.seed + index as u64))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate, bounded by Samples")]
    fn records_expected(&self) -> usize {
        match self.settings.pace {
            Pace::Open { rate, .. } => (rate * self.settings.seconds * 1.05) as usize + 1_000,
            Pace::Closed { .. } => Samples::MOST,
        }
    }

    /// Connects everything; no record is sent.
    fn wait_until_ready(&self, driver: &mut Driver<Producer>) -> Result<Vec<Sender>, LoadError> {
        let settings = self.settings;
        let inflight = match settings.pace {
            Pace::Closed { inflight } => inflight.max(settings.batch),
            Pace::Open { .. } => OPEN_INFLIGHT_MAX,
        };
        let mut senders: Vec<Sender> = (0..settings.connections)
            .map(|index| Sender {
                schedule: None,
                draws: Draws::new(settings, index),
                of_batch: 0,
                flights: VecDeque::with_capacity(inflight as usize + 1),
                first_token: 0,
                sent: 0,
                inflight,
                recorder: Recorder::default(),
                failure: None,
            })
            .collect();
        let until_ns = driver.clock().now().monotonic_ns + u64::from(settings.timeout_ms) * MILLISECOND_NS;
        loop {
            for (producer, sender) in driver.clients().zip(&mut senders) {
                while let Some(event) = producer.poll_event() {
                    sender.notice_failure(event);
                }
            }
            if let Some(failure) = senders.iter_mut().find_map(|sender| sender.failure.take()) {
                return Err(LoadError::Failed(failure));
            }
            if driver.clients().all(|producer| producer.is_ready()) {
                return Ok(senders);
            }
            if driver.clock().now().monotonic_ns >= until_ns {
                let state = if driver.disconnects() > 0 { "it broke" } else { "nobody answered" };
                return Err(LoadError::NotReady { seconds: u64::from(settings.timeout_ms) / 1_000, state });
            }
            driver.write()?;
            driver.wait(until_ns, |_, _, _| ())?;
        }
    }

    fn send_and_hear(
        &self,
        driver: &mut Driver<Producer>,
        senders: &mut [Sender],
        tally: &mut Tally,
        content: &mut ContentWriter,
        phases: &mut dyn Phases,
    ) -> Result<(), LoadError> {
        let clock = driver.clock();
        let from_ns = tally.window.from_ns;
        let (mut begun, mut ended) = (false, false);
        loop {
            let now_ns = clock.now().monotonic_ns;
            if self.stop.load(Ordering::Relaxed) {
                tally.window.until_ns = tally.window.until_ns.min(now_ns);
            }
            let until_ns = tally.window.until_ns;
            let give_up_ns = until_ns + u64::from(self.settings.timeout_ms) * MILLISECOND_NS + GRACE_NS;
            if !begun && now_ns >= from_ns {
                begun = true;
                phases.begin();
            }
            if !ended && now_ns >= until_ns {
                ended = true;
                phases.end();
            }
            // What was due in the measured time is sent, however late: left out it would hide the stall that made it late.
            for (index, sender) in senders.iter_mut().enumerate() {
                self.send(driver.client(index), sender, clock, tally, content)?;
            }
            let next_due_ns = senders.iter().map(Sender::next_ns).min().unwrap_or(u64::MAX);
            let mut next_ns = next_due_ns.min(if begun { until_ns } else { from_ns });
            if ended {
                next_ns = give_up_ns;
                let all_sent = next_due_ns >= until_ns;
                if (all_sent && senders.iter().all(|sender| sender.flights.is_empty())) || now_ns >= give_up_ns {
                    senders.iter_mut().for_each(|sender| tally.give_up_unsent(sender, u64::from(self.settings.batch)));
                    return Ok(());
                }
            }
            // What is written now counts as sent now, not when it was made.
            let sent_ns = clock.now().monotonic_ns;
            senders.iter_mut().for_each(|sender| sender.stamp(sent_ns));
            driver.write()?;
            driver.wait(next_ns, |producer, index, read_ns| tally.hear(producer, &mut senders[index], read_ns))?;
            for (index, sender) in senders.iter_mut().enumerate() {
                // A deadline that passed is told without a read.
                tally.hear(driver.client(index), sender, clock.now().monotonic_ns);
            }
            let failed = senders.iter().any(|sender| sender.failure.is_some());
            if failed || (self.on_disconnect == OnDisconnect::Stop && driver.disconnects() > 0) {
                return Ok(());
            }
        }
    }

    /// Gives the library what is due.
    fn send(
        &self,
        producer: &mut Producer,
        sender: &mut Sender,
        clock: Clock,
        tally: &mut Tally,
        content: &mut ContentWriter,
    ) -> Result<(), LoadError> {
        let now = clock.now();
        let batch = self.settings.batch;
        while let Some(intended_ns) = sender.due(now.monotonic_ns, tally.window.until_ns, producer.in_flight() + batch)
        {
            content.intend(wrapped_us(intended_ns));
            while sender.of_batch < batch {
                let Draw { key, value_bytes } = sender.draws.peek();
                let sequence = tally.ledger.peek(key);
                let key_bytes = content::key(key);
                let value = content.value(key, sequence, value_bytes);
                let record = Record { key: Some(&key_bytes), value: Some(value), headers: &[], timestamp_ms: None };
                match producer.send(now, &record) {
                    Ok(_) => {
                        tally.ledger.send(key);
                        sender.draws.take();
                        sender.of_batch += 1;
                        let bytes = u32::try_from(value_bytes + content::KEY_BYTES).expect("it fits a batch");
                        sender.flights.push_back(Flight { intended_ns, sent_ns: 0, sequence, key, bytes, told: false });
                    }
                    Err(SendError::TooLarge { bytes, most }) => return Err(LoadError::TooLarge { bytes, most }),
                    // Not ready: it is connecting again. Either way the schedule goes on and the record is late.
                    Err(SendError::Full | SendError::NotReady) => {
                        producer.turn(now);
                        return Ok(());
                    }
                }
            }
            sender.took();
            if batch > 1 {
                producer.flush(now);
            }
        }
        producer.turn(now);
        Ok(())
    }
}

impl Sender {
    /// When the next batch was meant to be sent, if that is due by now.
    fn due(&self, now_ns: u64, until_ns: u64, would_be_in_flight: u32) -> Option<u64> {
        match &self.schedule {
            Some(schedule) => Some(schedule.peek()).filter(|at| *at <= now_ns && *at < until_ns),
            None => (would_be_in_flight <= self.inflight && now_ns < until_ns).then_some(now_ns),
        }
    }

    /// The due batch was taken.
    fn took(&mut self) {
        self.of_batch = 0;
        if let Some(schedule) = &mut self.schedule {
            schedule.take();
        }
    }

    /// When something is next due without an answer.
    fn next_ns(&self) -> u64 {
        self.schedule.as_ref().map_or(u64::MAX, Schedule::peek)
    }

    fn stamp(&mut self, sent_ns: u64) {
        self.flights.range_mut(self.sent..).for_each(|flight| flight.sent_ns = sent_ns);
        self.sent = self.flights.len();
    }

    pub(super) fn notice_failure(&mut self, event: Event) {
        match event {
            Event::Failed(failure) => self.failure = Some(failure),
            Event::Ready { .. } | Event::Done { .. } => {}
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a run is positive and far below 2^53 ns")]
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn rate(records: u64, seconds: f64) -> f64 {
    records as f64 / seconds
}
