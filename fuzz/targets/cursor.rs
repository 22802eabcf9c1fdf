//! A cursor that somebody kept, or made up: what is taken for one is a partition of the keyspace, and has one form as bytes and as text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::format::checksum;
use sealog_fuzz::{bounded, fair};
use sealog_net::client::core::Cursor;
use sealog_net::client::core::cursor::is_partition;

/// Of a cursor's checksum, as docs/wire.md tells it.
const SEED: u32 = 0x5ea1_c0e5;

fuzz_target!(|bytes: &[u8]| {
    judge(bytes);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(cursor) = bounded(fair(bytes), || Cursor::parse(text))
    {
        assert_eq!(cursor.to_string(), text.trim());
    }
    let Some((body, _)) = bytes.split_last_chunk::<4>() else { return };
    let mut again = body.to_vec();
    again.extend_from_slice(&checksum(SEED, body).to_le_bytes());
    judge(&again);
});

fn judge(bytes: &[u8]) {
    let Ok(cursor) = bounded(fair(bytes), || Cursor::from_bytes(bytes)) else { return };
    assert_eq!(cursor.to_bytes(), bytes);
    assert_eq!(Cursor::parse(&cursor.to_string()).as_ref(), Ok(&cursor));
    assert!(is_partition(cursor.entries().iter().map(|entry| entry.span)));
}
