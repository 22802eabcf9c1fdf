//! A snapshot of the metadata, and a change in its log: what is read is written again, byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::format::checksum;
use sealog_engine::metadata::{Change, snapshot};
use sealog_fuzz::{bounded, fair, seal};

const HEADER_BYTES: usize = snapshot::SNAPSHOT_HEADER_BYTES;

fuzz_target!(|bytes: &[u8]| {
    judge(bytes);
    if let Ok(change) = bounded(fair(bytes), || Change::decode(bytes)) {
        let again = change.encode();
        assert_eq!(again, bytes);
        assert_eq!(Change::decode(&again), Ok(change));
    }
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let mut bytes = bytes.to_vec();
    let body = bytes.len() - HEADER_BYTES;
    bytes[..8].copy_from_slice(b"SEALMETA");
    bytes[8..12].copy_from_slice(&snapshot::SNAPSHOT_VERSION.to_le_bytes());
    let sum = checksum(0, &bytes[HEADER_BYTES..]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes[16..24].copy_from_slice(&(body as u64).to_le_bytes());
    seal(&mut bytes, 0..HEADER_BYTES - 4, HEADER_BYTES - 4);
    judge(&bytes);
});

fn judge(bytes: &[u8]) {
    let Ok(read) = bounded(fair(bytes), || snapshot::decode(bytes)) else { return };
    let again = snapshot::encode(&read.state, &read.log);
    assert_eq!(again[HEADER_BYTES..], bytes[HEADER_BYTES..again.len()]);
    assert_eq!(snapshot::decode(&again), Ok(read));
}
