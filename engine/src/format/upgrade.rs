//! Versions at rest, and the one refusal: what is newer than this build is left exactly as it is.
//!
//! Every structure carries its version at a place that never moves. A decoder that meets a greater one says [`Newer`], which is
//! neither damage nor emptiness: nobody may cut, repair or overwrite on the strength of it.

/// Version of a data directory as a whole, in its superblock. This build writes it and refuses what is greater.
pub const FORMAT_VERSION: u32 = 1;

/// Something at rest is of a format that this build does not know. The process ends with exit code 78, nothing changed.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("{what} is of version {found}, and this build knows versions up to {supported}")]
pub struct Newer {
    /// What it is: "superblock", "journal group", ….
    pub what: &'static str,
    /// The version found.
    pub found: u32,
    /// The greatest version that this build knows.
    pub supported: u32,
}
