//! A blocking consumer.

use std::time::{Duration, Instant};

use sealog_engine::types::{Offset, RangeId};
use thiserror::Error;

use super::{Driver, Unreachable};
use crate::client::core::consumer::{self, ConsumerSettings, Delivery, Event, Flow};
use crate::client::core::{Cursor, CursorError, Failure};
use crate::wire::refusal::Refused;

/// Longest wait in one turn.
const IDLE: Duration = Duration::from_millis(100);

/// Why reading ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Everything up to the end was delivered.
    Done,
    /// The sink wanted no more.
    Broke,
    /// The time given was over.
    TimedOut,
}

/// Reading cannot go on by itself.
#[derive(Debug, Error)]
pub enum ConsumeError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("{range}: the records at {next} have expired; the oldest left are at {resume}")]
    Expired { range: RangeId, next: Offset, resume: Offset },
    #[error("{range}: what was fetched at {next} does not verify")]
    Damaged { range: RangeId, next: Offset },
    #[error("{range}: reading at {next} was refused: {}", refused.text)]
    RangeFailed { range: RangeId, next: Offset, refused: Refused },
    #[error(transparent)]
    BadCursor(CursorError),
    #[error(transparent)]
    Failed(Failure),
}

/// A consumer on one connection.
#[derive(Debug)]
pub struct Consumer {
    core: consumer::Consumer,
    driver: Driver,
    patience: Duration,
}

impl Consumer {
    /// A consumer; it connects in its first [`run`](Self::run). `patience` is how long it goes on without hearing of any node.
    ///
    /// # Panics
    /// If there is no address.
    #[must_use]
    pub fn new(addresses: &[String], settings: ConsumerSettings, patience: Duration) -> Self {
        assert!(!addresses.is_empty(), "at least one address");
        let settings = ConsumerSettings { direct: false, ..settings };
        Self { core: consumer::Consumer::new(settings), driver: Driver::new(addresses), patience }
    }

    /// The position behind all that was delivered; `None` before reading has begun.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.core.cursor()
    }

    /// After `ConsumeError::Expired`: reads on at `resume`.
    pub fn go_on(&mut self, range: RangeId, resume: Offset) {
        let now = self.driver.now();
        self.core.go_on(now, range, resume);
    }

    /// Reads and delivers until the end, until `sink` breaks off, or until `until`.
    ///
    /// # Errors
    /// Why it cannot go on. After `Expired`, [`go_on`](Self::go_on) and call it again; other ranges are not affected.
    pub fn run(
        &mut self,
        until: Option<Instant>,
        sink: &mut dyn FnMut(Delivery<'_>) -> Flow,
    ) -> Result<Ended, ConsumeError> {
        loop {
            let now = self.driver.now();
            if self.core.deliver(now, sink).is_break() {
                return Ok(Ended::Broke);
            }
            while let Some(event) = self.core.poll_event() {
                match event {
                    Event::Ready => {}
                    Event::Expired { range, next, resume } => {
                        return Err(ConsumeError::Expired { range, next, resume });
                    }
                    Event::Damaged { range, next } => return Err(ConsumeError::Damaged { range, next }),
                    Event::RangeFailed { range, next, refused } => {
                        return Err(ConsumeError::RangeFailed { range, next, refused });
                    }
                    Event::BadCursor(error) => return Err(ConsumeError::BadCursor(error)),
                    Event::Failed(failure) => return Err(ConsumeError::Failed(failure)),
                }
            }
            if self.core.is_done() {
                return Ok(Ended::Done);
            }
            let left = until.map(|u| u.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Ended::TimedOut);
            }
            self.driver.turn(&mut self.core, left.unwrap_or(IDLE).min(IDLE));
            self.driver.check_reachable(self.patience)?;
        }
    }
}
