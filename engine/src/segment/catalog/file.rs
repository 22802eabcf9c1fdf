//! A catalog file: a snapshot of all records, or a delta, the records that changed since the file before it.
//!
//! ```text
//!  0 magic "SEALCATA"   8 version u16   10 kind u8   11 reserved u8   12 shard u16   14 shards of the generation u16
//! 16 generation u64   24 sequence u64   32 digest of the delta before u64   40 bytes of records u64   48 reserved u64
//! 56 checksum of the records u32   60 checksum of bytes 0 to 60 u32   64 records …   zeros to a block
//! ```
//! Written whole, under a new name, synced with its folder, and never changed. A delta's digest is the XXH3-64 of its first 64 bytes,
//! and so of its records' checksum: deltas are a chain. Magic, version and the header's checksum never move. A snapshot with the sequence of a delta says the same as all files up to it.

use xxhash_rust::xxh3::xxh3_64;

use super::codec::{Fields, Put};
use crate::api::port::DataFile;
use crate::format::checksum::checksum;
use crate::format::upgrade::Newer;
use crate::format::verdict::DecodeError;
use crate::types::{AlignedBuffer, Generation, ShardId};

/// Bytes before the records.
const HEADER_BYTES: usize = 64;
const WHAT: &str = "catalog";
const MAGIC: [u8; 8] = *b"SEALCATA";
const VERSION: u16 = 1;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum FileKind {
    Snapshot = 1,
    Delta = 2,
}

/// The front of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileHeader {
    pub(super) kind: FileKind,
    pub(super) shard: ShardId,
    pub(super) shards: u16,
    pub(super) generation: Generation,
    pub(super) sequence: u64,
    /// Digest of the delta with the sequence before; of a snapshot, of the delta with its own sequence. 0 for none.
    pub(super) previous: u64,
}

/// A file that verifies.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileView<'a> {
    pub(super) header: FileHeader,
    pub(super) records: &'a [u8],
    pub(super) digest: u64,
}

impl FileHeader {
    /// The file of this name.
    pub(super) fn file(&self) -> DataFile {
        let (shard, sequence) = (self.shard, self.sequence);
        match self.kind {
            FileKind::Snapshot => DataFile::CatalogSnapshot { shard, sequence },
            FileKind::Delta => DataFile::CatalogDelta { shard, sequence },
        }
    }

    /// The whole file, and its digest.
    pub(super) fn encode(&self, records: &[u8]) -> (AlignedBuffer, u64) {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put(&MAGIC);
        out.put_u16(VERSION);
        out.put_u8(self.kind as u8);
        out.put_u8(0);
        out.put_u16(self.shard.0);
        out.put_u16(self.shards);
        out.put_u64(self.generation.0);
        out.put_u64(self.sequence);
        out.put_u64(self.previous);
        out.put_u64(records.len() as u64);
        out.put_u64(0);
        out.put_u32(checksum(0, records));
        out.put_u32(checksum(0, &out));
        let mut buffer = AlignedBuffer::zeroed(HEADER_BYTES + records.len());
        buffer[..HEADER_BYTES].copy_from_slice(&out);
        buffer[HEADER_BYTES..][..records.len()].copy_from_slice(records);
        (buffer, xxh3_64(&out))
    }
}

impl<'a> FileView<'a> {
    /// Judges a whole file.
    ///
    /// # Errors
    /// Why it is none.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(WHAT, bytes);
        if fields.array()? != MAGIC {
            return Err(DecodeError::Magic { what: WHAT });
        }
        let version = fields.u16()?;
        let kind = fields.u8()?;
        fields.u8()?;
        let (shard, shards) = (ShardId(fields.u16()?), fields.u16()?);
        let (generation, sequence, previous) = (Generation(fields.u64()?), fields.u64()?, fields.u64()?);
        let length = usize::try_from(fields.u64()?).unwrap_or(usize::MAX);
        fields.u64()?;
        let (records_sum, header_sum) = (fields.u32()?, fields.u32()?);
        let front = &bytes[..HEADER_BYTES];
        Self::verify(header_sum, &front[..HEADER_BYTES - 4])?;
        // Only after the checksum: a version that rotted is damage, and may be made good by another file.
        if version > VERSION {
            let (found, supported) = (u32::from(version), u32::from(VERSION));
            return Err(Newer { what: WHAT, found, supported }.into());
        }
        let records = fields.take(length)?;
        Self::verify(records_sum, records)?;
        let kind = match kind {
            1 => FileKind::Snapshot,
            2 => FileKind::Delta,
            found => return Err(fields.wrong("kind", u64::from(found))),
        };
        let header = FileHeader { kind, shard, shards, generation, sequence, previous };
        Ok(Self { header, records, digest: xxh3_64(front) })
    }

    fn verify(stored: u32, bytes: &[u8]) -> Result<(), DecodeError> {
        let computed = checksum(0, bytes);
        if stored == computed { Ok(()) } else { Err(DecodeError::Checksum { what: WHAT, stored, computed }) }
    }
}
