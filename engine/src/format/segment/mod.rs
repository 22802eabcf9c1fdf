//! What a segment holds besides batches: the block that each of its files begins with, its producer table, its roll mark, its committed
//! seal, its footer.
//!
//! ```text
//! file 0:  | header block | table | batch | batch | … | roll mark? | footer | pad |
//! file n:  | header block | batch | …                                             goes on where file n−1 stops
//! ```
//! All payloads are little-endian and begin with their version; what is reserved is 0.

pub mod footer;
pub mod header;
pub mod hole;
pub mod roll_mark;
pub mod seal;
pub mod table;
#[cfg(test)]
mod tests;

pub use footer::{Footer, FooterRef};
pub use header::{SEGMENT_HEADER_BYTES, SegmentHeader};
pub use hole::{Hole, HoleCause};
pub use roll_mark::RollMark;
pub use seal::{Seal, SealRef};
pub use table::{ProducerEntry, TableRef};

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::upgrade::Newer;
use super::verdict::DecodeError;

/// Checks a payload's version, which is its first byte.
fn judge_version(what: &'static str, found: u8, supported: u8) -> Result<(), DecodeError> {
    if found > supported {
        return Err(Newer { what, found: u32::from(found), supported: u32::from(supported) }.into());
    }
    if found == 0 {
        return Err(DecodeError::Value { what, field: "version", found: 0 });
    }
    Ok(())
}

/// Splits `count` structures off the front of `bytes`.
fn take_slice<'a, T>(what: &'static str, bytes: &'a [u8], count: u32) -> Result<(&'a [T], &'a [u8]), DecodeError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let expected = u64::from(count) * size_of::<T>() as u64;
    let wrong = DecodeError::Length { what, expected, found: bytes.len() as u64 };
    <[T]>::ref_from_prefix_with_elems(bytes, count as usize).map_err(|_| wrong)
}
