#![allow(clippy::cast_possible_truncation, reason = "the tests count in small numbers")]

use super::*;
use crate::format::BatchRef;
use crate::segment::appender::Appender;
use crate::segment::pool::ChunkPool;
use crate::segment::samples::{batch, empty_table, header};
use crate::types::Epoch;

/// The file of segment 5 with `batches` batches of 10 records, its end position and the position of each batch.
fn file(batches: u64) -> (Vec<u8>, Vec<u64>) {
    let mut pool = ChunkPool::new(0);
    let mut appender = Appender::create(&mut pool, &header(5, 0));
    appender.append_table(&mut pool, &empty_table());
    let mut positions = Vec::new();
    for i in 0..batches {
        let bytes = batch(1, i, 10, 50);
        let batch = BatchRef::verify(&bytes, bytes.len()).unwrap();
        positions.push(appender.append_batch(&mut pool, Epoch(2), 0, batch).position);
    }
    let cut = appender.cut();
    let mut file = Vec::new();
    while let Some(chunk) = appender.next_unwritten(cut.position) {
        file.extend_from_slice(&chunk.buffer[..chunk.length]);
    }
    (file, positions)
}

fn read(file: &[u8], wanted: Wanted) -> (Scanned, usize) {
    let mut reader = SegmentReader::new(SegmentId(5), header(5, 0).random, Offset(0), None, wanted);
    let mut out = Vec::new();
    (reader.feed(0, file, usize::MAX, &mut out), out.len())
}

fn all(batches: u64, file: &[u8]) -> Wanted {
    Wanted { from: Offset(0), below: Offset(batches * 10), until: file.len() as u64 }
}

#[test]
fn a_flipped_bit_is_told_with_its_place_and_nothing_behind_it_is_given() {
    let (mut file, positions) = file(6);
    let entry = (positions[4] - positions[3]) as usize;
    for at in (0..entry).step_by(7) {
        file[positions[3] as usize + at] ^= 0x10;
        let (scanned, given) = read(&file, all(6, &file));
        match scanned {
            Scanned::Bad { position, offset, .. } => assert_eq!((position, offset), (positions[3], Offset(30)), "{at}"),
            // A length that cannot be had is asked for, and is not there.
            other @ (Scanned::Enough { .. } | Scanned::More { .. }) => panic!("{at}: {other:?}"),
        }
        assert_eq!(given as u64, positions[3] - positions[0]);
        file[positions[3] as usize + at] ^= 0x10;
    }
    assert_eq!(read(&file, all(6, &file)).0, Scanned::Enough { next: Offset(60) });
}

#[test]
fn records_that_should_be_there_and_are_not_are_bad_and_not_the_end() {
    let (file, _) = file(3);
    let wanted = Wanted { below: Offset(40), ..all(3, &file) };
    let (scanned, _) = read(&file, wanted);
    assert!(matches!(scanned, Scanned::Bad { offset: Offset(30), cause: BadEntry::Missing, .. }), "{scanned:?}");
}

#[test]
fn the_batches_of_another_segment_do_not_verify() {
    let (file, _) = file(3);
    let mut reader = SegmentReader::new(SegmentId(6), header(6, 0).random, Offset(0), None, all(3, &file));
    let scanned = reader.feed(0, &file, usize::MAX, &mut Vec::new());
    assert!(matches!(scanned, Scanned::Bad { position: 4096, .. }), "{scanned:?}");
}

#[test]
fn a_batch_that_was_left_out_is_noticed() {
    let (mut file, positions) = file(4);
    let (from, to) = (positions[1] as usize, positions[2] as usize);
    file.copy_within(to.., from);
    let (scanned, _) = read(&file, all(4, &file));
    let cause = BadEntry::Elsewhere { segment: SegmentId(5), found: Offset(20) };
    assert_eq!(scanned, Scanned::Bad { position: positions[1], offset: Offset(10), cause });
}

#[test]
fn nothing_at_or_behind_the_end_position_is_looked_at() {
    let (mut file, positions) = file(4);
    let until = positions[2];
    file[usize::try_from(until).unwrap()..].fill(0xff);
    let wanted = Wanted { from: Offset(0), below: Offset(20), until };
    assert_eq!(read(&file, wanted).0, Scanned::Enough { next: Offset(20) });
}
