//! The drivers' clock: the cores are told the time.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::{Instant, SystemTime};

use sealog_engine::types::Now;

/// Both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Now {
        // From 1 on, so that 0 is before everything.
        let monotonic_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { monotonic_ns, wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
    }
}
