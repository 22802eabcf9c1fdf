//! What became of the records of a load, as the client library tells it.

use std::collections::BTreeMap;

use sealog_engine::api::error::Outcome;
use sealog_net::client::core::Producer;
use sealog_net::client::core::producer::Event;

use super::ledger::Ledger;
use super::producers::Sender;
use super::recorder::Recorder;
use super::samples::Samples;
use super::timeline::Timeline;

/// One record under way.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    pub(super) intended_ns: u64,
    pub(super) sent_ns: u64,
    pub(super) sequence: u64,
    pub(super) key: u32,
    /// Of key and value.
    pub(super) bytes: u32,
    pub(super) told: bool,
}

/// The measured time.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
}

/// All that is shared by the connections.
pub(super) struct Tally {
    pub(super) window: Window,
    pub(super) stored_in_window: u64,
    pub(super) bytes_in_window: u64,
    pub(super) answered_in_window: u64,
    pub(super) not_stored: u64,
    pub(super) unknown: u64,
    pub(super) causes: BTreeMap<u16, u64>,
    pub(super) ledger: Ledger,
    pub(super) timeline: Timeline,
    pub(super) samples: Option<Samples>,
}

impl Tally {
    /// Takes what the library tells.
    pub(super) fn hear(&mut self, producer: &mut Producer, sender: &mut Sender, read_ns: u64) {
        while let Some(event) = producer.poll_event() {
            match event {
                Event::Done { first, count, outcome, code } => {
                    for token in first..first + u64::from(count) {
                        let at = usize::try_from(token - sender.first_token).expect("a ring in memory");
                        let flight = &mut sender.flights[at];
                        flight.told = true;
                        let flight = *flight;
                        self.settle(&mut sender.recorder, flight, outcome, code, read_ns);
                    }
                    while sender.flights.front().is_some_and(|flight| flight.told) {
                        sender.flights.pop_front();
                        sender.first_token += 1;
                        sender.sent = sender.sent.saturating_sub(1);
                    }
                }
                Event::Ready { .. } | Event::Failed(_) => sender.notice_failure(event),
            }
        }
    }

    #[inline]
    fn settle(&mut self, recorder: &mut Recorder, flight: Flight, outcome: Outcome, code: u16, read_ns: u64) {
        let Window { from_ns, until_ns } = self.window;
        let measured = |at_ns: u64| from_ns <= at_ns && at_ns < until_ns;
        match outcome {
            Outcome::Stored => {
                self.timeline.stored(flight.intended_ns, read_ns);
                self.answered_in_window += u64::from(measured(read_ns));
                if measured(flight.intended_ns) {
                    self.stored_in_window += 1;
                    self.bytes_in_window += u64::from(flight.bytes);
                    recorder.record(flight.intended_ns, flight.sent_ns, read_ns);
                    if let Some(samples) = &mut self.samples {
                        samples.add(flight.intended_ns, read_ns);
                    }
                }
            }
            Outcome::NotStored => {
                self.not_stored += 1;
                *self.causes.entry(code).or_default() += 1;
                self.ledger.refused(flight.key, flight.sequence);
            }
            Outcome::Unknown => {
                self.unknown += 1;
                *self.causes.entry(code).or_default() += 1;
                self.ledger.gave_up(flight.key, flight.sequence);
            }
        }
    }

    /// What was due in the measured time and could not be sent at all is not stored.
    pub(super) fn give_up_unsent(&mut self, sender: &mut Sender, batch: u64) {
        let Some(schedule) = &mut sender.schedule else { return };
        while schedule.peek() < self.window.until_ns {
            schedule.take();
            self.not_stored += batch;
            *self.causes.entry(0).or_default() += batch;
        }
    }

    /// What was never told is unknown.
    pub(super) fn give_up_all(&mut self, sender: &mut Sender) {
        for flight in sender.flights.drain(..).filter(|flight| !flight.told) {
            self.settle(&mut sender.recorder, flight, Outcome::Unknown, 0, 0);
        }
    }
}
