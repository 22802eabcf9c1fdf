//! Segments and batches for tests.

#![allow(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]

use crate::format::batch::{BatchBuilder, Stamp};
use crate::format::record::RecordKey;
use crate::format::segment::SegmentHeader;
use crate::format::segment::table::encode_table;
use crate::types::limits::BATCH_BYTES_CEILING;
use crate::types::{Epoch, KeySpan, NodeId, Offset, ProcessLife, ProducerId, RangeId, SegmentId, Sequence, TopicId};

/// The header of a segment of range 7 that begins at `base`.
pub(crate) fn header(segment: u64, base: u64) -> SegmentHeader {
    SegmentHeader {
        topic: TopicId(3),
        range: RangeId(7),
        segment: SegmentId(segment),
        span: KeySpan::ALL,
        base: Some(Offset(base)),
        table: None,
        epoch: Epoch(2),
        random: 0x5eed ^ segment,
        predecessors: [None; 2],
        max_batch: 1 << 20,
        replicas: 1,
        acknowledgements: 1,
        retention_clock: 0,
        primary: NodeId(1),
        life: ProcessLife(1),
        extent: 0,
        extent_first: Offset(base),
    }
}

/// The payload of an empty producer table.
pub(crate) fn empty_table() -> Vec<u8> {
    let mut out = Vec::new();
    encode_table(&mut out, false, std::iter::empty());
    out
}

/// Batch `sequence` of `producer`: `records` records with values of `value_bytes`.
pub(crate) fn batch(producer: u64, sequence: u64, records: u32, value_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BATCH_BYTES_CEILING);
    for i in 0..records {
        let value = vec![(sequence as u8).wrapping_add(i as u8); value_bytes];
        builder.push(RecordKey::Key(&i.to_le_bytes()), Some(&value), &[], 1_000 + sequence).expect("it fits");
    }
    let stamp = Stamp { producer: ProducerId(producer), sequence: Sequence(sequence), ..Stamp::default() };
    builder.finish(stamp).to_vec()
}
