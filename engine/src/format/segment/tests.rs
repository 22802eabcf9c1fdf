use proptest::prelude::*;

use super::table::{encode_table, table_bytes};
use super::*;
use crate::format::checksum::{Digest, checksum};
use crate::format::index::IndexEntry;
use crate::types::{
    Epoch, KeyHash, KeySpan, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, Run, SegmentId, Sequence,
    TopicId,
};

fn header() -> SegmentHeader {
    SegmentHeader {
        topic: TopicId(1),
        range: RangeId(2),
        segment: SegmentId(3),
        span: KeySpan::ALL.halves().unwrap().1,
        base: Some(Offset(40)),
        table: Some(Digest(5)),
        epoch: Epoch(6),
        random: 7,
        predecessors: [Some(SegmentId(2)), None],
        max_batch: 1 << 20,
        replicas: 3,
        acknowledgements: 2,
        retention_clock: 8,
        primary: NodeId(9),
        life: ProcessLife(10),
        extent: 1,
        extent_first: Offset(44),
    }
}

fn producer() -> impl Strategy<Value = ProducerEntry> {
    let last = (prop::option::of(any::<u64>()), any::<u64>(), any::<u64>());
    let doubt = (any::<bool>(), any::<u64>(), any::<u64>());
    (any::<u64>(), any::<u32>(), any::<u32>(), last, doubt, any::<bool>()).prop_map(
        |(producer, epoch, run, (last, end, seen_ms), (doubtful, doubt_from, doubt_to), finished)| ProducerEntry {
            producer: ProducerId(producer),
            epoch: ProducerEpoch(epoch),
            run: Run(run),
            last: last.map(Sequence),
            end: Offset(end),
            seen_ms,
            doubtful,
            doubt_from: Sequence(doubt_from),
            doubt_to: Sequence(doubt_to),
            finished,
        },
    )
}

fn producers() -> impl Strategy<Value = Vec<ProducerEntry>> {
    prop::collection::vec(producer(), 0..9).prop_map(|mut producers| {
        producers.sort_by_key(|p| p.producer);
        producers.dedup_by_key(|p| p.producer);
        producers
    })
}

fn holes() -> impl Strategy<Value = Vec<Hole>> {
    let cause = prop::sample::select(vec![HoleCause::Interrupted, HoleCause::Unreadable, HoleCause::Forced]);
    prop::collection::vec((1u64..99, 1u64..99, cause), 0..5).prop_map(|parts| {
        let mut end = 0;
        let hole = |(gap, length, cause)| {
            let from = end + gap;
            end = from + length;
            Hole { from: Offset(from), to: Offset(end), records_at_most: length, cause }
        };
        parts.into_iter().map(hole).collect()
    })
}

fn table(all_doubtful: bool, producers: &[ProducerEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_table(&mut out, all_doubtful, producers.iter().copied());
    assert_eq!(out.len(), table_bytes(producers.len()));
    out
}

fn footer() -> Footer {
    Footer {
        segment: SegmentId(3),
        base: Offset(40),
        end: Offset(90),
        records: 49,
        batches: 12,
        digest: Digest(77),
        timestamp_ms_min: 1,
        timestamp_ms_max: 2,
    }
}

#[test]
fn a_segment_header_reads_back() {
    for header in [
        header(),
        SegmentHeader { base: None, table: None, predecessors: [None; 2], ..header() },
        SegmentHeader { span: KeySpan::ALL, predecessors: [Some(SegmentId(4)), Some(SegmentId(5))], ..header() },
        SegmentHeader { span: KeySpan::new(KeyHash(u64::MAX), 64).unwrap(), ..header() },
    ] {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
}

#[test]
fn a_newer_segment_header_is_told_as_such_and_a_rotten_version_is_not() {
    let mut bytes = header().encode();
    bytes[8] = 2;
    assert!(matches!(SegmentHeader::decode(&bytes), Err(DecodeError::Checksum { .. })));
    let sum = checksum(0, &bytes[..188]);
    bytes[188..].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(SegmentHeader::decode(&bytes), Err(DecodeError::Newer(n)) if n.found == 2));
}

#[test]
fn a_span_that_is_not_aligned_is_refused() {
    let mut bytes = header().encode();
    bytes[40] = 1;
    let sum = checksum(0, &bytes[..188]);
    bytes[188..].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(SegmentHeader::decode(&bytes), Err(DecodeError::Value { field: "span depth", .. })));
}

#[test]
fn a_table_out_of_order_is_refused() {
    let entry = |id| ProducerEntry {
        producer: ProducerId(id),
        epoch: ProducerEpoch(1),
        run: Run(0),
        last: None,
        end: Offset(0),
        seen_ms: 0,
        doubtful: false,
        doubt_from: Sequence(0),
        doubt_to: Sequence(0),
        finished: false,
    };
    let mut bytes = table(false, &[entry(1), entry(2)]);
    assert!(TableRef::decode(&bytes).is_ok());
    bytes[16] = 2;
    assert!(matches!(TableRef::decode(&bytes), Err(DecodeError::Value { field: "producer", found: 2, .. })));
}

#[test]
fn a_count_that_the_bytes_do_not_hold_is_refused() {
    let mut bytes = table(true, &[]);
    bytes[4..8].fill(0xff);
    assert!(matches!(TableRef::decode(&bytes), Err(DecodeError::Length { .. })));
    let mut bytes = Vec::new();
    footer().encode(&mut bytes, &[], &[], &table(false, &[]));
    for at in [4, 8, 12] {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].fill(0xff);
        assert!(matches!(FooterRef::decode(&bytes), Err(DecodeError::Length { .. })), "{at}");
    }
}

#[test]
fn a_newer_payload_is_told_as_such() {
    let newer = [9; 128];
    assert!(matches!(TableRef::decode(&newer), Err(DecodeError::Newer(_))));
    assert!(matches!(RollMark::decode(&newer), Err(DecodeError::Newer(_))));
    assert!(matches!(FooterRef::decode(&newer), Err(DecodeError::Newer(_))));
    assert!(matches!(SealRef::decode(&newer), Err(DecodeError::Newer(_))));
}

#[test]
fn a_roll_mark_reads_back() {
    let mark = RollMark { end: Offset(9), digest: Digest(8), successor: SegmentId(7), successor_table: Digest(6) };
    assert_eq!(RollMark::decode(&mark.encode()), Ok(mark));
    assert!(RollMark::decode(&mark.encode()[..55]).is_err());
}

#[test]
fn a_footer_is_trusted_only_by_a_seal_with_its_end_and_digest() {
    let seal = Seal { end: Offset(90), epoch: Epoch(1), digest: Digest(77) };
    assert!(footer().agrees_with(&seal));
    assert!(!footer().agrees_with(&Seal { end: Offset(91), ..seal }));
    assert!(!footer().agrees_with(&Seal { digest: Digest(78), ..seal }));
}

proptest! {
    #[test]
    fn a_table_reads_back(producers in producers(), all_doubtful: bool) {
        let bytes = table(all_doubtful, &producers);
        let read = TableRef::decode(&bytes).unwrap();
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), producers.clone());
        prop_assert_eq!(read.is_all_doubtful(), all_doubtful);
        for producer in producers {
            prop_assert_eq!(read.find(producer.producer), Some(producer));
        }
    }

    #[test]
    fn a_footer_and_a_seal_read_back(holes in holes(), producers in producers(), entries in 0u64..9) {
        let index: Vec<_> = (1..=entries).map(|i| IndexEntry::new(Offset(i), i / 2, i * 100)).collect();
        let mut bytes = Vec::new();
        footer().encode(&mut bytes, &holes, &index, &table(false, &producers));
        let read = FooterRef::decode(&bytes).unwrap();
        prop_assert_eq!(read.footer, footer());
        prop_assert_eq!(read.holes.iter().collect::<Vec<_>>(), holes.clone());
        prop_assert_eq!(read.index, &index[..]);
        prop_assert_eq!(read.table.iter().collect::<Vec<_>>(), producers);

        let seal = Seal { end: Offset(1), epoch: Epoch(2), digest: Digest(3) };
        bytes.clear();
        seal.encode(&mut bytes, &holes);
        let read = SealRef::decode(&bytes).unwrap();
        prop_assert_eq!(read.seal, seal);
        prop_assert_eq!(read.holes.iter().collect::<Vec<_>>(), holes);
    }

    #[test]
    fn a_flipped_bit_in_a_header_is_seen(at in 0usize..SEGMENT_HEADER_BYTES, bit in 0u8..8) {
        let mut bytes = header().encode();
        bytes[at] ^= 1 << bit;
        prop_assert!(SegmentHeader::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_judged(mut bytes in prop::collection::vec(any::<u8>(), 0..400), first in 0u8..3) {
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        let _ = SegmentHeader::decode(&bytes);
        let _ = RollMark::decode(&bytes);
        let _ = TableRef::decode(&bytes).map(|t| t.iter().count());
        let _ = FooterRef::decode(&bytes).map(|f| f.holes.iter().count() + f.table.len());
        let _ = SealRef::decode(&bytes).map(|s| s.holes.iter().count());
    }
}
