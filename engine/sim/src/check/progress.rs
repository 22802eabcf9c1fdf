//! Progress: every call ends by its deadline, and once faults have stopped everything that waits is done within a bound.

use sealog_engine::types::time::MILLISECOND_NS;

use super::Violation;
use crate::history::{Fate, RecordId, Sent};

/// How much later than its deadline a call may end: its answer is handed over by a driver that sleeps between events.
pub const SLACK_MS: u64 = 50;

/// The checker.
#[derive(Default)]
pub struct Progress {
    /// Calls that ended, and waits that were bounded.
    pub checked: u64,
}

impl Progress {
    /// A call ended, or has not yet.
    ///
    /// # Errors
    /// It is later than its deadline.
    pub fn ended(&mut self, what: &'static str, deadline_ns: u64, now_ns: u64) -> Result<(), Violation> {
        self.checked += 1;
        if now_ns > deadline_ns + SLACK_MS * MILLISECOND_NS {
            return Err(Violation::Late { what, deadline_ns, now_ns });
        }
        Ok(())
    }

    /// A record that was sent after the last fault, when all had settled down, is settled.
    ///
    /// # Errors
    /// It is not stored.
    pub fn settled_when_healed(&mut self, id: RecordId, sent: &Sent) -> Result<(), Violation> {
        self.checked += 1;
        match sent.fate {
            Fate::Stored => Ok(()),
            Fate::Waiting | Fate::NotStored | Fate::Unknown => {
                Err(Violation::RefusedWhenHealed { id, fate: sent.fate })
            }
        }
    }

    /// Nothing may wait any more.
    ///
    /// # Errors
    /// Something does.
    pub fn nothing_waits(&mut self, what: &'static str, waiting: u64, since_ms: u64) -> Result<(), Violation> {
        self.checked += 1;
        if waiting > 0 {
            return Err(Violation::Stuck { what, waiting, since_ms });
        }
        Ok(())
    }
}
