//! A batch: what a producer sends, and what is written, replicated and served as one, byte for byte.
//!
//! ```text
//! in a segment, a journal group and a fetch's answer:
//!
//! 0              16                    80                          160
//! | entry header | placement           | producer's header         | records … | 0‥7 zeros |
//! |  16 bytes    |  64 bytes           |  80 bytes                 |           |           |
//!                └ given by the primary └ from here on the producer's bytes, untouched ┘
//! ```
//! The producer computes a checksum over its header and records; the server verifies it, and stores and serves the same bytes; the
//! consumer verifies it again. So damage anywhere between two clients is seen. The placement says where the batch lies in its range;
//! its checksum also covers the producer's, and is seeded with the segment.

mod builder;
mod header;
mod placed;
#[cfg(test)]
mod tests;

pub use builder::{BatchBuilder, BatchFull};
pub use header::{
    BATCH_HEADER_BYTES, BATCH_VERSION, BatchError, BatchRef, DIGEST_VERSION, Overlap, RecordError, Records, Stamp,
};
pub use placed::{PLACEMENT_BYTES, Place, PlacedBatch, PlacedError, ReaderBatches, entry_length, place};
