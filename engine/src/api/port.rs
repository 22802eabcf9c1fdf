//! The traits between the engine and what surrounds it. `net` implements `Replies` (and, later, `Peers`), calls
//! `ShardService`; the store behind recovery is `io/store` on a real disk and the simulator's disk in a simulation. The engine
//! never names who stands behind them.

use std::fmt;

use thiserror::Error;

use crate::api::request::{ReplyTo, Request};
use crate::api::response::Response;
use crate::types::{AlignedBuffer, SegmentId, ShardId};

/// A file of the data directory. Its path is a function of it, so that the core names files and a performer only opens them.
///
/// ```text
/// superblock.0  superblock.1
/// journal/0000.0  journal/0000.1            one ring a shard
/// metadata/journal.0  metadata/journal.1  metadata/snapshot.0000000007
/// catalog/0000.0000000012.snapshot  catalog/0000.0000000013.delta
/// segments/2a/000000000000002a.0            by the low byte of the id; the last number counts the segment's files
/// quarantine/...
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DataFile {
    Superblock { copy: u8 },
    Journal { shard: ShardId, file: u16 },
    MetadataJournal { file: u16 },
    MetadataSnapshot { index: u64 },
    CatalogSnapshot { shard: ShardId, sequence: u64 },
    CatalogDelta { shard: ShardId, sequence: u64 },
    Segment { segment: SegmentId, part: u16 },
}

/// A folder of the data directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Folder {
    Root,
    Journal,
    Metadata,
    Catalog,
    Quarantine,
    /// `segments/`, which holds the 256 folders below.
    Segments,
    /// One of the 256 folders of segments.
    SegmentsOf(u8),
}

impl DataFile {
    /// The folder that holds it, whose sync makes its creation or removal durable.
    #[must_use]
    pub fn folder(self) -> Folder {
        match self {
            Self::Superblock { .. } => Folder::Root,
            Self::Journal { .. } => Folder::Journal,
            Self::MetadataJournal { .. } | Self::MetadataSnapshot { .. } => Folder::Metadata,
            Self::CatalogSnapshot { .. } | Self::CatalogDelta { .. } => Folder::Catalog,
            #[expect(clippy::cast_possible_truncation, reason = "the low byte is what is wanted")]
            Self::Segment { segment, .. } => Folder::SegmentsOf(segment.0 as u8),
        }
    }

    /// The file of this path below the data directory, if it is one of ours.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?;
        let mut parts = name.split('.');
        let (first, second, third) = (parts.next()?, parts.next()?, parts.next());
        let file = match (path.split('/').next()?, third) {
            ("superblock.0", None) => Self::Superblock { copy: 0 },
            ("superblock.1", None) => Self::Superblock { copy: 1 },
            ("journal", None) => Self::Journal { shard: ShardId(first.parse().ok()?), file: second.parse().ok()? },
            ("metadata", None) if first == "journal" => Self::MetadataJournal { file: second.parse().ok()? },
            ("metadata", None) if first == "snapshot" => Self::MetadataSnapshot { index: second.parse().ok()? },
            ("catalog", Some(kind)) => {
                let (shard, sequence) = (ShardId(first.parse().ok()?), second.parse().ok()?);
                match kind {
                    "snapshot" => Self::CatalogSnapshot { shard, sequence },
                    "delta" => Self::CatalogDelta { shard, sequence },
                    _ => return None,
                }
            }
            ("segments", None) => {
                Self::Segment { segment: SegmentId(u64::from_str_radix(first, 16).ok()?), part: second.parse().ok()? }
            }
            _ => return None,
        };
        (file.to_string() == path).then_some(file)
    }
}

impl Folder {
    /// The folder that holds it; `None` of the data directory itself.
    #[must_use]
    pub fn above(self) -> Option<Self> {
        match self {
            Self::Root => None,
            Self::Journal | Self::Metadata | Self::Catalog | Self::Quarantine | Self::Segments => Some(Self::Root),
            Self::SegmentsOf(_) => Some(Self::Segments),
        }
    }
}

impl fmt::Display for DataFile {
    /// Its path below the data directory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Superblock { copy } => write!(f, "superblock.{copy}"),
            Self::Journal { shard, file } => write!(f, "journal/{:04}.{file}", shard.0),
            Self::MetadataJournal { file } => write!(f, "metadata/journal.{file}"),
            Self::MetadataSnapshot { index } => write!(f, "metadata/snapshot.{index:010}"),
            Self::CatalogSnapshot { shard, sequence } => write!(f, "catalog/{:04}.{sequence:010}.snapshot", shard.0),
            Self::CatalogDelta { shard, sequence } => write!(f, "catalog/{:04}.{sequence:010}.delta", shard.0),
            Self::Segment { segment, part } => write!(f, "{}/{:016x}.{part}", self.folder(), segment.0),
        }
    }
}

impl fmt::Display for Folder {
    /// Its path below the data directory; `.` for the directory itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Root => f.write_str("."),
            Self::Journal => f.write_str("journal"),
            Self::Metadata => f.write_str("metadata"),
            Self::Catalog => f.write_str("catalog"),
            Self::Quarantine => f.write_str("quarantine"),
            Self::Segments => f.write_str("segments"),
            Self::SegmentsOf(byte) => write!(f, "segments/{byte:02x}"),
        }
    }
}

/// How a new file gets its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Written with zeros, so that a later write changes no extent: for journals.
    Zeroed,
    /// Only allocated: for segments, which are written once. Reads as zeros.
    Allocated,
}

/// A file operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot {action} {file} at {position}: {}", std::io::Error::from_raw_os_error(*errno))]
pub struct StoreError {
    pub action: StoreAction,
    pub file: StoreTarget,
    /// Byte position, 0 where it means nothing.
    pub position: u64,
    pub errno: i32,
}

/// What was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAction {
    List,
    Create,
    Read,
    Write,
    Sync,
    Remove,
}

/// On what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreTarget {
    File(DataFile),
    Folder(Folder),
}

impl fmt::Display for StoreAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Create => "create",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Remove => "remove",
        })
    }
}

impl fmt::Display for StoreTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Folder(folder) => folder.fmt(f),
        }
    }
}

/// Bytes read from a file.
#[derive(Debug)]
pub struct ReadBytes {
    /// Whole blocks; zero where unreadable or beyond the file's end.
    pub bytes: AlignedBuffer,
    /// Bytes of `bytes` that were asked for and exist.
    pub length: usize,
    /// Spans of `bytes`, block aligned, that the device could not give. *Unreadable is not absent.*
    pub unreadable: Vec<std::ops::Range<usize>>,
}

/// Blocking access to the data directory, as recovery uses it before any shard runs. Every call may be the last before a crash.
/// What was written is durable only after `sync` of the file and, if it is new, `sync_folder` of its folder.
pub trait Store {
    /// Our files in a folder (not below it), sorted; others are left out. A missing folder is empty.
    ///
    /// # Errors
    /// The device's.
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError>;

    /// Bytes of a file, or `None` if there is none.
    ///
    /// # Errors
    /// The device's.
    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError>;

    /// Reads up to `length` bytes from `position` (a block boundary).
    ///
    /// # Errors
    /// Only for a file that cannot be opened; bytes that cannot be read are told in the result.
    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError>;

    /// Makes a file of `bytes` (whole blocks) and its folders; an existing one of that name is replaced.
    ///
    /// # Errors
    /// The device's.
    fn create(&mut self, file: DataFile, bytes: u64, fill: Fill) -> Result<(), StoreError>;

    /// Writes whole blocks at `position` (a block boundary).
    ///
    /// # Errors
    /// The device's. What is then in the file is unknown.
    fn write(&mut self, file: DataFile, position: u64, blocks: &AlignedBuffer) -> Result<(), StoreError>;

    /// Makes the file's bytes durable.
    ///
    /// # Errors
    /// The device's. It must not be tried again as if nothing were.
    fn sync(&mut self, file: DataFile) -> Result<(), StoreError>;

    /// Makes creations and removals in a folder durable, and the folder itself in its parents.
    ///
    /// # Errors
    /// The device's.
    fn sync_folder(&mut self, folder: Folder) -> Result<(), StoreError>;

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// The device's.
    fn remove(&mut self, file: DataFile) -> Result<(), StoreError>;
}

/// The engine as a connection sees it: what `net`'s tasks on a shard's executor call.
pub trait ShardService {
    /// Takes one request that is wanted within `deadline_ms` (0: whenever). The answer comes through `Replies`, possibly before
    /// this returns.
    fn request(&self, to: ReplyTo, deadline_ms: u32, request: Request<'_>);

    /// Lets go what was gathered since the last call: call it when a received buffer has been taken to its end.
    fn flush(&self);

    /// The connection is gone: its waiting fetches are forgotten, its answers dropped.
    fn disconnected(&self, connection: u32);
}

/// Where answers go. Implemented by `net` on every shard; called by the performer for connections of that shard.
pub trait Replies {
    /// Takes one answer. Never blocks; an answer to a connection that is gone is dropped.
    fn reply(&self, to: ReplyTo, response: Response);

    /// All answers of one turn have been given: send them.
    fn flush(&self);

    /// The node stops, and all that was taken is answered: says so to every client and takes no more connections.
    fn close(&self) {}

    /// Whether every client has been told, and has gone or has had its time to go.
    fn is_closed(&self) -> bool {
        true
    }
}

/// Where messages to other nodes go. A node alone has none.
pub trait Peers {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_parses_back_to_its_file() {
        for file in [
            DataFile::Superblock { copy: 1 },
            DataFile::Journal { shard: ShardId(3), file: 1 },
            DataFile::MetadataJournal { file: 0 },
            DataFile::MetadataSnapshot { index: 7 },
            DataFile::CatalogSnapshot { shard: ShardId(0), sequence: 12 },
            DataFile::CatalogDelta { shard: ShardId(12), sequence: 13 },
            DataFile::Segment { segment: SegmentId(0x1_002a), part: 0 },
        ] {
            assert_eq!(DataFile::parse(&file.to_string()), Some(file));
        }
        for foreign in ["lost+found", "journal/0.0", "journal/0000.x", "segments/2a/000000000000002b.0", "a.b.c", ""] {
            assert_eq!(DataFile::parse(foreign), None, "{foreign}");
        }
    }
}
