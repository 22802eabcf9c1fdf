//! Time as the core sees it: an argument, never a clock. `std::time::Instant` cannot be made by a simulator, so this is our own.

/// One reading of both clocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now {
    /// Nanoseconds since some start of this process; never goes back.
    pub monotonic_ns: u64,
    /// Milliseconds since the Unix epoch; may jump either way. Only ever stored beside records, never decided from.
    pub wall_ms: u64,
}

/// Nanoseconds in a microsecond.
pub const MICROSECOND_NS: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND_NS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
