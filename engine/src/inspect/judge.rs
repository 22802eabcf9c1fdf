//! Judges one segment's entries in their order against what its catalog, its seal and its footer say of it.
//!
//! Records that cannot be read are counted by what comes next: the offset at which the next batch begins, or the segment's end. A span
//! that lies in a committed hole is known, and no finding.

use super::bytes::place;
use super::directory::{Segment, Source};
use super::finding::{Fault, Finding, OffsetSpan};
use super::walk::{EachBatch, Site};
use crate::api::port::DataFile;
use crate::format::batch::PlacedBatch;
use crate::format::checksum::Digest;
use crate::format::entry::{EntryKind, EntryRef, SegmentSeed};
use crate::format::index::IndexEntry;
use crate::format::segment::{FooterRef, Hole, RollMark, TableRef};
use crate::segment::Tally;
use crate::segment::catalog::{Contents, SegmentRecord, SegmentState};
use crate::types::Offset;

/// What lay where nothing verifies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lost {
    /// One entry, of a kind that its header tells.
    One(EntryKind),
    /// Any number of any kind.
    Unknown,
}

/// What is known of a segment so far.
pub(super) struct Judge<'a> {
    segment: &'a Segment,
    findings: Vec<Finding>,
    /// Findings whose records are counted when the next batch, or the end, is known.
    pending: Vec<usize>,
    /// Batches that they hold, if that is known.
    pending_batches: Option<u64>,
    next: Offset,
    /// Of the next batch.
    number: Option<u64>,
    /// Behind the last batch; `None` where the chain has to begin again.
    digest: Option<Digest>,
    is_started: bool,
    is_ended: bool,
    met_known_hole: bool,
    tally: Tally,
    index: Vec<IndexEntry>,
    index_at: usize,
    /// What a footer says of the end.
    footer_end: Option<Offset>,
    met_footer_at: Option<u64>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(segment: &'a Segment) -> Self {
        let record = &segment.record;
        let mut index = record.tail().map_or_else(Vec::new, |tail| tail.index.clone());
        index.retain(|entry| entry.position() < record.checkpoint.position);
        Self {
            segment,
            findings: Vec::new(),
            pending: Vec::new(),
            pending_batches: Some(0),
            next: record.base(),
            number: Some(0),
            // As the header names it, until the table itself is read.
            digest: record.header.table.map(|table| Digest::start_from(record.segment(), record.base(), table)),
            is_started: false,
            is_ended: false,
            met_known_hole: false,
            tally: Tally::default(),
            index,
            index_at: 0,
            footer_end: None,
            met_footer_at: None,
        }
    }

    pub(super) fn record(&self) -> &SegmentRecord {
        &self.segment.record
    }

    /// The site of the entry at a position of the segment.
    pub(super) fn site(&self, position: u64) -> Site {
        let (file, position) = place(self.record(), position);
        Site { file, position, number: self.number }
    }

    pub(super) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Nobody knows where it ends: what does not verify, with nothing whole behind it, is the end.
    pub(super) fn ends_anywhere(&self) -> bool {
        self.segment.source == Source::Itself && self.footer_end.is_none()
    }

    pub(super) fn expect_index(&mut self, index: &[IndexEntry]) {
        self.index = index.to_vec();
    }

    /// A file is not there.
    pub(super) fn missing(&mut self, file: DataFile) {
        let offsets = self.end().filter(|end| *end > self.next).map(|to| OffsetSpan { from: self.next, to });
        let segment = Some(self.record().segment());
        let fault = Fault::FileMissing;
        self.findings.push(Finding { file: Some(file), position: 0, segment, batch: None, offsets, fault });
    }

    /// Something is wrong that costs no record.
    pub(super) fn find(&mut self, position: u64, fault: Fault) {
        self.add(position, None, None, fault);
    }

    fn add(&mut self, position: u64, batch: Option<u64>, offsets: Option<OffsetSpan>, fault: Fault) {
        let Site { file, position, .. } = self.site(position);
        let (file, segment) = (Some(file), Some(self.record().segment()));
        self.findings.push(Finding { file, position, segment, batch, offsets, fault });
    }

    /// What lies at `position` does not verify.
    pub(super) fn damaged(&mut self, position: u64, fault: Fault, lost: Lost) {
        self.find(position, fault);
        self.pending.push(self.findings.len() - 1);
        self.pending_batches = match lost {
            Lost::One(EntryKind::Batch) => self.pending_batches.map(|batches| batches + 1),
            Lost::One(EntryKind::Table | EntryKind::RollMark | EntryKind::Pad | EntryKind::Footer) => {
                self.pending_batches
            }
            Lost::Unknown => None,
        };
        // A footer that does not verify is told once.
        if lost == Lost::One(EntryKind::Footer) {
            self.met_footer_at = Some(position);
        }
    }

    /// Whether a batch that verifies can lie behind what was read.
    pub(super) fn may_hold(&self, batch: &PlacedBatch<'_>) -> bool {
        let place = batch.place();
        place.segment == self.record().segment()
            && place.offset >= self.next
            && self.end().is_none_or(|end| batch.end() <= end)
    }

    /// Takes the next entry. What is wrong with it beyond its own bytes is noted.
    ///
    /// # Errors
    /// It does not verify.
    pub(super) fn entry(
        &mut self,
        position: u64,
        entry: EntryRef<'_>,
        seed: SegmentSeed,
        each: EachBatch<'_>,
    ) -> Result<(), Fault> {
        match entry.kind {
            EntryKind::Batch => {
                let batch = PlacedBatch::verify_entry(entry, seed).map_err(Fault::Batch)?;
                self.batch(position, &batch, each)?;
            }
            EntryKind::Table => self.table(position, entry.payload)?,
            EntryKind::RollMark => self.roll_mark(position, entry.payload)?,
            EntryKind::Footer => self.footer(position, entry.payload)?,
            EntryKind::Pad => {
                if entry.payload.iter().any(|byte| *byte != 0) {
                    self.find(position, Fault::Entry(crate::format::Verdict::Torn));
                }
            }
        }
        Ok(())
    }

    fn batch(&mut self, position: u64, batch: &PlacedBatch<'_>, each: EachBatch<'_>) -> Result<(), Fault> {
        let (place, record) = (batch.place(), &self.segment.record);
        if place.segment != record.segment() || place.offset < self.next {
            return Err(Fault::Elsewhere { segment: place.segment, found: place.offset });
        }
        self.reach(position, place.offset);
        let offsets = Some(OffsetSpan { from: place.offset, to: batch.end() });
        if self.is_ended {
            self.add(position, self.number, offsets, Fault::Order(EntryKind::Batch));
        }
        if self.digest.is_some_and(|digest| !batch.continues(digest)) {
            self.add(position, self.number, offsets, Fault::Digest);
        }
        if let Err(error) = batch.batch().walk(record.header.span) {
            self.add(position, self.number, offsets, Fault::Record(error));
        }
        self.judge_index(position, place.offset);
        let site = self.site(position);
        each(site, batch);
        self.is_started = true;
        self.tally.note(batch.batch(), batch.bytes().len());
        self.next = batch.end();
        self.digest = Some(batch.digest());
        self.number = self.number.map(|number| number + 1);
        Ok(())
    }

    /// The next batch begins at `offset`, or the segment ends there: what was damaged before it held the records up to there.
    fn reach(&mut self, position: u64, offset: Offset) {
        let span = OffsetSpan { from: self.next, to: offset };
        let is_lost = span.from < span.to;
        let is_known = is_lost && self.is_hole(span);
        if is_lost {
            self.digest = None;
        }
        let pending = std::mem::take(&mut self.pending);
        let batches = self.pending_batches.replace(0);
        if is_known {
            self.met_known_hole = true;
            for at in pending.iter().rev() {
                self.findings.remove(*at);
            }
        } else if is_lost && pending.is_empty() && self.segment.source == Source::Catalog {
            self.add(position, None, Some(span), Fault::Missing);
        } else if is_lost {
            for (nth, at) in pending.iter().enumerate() {
                self.findings[*at].offsets = Some(span);
                self.findings[*at].batch = self.number.filter(|_| nth == 0);
            }
        }
        if is_lost && !pending.is_empty() {
            self.number = self.number.zip(batches.filter(|batches| *batches > 0)).map(|(number, lost)| number + lost);
        }
        self.next = offset;
    }

    /// Whether all of it is known to be a hole.
    fn is_hole(&self, span: OffsetSpan) -> bool {
        let mut at = span.from;
        let sealed = self.record().seal().map_or(&[][..], |(_, holes)| holes);
        for hole in sealed.iter().chain(&self.segment.uncertain) {
            if hole.from <= at {
                at = at.max(hole.to);
            }
        }
        at >= span.to
    }

    fn judge_index(&mut self, position: u64, offset: Offset) {
        while let Some(entry) = self.index.get(self.index_at).filter(|entry| entry.position() <= position) {
            let leads_here = entry.position() == position && entry.offset() == offset;
            // Behind damage, an entry may lead to what is lost.
            if !leads_here && self.findings.is_empty() {
                self.find(position, Fault::Index);
            }
            self.index_at += 1;
        }
    }

    fn table(&mut self, position: u64, payload: &[u8]) -> Result<(), Fault> {
        TableRef::decode(payload).map_err(Fault::Payload)?;
        if self.is_started {
            self.find(position, Fault::Order(EntryKind::Table));
            return Ok(());
        }
        self.is_started = true;
        let record = &self.segment.record;
        let table = Digest::of(payload);
        if record.header.table.is_some_and(|named| named != table) {
            self.find(position, Fault::Table);
            return Ok(());
        }
        self.digest = Some(Digest::start_from(record.segment(), record.base(), table));
        Ok(())
    }

    fn roll_mark(&mut self, position: u64, payload: &[u8]) -> Result<(), Fault> {
        let mark = RollMark::decode(payload).map_err(Fault::Payload)?;
        let follows = self.pending.is_empty()
            && (mark.end != self.next || self.digest.is_some_and(|digest| digest != mark.digest));
        let contradicts = match &self.record().state {
            SegmentState::Rolled { mark: known, .. } => *known != mark,
            SegmentState::Open(_) | SegmentState::Sealed { .. } => false,
        };
        if follows || contradicts || self.is_ended {
            self.find(position, Fault::RollMark);
        }
        self.is_ended = true;
        Ok(())
    }

    fn footer(&mut self, position: u64, payload: &[u8]) -> Result<(), Fault> {
        let read = FooterRef::decode(payload).map_err(Fault::Payload)?;
        let (footer, record) = (read.footer, &self.segment.record);
        let mut agrees = footer.segment == record.segment() && footer.base == record.base();
        if let Some((seal, holes)) = record.seal() {
            agrees &= footer.agrees_with(seal) && read.holes.iter().eq(holes.iter().copied());
        }
        // Of what is damaged it says more than could be read.
        if self.findings.is_empty() && !self.met_known_hole {
            agrees &= (footer.records, footer.batches) == (self.tally.records, self.tally.batches);
            agrees &= footer.end >= self.next;
        }
        if !agrees {
            self.find(position, Fault::Footer);
        }
        self.footer_end = Some(footer.end);
        self.met_footer_at = Some(position);
        self.is_ended = true;
        Ok(())
    }

    /// Where the records of the files end, exclusive, if that is known.
    fn end(&self) -> Option<Offset> {
        match self.segment.source {
            Source::Catalog => Some(self.record().checkpoint.end),
            Source::Journal | Source::Itself | Source::Nobody | Source::Deletion => self.footer_end,
        }
    }

    /// All entries have been taken.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        let checkpoint = self.record().checkpoint;
        let is_missing = self.findings.iter().any(|finding| matches!(finding.fault, Fault::FileMissing));
        if is_missing {
            return self.findings;
        }
        if let Some(end) = self.end() {
            self.reach(checkpoint.position, end.max(self.next));
        }
        if let SegmentState::Sealed { contents: Contents::Footer(placed), .. } = &self.record().state {
            let at = placed.position;
            if self.met_footer_at != Some(at) && self.findings.is_empty() {
                self.find(at, Fault::FooterMissing);
            }
        }
        if self.findings.is_empty()
            && let Some(entry) = self.index.get(self.index_at).copied()
        {
            self.find(entry.position(), Fault::Index);
        }
        if self.segment.source == Source::Catalog && self.findings.is_empty() && !self.met_known_hole {
            self.judge_end();
        }
        self.findings
    }

    fn judge_end(&mut self) {
        let checkpoint = self.record().checkpoint;
        if self.tally != checkpoint.tally || self.next != checkpoint.end {
            self.find(checkpoint.position, Fault::Count);
        }
        let Some(digest) = self.digest else { return };
        if digest != checkpoint.digest {
            self.find(checkpoint.position, Fault::EndDigest);
        }
        let sealed = self.record().seal().map(|(seal, holes)| (*seal, trailing(holes, seal.end)));
        if let Some((seal, hole)) = sealed {
            let digest = hole.map_or(digest, |hole| digest.hole(hole.from, hole.to));
            if digest != seal.digest {
                self.find(checkpoint.position, Fault::SealDigest);
            }
        }
    }
}

/// The hole that reaches the end.
fn trailing(holes: &[Hole], end: Offset) -> Option<Hole> {
    holes.last().copied().filter(|hole| hole.to == end)
}
