#![allow(clippy::cast_possible_truncation, reason = "the tests count in small numbers")]

use proptest::prelude::*;

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
        // A pad between, as a checkpoint leaves one.
        if i % 4 == 3 {
            appender.cut();
        }
    }
    let cut = appender.cut();
    let mut file = Vec::new();
    while let Some(chunk) = appender.next_unwritten(cut.position) {
        file.extend_from_slice(&chunk.buffer[..chunk.length]);
    }
    (file, positions)
}

/// Searches from the batch `bad`, whose bytes are read as many as are asked for.
fn search(file: &[u8], positions: &[u64], bad: usize) -> Searched {
    let seed = SegmentSeed::new(SegmentId(5), header(5, 0).random);
    let mut search = Search::new(SegmentId(5), seed, positions[bad], Offset(bad as u64 * 10), file.len() as u64);
    let mut length = BLOCK;
    loop {
        let from = search.read_position() as usize;
        let to = (from + length).min(file.len());
        match search.feed(from as u64, &file[from..to], to == file.len()) {
            Searched::More { position, length: wanted } => {
                assert_eq!(position, search.read_position());
                assert!(wanted > 0 && wanted.is_multiple_of(BLOCK));
                length = wanted;
            }
            done @ (Searched::Intact | Searched::Found { .. } | Searched::End) => return done,
        }
    }
}

#[test]
fn what_verifies_after_all_is_intact() {
    let (file, positions) = file(9);
    assert_eq!(search(&file, &positions, 4), Searched::Intact);
}

#[test]
fn behind_the_last_batch_there_is_none() {
    let (mut file, positions) = file(9);
    file[positions[8] as usize + 20] ^= 4;
    assert_eq!(search(&file, &positions, 8), Searched::End);
}

#[test]
fn a_copy_of_an_older_batch_in_a_record_is_passed_over() {
    let (mut file, positions) = file(9);
    let older = file[positions[1] as usize..positions[2] as usize].to_vec();
    let at = positions[5] as usize;
    file[at..at + older.len()].copy_from_slice(&older);
    assert_eq!(search(&file, &positions, 5), Searched::Found { offset: Offset(60), position: positions[6] });
}

proptest! {
    #[test]
    fn the_first_intact_batch_behind_any_damage_is_found(
        bad in 0usize..11, batches in 1usize..4, at in 0.0..1.0f64, bit in 0u8..8, zeros: bool,
    ) {
        let (mut file, positions) = file(12);
        let end = (bad + batches).min(11);
        // Each of them is hit, the first one anywhere.
        for hit in bad..end {
            let from = positions[hit] as usize;
            let entry = positions[hit + 1] as usize - from;
            let to = from + (if hit == bad { at } else { 0.5 } * (entry.min(600) - 1) as f64) as usize;
            if zeros {
                file[from..=to].fill(0);
            } else {
                file[to] ^= 1 << bit;
            }
        }
        match search(&file, &positions, bad) {
            Searched::Found { offset, position } => {
                prop_assert_eq!((offset, position), (Offset(end as u64 * 10), positions[end]));
            }
            // What was hit is the pad behind the batch.
            Searched::Intact => prop_assert!(end == bad + 1),
            other @ (Searched::More { .. } | Searched::End) => prop_assert!(false, "{:?}", other),
        }
    }
}
