//! Judgements of bytes. *Never written*, *torn* and *unreadable* are different answers, and none of them is an end: whether bytes
//! may be torn is told by where they lie (above a checkpoint), never by how they look.

use super::upgrade::Newer;

/// Why the bytes at a place are not an entry.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The header is all zeros. Only the header tells: a payload of zeros is a payload.
    #[error("never written")]
    NeverWritten,
    /// A header that verifies, and behind it too few bytes or bytes that do not verify.
    #[error("the header verifies, but what it announces does not")]
    Torn,
    /// Bytes that are no header of this segment.
    #[error("no header of this segment verifies")]
    Unreadable,
    /// A header that verifies, of a version or kind that this build does not know.
    #[error(transparent)]
    Newer(#[from] Newer),
}

/// Why bytes that should be one fixed structure are not.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Too few or too many bytes.
    #[error("{what}: {found} bytes where {expected} belong")]
    Length {
        /// What was to be decoded.
        what: &'static str,
        /// Bytes that it needs.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// The first bytes are not its magic number.
    #[error("{what}: not one")]
    Magic {
        /// What was to be decoded.
        what: &'static str,
    },
    /// The checksum says otherwise.
    #[error("{what}: the checksum is {stored:08x}, its bytes give {computed:08x}")]
    Checksum {
        /// What was to be decoded.
        what: &'static str,
        /// The checksum as it stands there.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A field that verifies and has no meaning.
    #[error("{what}: {field} cannot be {found}")]
    Value {
        /// What was to be decoded.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// Of a version that this build does not know.
    #[error(transparent)]
    Newer(#[from] Newer),
}
