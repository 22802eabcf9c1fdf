//! The whole state at one point of the log, as a file.
//!
//! ```text
//!  0 magic "SEALMETA"   8 version u32   12 body checksum u32   16 body length u64
//! 24 generation u64   32 sequence u64   40 position u64   48 digest of the group before u64     where the log goes on
//! 56 reserved u32   60 header checksum u32 (of bytes 0 to 60)   64 body: the state   zeros up to a whole block
//! ```
//! The header never changes its shape, so that the version can be believed before anything else is: a newer one is told apart
//! from damage. The body has a checksum of its own and must decode to its last byte. It is written in the least version that can say it
//! all: version 3 is of a state with ranges that know of producers what their parents did or with topics that
//! split by themselves, version 2 of one with ranges of deleted topics that
//! somebody is still to be told of, version 1 of one with neither.

use thiserror::Error;

use super::codec::{Codec, DecodeError, Reader, fields};
use super::state::State;
use crate::format::checksum::checksum;
use crate::format::upgrade::Newer;
use crate::types::Generation;

/// Newest version of a snapshot that is known here.
pub const SNAPSHOT_VERSION: u32 = 3;
/// Bytes before the body.
pub const SNAPSHOT_HEADER_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"SEALMETA";
const CHECKED: usize = SNAPSHOT_HEADER_BYTES - 4;

/// Where the metadata journal goes on behind a snapshot: the next group to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    pub generation: Generation,
    /// Number of that group in its generation.
    pub sequence: u64,
    /// Where it lies in the ring.
    pub position: u64,
    /// Digest of the group before it; 0 if it is the first.
    pub previous: u64,
}

/// A state, and where the log goes on behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub state: State,
    pub log: LogStart,
}

/// Why bytes are not a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// Written by a later build. Not damage: nothing may be changed.
    #[error(transparent)]
    Newer(#[from] Newer),
    #[error("it is cut short: {found} bytes, {expected} belong")]
    Short { expected: u64, found: u64 },
    #[error("it does not begin as a snapshot does")]
    Magic,
    #[error("its header does not verify: checksum {stored:08x}, its bytes give {computed:08x}")]
    Header { stored: u32, computed: u32 },
    #[error("its body does not verify: checksum {stored:08x}, its bytes give {computed:08x}")]
    Body { stored: u32, computed: u32 },
    #[error("its body verifies and is {0}")]
    State(DecodeError),
}

fields!(LogStart { generation, sequence, position, previous });

/// The bytes of a snapshot, not padded.
#[must_use]
pub fn encode(state: &State, log: &LogStart) -> Vec<u8> {
    let mut out = vec![0; SNAPSHOT_HEADER_BYTES];
    state.put(&mut out);
    let body = &out[SNAPSHOT_HEADER_BYTES..];
    let length = u64::try_from(body.len()).expect("a length fits 64 bits");
    let sum = checksum(0, body);
    let mut header = Vec::with_capacity(SNAPSHOT_HEADER_BYTES);
    header.extend_from_slice(&MAGIC);
    (state.version(), sum, length, *log).put(&mut header);
    0u32.put(&mut header);
    checksum(0, &header).put(&mut header);
    out[..SNAPSHOT_HEADER_BYTES].copy_from_slice(&header);
    out
}

/// Reads a snapshot from the bytes of its file; what lies behind its body is padding.
///
/// # Errors
/// Why it is none.
pub fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    let found = u64::try_from(bytes.len()).expect("a length fits 64 bits");
    let header = bytes.get(..SNAPSHOT_HEADER_BYTES);
    let header = header.ok_or(SnapshotError::Short { expected: SNAPSHOT_HEADER_BYTES as u64, found })?;
    if header[..MAGIC.len()] != MAGIC {
        return Err(SnapshotError::Magic);
    }
    let mut reader = Reader::new(&header[MAGIC.len()..]);
    let (version, body_sum, length, log): (u32, u32, u64, LogStart) = reader.take().map_err(SnapshotError::State)?;
    let (_, stored): (u32, u32) = reader.take().map_err(SnapshotError::State)?;
    let computed = checksum(0, &header[..CHECKED]);
    if computed != stored {
        return Err(SnapshotError::Header { stored, computed });
    }
    if version > SNAPSHOT_VERSION {
        let (found, supported) = (version, SNAPSHOT_VERSION);
        return Err(Newer { what: "metadata snapshot", found, supported }.into());
    }
    let expected = length.saturating_add(SNAPSHOT_HEADER_BYTES as u64);
    let end = usize::try_from(expected).unwrap_or(usize::MAX);
    let body = bytes.get(SNAPSHOT_HEADER_BYTES..end).ok_or(SnapshotError::Short { expected, found })?;
    let computed = checksum(0, body);
    if computed != body_sum {
        return Err(SnapshotError::Body { stored: body_sum, computed });
    }
    let mut reader = Reader::new(body);
    let state = State::get(&mut reader, version).map_err(SnapshotError::State)?;
    reader.end().map_err(SnapshotError::State)?;
    Ok(Snapshot { state, log })
}

#[cfg(test)]
mod tests;
