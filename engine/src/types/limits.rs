//! Bounds that are part of the formats or of the promises. What can be configured is in `api::config`.

/// Bytes of a block: every read and write of a data file begins and ends at a multiple of it, whatever the device asks for.
pub const BLOCK: usize = 4096;
/// Bytes of the largest single read or write that is handed to the kernel: larger ones have left processes unkillable.
pub const IO_BYTES_MAX: usize = 512 * 1024;
/// Bytes of the largest batch that any configuration may allow, producer's header included.
pub const BATCH_BYTES_CEILING: usize = 16 * 1024 * 1024;
/// Bytes of the largest journal group, unless one batch alone is larger.
pub const GROUP_BYTES_MAX: usize = 1024 * 1024;
/// Producers that one range remembers.
pub const RANGE_PRODUCERS_MAX: usize = 4096;
/// Bytes of the longest topic name.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;
/// Ranges that a topic may be created with.
pub const TOPIC_RANGES_MAX: u32 = 4096;

/// `bytes` rounded up to whole blocks.
#[must_use]
pub const fn round_up_to_block(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK)
}
