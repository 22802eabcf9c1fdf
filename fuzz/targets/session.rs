//! A connection's bytes in pieces of any length: they are the same frames as in one piece, hold no more memory than came, and lead from
//! the hello to requests or to a bye.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::api::request::{Request, ShardRequest};
use sealog_engine::types::{ClusterId, NodeId, ShardId};
use sealog_fuzz::repair_frames;
use sealog_net::session::{self, Handshake, Inbound, NodeIdentity, SessionLimits};
use sealog_net::wire::frame::{Frame, HELLO_FRAME_BYTES_MAX};
use sealog_net::wire::{Bye, Decoded, ReceiveBuffer, decode};

const SHARDS: u16 = 3;
const RESTING: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let (step, repair) = (usize::from(step >> 1) + 1, step & 1 == 0);
    let mut bytes = bytes.to_vec();
    if repair {
        repair_frames(&mut bytes);
    }
    let (mut whole, mut rest) = (Vec::new(), &bytes[..]);
    let ended = loop {
        match decode(rest, HELLO_FRAME_BYTES_MAX) {
            Ok(Decoded::Frame { frame, length }) => {
                whole.push(owned(&frame));
                rest = &rest[length..];
            }
            Ok(Decoded::Partial { needed }) => {
                assert!(needed > rest.len() && needed <= HELLO_FRAME_BYTES_MAX as usize);
                break None;
            }
            Err(error) => break Some(error),
        }
    };
    let (mut pieces, mut buffer) = (Vec::new(), ReceiveBuffer::new(RESTING, HELLO_FRAME_BYTES_MAX));
    let (mut left, mut failed) = (&bytes[..], None);
    while failed.is_none() && !left.is_empty() {
        let space = buffer.space();
        let length = step.min(space.len()).min(left.len());
        space[..length].copy_from_slice(&left[..length]);
        buffer.filled(length);
        left = &left[length..];
        loop {
            match buffer.next_frame() {
                Ok(Some(frame)) => pieces.push(owned(&frame)),
                Ok(None) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        assert!(buffer.memory() <= 4 * (RESTING + bytes.len()), "{} bytes held", buffer.memory());
    }
    assert_eq!((&pieces, failed), (&whole, ended));
    converse(&bytes);
});

type Owned = (u16, u64, u32, Vec<u8>, Vec<u8>);

fn owned(frame: &Frame<'_>) -> Owned {
    (frame.kind, frame.correlation, frame.deadline_ms, frame.struct_part.to_vec(), frame.bytes.to_vec())
}

/// The first frame is judged as a hello, those behind as requests.
fn converse(mut bytes: &[u8]) {
    let limits = SessionLimits { batch_bytes_max: 1 << 16, fetch_bytes_max: 1 << 12, connection_bytes_max: 1 << 20 };
    let identity = NodeIdentity { cluster: ClusterId(7), node: NodeId(1), shards: SHARDS };
    let handshake = Handshake { identity, limits };
    let mut greeted = false;
    while let Ok(Decoded::Frame { frame, length }) = decode(bytes, HELLO_FRAME_BYTES_MAX) {
        bytes = &bytes[length..];
        if !greeted {
            match handshake.judge(&frame) {
                Ok(taken) => {
                    assert_eq!(taken.correlation, frame.correlation);
                    assert!(taken.shard.is_none_or(|shard: ShardId| shard.0 < SHARDS));
                    greeted = true;
                }
                Err(bye) => {
                    let mut out = Vec::new();
                    bye.append(&mut out);
                    let Ok(Decoded::Frame { frame, .. }) = decode(&out, u32::MAX) else { panic!("a bye is a frame") };
                    assert_eq!(Bye::read(&frame), Ok(bye));
                    return;
                }
            }
        } else if let Ok(Inbound::Request(Request::Shard(ShardRequest::Fetch { bytes_max, .. }))) =
            session::read(&frame, &limits)
        {
            assert!(bytes_max <= limits.fetch_bytes_max);
        }
    }
}
