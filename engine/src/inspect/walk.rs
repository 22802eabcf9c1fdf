//! Walks one segment's files from the header to the checkpoint, entry by entry, each verified; behind damage from the next entry that
//! verifies.
//!
//! ```text
//!   header | table | batch | batch | ##damage## | batch | pad | … | footer | pad |
//!                                  └ looked for at every multiple of 8           └ checkpoint: nothing behind it is judged
//! ```
//! An entry's checksums are seeded with the segment's random number, so what lies inside a record is never taken for one.

use super::bytes::SegmentBytes;
use super::directory::{InspectError, Segment, Source};
use super::finding::{Fault, Finding};
use super::judge::{Judge, Lost};
use crate::api::port::{DataFile, Store, StoreError};
use crate::format::batch::{PlacedBatch, PlacedError};
use crate::format::entry::{ENTRY_ALIGNMENT, ENTRY_HEADER_BYTES, EntryRef, SegmentSeed, announced, read_entry};
use crate::format::segment::{FooterRef, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::verdict::{DecodeError, Verdict};
use crate::segment::catalog::{Contents, SegmentState};
use crate::segment::reader::ENTRY_BYTES_CEILING;
use crate::types::limits::BLOCK;

/// Where a batch lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    pub file: DataFile,
    /// In bytes, in the file.
    pub position: u64,
    /// Its number in the segment, from 0; `None` behind damage that may have held any number of batches.
    pub number: Option<u64>,
}

/// Whoever wants to see each batch that verifies, in order.
pub type EachBatch<'a> = &'a mut dyn FnMut(Site, &PlacedBatch<'_>);

/// Verifies a segment, and shows each batch of it.
///
/// # Errors
/// Something in it is of a later build's format, or a file that is there cannot be opened.
pub fn walk(store: &mut dyn Store, segment: &Segment, each: EachBatch<'_>) -> Result<Vec<Finding>, InspectError> {
    let record = &segment.record;
    let limit = record.checkpoint.position;
    let is_judged = match segment.source {
        Source::Catalog | Source::Itself => limit > 0,
        Source::Journal | Source::Nobody | Source::Deletion => false,
    };
    let mut judge = Judge::new(segment);
    if !is_judged {
        return Ok(Vec::new());
    }
    for extent in &record.extents {
        let file = DataFile::Segment { segment: record.segment(), part: extent.part };
        if store.length(file)?.is_none() {
            judge.missing(file);
        }
    }
    if judge.has_findings() {
        return Ok(judge.finish());
    }
    let seed = record.header.seed();
    let mut bytes = SegmentBytes::new(store, record, limit);
    if let SegmentState::Sealed { contents: Contents::Footer(placed), .. } = &record.state
        && let Ok(entry) = entry_at(&mut bytes, seed, placed.position)?
        && let Ok(footer) = FooterRef::decode(entry.payload)
    {
        judge.expect_index(footer.index);
    }
    judge_front(&mut bytes, &mut judge)?;
    walk_entries(&mut bytes, seed, limit, &mut judge, each)?;
    Ok(judge.finish())
}

fn walk_entries(
    bytes: &mut SegmentBytes<'_>,
    seed: SegmentSeed,
    limit: u64,
    judge: &mut Judge<'_>,
    each: EachBatch<'_>,
) -> Result<(), InspectError> {
    let mut position = BLOCK as u64;
    while position < limit {
        let (fault, announced) = match entry_at(bytes, seed, position)? {
            Ok(entry) => {
                let announced = Some((entry.kind, entry.bytes.len()));
                match judge.entry(position, entry, seed, each) {
                    Ok(()) => {
                        position += entry.bytes.len() as u64;
                        continue;
                    }
                    Err(fault) => (fault, announced),
                }
            }
            Err(Verdict::Newer(newer)) => return Err(newer.into()),
            Err(verdict) => (Fault::Entry(verdict), announced(bytes.at(position, ENTRY_HEADER_BYTES)?, seed)),
        };
        let length = announced.map_or(ENTRY_HEADER_BYTES, |(_, length)| length) as u64;
        let length = length.min(limit - position);
        let length = usize::try_from(length).expect("an entry fits memory");
        let is_short = bytes.at(position, length)?.len() < length;
        let fault = if bytes.is_unreadable(position, length) {
            Fault::Device
        } else if is_short {
            Fault::Short
        } else {
            fault
        };
        let next = next_whole(bytes, seed, judge, position, limit)?;
        let lost = match announced {
            Some((kind, length)) if next.is_none_or(|next| next == position + length as u64) => Lost::One(kind),
            Some(_) | None => Lost::Unknown,
        };
        if next.is_none() && judge.ends_anywhere() {
            return Ok(());
        }
        judge.damaged(position, fault, lost);
        let Some(next) = next else { return Ok(()) };
        position = next;
    }
    Ok(())
}

/// The entry at a position, whole.
fn entry_at<'b>(
    bytes: &'b mut SegmentBytes<'_>,
    seed: SegmentSeed,
    position: u64,
) -> Result<Result<EntryRef<'b>, Verdict>, StoreError> {
    let front = bytes.at(position, ENTRY_HEADER_BYTES)?;
    let wanted = announced(front, seed).map(|(_, length)| length).filter(|length| *length <= ENTRY_BYTES_CEILING);
    let wanted = wanted.unwrap_or(0).max(ENTRY_HEADER_BYTES);
    Ok(read_entry(bytes.at(position, wanted)?, seed))
}

/// The first position behind `position` at which an entry verifies that can lie there.
fn next_whole(
    bytes: &mut SegmentBytes<'_>,
    seed: SegmentSeed,
    judge: &Judge<'_>,
    position: u64,
    limit: u64,
) -> Result<Option<u64>, StoreError> {
    let mut at = position + ENTRY_ALIGNMENT as u64;
    while at < limit {
        let front = bytes.at(at, ENTRY_HEADER_BYTES)?;
        if front.len() < ENTRY_HEADER_BYTES {
            return Ok(None);
        }
        let may_be = match read_entry(front, seed) {
            Ok(_) | Err(Verdict::Torn) => true,
            Err(Verdict::NeverWritten | Verdict::Unreadable | Verdict::Newer(_)) => false,
        };
        if may_be && let Ok(entry) = entry_at(bytes, seed, at)? {
            let is_whole = match PlacedBatch::verify_entry(entry, seed) {
                Ok(batch) => judge.may_hold(&batch),
                Err(PlacedError::Kind(_)) => true,
                Err(PlacedError::Entry(_) | PlacedError::Placement | PlacedError::Batch(_)) => false,
            };
            if is_whole {
                return Ok(Some(at));
            }
        }
        at += ENTRY_ALIGNMENT as u64;
    }
    Ok(None)
}

/// The first block: the header, then zeros.
fn judge_front(bytes: &mut SegmentBytes<'_>, judge: &mut Judge<'_>) -> Result<(), InspectError> {
    let block = bytes.at(0, BLOCK)?;
    let block = block[..block.len().min(BLOCK)].to_vec();
    if bytes.is_unreadable(0, BLOCK) {
        judge.find(0, Fault::Device);
        return Ok(());
    }
    let opened = judge.record().header;
    match SegmentHeader::decode(&block) {
        Err(DecodeError::Newer(newer)) => return Err(newer.into()),
        Err(error) => judge.find(0, Fault::Header(error)),
        Ok(_) if block[..SEGMENT_HEADER_BYTES] != opened.encode() => judge.find(0, Fault::OtherHeader),
        Ok(_) => {}
    }
    if let Some(at) = block.iter().skip(SEGMENT_HEADER_BYTES).position(|byte| *byte != 0) {
        judge.find((SEGMENT_HEADER_BYTES + at) as u64, Fault::HeaderRest);
    }
    Ok(())
}
