//! A producer on a glommio executor.

use std::net::SocketAddr;
use std::time::Duration;

use sealog_engine::api::error::Outcome;
use sealog_engine::types::{Now, ProducerEpoch, ProducerId};

use super::io::Io;
use crate::client::blocking::OpenError;
use crate::client::core::Failure;
use crate::client::core::producer::{self, Event, ProducerSettings, Record, SendError};

/// How `count` records ended, those with the tokens from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    pub first: u64,
    pub count: u32,
    pub outcome: Outcome,
    /// The refusal's number; 0: none.
    pub code: u16,
}

/// A producer; its connections are polled by whoever waits on it.
pub struct Producer {
    io: Io<producer::Producer>,
    failure: Option<Failure>,
}

impl Producer {
    /// Connects, and gets an identity and routes.
    ///
    /// # Errors
    /// There was no answer within the settings' timeout, or a refusal.
    pub async fn open(address: SocketAddr, settings: ProducerSettings) -> Result<Self, OpenError> {
        let patience = Duration::from_millis(settings.timeout_ms.into());
        let mut new = Self { io: Io::new(address, producer::Producer::new(settings)), failure: None };
        let deadline_ns = new.now().monotonic_ns + u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        while !new.io.core.is_ready() {
            new.io.wait(Some(deadline_ns)).await;
            new.done(&mut |_, _| ());
            if let Some(failure) = new.failure.take() {
                return Err(OpenError::Failed(failure));
            }
            if new.now().monotonic_ns >= deadline_ns {
                return Err(OpenError::TimedOut);
            }
        }
        Ok(new)
    }

    /// The time on its clock.
    #[must_use]
    pub fn now(&self) -> Now {
        self.io.now()
    }

    /// The id and epoch under which it writes.
    #[must_use]
    pub fn identity(&self) -> Option<(ProducerId, ProducerEpoch)> {
        self.io.core.identity()
    }

    /// Records that were sent and not yet told.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.io.core.in_flight()
    }

    /// Why it cannot go on, if so.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Takes a record; it is written by the next [`turn`](Self::turn) or [`wait`](Self::wait).
    ///
    /// # Errors
    /// It is not taken.
    #[inline]
    pub fn send(&mut self, now: Now, record: &Record<'_>) -> Result<u64, SendError> {
        self.io.core.send(now, record)
    }

    /// Writes what was sent: one write for each connection.
    pub fn turn(&mut self, now: Now) {
        self.io.turn(now);
    }

    /// Waits until answers have come or something else has happened, or until `until_ns` on its monotonic clock.
    pub async fn wait(&mut self, until_ns: Option<u64>) {
        self.io.wait(until_ns).await;
    }

    /// Gives how records ended since the last call, with the time at which the answers were received.
    #[inline]
    pub fn done(&mut self, each: &mut dyn FnMut(Done, Now)) {
        while let Some(event) = self.io.core.poll_event() {
            match event {
                Event::Done { first, count, outcome, code } => {
                    each(Done { first, count, outcome, code }, self.io.received_at);
                }
                Event::Ready { .. } => {}
                Event::Failed(failure) => self.failure = Some(failure),
            }
        }
    }
}
