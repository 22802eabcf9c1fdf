//! Values of the metadata as bytes: little-endian, no padding, lengths of 32 bits, no optional or skipped fields. By hand rather
//! than by a tolerant codec: a replica that skipped what it does not know would no longer be the same state machine.

use thiserror::Error;

use crate::api::response::GapCause;
use crate::format::checksum::Digest;
use crate::format::upgrade::Newer;
use crate::replica::message::{Fence, SealedSegment, SegmentOpen, Span};
use crate::types::{
    Epoch, Generation, KeyHash, KeySpan, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, SegmentId,
    TopicId,
};

/// Bytes are not a value of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Written by a later build.
    #[error(transparent)]
    Newer(#[from] Newer),
    /// No build writes this.
    #[error("malformed at byte {position}")]
    Malformed { position: usize },
}

/// A value that can be written and read.
pub(super) trait Codec: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Bytes that are being read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) fn malformed(&self) -> DecodeError {
        DecodeError::Malformed { position: self.position }
    }

    pub(super) fn take<T: Codec>(&mut self) -> Result<T, DecodeError> {
        T::get(self)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.position.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.malformed())?;
        let slice = &self.bytes[self.position..end];
        self.position = end;
        Ok(slice)
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.position == self.bytes.len() { Ok(()) } else { Err(self.malformed()) }
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Codec for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bytes = from.slice(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("a slice of its size")))
            }
        }
    )*};
}

macro_rules! newtypes {
    ($($type:ident),*) => {$(
        impl Codec for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self(from.take()?))
            }
        }
    )*};
}

/// A struct, field by field in the given order.
macro_rules! fields {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::metadata::codec::Codec for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::metadata::codec::Codec::put(&self.$field, out);)*
            }

            fn get(
                from: &mut $crate::metadata::codec::Reader<'_>,
            ) -> Result<Self, $crate::metadata::codec::DecodeError> {
                Ok(Self { $($field: from.take()?),* })
            }
        }
    };
}
pub(super) use fields;

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Codec),*> Codec for ($($name,)*) {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$index.put(out);)*
            }

            fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(($($name::get(from)?,)*))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128);
newtypes!(
    TopicId,
    RangeId,
    SegmentId,
    NodeId,
    ProducerId,
    ProcessLife,
    Generation,
    Epoch,
    ProducerEpoch,
    Offset,
    KeyHash,
    Digest
);
tuples! { (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }
fields!(SegmentOpen {
    segment,
    base,
    epoch,
    seed,
    predecessor,
    primary,
    life,
    replicas,
    quorum,
    batch_bytes_max,
    retention_ms,
});
fields!(SealedSegment { segment, base, end, digest, holes, epoch });
fields!(Span { from, to, records_at_most, cause });
fields!(Fence { producer, epoch, seen_ms });

impl Codec for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.malformed()),
        }
    }
}

impl<T: Codec> Codec for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_length(self.len(), out);
        for item in self {
            item.put(out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = u32::get(from)?;
        // Not reserved: a length that lies ends at the first item that is not there.
        let mut items = Self::new();
        for _ in 0..length {
            items.push(T::get(from)?);
        }
        Ok(items)
    }
}

impl Codec for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_length(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = usize::try_from(u32::get(from)?).expect("at least 32 bits of address");
        let bytes = from.slice(length)?.to_vec();
        Self::from_utf8(bytes).map_err(|_| from.malformed())
    }
}

fn put_length(length: usize, out: &mut Vec<u8>) {
    u32::try_from(length).expect("fewer than 2^32 of anything").put(out);
}

impl Codec for KeySpan {
    fn put(&self, out: &mut Vec<u8>) {
        (self.first(), self.depth()).put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (first, depth) = from.take()?;
        Self::new(first, depth).ok_or_else(|| from.malformed())
    }
}

impl Codec for GapCause {
    fn put(&self, out: &mut Vec<u8>) {
        let number: u8 = match self {
            Self::Interrupted => 1,
            Self::Unreadable => 2,
            Self::Forced => 3,
        };
        number.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::get(from)? {
            1 => Self::Interrupted,
            2 => Self::Unreadable,
            3 => Self::Forced,
            _ => return Err(from.malformed()),
        })
    }
}
