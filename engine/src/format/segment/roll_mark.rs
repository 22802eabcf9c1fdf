//! The last thing that a primary writes into a full segment: it ends here, and that one goes on.
//!
//! ```text
//!  0 version u8   1 … 8 reserved   8 end u64   16 digest at the end, 16 bytes   32 successor u64   40 digest of its table, 16 bytes   56
//! ```

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::judge_version;
use crate::format::checksum::Digest;
use crate::format::verdict::DecodeError;
use crate::types::{Offset, SegmentId};

/// Bytes of a roll mark.
pub const ROLL_MARK_BYTES: usize = 56;
const WHAT: &str = "roll mark";
const VERSION: u8 = 1;

/// A segment ends and its prepared successor goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RollMark {
    /// End of the segment, exclusive, and base of its successor.
    pub end: Offset,
    /// The running digest at the end.
    pub digest: Digest,
    /// The successor.
    pub successor: SegmentId,
    /// The digest of the table's payload that the successor begins with.
    pub successor_table: Digest,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    version: u8,
    reserved: [u8; 7],
    end: U64,
    digest: [u8; Digest::BYTES],
    successor: U64,
    successor_table: [u8; Digest::BYTES],
}

const _: () = assert!(
    size_of::<Raw>() == ROLL_MARK_BYTES
        && std::mem::offset_of!(Raw, end) == 8
        && std::mem::offset_of!(Raw, digest) == 16
        && std::mem::offset_of!(Raw, successor) == 32
        && std::mem::offset_of!(Raw, successor_table) == 40
);

impl RollMark {
    /// The payload of its entry.
    #[must_use]
    pub fn encode(&self) -> [u8; ROLL_MARK_BYTES] {
        let raw = Raw {
            version: VERSION,
            reserved: [0; 7],
            end: self.end.0.into(),
            digest: self.digest.to_bytes(),
            successor: self.successor.0.into(),
            successor_table: self.successor_table.to_bytes(),
        };
        raw.as_bytes().try_into().expect("a raw mark has the mark's size")
    }

    /// Reads the payload of a roll mark's entry.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        judge_version(WHAT, payload.first().copied().unwrap_or(0), VERSION)?;
        let (expected, found) = (ROLL_MARK_BYTES as u64, payload.len() as u64);
        let raw = Raw::ref_from_bytes(payload).map_err(|_| DecodeError::Length { what: WHAT, expected, found })?;
        Ok(Self {
            end: Offset(raw.end.get()),
            digest: Digest::from_bytes(raw.digest),
            successor: SegmentId(raw.successor.get()),
            successor_table: Digest::from_bytes(raw.successor_table),
        })
    }
}
