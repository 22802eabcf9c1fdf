//! One copy of a range's open tail: which batches are taken, when they are acknowledged, how the tail is sealed and rolled. The
//! protocol knows offsets, never positions in files.

pub mod message;
pub mod primary;
pub mod producer;
pub mod progress;
#[expect(clippy::module_inception, reason = "the central noun is a folder, and its state has a file")]
pub mod replica;
pub mod roll;
pub mod seal;

#[cfg(test)]
mod tests;

pub use primary::{Admission, Due};
pub use producer::{ProducerEntry, ProducerTable};
pub use replica::{Command, Replica};
pub use roll::RollAdmission;

/// How long a producer that is not heard of is remembered, on the retention clock: 7 days.
pub const PRODUCER_EXPIRY_MS: u64 = 7 * 24 * 3_600_000;
