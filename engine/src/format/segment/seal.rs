//! A committed seal as a replica keeps it, in its journal and its catalog: the only thing that a footer is trusted by.
//!
//! ```text
//!  0 version u8   1 … 4 reserved   4 holes u32   8 end u64   16 epoch of the seal round u64   24 digest, 16 bytes   40 holes …
//! ```

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::hole::{Holes, RawHole, judge_holes};
use super::{Hole, judge_version, take_slice};
use crate::format::checksum::Digest;
use crate::format::verdict::DecodeError;
use crate::types::{Epoch, Offset};

/// Bytes of a seal without holes.
pub const SEAL_HEADER_BYTES: usize = 40;
const WHAT: &str = "committed seal";
const VERSION: u8 = 1;

/// A committed seal, holes aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// End of the segment, exclusive. It never changes.
    pub end: Offset,
    /// The epoch of the seal round.
    pub epoch: Epoch,
    /// The running digest at the end, with a hole that reaches it.
    pub digest: Digest,
}

/// A committed seal as it lies at rest.
#[derive(Clone, Copy, Debug)]
pub struct SealRef<'a> {
    /// The seal.
    pub seal: Seal,
    /// The segment's holes, ascending.
    pub holes: Holes<'a>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    version: u8,
    reserved: [u8; 3],
    holes: U32,
    end: U64,
    epoch: U64,
    digest: [u8; Digest::BYTES],
}

const _: () = assert!(
    size_of::<Head>() == SEAL_HEADER_BYTES
        && std::mem::offset_of!(Head, holes) == 4
        && std::mem::offset_of!(Head, end) == 8
        && std::mem::offset_of!(Head, digest) == 24
);

impl Seal {
    /// Appends it with the segment's holes, which ascend and do not touch.
    pub fn encode(&self, out: &mut Vec<u8>, holes: &[Hole]) {
        let head = Head {
            version: VERSION,
            reserved: [0; 3],
            holes: u32::try_from(holes.len()).expect("holes are few").into(),
            end: self.end.0.into(),
            epoch: self.epoch.0.into(),
            digest: self.digest.to_bytes(),
        };
        out.extend_from_slice(head.as_bytes());
        for hole in holes {
            out.extend_from_slice(RawHole::from(*hole).as_bytes());
        }
    }
}

impl<'a> SealRef<'a> {
    /// Reads exactly one seal.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        judge_version(WHAT, payload.first().copied().unwrap_or(0), VERSION)?;
        let found = payload.len() as u64;
        let wrong_length = |expected| DecodeError::Length { what: WHAT, expected, found };
        let (head, rest) = Head::ref_from_prefix(payload).map_err(|_| wrong_length(SEAL_HEADER_BYTES as u64))?;
        let (holes, rest) = take_slice::<RawHole>(WHAT, rest, head.holes.get())?;
        if !rest.is_empty() {
            return Err(wrong_length(found - rest.len() as u64));
        }
        judge_holes(holes)?;
        let seal = Seal {
            end: Offset(head.end.get()),
            epoch: Epoch(head.epoch.get()),
            digest: Digest::from_bytes(head.digest),
        };
        Ok(Self { seal, holes: Holes(holes) })
    }
}
