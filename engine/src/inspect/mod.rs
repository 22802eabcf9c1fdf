//! Looks into a data directory that no node uses: what is there, whether it verifies, and where it does not. Reads only, and goes on
//! behind damage: what is wrong is a finding, never an end.
//!
//! ```text
//!  superblock -> catalogs of every shard -> journals (examined as a start does) and metadata      directory
//!                      |
//!                      └-> each segment's files, entry by entry, up to its checkpoint             walk
//! ```
//! Where a catalog cannot be read, its segments are walked by what their own files say. Bytes behind a checkpoint are not judged: an
//! unfinished writing may have left anything there, and the journal has what counts.

mod bytes;
pub mod directory;
pub mod finding;
mod judge;
#[cfg(test)]
mod tests;
pub mod walk;

pub use directory::{Directory, InspectError, Segment, Source};
pub use finding::{Fault, Finding, OffsetSpan};
pub use walk::{Site, walk};
