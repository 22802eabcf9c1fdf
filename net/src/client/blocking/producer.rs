//! A blocking producer: `send` returns when the record is taken, not when it is stored; `flush` when all were told.

use std::time::{Duration, Instant};

use sealog_engine::api::error::Outcome;
use sealog_engine::types::{ProducerEpoch, ProducerId};
use thiserror::Error;

use super::{Driver, OpenError};
use crate::client::core::Failure;
use crate::client::core::producer::{self, Event, ProducerSettings, Record, SendError};

/// Bytes waiting to be written from which on `send` writes them.
const WRITE_BYTES: usize = 64 * 1024;
/// Longest wait in one turn while there is nothing else to do.
const IDLE: Duration = Duration::from_millis(100);

/// How `count` records ended, those with the tokens from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    pub first: u64,
    pub count: u32,
    pub outcome: Outcome,
    /// The refusal's number; 0: none.
    pub code: u16,
}

/// A record cannot be sent.
#[derive(Debug, Error)]
pub enum ProduceError {
    #[error("the record would make a batch of {bytes} bytes; {most} are allowed")]
    TooLarge { bytes: usize, most: usize },
    #[error(transparent)]
    Failed(Failure),
}

/// A producer on one connection.
#[derive(Debug)]
pub struct Producer {
    core: producer::Producer,
    driver: Driver,
    done: Vec<Done>,
    failure: Option<Failure>,
}

impl Producer {
    /// Connects, and gets an identity and routes.
    ///
    /// # Errors
    /// No node could be reached, or it refused, within the settings' timeout.
    ///
    /// # Panics
    /// If there is no address.
    pub fn open(addresses: &[String], settings: ProducerSettings) -> Result<Self, OpenError> {
        assert!(!addresses.is_empty(), "at least one address");
        let patience = Duration::from_millis(settings.timeout_ms.into());
        let settings = ProducerSettings { direct: false, ..settings };
        let core = producer::Producer::new(settings);
        let mut new = Self { core, driver: Driver::new(addresses), done: vec![], failure: None };
        let deadline = Instant::now() + patience;
        while !new.core.is_ready() {
            new.turn(deadline.saturating_duration_since(Instant::now()).min(IDLE));
            if let Some(failure) = new.failure.take() {
                return Err(OpenError::Failed(failure));
            }
            if Instant::now() >= deadline {
                new.driver.check_reachable(Duration::ZERO)?;
                return Err(OpenError::TimedOut);
            }
        }
        Ok(new)
    }

    /// The id and epoch under which it writes.
    #[must_use]
    pub fn identity(&self) -> Option<(ProducerId, ProducerEpoch)> {
        self.core.identity()
    }

    /// Records that were sent and not yet told.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.core.in_flight()
    }

    /// Why it cannot go on, if it cannot.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Takes a record, waiting while as much as may be is under way. Its token comes back in [`take_done`](Self::take_done).
    ///
    /// # Errors
    /// It is not taken.
    pub fn send(&mut self, record: &Record<'_>) -> Result<u64, ProduceError> {
        loop {
            match self.core.send(self.driver.now(), record) {
                Ok(token) => {
                    self.write_if_much();
                    return Ok(token);
                }
                Err(SendError::TooLarge { bytes, most }) => return Err(ProduceError::TooLarge { bytes, most }),
                Err(SendError::Full | SendError::NotReady) => self.turn(IDLE),
            }
            if let Some(failure) = self.failure.clone() {
                return Err(ProduceError::Failed(failure));
            }
        }
    }

    /// Writes and reads what can be without waiting.
    pub fn poll(&mut self) {
        self.turn(Duration::ZERO);
    }

    /// Waits until every record was told. Each is, by its deadline.
    ///
    /// # Errors
    /// The producer cannot go on; what is under way is then told as it stands.
    pub fn flush(&mut self) -> Result<(), ProduceError> {
        while self.core.in_flight() > 0 {
            self.core.flush(self.driver.now());
            self.turn(IDLE);
        }
        self.failure.clone().map_or(Ok(()), |failure| Err(ProduceError::Failed(failure)))
    }

    /// How records ended since the last call.
    pub fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }

    fn write_if_much(&mut self) {
        use crate::client::core::{Client, Links};
        self.core.turn(self.driver.now());
        if self.core.links().outbound(Links::FIRST).len() >= WRITE_BYTES {
            self.turn(Duration::ZERO);
        }
    }

    fn turn(&mut self, wait: Duration) {
        self.core.turn(self.driver.now());
        self.driver.turn(&mut self.core, wait);
        self.core.turn(self.driver.now());
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Ready { .. } => {}
                Event::Done { first, count, outcome, code } => self.done.push(Done { first, count, outcome, code }),
                Event::Failed(failure) => self.failure = Some(failure),
            }
        }
    }
}
