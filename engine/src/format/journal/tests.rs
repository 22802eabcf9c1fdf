use proptest::prelude::*;

use super::*;

fn seed() -> JournalSeed {
    JournalSeed::new(Generation(0xabcd), ShardId(2))
}

fn group(entries: usize, body: &[u8]) -> (Vec<u8>, u64) {
    let layout = GroupLayout::of(entries, body.len());
    let mut out = vec![0; layout.length];
    out[layout.body..][..body.len()].copy_from_slice(body);
    let header = GroupHeader {
        kind: GroupKind::Normal,
        sequence: 7,
        position: 4096,
        length: layout.length.try_into().unwrap(),
        body_bytes: body.len().try_into().unwrap(),
        entries: entries.try_into().unwrap(),
        previous: 11,
        body_checksum: seed().body_checksum(None, body),
    };
    let line = DirectoryEntry::new(JournalEntryKind::Batch, (RangeId(1), SegmentId(2)), (Offset(3), 4), 0);
    let digest = write_fronts(&mut out, seed(), &header, &vec![line; entries]);
    (out, digest)
}

proptest! {
    #[test]
    fn both_fronts_of_a_group_read_back(entries in 0usize..300, body in prop::collection::vec(any::<u8>(), 0..9000)) {
        let (out, digest) = group(entries, &body);
        prop_assert_eq!(out.len() % BLOCK, 0);
        for front in [read_front(&out, seed()).unwrap(), read_repetition(&out, seed()).unwrap()] {
            prop_assert_eq!(front.digest, digest);
            prop_assert_eq!(front.directory.len(), entries);
            prop_assert_eq!((front.header.sequence, front.header.position, front.header.previous), (7, 4096, 11));
            prop_assert_eq!(front.header.body_checksum, seed().body_checksum(None, &body));
        }
    }

    #[test]
    fn a_flipped_bit_in_a_front_is_seen(at: prop::sample::Index, bit in 0u8..8) {
        let (mut out, _) = group(3, b"body");
        let at = at.index(GROUP_HEADER_BYTES + 3 * DIRECTORY_ENTRY_BYTES);
        out[at] ^= 1 << bit;
        prop_assert!(read_front(&out, seed()).is_err());
        prop_assert!(read_repetition(&out, seed()).is_ok());
    }

    #[test]
    fn any_bytes_are_judged(mut bytes in prop::collection::vec(any::<u8>(), 64..300)) {
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = 1;
        bytes[6..8].copy_from_slice(&2u16.to_le_bytes());
        bytes[8..16].copy_from_slice(&0xabcdu64.to_le_bytes());
        prop_assert!(read_front(&bytes, seed()).is_err());
        let at = bytes.len() - TAIL_MARK_BYTES;
        bytes[at..at + 4].copy_from_slice(&TAIL_MAGIC.to_le_bytes());
        prop_assert!(read_repetition(&bytes, seed()).is_err());
    }
}

#[test]
fn a_group_of_another_generation_or_journal_does_not_verify() {
    let (out, _) = group(1, b"body");
    for other in [JournalSeed::new(Generation(0xabce), ShardId(2)), JournalSeed::new(Generation(0xabcd), ShardId(3))] {
        assert_eq!(read_front(&out, other).unwrap_err(), FrontError::Unverified);
        assert_eq!(read_repetition(&out, other).unwrap_err(), FrontError::Unverified);
    }
}

#[test]
fn a_newer_group_or_an_unknown_entry_is_never_taken_for_nothing() {
    let (mut out, _) = group(1, b"body");
    out[4] = 2;
    assert_eq!(read_front(&out, seed()).unwrap_err(), FrontError::Unverified);
    let sum = checksum(checksum(seed().seed, &out[..HEADER_COVERED]), &out[64..104]);
    out[HEADER_COVERED..64].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(read_front(&out, seed()), Err(FrontError::Newer(n)) if n.found == 2));
    let (mut out, _) = group(1, b"body");
    out[GROUP_HEADER_BYTES] = 99;
    let sum = checksum(checksum(seed().seed, &out[..HEADER_COVERED]), &out[64..104]);
    out[HEADER_COVERED..64].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(read_front(&out, seed()), Err(FrontError::Newer(n)) if n.found == 99));
}

#[test]
fn a_directory_that_points_outside_the_body_is_a_contradiction() {
    let (mut out, _) = group(1, b"body");
    out[GROUP_HEADER_BYTES + 32] = 200;
    let sum = checksum(checksum(seed().seed, &out[..HEADER_COVERED]), &out[64..104]);
    out[HEADER_COVERED..64].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(read_front(&out, seed()).unwrap_err(), FrontError::Contradiction);
}
