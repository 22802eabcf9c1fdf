//! The formats byte for byte: each structure with known contents against a file in `tests/golden`, and the file read back. Files are
//! added, never edited: a difference is a new version of the format or an error. `SEALOG_GOLDEN=write` writes those that are missing.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::batch::{BatchBuilder, BatchRef, Place, PlacedBatch, Stamp, entry_length, place};
use super::checksum::Digest;
use super::entry::{EntryKind, SegmentSeed, entry_bytes, read_entry, write_entry};
use super::index::IndexEntry;
use super::journal::{
    DirectoryEntry, GroupHeader, GroupKind, GroupLayout, JournalEntryKind, JournalSeed, read_front, read_repetition,
    write_fronts,
};
use super::record::RecordKey;
use super::segment::table::encode_table;
use super::segment::{
    Footer, FooterRef, Hole, HoleCause, ProducerEntry, RollMark, Seal, SealRef, SegmentHeader, TableRef,
};
use super::superblock::{Features, Found, Phase, Superblock};
use crate::types::limits::BLOCK;
use crate::types::{
    ClusterId, DiskId, Epoch, Generation, KeyHash, KeySpan, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId,
    RangeId, Run, SegmentId, Sequence, ShardId, TopicId,
};

/// Compares with the file; gives its bytes.
pub(crate) fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("hex");
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    if !path.exists() && std::env::var_os("SEALOG_GOLDEN").is_some_and(|v| v == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(kept, text, "{name} is not what it was");
    let digits: Vec<u8> = kept.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn seed() -> SegmentSeed {
    SegmentSeed::new(SegmentId(0x2a), 0x1122_3344_5566_7788)
}

fn stamp() -> Stamp {
    Stamp { producer: ProducerId(0x77), epoch: ProducerEpoch(3), run: Run(2), sequence: Sequence(9), last: true }
}

/// One record of each kind: key and value, no key, no value, headers, an earlier timestamp than the first's.
fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(1 << 20);
    builder.push(RecordKey::Key(b"key-1"), Some(b"value"), &[], 1_700_000_000_500).unwrap();
    builder.push(RecordKey::Keyless(KeyHash(0x0123_4567_89ab_cdef)), Some(b""), &[], 1_700_000_000_000).unwrap();
    builder.push(RecordKey::Key(b""), None, &[(b"name", b"v"), (b"", b"")], 1_700_000_001_000).unwrap();
    builder.finish(stamp()).to_vec()
}

fn placement() -> Place {
    Place { segment: SegmentId(0x2a), offset: Offset(1000), epoch: Epoch(5), append_time_ms: 1_700_000_002_000 }
}

fn placed() -> Vec<u8> {
    let batch = batch();
    let batch = BatchRef::verify(&batch, 1 << 20).unwrap();
    let mut out = vec![0; entry_length(batch.bytes().len())];
    place(&mut out, seed(), placement(), Digest::start(SegmentId(0x2a), Offset(1000), &table()), batch);
    out
}

fn producers() -> [ProducerEntry; 2] {
    let first = ProducerEntry {
        producer: ProducerId(7),
        epoch: ProducerEpoch(1),
        run: Run(2),
        last: Some(Sequence(30)),
        end: Offset(990),
        seen_ms: 60_000,
        doubtful: true,
        doubt_from: Sequence(11),
        doubt_to: Sequence(12),
        finished: true,
    };
    let second = ProducerEntry {
        producer: ProducerId(8),
        run: Run(0),
        last: None,
        end: Offset(0),
        doubtful: false,
        doubt_from: Sequence(0),
        doubt_to: Sequence(0),
        finished: false,
        ..first
    };
    [first, second]
}

fn table() -> Vec<u8> {
    let mut out = vec![];
    encode_table(&mut out, true, producers().into_iter());
    out
}

fn holes() -> [Hole; 3] {
    let hole = |from, cause| Hole { from: Offset(from), to: Offset(from + 5), records_at_most: 4, cause };
    [hole(1010, HoleCause::Interrupted), hole(1020, HoleCause::Unreadable), hole(1030, HoleCause::Forced)]
}

#[test]
fn a_batch_keeps_its_bytes() {
    let bytes = golden("batch-v1", &batch());
    let batch = BatchRef::verify(&bytes, 1 << 20).unwrap();
    assert_eq!(batch.walk(KeySpan::ALL), Ok(()));
    assert_eq!((batch.stamp(), batch.record_count()), (stamp(), 3));
    let records: Vec<_> = batch.records().map(Result::unwrap).collect();
    assert_eq!(records[0].key, RecordKey::Key(b"key-1"));
    assert_eq!(records[1].key, RecordKey::Keyless(KeyHash(0x0123_4567_89ab_cdef)));
    assert_eq!(records.iter().map(|r| r.value).collect::<Vec<_>>(), [Some(&b"value"[..]), Some(b""), None]);
    assert_eq!(records[2].headers.collect::<Vec<_>>(), [(&b"name"[..], &b"v"[..]), (b"", b"")]);
    let timestamps = [1_700_000_000_500, 1_700_000_000_000, 1_700_000_001_000];
    assert_eq!(records.iter().map(|r| r.timestamp_ms).collect::<Vec<_>>(), timestamps);
}

#[test]
fn a_placed_batch_keeps_its_bytes() {
    let bytes = golden("placed-batch-v1", &placed());
    let read = PlacedBatch::verify(&bytes, seed()).unwrap();
    assert_eq!((read.place(), read.end()), (placement(), Offset(1003)));
    assert!(read.continues(Digest::start(SegmentId(0x2a), Offset(1000), &table())));
}

#[test]
fn digests_keep_their_values() {
    let start = Digest::start(SegmentId(0x2a), Offset(1000), b"table");
    let next = start.chain(placement(), 0xdead_beef, b"body");
    let bytes = [start, next, next.hole(Offset(1001), Offset(1005))].map(Digest::to_bytes).concat();
    golden("digests-v1", &bytes);
}

#[test]
fn a_segment_header_keeps_its_bytes() {
    let header = SegmentHeader {
        topic: TopicId(1),
        range: RangeId(2),
        segment: SegmentId(0x2a),
        span: KeySpan::new(KeyHash(0xc000_0000_0000_0000), 2).unwrap(),
        base: Some(Offset(1000)),
        table: Some(Digest::of(b"table")),
        epoch: Epoch(5),
        random: 0x1122_3344_5566_7788,
        predecessors: [Some(SegmentId(0x28)), Some(SegmentId(0x29))],
        max_batch: 1 << 20,
        replicas: 3,
        acknowledgements: 2,
        retention_clock: 60_000,
        primary: NodeId(4),
        life: ProcessLife(6),
        extent: 1,
        extent_first: Offset(1100),
    };
    assert_eq!(SegmentHeader::decode(&golden("segment-header-v1", &header.encode())), Ok(header));
    let prepared = SegmentHeader { base: None, table: None, predecessors: [None; 2], extent: 0, ..header };
    let bytes = golden("segment-header-prepared-v1", &prepared.encode());
    assert_eq!(SegmentHeader::decode(&bytes), Ok(prepared));
}

#[test]
fn a_table_its_entry_and_a_pad_keep_their_bytes() {
    let mut entry = vec![0; entry_bytes(table().len())];
    write_entry(&mut entry, EntryKind::Table, seed(), &table());
    let at = entry.len();
    entry.resize(at + 24, 0);
    super::entry::write_pad(&mut entry[at..], seed());
    let bytes = golden("table-entry-and-pad-v1", &entry);
    let read = read_entry(&bytes, seed()).unwrap();
    let table = TableRef::decode(read.payload).unwrap();
    assert!(table.is_all_doubtful());
    assert_eq!(table.iter().collect::<Vec<_>>(), producers());
    assert_eq!(read_entry(&bytes[at..], seed()).unwrap().kind, EntryKind::Pad);
}

#[test]
fn a_roll_mark_keeps_its_bytes() {
    let mark = RollMark {
        end: Offset(2000),
        digest: Digest::of(b"end"),
        successor: SegmentId(0x2b),
        successor_table: Digest::of(b"table"),
    };
    assert_eq!(RollMark::decode(&golden("roll-mark-v1", &mark.encode())), Ok(mark));
}

#[test]
fn a_committed_seal_keeps_its_bytes() {
    let seal = Seal { end: Offset(2000), epoch: Epoch(6), digest: Digest::of(b"end") };
    let mut bytes = vec![];
    seal.encode(&mut bytes, &holes());
    let bytes = golden("seal-v1", &bytes);
    let read = SealRef::decode(&bytes).unwrap();
    assert_eq!((read.seal, read.holes.iter().collect::<Vec<_>>()), (seal, holes().to_vec()));
}

#[test]
fn a_footer_keeps_its_bytes() {
    let footer = Footer {
        segment: SegmentId(0x2a),
        base: Offset(1000),
        end: Offset(2000),
        records: 985,
        batches: 40,
        digest: Digest::of(b"end"),
        timestamp_ms_min: 1_700_000_000_000,
        timestamp_ms_max: 1_700_000_009_000,
    };
    let index = [IndexEntry::new(Offset(1000), 0, 200), IndexEntry::new(Offset(1500), 1_700_000_001_000, 70_000)];
    let mut bytes = vec![];
    footer.encode(&mut bytes, &holes(), &index, &table());
    let bytes = golden("footer-v1", &bytes);
    let read = FooterRef::decode(&bytes).unwrap();
    assert_eq!((read.footer, read.index), (footer, &index[..]));
    assert_eq!(read.holes.iter().collect::<Vec<_>>(), holes());
    assert_eq!(read.table.iter().collect::<Vec<_>>(), producers());
}

#[test]
fn a_journal_group_keeps_its_bytes() {
    let seed = JournalSeed::new(Generation(0x8877_6655_4433_2211), ShardId(3));
    let body = placed();
    let bytes = u32::try_from(body.len()).unwrap();
    let directory = [
        DirectoryEntry::new(JournalEntryKind::Batch, (RangeId(2), SegmentId(0x2a)), (Offset(1000), 3), bytes).at(0),
        DirectoryEntry::promise(RangeId(9), SegmentId(0x30), Epoch(12)).at(bytes),
    ];
    let layout = GroupLayout::of(directory.len(), body.len());
    let header = GroupHeader {
        kind: GroupKind::Normal,
        sequence: 17,
        position: 0x5000,
        length: u32::try_from(layout.length).unwrap(),
        body_bytes: bytes,
        entries: 2,
        previous: 0x0102_0304_0506_0708,
        body_checksum: seed.body_checksum(None, &body),
    };
    let mut out = vec![0; layout.length];
    out[layout.body..][..body.len()].copy_from_slice(&body);
    let digest = write_fronts(&mut out, seed, &header, &directory);
    assert_eq!(digest, 0x12ae_c643_beee_10d9);
    let bytes = golden("journal-group-v1", &out);
    for front in [read_front(&bytes, seed).unwrap(), read_repetition(&bytes, seed).unwrap()] {
        assert_eq!((front.header, front.directory, front.digest), (header, &directory[..], digest));
    }
}

#[test]
fn a_superblock_keeps_its_bytes() {
    let superblock = Superblock {
        cluster: ClusterId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        disk: DiskId(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20),
        node: NodeId(4),
        generation: Generation(0x8877_6655_4433_2211),
        phase: Phase::Running,
        shards: 2,
        start_counter: ProcessLife(6),
        sequence: 13,
        features: Features { may_ignore: 1, ..Features::KNOWN },
    };
    let mut bytes = vec![0; BLOCK];
    superblock.encode(&mut bytes);
    assert_eq!(Found::decode(&golden("superblock-v1", &bytes)), Found::Present(superblock));
}
