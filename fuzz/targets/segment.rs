//! What lies in segments, and the superblock: what is read is written again and must be read as the same. The input's first byte says
//! which structure the rest is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::format::batch::{Place, entry_length, place};
use sealog_engine::format::entry::{entry_bytes, read_entry, write_entry};
use sealog_engine::format::segment::table::encode_table;
use sealog_engine::format::segment::{
    FooterRef, Hole, RollMark, SEGMENT_HEADER_BYTES, SealRef, SegmentHeader, TableRef,
};
use sealog_engine::format::superblock::{Found, choose};
use sealog_engine::format::{BatchBuilder, BatchRef, Digest, Entries, EntryKind, PlacedBatch, SegmentSeed};
use sealog_engine::types::limits::BLOCK;
use sealog_engine::types::{Epoch, KeySpan, Offset, SegmentId};
use sealog_fuzz::{bounded, fair, seal};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 8 {
        0 => footer(bytes),
        1 => seal_of(bytes),
        2 => roll_mark(bytes),
        3 => drop(table(bytes)),
        4 => header(bytes),
        5 => superblock(bytes),
        6 => batch(bytes),
        _ => entries(bytes),
    }
});

fn footer(bytes: &[u8]) {
    let Ok(read) = bounded(fair(bytes), || FooterRef::decode(bytes)) else { return };
    let holes: Vec<Hole> = read.holes.iter().collect();
    judge_holes(&holes);
    assert!(read.footer.base <= read.footer.end);
    let mut again = Vec::new();
    read.footer.encode(&mut again, &holes, read.index, &encoded(read.table));
    let second = FooterRef::decode(&again).expect("it was just written");
    assert_eq!((second.footer, second.index), (read.footer, read.index));
    assert_eq!(second.holes.iter().collect::<Vec<_>>(), holes);
    assert!(second.table.iter().eq(read.table.iter()));
}

/// Ascending, none empty, none overlapping: who steps over one gets on, and does not come back.
fn judge_holes(holes: &[Hole]) {
    assert!(holes.iter().all(|hole| hole.from < hole.to));
    assert!(holes.windows(2).all(|pair| pair[0].to <= pair[1].from));
}

fn encoded(table: TableRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_table(&mut out, table.is_all_doubtful(), table.iter());
    out
}

fn seal_of(bytes: &[u8]) {
    let Ok(read) = bounded(fair(bytes), || SealRef::decode(bytes)) else { return };
    let holes: Vec<Hole> = read.holes.iter().collect();
    judge_holes(&holes);
    let mut again = Vec::new();
    read.seal.encode(&mut again, &holes);
    let second = SealRef::decode(&again).expect("it was just written");
    assert_eq!((second.seal, second.holes.iter().collect::<Vec<_>>()), (read.seal, holes));
}

fn roll_mark(bytes: &[u8]) {
    let Ok(mark) = bounded(0, || RollMark::decode(bytes)) else { return };
    assert_eq!(RollMark::decode(&mark.encode()), Ok(mark));
}

fn table(bytes: &[u8]) {
    let Ok(read) = bounded(0, || TableRef::decode(bytes)) else { return };
    for entry in read.iter() {
        assert_eq!(read.find(entry.producer), Some(entry));
    }
    let again = encoded(read);
    let second = TableRef::decode(&again).expect("it was just written");
    assert!(second.iter().eq(read.iter()) && second.is_all_doubtful() == read.is_all_doubtful());
}

fn header(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some(front) = bytes.get_mut(..SEGMENT_HEADER_BYTES) {
        front[..8].copy_from_slice(b"SEALSEGM");
        seal(front, 0..SEGMENT_HEADER_BYTES - 4, SEGMENT_HEADER_BYTES - 4);
    }
    let Ok(read) = bounded(0, || SegmentHeader::decode(&bytes)) else { return };
    assert_eq!(SegmentHeader::decode(&read.encode()), Ok(read));
}

fn superblock(bytes: &[u8]) {
    let judge = |bytes: &[u8]| {
        let found = bounded(0, || Found::decode(bytes));
        if let Found::Present(read) = found {
            let mut again = vec![0; BLOCK];
            read.encode(&mut again);
            assert_eq!(Found::decode(&again), found);
        }
        assert_eq!(choose(found, found), found);
    };
    judge(bytes);
    let mut block = bytes.to_vec();
    block.resize(BLOCK, 0);
    block[..8].copy_from_slice(b"SEALOGSB");
    seal(&mut block, 0..BLOCK - 4, BLOCK - 4);
    judge(&block);
}

fn batch(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 8 {
        let length = u32::try_from(bytes.len()).expect("a small input");
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        let all = bytes.len();
        seal(&mut bytes, 4..all, 0);
    }
    let Ok(read) = bounded(0, || BatchRef::verify(&bytes, 1 << 20)) else { return };
    if bounded(0, || read.walk(KeySpan::ALL)).is_err() {
        return;
    }
    // A batch that passes gives all its records to a reader.
    let records: Vec<_> = read.records().map(|record| record.expect("it was walked")).collect();
    assert_eq!(records.len(), read.record_count() as usize);
    let mut builder = BatchBuilder::new(1 << 21);
    for record in &records {
        let headers: Vec<_> = record.headers.collect();
        builder.push(record.key, record.value, &headers, record.timestamp_ms).expect("it was in a smaller one");
    }
    let again = builder.finish(read.stamp());
    let second = BatchRef::verify(again, 1 << 21).expect("it was just written");
    assert_eq!(second.walk(KeySpan::ALL), Ok(()));
    assert_eq!(second.stamp(), read.stamp());
    assert!(second.records().map(|record| record.expect("walked")).eq(records));
    placed(second);
}

/// A batch in its place says where that is, to the segment and to a reader.
fn placed(batch: BatchRef<'_>) {
    let seed = SegmentSeed::new(SegmentId(7), 0x1234);
    let at = Place { segment: SegmentId(7), offset: Offset(100), epoch: Epoch(2), append_time_ms: 3 };
    let mut out = vec![0; entry_length(batch.bytes().len())];
    let digest = place(&mut out, seed, at, Digest::default(), batch);
    let read = PlacedBatch::verify(&out, seed).expect("it was just written");
    assert_eq!((read.place(), read.digest(), read.batch().bytes()), (at, digest, batch.bytes()));
    assert_eq!(PlacedBatch::verify_as_reader(&out, 1 << 21).expect("whole").end(), read.end());
}

/// Arbitrary bytes behind whole entries: the walk gives those, and ends.
fn entries(bytes: &[u8]) {
    let seed = SegmentSeed::new(SegmentId(7), 0x1234);
    let Some((&payload, rest)) = bytes.split_first() else { return };
    let payload = vec![payload; usize::from(payload)];
    let mut out = vec![0; entry_bytes(payload.len())];
    write_entry(&mut out, EntryKind::Table, seed, &payload);
    let first = out.len();
    out.extend_from_slice(rest);
    let mut walk = Entries::new(&out, seed);
    let entry = walk.next().expect("one was written").expect("whole");
    assert_eq!((entry.kind, entry.payload), (EntryKind::Table, &payload[..]));
    let mut at = first;
    for entry in &mut walk {
        let Ok(entry) = entry else { break };
        assert_eq!(entry.at, at);
        at += entry.bytes.len();
    }
    assert_eq!(walk.position(), at);
    _ = bounded(0, || read_entry(rest, seed));
    _ = bounded(fair(rest), || PlacedBatch::verify(rest, seed).map(|placed| placed.end()));
    // A reader has no seed: only the producer's checksum stands between it and nonsense.
    _ = bounded(fair(rest), || PlacedBatch::verify_as_reader(rest, 1 << 20).map(|placed| placed.end()));
}
