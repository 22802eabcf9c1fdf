//! The producer table: who wrote to a range, in which epoch and run, and how far.
//!
//! It is a function of the log: the table at the segment's base and the batches below an end. Every segment begins with one, and the
//! footer ends with the final one.
//!
//! ```text
//!  0 version u8   1 flags u8 (bit 0 all doubtful)   2 reserved u16   4 count u32   8 reserved u64   16 entries, ascending by producer …
//! each entry:
//!  0 producer u64   8 epoch u32   12 run u32   16 last sequence u64   24 that batch's end u64   32 seen, ms u64
//! 40 doubt from u64   48 doubt to u64   56 flags u32 (bit 0 doubtful, bit 1 no last sequence, bit 2 finished)   60 reserved u32   64
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{judge_version, take_slice};
use crate::format::verdict::DecodeError;
use crate::types::{Offset, ProducerEpoch, ProducerId, Run, Sequence};

/// Bytes of a table without entries.
pub const TABLE_HEADER_BYTES: usize = 16;
/// Bytes of one entry.
pub const PRODUCER_ENTRY_BYTES: usize = 64;
const WHAT: &str = "producer table";
const VERSION: u8 = 1;
const ALL_DOUBTFUL: u8 = 1;
const DOUBTFUL: u32 = 1;
const NO_LAST: u32 = 1 << 1;
const FINISHED: u32 = 1 << 2;

/// One producer's state in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerEntry {
    /// The producer.
    pub producer: ProducerId,
    /// The greatest epoch seen; smaller ones are fenced.
    pub epoch: ProducerEpoch,
    /// The greatest run seen in that epoch.
    pub run: Run,
    /// The number of its last batch; `None` where only the epoch was inherited.
    pub last: Option<Sequence>,
    /// The end of that batch, exclusive.
    pub end: Offset,
    /// The retention clock when it was last heard of, in ms.
    pub seen_ms: u64,
    /// Sequences above `last` may lie in a hole: the next batch may have any of them.
    pub doubtful: bool,
    /// From here on sequences were passed over after a hole, inclusive.
    pub doubt_from: Sequence,
    /// Up to here they were, exclusive.
    pub doubt_to: Sequence,
    /// It said that it sends no more: it leaves at the next segment's base.
    pub finished: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    version: u8,
    flags: u8,
    reserved_half: U16,
    count: U32,
    reserved: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    producer: U64,
    epoch: U32,
    run: U32,
    sequence: U64,
    end: U64,
    seen_ms: U64,
    doubt_from: U64,
    doubt_to: U64,
    flags: U32,
    reserved: U32,
}

const _: () = assert!(
    size_of::<Head>() == TABLE_HEADER_BYTES
        && std::mem::offset_of!(Head, count) == 4
        && size_of::<Raw>() == PRODUCER_ENTRY_BYTES
        && std::mem::offset_of!(Raw, epoch) == 8
        && std::mem::offset_of!(Raw, sequence) == 16
        && std::mem::offset_of!(Raw, end) == 24
        && std::mem::offset_of!(Raw, seen_ms) == 32
        && std::mem::offset_of!(Raw, doubt_from) == 40
        && std::mem::offset_of!(Raw, flags) == 56
);

/// Bytes of the payload of a table with `producers` entries.
#[must_use]
pub const fn table_bytes(producers: usize) -> usize {
    TABLE_HEADER_BYTES + producers * PRODUCER_ENTRY_BYTES
}

/// Appends the payload of a table. `all_doubtful` says that the true table is lost.
///
/// # Panics
/// If the entries do not ascend by producer.
pub fn encode_table(out: &mut Vec<u8>, all_doubtful: bool, entries: impl ExactSizeIterator<Item = ProducerEntry>) {
    let head = Head {
        version: VERSION,
        flags: if all_doubtful { ALL_DOUBTFUL } else { 0 },
        reserved_half: 0.into(),
        count: u32::try_from(entries.len()).expect("a range remembers far fewer producers").into(),
        reserved: 0.into(),
    };
    out.extend_from_slice(head.as_bytes());
    let mut before = None;
    for entry in entries {
        assert!(before < Some(entry.producer), "a table ascends by producer");
        before = Some(entry.producer);
        let bit = |set, bit| if set { bit } else { 0 };
        let flags = bit(entry.doubtful, DOUBTFUL) | bit(entry.last.is_none(), NO_LAST) | bit(entry.finished, FINISHED);
        let raw = Raw {
            producer: entry.producer.0.into(),
            epoch: entry.epoch.0.into(),
            run: entry.run.0.into(),
            sequence: entry.last.map_or(0, |last| last.0).into(),
            end: entry.end.0.into(),
            seen_ms: entry.seen_ms.into(),
            doubt_from: entry.doubt_from.0.into(),
            doubt_to: entry.doubt_to.0.into(),
            flags: flags.into(),
            reserved: 0.into(),
        };
        out.extend_from_slice(raw.as_bytes());
    }
}

/// A table as it lies at rest, judged.
#[derive(Clone, Copy)]
pub struct TableRef<'a> {
    all_doubtful: bool,
    entries: &'a [Raw],
}

impl<'a> TableRef<'a> {
    /// Reads exactly one table's payload.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        judge_version(WHAT, payload.first().copied().unwrap_or(0), VERSION)?;
        let found = payload.len() as u64;
        let wrong_length = |expected| DecodeError::Length { what: WHAT, expected, found };
        let value = |field, found| DecodeError::Value { what: WHAT, field, found };
        let (head, rest) = Head::ref_from_prefix(payload).map_err(|_| wrong_length(TABLE_HEADER_BYTES as u64))?;
        if head.flags & !ALL_DOUBTFUL != 0 {
            return Err(value("flags", u64::from(head.flags)));
        }
        let (entries, rest) = take_slice::<Raw>(WHAT, rest, head.count.get())?;
        if !rest.is_empty() {
            return Err(wrong_length(found - rest.len() as u64));
        }
        let mut before = None;
        for raw in entries {
            let producer = raw.producer.get();
            if before >= Some(producer) {
                return Err(value("producer", producer));
            }
            before = Some(producer);
            if raw.flags.get() & !(DOUBTFUL | NO_LAST | FINISHED) != 0 {
                return Err(value("entry flags", u64::from(raw.flags.get())));
            }
        }
        Ok(Self { all_doubtful: head.flags & ALL_DOUBTFUL != 0, entries })
    }

    /// The true table is lost: any producer may have batches that this one does not know.
    #[must_use]
    pub fn is_all_doubtful(&self) -> bool {
        self.all_doubtful
    }

    /// Producers in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Ascending by producer.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ProducerEntry> + use<'a> {
        self.entries.iter().map(ProducerEntry::from)
    }

    /// What is known of a producer.
    #[must_use]
    pub fn find(&self, producer: ProducerId) -> Option<ProducerEntry> {
        let at = self.entries.binary_search_by_key(&producer.0, |raw| raw.producer.get()).ok()?;
        Some((&self.entries[at]).into())
    }
}

impl From<&Raw> for ProducerEntry {
    fn from(raw: &Raw) -> Self {
        let flags = raw.flags.get();
        Self {
            producer: ProducerId(raw.producer.get()),
            epoch: ProducerEpoch(raw.epoch.get()),
            run: Run(raw.run.get()),
            last: Some(Sequence(raw.sequence.get())).filter(|_| flags & NO_LAST == 0),
            end: Offset(raw.end.get()),
            seen_ms: raw.seen_ms.get(),
            doubtful: flags & DOUBTFUL != 0,
            doubt_from: Sequence(raw.doubt_from.get()),
            doubt_to: Sequence(raw.doubt_to.get()),
            finished: flags & FINISHED != 0,
        }
    }
}

impl std::fmt::Debug for TableRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
