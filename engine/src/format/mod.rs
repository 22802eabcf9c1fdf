//! Bytes at rest: what lies in journals, segments and superblocks, byte for byte, with what proves it.
//!
//! Everything is little-endian and `repr(C)`, its size and offsets checked at compile time. A decoder takes any bytes, never
//! panics, and never allocates by a length that is not yet proved. `docs/format.md` is the same in prose.

pub mod batch;
pub mod checksum;
pub mod entry;
#[cfg(test)]
pub(crate) mod golden;
pub mod index;
pub mod journal;
pub mod record;
pub mod segment;
pub mod superblock;
pub mod upgrade;
pub mod verdict;

pub use batch::{BatchBuilder, BatchRef, Place, PlacedBatch};
pub use checksum::{Digest, checksum};
pub use entry::{Entries, EntryKind, EntryRef, SegmentSeed};
pub use index::IndexEntry;
pub use segment::{Hole, HoleCause};
pub use upgrade::{FORMAT_VERSION, Newer};
pub use verdict::{DecodeError, Verdict};
