//! The recording's bytes, and reading them back.
//!
//! ```text
//!  note   0  length u32  text
//!  ended  1  act u64
//!  act    2  kind u8  copy u8  durable u8  name length u8  name  position u64  bytes u64  (what is written)
//! ```
//! Only the tests of the same build read it: there is no version.

use std::io::{self, Write};
use std::path::Path;

use thiserror::Error;

use super::{Act, ActId, Content};
use crate::api::port::{DataFile, Folder};

const NOTE: u8 = 0;
const ENDED: u8 = 1;
const ACT: u8 = 2;

/// One thing on the timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded<'a> {
    Begun { id: ActId, act: Act<'a> },
    Ended(ActId),
    Note(&'a str),
}

/// A recording could not be read.
#[derive(Debug, Error)]
pub enum ReadRecordingError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("the recording is cut short or is none, at byte {at}")]
    Malformed { at: usize },
}

/// A whole recording in memory.
#[derive(Debug)]
pub struct Recording {
    bytes: Vec<u8>,
    /// Where each thing begins, and how many acts had begun before it.
    starts: Vec<(usize, u64)>,
}

impl Recording {
    /// Reads a recording that was flushed.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn open(path: &Path) -> Result<Self, ReadRecordingError> {
        let mut recording = Self { bytes: std::fs::read(path)?, starts: Vec::new() };
        let (mut at, mut begun) = (0, 0);
        while at < recording.bytes.len() {
            let mut fields = Fields { rest: &recording.bytes[at..] };
            let recorded = decode(&mut fields, begun).ok_or(ReadRecordingError::Malformed { at })?;
            let next = recording.bytes.len() - fields.rest.len();
            let is_act = matches!(recorded, Recorded::Begun { .. });
            recording.starts.push((at, begun));
            begun += u64::from(is_act);
            at = next;
        }
        Ok(recording)
    }

    /// Things on the timeline.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether nothing is on it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The thing at a place of the timeline.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn event(&self, index: usize) -> Recorded<'_> {
        let (at, begun) = self.starts[index];
        decode(&mut Fields { rest: &self.bytes[at..] }, begun).expect("it was decoded when the recording was opened")
    }

    /// All of it, in order.
    pub fn events(&self) -> impl Iterator<Item = Recorded<'_>> {
        (0..self.len()).map(|index| self.event(index))
    }
}

pub(super) fn encode_note(out: &mut impl Write, text: &str) -> io::Result<()> {
    let length = u32::try_from(text.len()).expect("a note is a line");
    out.write_all(&[NOTE])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(text.as_bytes())
}

pub(super) fn encode_ended(out: &mut impl Write, act: ActId) -> io::Result<()> {
    out.write_all(&[ENDED])?;
    out.write_all(&act.0.to_le_bytes())
}

pub(super) fn encode_act(out: &mut impl Write, act: Act<'_>) -> io::Result<()> {
    let (kind, name, content) = match act {
        Act::MakeFolder { folder } => (0, folder.to_string(), Content::Named),
        Act::MakeNew { file } => (1, file.to_string(), Content::New),
        Act::Extend { file, content, .. } => (2, file.to_string(), content),
        Act::Write { file, content, .. } => (3, file.to_string(), content),
        Act::Zero { file, content, .. } => (4, file.to_string(), content),
        Act::Rename { file } => (5, file.to_string(), Content::Named),
        Act::Remove { file } => (6, file.to_string(), Content::Named),
        Act::Sync { file, content } => (7, file.to_string(), content),
        Act::SyncFolder { folder } => (8, folder.to_string(), Content::Named),
    };
    let (position, bytes, durable, written) = match act {
        Act::Write { position, bytes, durable, .. } => (position, bytes.len() as u64, durable, bytes),
        Act::Zero { position, bytes, .. } => (position, bytes, false, &[][..]),
        Act::Extend { bytes, .. } => (0, bytes, false, &[][..]),
        Act::MakeFolder { .. }
        | Act::MakeNew { .. }
        | Act::Rename { .. }
        | Act::Remove { .. }
        | Act::Sync { .. }
        | Act::SyncFolder { .. } => (0, 0, false, &[][..]),
    };
    let content = match content {
        Content::Named => 0,
        Content::New => 1,
        Content::Removed => 2,
    };
    let length = u8::try_from(name.len()).expect("our paths are short");
    out.write_all(&[ACT, kind, content, u8::from(durable), length])?;
    out.write_all(name.as_bytes())?;
    out.write_all(&position.to_le_bytes())?;
    out.write_all(&bytes.to_le_bytes())?;
    out.write_all(written)
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}

fn decode<'a>(fields: &mut Fields<'a>, begun: u64) -> Option<Recorded<'a>> {
    match fields.u8()? {
        NOTE => {
            let length = u32::from_le_bytes(fields.take(4)?.try_into().expect("four bytes"));
            let text = fields.take(usize::try_from(length).ok()?)?;
            std::str::from_utf8(text).ok().map(Recorded::Note)
        }
        ENDED => fields.u64().map(|act| Recorded::Ended(ActId(act))),
        ACT => decode_act(fields).map(|act| Recorded::Begun { id: ActId(begun), act }),
        _ => None,
    }
}

fn decode_act<'a>(fields: &mut Fields<'a>) -> Option<Act<'a>> {
    let (kind, content, durable, length) = (fields.u8()?, fields.u8()?, fields.u8()? == 1, fields.u8()?);
    let content = match content {
        0 => Content::Named,
        1 => Content::New,
        2 => Content::Removed,
        _ => return None,
    };
    let name = std::str::from_utf8(fields.take(usize::from(length))?).ok()?;
    let (position, bytes) = (fields.u64()?, fields.u64()?);
    if matches!(kind, 0 | 8) {
        let folder = parse_folder(name)?;
        return Some(if kind == 0 { Act::MakeFolder { folder } } else { Act::SyncFolder { folder } });
    }
    let file = DataFile::parse(name)?;
    Some(match kind {
        1 => Act::MakeNew { file },
        2 => Act::Extend { file, content, bytes },
        3 => Act::Write { file, content, position, bytes: fields.take(usize::try_from(bytes).ok()?)?, durable },
        4 => Act::Zero { file, content, position, bytes },
        5 => Act::Rename { file },
        6 => Act::Remove { file },
        7 => Act::Sync { file, content },
        _ => return None,
    })
}

fn parse_folder(name: &str) -> Option<Folder> {
    let plain =
        [Folder::Root, Folder::Journal, Folder::Metadata, Folder::Catalog, Folder::Quarantine, Folder::Segments];
    let of_segments = || {
        let byte = name.strip_prefix("segments/")?;
        u8::from_str_radix(byte, 16).ok().map(Folder::SegmentsOf)
    };
    plain.into_iter().find(|folder| folder.to_string() == name).or_else(of_segments)
}
