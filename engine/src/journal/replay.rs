//! Reads a journal back: its groups in order, and what its end is.
//!
//! ```text
//! next group: at the end of the last? at the start of the next file? by its repetition at either?
//!    │whole                          │front verifies, body not         │nothing                     │only the marker
//!    ▼                               ▼                                 ▼                            ▼
//!  visit, go on                 a greater sequence anywhere in the ring? ── yes ──▶ Damaged: what lies between rotted
//!                                    │no: Uncertain                    │no: a block that cannot be read outside of what
//!                                                                      │    was visited? yes: Unknown, no: Certain
//! ```
//! - A valid group proves that all before it were durable. So a front with a greater sequence proves that a missing or broken one rotted;
//!   without one it was the last, may have been torn, and may never have been acknowledged.
//! - A marker lies where the next group will go and has its sequence: it proves the groups before it, and itself nothing.
//! - A read error is not an end. What cannot be read anywhere outside of the verified groups might be the proof.
//! - A group whose front rotted but whose repetition and body verify is whole.
//! - Never is anything cut: this build refuses to start on what is damaged.
//!
//! Bytes inside a group's body that look like a group of this journal prove nothing wrong: they were copied from a file before the group
//! that holds them was written, and so have a smaller sequence than that.

use std::ops::Range;

use crate::format::journal::{
    DirectoryEntry, Front, FrontError, GroupHeader, GroupKind, GroupLayout, JournalSeed, ends_group, may_hold_front,
    read_front, read_repetition,
};
use crate::format::upgrade::Newer;
use crate::types::limits::BLOCK;

use super::ring::{Geometry, Mark, Position};

/// What was read of one file.
#[derive(Clone, Copy, Debug)]
pub struct FileImage<'a> {
    /// All its bytes; anything where they could not be read.
    pub bytes: &'a [u8],
    /// Spans that could not be read.
    pub unreadable: &'a [Range<usize>],
}

/// What was read of a ring.
#[derive(Clone, Copy, Debug)]
pub struct JournalImage<'a> {
    files: &'a [FileImage<'a>],
    geometry: Geometry,
}

impl<'a> JournalImage<'a> {
    /// Of its files in order; `None` if they are not of one size in whole blocks, as a ring's files are.
    #[must_use]
    pub fn new(files: &'a [FileImage<'a>]) -> Option<Self> {
        let bytes = files.first()?.bytes.len();
        if bytes == 0 || !bytes.is_multiple_of(BLOCK) || files.iter().any(|file| file.bytes.len() != bytes) {
            return None;
        }
        Some(Self { files, geometry: Geometry::new(u16::try_from(files.len()).ok()?, bytes as u64) })
    }

    /// The ring's files.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The file of a position, and the byte in it.
    fn at(&self, position: Position) -> (&'a [u8], usize) {
        let (file, offset) = self.geometry.locate(position);
        (self.files[usize::from(file)].bytes, usize::try_from(offset).expect("the file is in memory"))
    }

    /// Whether something that could not be read lies outside of the span between two marks.
    fn is_unreadable_outside(&self, from: Position, to: Position) -> bool {
        let file_bytes = self.geometry.file_bytes();
        self.files.iter().zip(0..).any(|(file, index): (_, u64)| {
            file.unreadable.iter().any(|span| {
                (span.start / BLOCK..span.end.div_ceil(BLOCK)).any(|block| {
                    let in_ring = index * file_bytes + (block * BLOCK) as u64;
                    // How far behind `from` the block lies, on through the ring.
                    let behind =
                        (in_ring + self.geometry.bytes() - from.0 % self.geometry.bytes()) % self.geometry.bytes();
                    behind >= to.0 - from.0
                })
            })
        })
    }
}

/// A group that verifies.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    /// Its header.
    pub header: GroupHeader,
    /// Its directory.
    pub directory: &'a [DirectoryEntry],
    /// Its body.
    pub body: &'a [u8],
    /// Its front rotted or was torn; it was read by its repetition.
    pub by_repetition: bool,
}

impl<'a> GroupView<'a> {
    /// Its entries with their bodies.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&'a DirectoryEntry, &'a [u8])> + use<'a> {
        let body = self.body;
        self.directory.iter().map(move |e| (e, &body[e.body_offset() as usize..][..e.bytes() as usize]))
    }
}

/// What a replay found.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Groups visited.
    pub groups: u64,
    /// Behind the last of them.
    pub end: Mark,
    /// What is there.
    pub last: End,
}

/// What follows the last whole group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// A clean stop: the last group says that nothing follows.
    Stopped,
    /// Nothing.
    Certain,
    /// A group that was being written: its entries may be held elsewhere and may never have been acknowledged.
    Uncertain(Uncertain),
    /// Something that cannot be read. Behind the last whole group, or behind the uncertain one if there is one, one more group may follow, of
    /// any length.
    Unknown(Option<Uncertain>),
    /// Something that was durable and does not verify any more.
    Damaged(Damage),
    /// Something that this build does not know.
    Newer(Newer),
}

/// A last group of which only the front verifies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uncertain {
    /// Its header.
    pub header: GroupHeader,
    /// What it held.
    pub directory: Vec<DirectoryEntry>,
}

/// A journal that does not hold what it held.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("group {} that belongs at or behind {} is damaged: {cause}", mark.sequence, mark.position.0)]
pub struct Damage {
    /// Before the group that is damaged.
    pub mark: Mark,
    /// How that is known.
    pub cause: DamageCause,
}

/// How it is known that a journal is damaged.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageCause {
    /// A later group stands in the ring.
    #[error("group {sequence} was written after it, and stands in file {file} at {offset}")]
    Proved {
        /// The least such sequence.
        sequence: u64,
        /// Its file.
        file: u16,
        /// The byte of its block there.
        offset: u64,
    },
    /// The generation's first group is not there.
    #[error("the generation's first group is missing")]
    FirstMissing,
    /// No group of the generation is there at all.
    #[error("no group of the generation is left")]
    NothingLeft,
    /// A front verifies and contradicts itself or its place.
    #[error("it contradicts itself")]
    Contradiction,
}

/// Visits all whole groups from `first` on, in order, and judges the end. Markers are not visited.
pub fn replay<'a>(
    image: &JournalImage<'a>,
    seed: JournalSeed,
    first: Mark,
    mut visit: impl FnMut(&GroupView<'a>),
) -> Replay {
    let mut found = Replay { groups: 0, end: first, last: End::Certain };
    found.last = loop {
        match next_group(image, seed, found.end) {
            Ok(Next::Whole(group, digest)) => {
                if (group.header.kind == GroupKind::First) != (found.end == Mark::BEGIN) {
                    break End::Damaged(Damage { mark: found.end, cause: DamageCause::Contradiction });
                }
                visit(&group);
                found.groups += 1;
                found.end = Mark {
                    sequence: group.header.sequence + 1,
                    position: Position(group.header.position + u64::from(group.header.length)),
                    previous: digest,
                };
                if group.header.kind == GroupKind::Stop {
                    break End::Stopped;
                }
            }
            Ok(Next::Front(front)) => break judge_front(image, seed, first, &found, &front),
            Ok(Next::Nothing) => break judge_nothing(image, seed, first, &found),
            Err(FrontError::Newer(newer)) => break End::Newer(newer),
            Err(FrontError::Contradiction | FrontError::Unverified) => {
                break End::Damaged(Damage { mark: found.end, cause: DamageCause::Contradiction });
            }
        }
    };
    found
}

/// What follows a mark.
enum Next<'a> {
    Whole(GroupView<'a>, u64),
    Front(Front<'a>),
    Nothing,
}

/// The group behind `mark`. A marker there is none: the real group may still be found by its repetition, or in the next file.
fn next_group<'a>(image: &JournalImage<'a>, seed: JournalSeed, mark: Mark) -> Result<Next<'a>, FrontError> {
    let next_file = image.geometry.next_file(mark.position);
    for search in [front_at, repetition_at] {
        for position in [mark.position, next_file] {
            if let Some((front, by_repetition)) = search(image, seed, mark, position)? {
                return Ok(with_body(image, seed, front, by_repetition));
            }
        }
    }
    Ok(Next::Nothing)
}

type Found<'a> = Option<(Front<'a>, bool)>;

fn is_next(front: &Front<'_>, mark: Mark, position: Position) -> bool {
    let header = &front.header;
    header.kind != GroupKind::Marker
        && header.sequence == mark.sequence
        && header.position == position.0
        && header.previous == mark.previous
}

fn front_at<'a>(
    image: &JournalImage<'a>,
    seed: JournalSeed,
    mark: Mark,
    position: Position,
) -> Result<Found<'a>, FrontError> {
    let (bytes, at) = image.at(position);
    match read_front(&bytes[at..], seed) {
        Ok(front) if is_next(&front, mark, position) => {
            let fits = at + front.header.length as usize <= bytes.len();
            if fits { Ok(Some((front, false))) } else { Err(FrontError::Contradiction) }
        }
        Ok(_) | Err(FrontError::Unverified) => Ok(None),
        Err(refused) => Err(refused),
    }
}

/// Looks at the ends of all blocks from `position` to the end of its file.
fn repetition_at<'a>(
    image: &JournalImage<'a>,
    seed: JournalSeed,
    mark: Mark,
    position: Position,
) -> Result<Found<'a>, FrontError> {
    let (bytes, at) = image.at(position);
    for end in (at + BLOCK..=bytes.len()).step_by(BLOCK) {
        if !ends_group(&bytes[at..end]) {
            continue;
        }
        match read_repetition(&bytes[at..end], seed) {
            Ok(front) if is_next(&front, mark, position) && front.header.length as usize == end - at => {
                return Ok(Some((front, true)));
            }
            Ok(_) | Err(FrontError::Unverified) => {}
            Err(refused) => return Err(refused),
        }
    }
    Ok(None)
}

fn with_body<'a>(image: &JournalImage<'a>, seed: JournalSeed, front: Front<'a>, by_repetition: bool) -> Next<'a> {
    let (bytes, at) = image.at(Position(front.header.position));
    let body_bytes = front.header.body_bytes as usize;
    let layout = GroupLayout::of(front.directory.len(), body_bytes);
    let body = &bytes[at + layout.body..][..body_bytes];
    if seed.body_checksum(None, body) != front.header.body_checksum {
        return Next::Front(front);
    }
    let group = GroupView { header: front.header, directory: front.directory, body, by_repetition };
    Next::Whole(group, front.digest)
}

/// The group behind `found.end` has a front and no body.
fn judge_front(image: &JournalImage<'_>, seed: JournalSeed, first: Mark, found: &Replay, front: &Front<'_>) -> End {
    let mark = found.end;
    let end = Position(front.header.position + u64::from(front.header.length));
    // Even a marker with the next sequence proves that this group was durable: it is written after that.
    match find_proof(image, seed, |header| header.sequence > mark.sequence) {
        Scan { refused: Some(newer), .. } => End::Newer(newer),
        Scan { proof: Some(cause), .. } => End::Damaged(Damage { mark, cause }),
        Scan { .. } => {
            let uncertain = Uncertain { header: front.header, directory: front.directory.to_vec() };
            if image.is_unreadable_outside(first.position, end) {
                End::Unknown(Some(uncertain))
            } else {
                End::Uncertain(uncertain)
            }
        }
    }
}

/// No group is behind `found.end`.
fn judge_nothing(image: &JournalImage<'_>, seed: JournalSeed, first: Mark, found: &Replay) -> End {
    let mark = found.end;
    let scan = find_proof(image, seed, |header| {
        let is_our_marker = header.kind == GroupKind::Marker && header.previous == mark.previous;
        header.sequence > mark.sequence || header.sequence == mark.sequence && !is_our_marker
    });
    let damaged = |cause| End::Damaged(Damage { mark, cause });
    match scan {
        Scan { refused: Some(newer), .. } => End::Newer(newer),
        Scan { proof: Some(cause), .. } => damaged(cause),
        _ if image.is_unreadable_outside(first.position, mark.position) => End::Unknown(None),
        _ if mark == Mark::BEGIN => damaged(DamageCause::FirstMissing),
        Scan { any: false, .. } => damaged(DamageCause::NothingLeft),
        Scan { .. } => End::Certain,
    }
}

/// What all blocks of a ring say.
struct Scan {
    /// The front with the least sequence of those that prove something.
    proof: Option<DamageCause>,
    /// A front that this build does not know.
    refused: Option<Newer>,
    /// Whether there is any front of this generation.
    any: bool,
}

/// Looks at the start and the end of all blocks of the ring for fronts that prove something.
fn find_proof(image: &JournalImage<'_>, seed: JournalSeed, proves: impl Fn(&GroupHeader) -> bool) -> Scan {
    let mut scan = Scan { proof: None, refused: None, any: false };
    let mut least = u64::MAX;
    for (file, index) in image.files.iter().zip(0..) {
        for at in (0..file.bytes.len()).step_by(BLOCK) {
            if !may_hold_front(&file.bytes[at..at + BLOCK]) {
                continue;
            }
            let fronts = [read_front(&file.bytes[at..], seed), read_repetition(&file.bytes[..at + BLOCK], seed)];
            for front in fronts {
                match front {
                    Ok(front) => {
                        scan.any = true;
                        if proves(&front.header) && (scan.proof.is_none() || front.header.sequence < least) {
                            least = front.header.sequence;
                            scan.proof = Some(DamageCause::Proved { sequence: least, file: index, offset: at as u64 });
                        }
                    }
                    Err(FrontError::Newer(newer)) => scan.refused = Some(newer),
                    Err(FrontError::Contradiction) if scan.proof.is_none() => {
                        scan.proof = Some(DamageCause::Contradiction);
                    }
                    Err(FrontError::Contradiction | FrontError::Unverified) => {}
                }
            }
        }
    }
    scan
}
