//! The front of a journal group, and its repetition: what is taken for one is written again, byte for byte the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::format::journal::{GroupLayout, JournalSeed, read_front, read_repetition, write_fronts};
use sealog_engine::types::{Generation, ShardId};
use sealog_fuzz::bounded;

const HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = 60;
/// Longer groups are not written again: the input is short, and only their header says that they are long.
const WRITTEN_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let seed = JournalSeed::new(Generation(0x8877_6655_4433_2211), ShardId(3));
    judge(bytes, seed);
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEADER_BYTES {
        return;
    }
    bytes[..4].copy_from_slice(b"SJG1");
    bytes[6..8].copy_from_slice(&3u16.to_le_bytes());
    bytes[8..16].copy_from_slice(&seed.generation().0.to_le_bytes());
    let claimed = u32::from_le_bytes(bytes[36..40].try_into().expect("4 bytes")) as usize;
    let front = if (HEADER_BYTES..=bytes.len()).contains(&claimed) { claimed } else { bytes.len() };
    bytes[36..40].copy_from_slice(&u32::try_from(front).expect("a small input").to_le_bytes());
    let sum = seed.body_checksum(None, &bytes[..CHECKSUM_AT]);
    let sum = seed.body_checksum(Some(sum), &bytes[HEADER_BYTES..front]);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    judge(&bytes, seed);
});

fn judge(bytes: &[u8], seed: JournalSeed) {
    let found = bounded(0, || (read_front(bytes, seed), read_repetition(bytes, seed)));
    for front in [found.0, found.1].into_iter().flatten() {
        let layout = GroupLayout::of(front.directory.len(), front.header.body_bytes as usize);
        assert_eq!(layout.length, front.header.length as usize);
        for line in front.directory {
            assert!(u64::from(line.body_offset()) + u64::from(line.bytes()) <= u64::from(front.header.body_bytes));
            assert!(line.end() >= line.first());
        }
        if layout.length > WRITTEN_MAX {
            continue;
        }
        let mut out = vec![0; layout.length];
        let digest = write_fronts(&mut out, seed, &front.header, front.directory);
        for again in [read_front(&out, seed), read_repetition(&out, seed)] {
            let again = again.expect("it was just written");
            assert_eq!((again.header, again.directory), (front.header, front.directory));
            assert_eq!(again.digest, digest);
        }
    }
}
