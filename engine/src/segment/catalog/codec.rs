//! Little-endian fields one after another: how the records of a catalog lie in its files.

use crate::format::verdict::DecodeError;

/// Reads fields off the front of a record.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    what: &'static str,
    bytes: &'a [u8],
    whole: usize,
}

/// Appends fields to a record.
pub(super) trait Put {
    /// Plain bytes.
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Bytes behind their length.
    fn put_counted(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len());
        self.put(bytes);
    }

    /// How many things follow.
    fn put_count(&mut self, count: usize) {
        self.put_u32(u32::try_from(count).expect("a record is far below 4 GiB"));
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<'a> Fields<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, whole: bytes.len() }
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            let expected = (self.whole - self.bytes.len() + count) as u64;
            return Err(DecodeError::Length { what: self.what, expected, found: self.whole as u64 });
        };
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.take(N)?.try_into().expect("so many bytes were taken"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes behind their length.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// A field that verifies and has no meaning.
    pub(super) fn wrong(&self, field: &'static str, found: u64) -> DecodeError {
        DecodeError::Value { what: self.what, field, found }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let expected = (self.whole - self.bytes.len()) as u64;
        Err(DecodeError::Length { what: self.what, expected, found: self.whole as u64 })
    }
}
