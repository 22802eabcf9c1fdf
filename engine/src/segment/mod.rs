//! Segments: bounded pieces of a range, written once and then immutable. Filled from memory behind the journal, read back entry by
//! entry, each verified.

pub mod appender;
pub mod catalog;
pub mod index;
pub mod pool;
pub mod reader;
pub mod recover;
#[cfg(test)]
pub(crate) mod samples;
pub mod search;
pub mod tally;
#[cfg(test)]
pub(crate) mod test_store;

pub use appender::{Appender, Cut, Placed, TailRead, UnwrittenChunk};
pub use catalog::{Catalog, SegmentRecord, SegmentState};
pub use index::SparseIndex;
pub use pool::ChunkPool;
pub use reader::{BadEntry, Scanned, SegmentReader, Wanted};
pub use tally::Tally;
