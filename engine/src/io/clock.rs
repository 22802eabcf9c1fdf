//! The two clocks, read together.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::types::Now;

/// Reads both clocks of this host.
#[must_use]
pub fn now() -> Now {
    Now { monotonic_ns: monotonic_ns(), wall_ms: wall_ms() }
}

/// The monotonic clock in nanoseconds: the same for all processes since boot.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the write, and this clock exists on every Linux.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert!(status == 0, "the monotonic clock can be read");
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.expect("the monotonic clock is not negative") * 1_000_000_000
        + nanoseconds.expect("a part of a second is not negative")
}

/// Milliseconds since the Unix epoch; 0 before it.
#[must_use]
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
