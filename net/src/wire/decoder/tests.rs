use proptest::prelude::*;

use super::*;
use crate::wire::frame::{self, Head};
use crate::wire::kind::Kind;

const LIMIT: u32 = 64 * 1024;

fn frame_of(correlation: u64, structure: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    frame::append(&mut out, Head::request(Kind::Produce, correlation, 250), structure, &[bytes]);
    out
}

/// A header that verifies, whatever it says.
fn header(change: impl FnOnce(&mut FrameHeader)) -> Vec<u8> {
    let mut header = FrameHeader::read_from_bytes(&frame_of(1, &[], &[])).unwrap();
    change(&mut header);
    header.header_checksum = checksum(0, &header.as_bytes()[..28]).into();
    header.as_bytes().to_vec()
}

#[test]
fn a_length_over_the_limit_is_refused_from_the_header_alone() {
    for length in [u32::MAX, 0x7fff_ffff, LIMIT + 1] {
        let bytes = header(|h| h.length = length.into());
        assert_eq!(decode(&bytes, LIMIT), Err(DecodeError::TooLong { length, limit: LIMIT }));
    }
    let bytes = header(|h| h.length = LIMIT.into());
    assert_eq!(decode(&bytes, LIMIT), Ok(Decoded::Partial { needed: LIMIT as usize }));
}

#[test]
fn a_refused_length_costs_no_memory_and_a_claimed_one_only_what_came() {
    for length in [u32::MAX, 0x7fff_ffff] {
        let mut buffer = ReceiveBuffer::new(4096, 32 << 20);
        let bytes = header(|h| h.length = length.into());
        buffer.space()[..32].copy_from_slice(&bytes);
        buffer.filled(32);
        assert!(buffer.next_frame().is_err());
        assert_eq!(buffer.memory(), 4096);
    }
    let mut buffer = ReceiveBuffer::new(4096, 32 << 20);
    buffer.space()[..32].copy_from_slice(&header(|h| h.length = (32 << 20).into()));
    buffer.filled(32);
    assert_eq!(buffer.next_frame(), Ok(None));
    assert_eq!(buffer.space().len(), 4096 - 32);
    assert_eq!(buffer.memory(), 4096);
}

#[test]
fn a_length_below_header_and_struct_part_is_refused() {
    for (length, struct_length) in [(0, 0), (31, 0), (32, 1), (40, 9)] {
        let bytes = header(|h| {
            h.length = length.into();
            h.struct_length = struct_length.into();
        });
        assert_eq!(decode(&bytes, LIMIT), Err(DecodeError::TooShort { length, struct_length }));
    }
}

#[test]
fn another_version_flags_and_reserved_bits_are_refused() {
    assert_eq!(decode(&header(|h| h.version = 2), LIMIT), Err(DecodeError::Version { found: 2 }));
    assert_eq!(decode(&header(|h| h.flags = 1), LIMIT), Err(DecodeError::Reserved));
    assert_eq!(decode(&header(|h| h.reserved = 1.into()), LIMIT), Err(DecodeError::Reserved));
}

#[test]
fn every_flipped_bit_of_header_and_struct_part_is_seen() {
    let good = frame_of(77, &[1, 2, 3, 4, 5, 6, 7, 8], b"batch");
    for bit in 0..(32 + 8) * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let seen = match decode(&bad, LIMIT) {
            Err(_) => true,
            Ok(Decoded::Frame { .. } | Decoded::Partial { .. }) => false,
        };
        assert!(seen, "bit {bit}");
    }
}

#[test]
fn a_long_frame_grows_the_buffer_and_short_ones_shrink_it_again() {
    let body = vec![7; 20_000];
    let mut wire = frame_of(1, &[], &body);
    wire.extend(frame_of(2, &[], b"short"));
    let mut buffer = ReceiveBuffer::new(4096, LIMIT);
    let (mut rest, mut seen) = (&wire[..], vec![]);
    while !rest.is_empty() {
        let space = buffer.space();
        let part = space.len().min(rest.len());
        space[..part].copy_from_slice(&rest[..part]);
        buffer.filled(part);
        rest = &rest[part..];
        while let Some(frame) = buffer.next_frame().unwrap() {
            seen.push((frame.correlation, frame.bytes.len()));
        }
    }
    assert_eq!(seen, [(1, 20_000), (2, 5)]);
    for _ in 0..SMALL_READS {
        buffer.space();
    }
    assert_eq!(buffer.memory(), 4096);
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut(
        bodies in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..900)), 1..20),
        cuts in prop::collection::vec(1usize..700, 1..50),
        resting in 32usize..2000,
    ) {
        let wire: Vec<u8> = bodies.iter().zip(0..).flat_map(|((s, b), i)| frame_of(i, s, b)).collect();
        let mut buffer = ReceiveBuffer::new(resting, LIMIT);
        let (mut rest, mut seen, mut cuts) = (&wire[..], vec![], cuts.iter().cycle());
        while !rest.is_empty() {
            let space = buffer.space();
            let part = space.len().min(rest.len()).min(*cuts.next().unwrap());
            space[..part].copy_from_slice(&rest[..part]);
            buffer.filled(part);
            rest = &rest[part..];
            while let Some(frame) = buffer.next_frame().unwrap() {
                prop_assert_eq!(frame.correlation, seen.len() as u64);
                seen.push((frame.struct_part.to_vec(), frame.bytes.to_vec()));
            }
        }
        prop_assert_eq!(seen, bodies);
        prop_assert!(buffer.rest().is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), limit: u32) {
        let _ = decode(&bytes, limit);
    }
}
