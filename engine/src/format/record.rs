//! One record inside a batch.
//!
//! ```text
//! | attributes | timestamp delta | key length, key         | value length, value | headers | (name length, name, value length, value)* |
//! |     u8     |     varint      | or: key hash, 8 bytes   | or nothing          | varint  |                                           |
//! ```
//! Attributes: bit 0 *no key*, bit 1 *no value*, bit 2 *explicit hash*. A record without a key always has an explicit hash, drawn by the
//! producer at the first send: bits 0 and 2 stand together or not at all. Numbers are LEB128 varints of at most 64 bits in their
//! shortest form; the delta counts milliseconds from the batch's least timestamp.

use crate::types::KeyHash;

pub(super) const NO_KEY: u8 = 1;
pub(super) const NO_VALUE: u8 = 1 << 1;
pub(super) const EXPLICIT_HASH: u8 = 1 << 2;
const KNOWN: u8 = NO_KEY | NO_VALUE | EXPLICIT_HASH;

/// Bytes of the smallest record: attributes, delta, an empty key, no value, no headers. So many bytes of lost batches cannot have held
/// more records than they are multiples of it.
pub const RECORD_BYTES_MIN: usize = 4;

/// What a record is routed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKey<'a> {
    /// A key.
    Key(&'a [u8]),
    /// No key: a hash, drawn once and kept.
    Keyless(KeyHash),
}

impl<'a> RecordKey<'a> {
    /// Its point of the keyspace.
    #[must_use]
    pub fn hash(self) -> KeyHash {
        match self {
            Self::Key(key) => KeyHash::of(key),
            Self::Keyless(hash) => hash,
        }
    }

    /// The key, if there is one.
    #[must_use]
    pub fn key(self) -> Option<&'a [u8]> {
        match self {
            Self::Key(key) => Some(key),
            Self::Keyless(_) => None,
        }
    }
}

/// A record as it lies in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRef<'a> {
    /// Its key, or the hash it has instead.
    pub key: RecordKey<'a>,
    /// Its value; `None` is not an empty one.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: Headers<'a>,
    /// Milliseconds since the Unix epoch, as the producer set them.
    pub timestamp_ms: u64,
}

/// What is wrong with a record.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordFault {
    /// It runs beyond the batch.
    #[error("it runs beyond the batch")]
    Truncated,
    /// A number of more than 64 bits, or not in its shortest form.
    #[error("a number is malformed")]
    Number,
    /// Attributes that mean nothing.
    #[error("attributes {0:#04x} mean nothing")]
    Attributes(u8),
    /// Its timestamp lies outside the batch's bounds.
    #[error("its timestamp lies outside the batch's bounds")]
    Timestamp,
    /// Its key hash lies outside the batch's bounds.
    #[error("its key hash {0:?} lies outside the batch's bounds")]
    HashBounds(KeyHash),
    /// Its key hash lies outside the span that it was sent to.
    #[error("its key hash {0:?} lies outside the range's span")]
    HashSpan(KeyHash),
    /// Bytes follow the last record.
    #[error("{0} bytes follow the last record")]
    Trailing(usize),
}

/// The name-value pairs of a record, in the producer's order; names may repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers<'a> {
    left: u64,
    bytes: &'a [u8],
}

impl Headers<'_> {
    /// Whether there is none left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl ExactSizeIterator for Headers<'_> {}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut cursor = Cursor { bytes: self.bytes };
        let pair = cursor.pair().expect("the headers were walked when the record was read");
        self.bytes = cursor.bytes;
        Some(pair)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).expect("each header that was walked takes memory");
        (left, Some(left))
    }
}

/// Reads a record at the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// The next record, of a batch whose least timestamp is `timestamp_ms_min`.
    pub(super) fn record(&mut self, timestamp_ms_min: u64) -> Result<RecordRef<'a>, RecordFault> {
        self.record_at(|delta| timestamp_ms_min.checked_add(delta))
    }

    /// The next record; `timestamp` makes its timestamp of its delta.
    pub(super) fn record_at(
        &mut self,
        timestamp: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<RecordRef<'a>, RecordFault> {
        let attributes = self.take(1)?[0];
        let keyless = attributes & NO_KEY != 0;
        if attributes & !KNOWN != 0 || keyless != (attributes & EXPLICIT_HASH != 0) {
            return Err(RecordFault::Attributes(attributes));
        }
        let timestamp_ms = timestamp(self.varint()?).ok_or(RecordFault::Timestamp)?;
        let key = if keyless {
            let hash = self.take(8)?.try_into().expect("eight bytes were taken");
            RecordKey::Keyless(KeyHash(u64::from_le_bytes(hash)))
        } else {
            RecordKey::Key(self.counted()?)
        };
        let value = if attributes & NO_VALUE == 0 { Some(self.counted()?) } else { None };
        let left = self.varint()?;
        let start = self.bytes;
        for _ in 0..left {
            self.pair()?;
        }
        let headers = Headers { left, bytes: &start[..start.len() - self.bytes.len()] };
        Ok(RecordRef { key, value, headers, timestamp_ms })
    }

    fn pair(&mut self) -> Result<(&'a [u8], &'a [u8]), RecordFault> {
        Ok((self.counted()?, self.counted()?))
    }

    fn counted(&mut self) -> Result<&'a [u8], RecordFault> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| RecordFault::Truncated)?)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], RecordFault> {
        let (taken, rest) = self.bytes.split_at_checked(bytes).ok_or(RecordFault::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, RecordFault> {
        let mut value = 0;
        for (i, &byte) in self.bytes.iter().enumerate() {
            // The tenth byte holds the 64th bit alone.
            if i == 9 && byte > 1 || i > 0 && byte == 0 {
                return Err(RecordFault::Number);
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[i + 1..];
                return Ok(value);
            }
        }
        Err(RecordFault::Truncated)
    }
}

/// Bytes of `value` as a varint.
pub(super) const fn varint_bytes(value: u64) -> usize {
    match value {
        0 => 1,
        _ => (value.ilog2() as usize) / 7 + 1,
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the low seven bits are meant")]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("below 0x80"));
}

fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

const fn counted_bytes(bytes: &[u8]) -> usize {
    varint_bytes(bytes.len() as u64) + bytes.len()
}

/// Bytes of a record without its timestamp delta.
pub(super) fn record_bytes(key: RecordKey<'_>, value: Option<&[u8]>, headers: &[(&[u8], &[u8])]) -> usize {
    let key = match key {
        RecordKey::Key(key) => counted_bytes(key),
        RecordKey::Keyless(_) => 8,
    };
    let pairs: usize = headers.iter().map(|(name, value)| counted_bytes(name) + counted_bytes(value)).sum();
    1 + key + value.map_or(0, counted_bytes) + varint_bytes(headers.len() as u64) + pairs
}

/// Appends a record.
pub(super) fn put_record<'h>(
    out: &mut Vec<u8>,
    key: RecordKey<'_>,
    value: Option<&[u8]>,
    headers: (usize, impl Iterator<Item = (&'h [u8], &'h [u8])>),
    timestamp_delta_ms: u64,
) {
    let keyless = if key.key().is_none() { NO_KEY | EXPLICIT_HASH } else { 0 };
    out.push(keyless | if value.is_none() { NO_VALUE } else { 0 });
    put_varint(out, timestamp_delta_ms);
    match key {
        RecordKey::Key(key) => put_counted(out, key),
        RecordKey::Keyless(hash) => out.extend_from_slice(&hash.0.to_le_bytes()),
    }
    if let Some(value) = value {
        put_counted(out, value);
    }
    put_varint(out, headers.0 as u64);
    for (name, value) in headers.1 {
        put_counted(out, name);
        put_counted(out, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_malformed_number_is_refused() {
        let read = |bytes: &[u8]| Cursor { bytes }.varint();
        assert_eq!(read(&[0xff; 9]), Err(RecordFault::Truncated));
        assert_eq!(read(&[0x80, 0x00]), Err(RecordFault::Number));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), Err(RecordFault::Number));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Ok(u64::MAX));
        assert_eq!(read(&[]), Err(RecordFault::Truncated));
    }

    #[test]
    fn attributes_without_meaning_are_refused() {
        for attributes in [NO_KEY, EXPLICIT_HASH, 8, 0x80] {
            let bytes = [attributes, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!(Cursor { bytes: &bytes }.record(0), Err(RecordFault::Attributes(attributes)));
        }
    }

    #[test]
    fn the_smallest_record_is_as_small_as_said() {
        let mut out = Vec::new();
        put_record(&mut out, RecordKey::Key(b""), None, (0, [].into_iter()), 0);
        assert_eq!(out.len(), RECORD_BYTES_MIN);
    }

    proptest! {
        #[test]
        fn a_varint_round_trips(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_bytes(value));
            let mut cursor = Cursor { bytes: &out };
            prop_assert_eq!(cursor.varint(), Ok(value));
            prop_assert!(cursor.bytes.is_empty());
        }

        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut cursor = Cursor { bytes: &bytes };
            while let Ok(record) = cursor.record(1) {
                let _ = record.headers.count();
            }
        }
    }
}
