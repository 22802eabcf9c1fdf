//! A span of offsets that no copy can give back.
//!
//! ```text
//!  0 from u64   8 to u64 (exclusive)   16 records, at most u64   24 cause u8   25 … 32 reserved
//! ```

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::verdict::DecodeError;
use crate::types::Offset;

/// Bytes of a hole.
pub const HOLE_BYTES: usize = 32;
const WHAT: &str = "hole";

/// Why there is a hole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum HoleCause {
    /// The last group of a journal was cut short by a crash: what it held may never have been acknowledged.
    Interrupted = 1,
    /// Bytes that were durable do not verify any more, and no other copy has them.
    Unreadable = 2,
    /// An operator gave up the disks that may have held them.
    Forced = 3,
}

/// A span of offsets of a sealed segment that may have held records which no copy can give back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hole {
    /// First offset.
    pub from: Offset,
    /// End, exclusive.
    pub to: Offset,
    /// At most so many records are missing.
    pub records_at_most: u64,
    /// Why.
    pub cause: HoleCause,
}

/// A hole at rest.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawHole {
    from: U64,
    to: U64,
    records_at_most: U64,
    cause: u8,
    reserved: [u8; 7],
}

const _: () = assert!(size_of::<RawHole>() == HOLE_BYTES && std::mem::offset_of!(RawHole, cause) == 24);

impl HoleCause {
    /// The cause with this number.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Interrupted, Self::Unreadable, Self::Forced].into_iter().find(|c| *c as u8 == byte)
    }
}

impl From<Hole> for RawHole {
    fn from(hole: Hole) -> Self {
        Self {
            from: hole.from.0.into(),
            to: hole.to.0.into(),
            records_at_most: hole.records_at_most.into(),
            cause: hole.cause as u8,
            reserved: [0; 7],
        }
    }
}

impl TryFrom<&RawHole> for Hole {
    type Error = DecodeError;

    fn try_from(raw: &RawHole) -> Result<Self, DecodeError> {
        let value = |field, found| DecodeError::Value { what: WHAT, field, found };
        if raw.from.get() >= raw.to.get() {
            return Err(value("end", raw.to.get()));
        }
        Ok(Self {
            from: Offset(raw.from.get()),
            to: Offset(raw.to.get()),
            records_at_most: raw.records_at_most.get(),
            cause: HoleCause::from_byte(raw.cause).ok_or_else(|| value("cause", u64::from(raw.cause)))?,
        })
    }
}

/// Checks that holes make sense, ascend and do not touch.
pub(super) fn judge_holes(holes: &[RawHole]) -> Result<(), DecodeError> {
    let mut end = None;
    for raw in holes {
        let hole = Hole::try_from(raw)?;
        if end.is_some_and(|end| hole.from <= end) {
            return Err(DecodeError::Value { what: WHAT, field: "start", found: hole.from.0 });
        }
        end = Some(hole.to);
    }
    Ok(())
}

/// Holes that were judged, as they lie at rest.
#[derive(Clone, Copy)]
pub struct Holes<'a>(pub(super) &'a [RawHole]);

impl Holes<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Hole> {
        self.0.iter().map(|raw| Hole::try_from(raw).expect("the holes were judged when they were decoded"))
    }
}

impl std::fmt::Debug for Holes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
