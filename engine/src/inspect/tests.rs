#![allow(clippy::cast_possible_truncation, reason = "the tests count in small numbers")]

use super::directory::{Directory, Segment, Source};
use super::finding::{Fault, Finding, OffsetSpan};
use super::walk::walk;
use crate::api::port::{DataFile, Fill, Store};
use crate::format::BatchRef;
use crate::format::segment::footer::Footer;
use crate::format::segment::{Hole, HoleCause, Seal};
use crate::format::superblock::{Features, Phase, Superblock};
use crate::segment::catalog::{Catalog, ChainId, Contents, Extent, SegmentRecord, SegmentState};
use crate::segment::samples::{batch, empty_table, header};
use crate::segment::test_store::TestStore;
use crate::segment::{Appender, ChunkPool, Placed};
use crate::types::limits::{BATCH_BYTES_CEILING, BLOCK};
use crate::types::{
    AlignedBuffer, ClusterId, DiskId, Epoch, Generation, NodeId, Offset, ProcessLife, SegmentId, ShardId,
};

const SEGMENT: SegmentId = SegmentId(9);
const FILE: DataFile = DataFile::Segment { segment: SEGMENT, part: 0 };
const CATALOG: DataFile = DataFile::CatalogSnapshot { shard: ShardId(0), sequence: 1 };

fn put(store: &mut TestStore, file: DataFile, bytes: &AlignedBuffer) {
    store.create(file, bytes.len() as u64, Fill::Allocated).unwrap();
    store.write(file, 0, bytes).unwrap();
    store.sync(file).unwrap();
}

/// A directory with one sealed segment of three batches of two records, from offset 100; and where its batches lie.
fn directory(holes: Vec<Hole>) -> (TestStore, Vec<Placed>) {
    let mut store = TestStore::default();
    let mut pool = ChunkPool::new(1 << 20);
    let header = header(SEGMENT.0, 100);
    let mut appender = Appender::create(&mut pool, &header);
    appender.append_table(&mut pool, &empty_table());
    let batches: Vec<Placed> = (0..3)
        .map(|sequence| {
            let bytes = batch(1, sequence, 2, 700);
            let batch = BatchRef::verify(&bytes, BATCH_BYTES_CEILING).unwrap();
            appender.append_batch(&mut pool, Epoch(2), 5, batch)
        })
        .collect();
    let seal = Seal { end: appender.end(), epoch: Epoch(3), digest: appender.digest() };
    let tally = *appender.tally();
    let footer = Footer {
        segment: SEGMENT,
        base: Offset(100),
        end: seal.end,
        records: tally.records,
        batches: tally.batches,
        digest: seal.digest,
        timestamp_ms_min: tally.timestamp_ms_min,
        timestamp_ms_max: tally.timestamp_ms_max,
    };
    let mut payload = Vec::new();
    footer.encode(&mut payload, &holes, appender.index().entries(), &empty_table());
    let footer = appender.append_footer(&mut pool, &payload);
    let cut = appender.cut();
    let mut bytes = AlignedBuffer::zeroed(cut.position as usize);
    while let Some(chunk) = appender.next_unwritten(cut.position) {
        bytes[chunk.position as usize..][..chunk.length].copy_from_slice(&chunk.buffer[..chunk.length]);
    }
    put(&mut store, FILE, &bytes);
    let mut catalog = Catalog::new(ChainId { shard: ShardId(0), shards: 1, generation: Generation(5) }, 1);
    catalog.put_segment(SegmentRecord {
        header,
        extents: vec![Extent { part: 0, start: 0, length: cut.position }],
        checkpoint: cut,
        state: SegmentState::Sealed { seal, holes, contents: Contents::Footer(footer) },
    });
    let snapshot = catalog.snapshot();
    assert_eq!(snapshot.file, CATALOG);
    put(&mut store, CATALOG, &snapshot.buffer);
    let superblock = Superblock {
        cluster: ClusterId(1),
        disk: DiskId(2),
        node: NodeId(1),
        generation: Generation(5),
        phase: Phase::Starting,
        shards: 1,
        start_counter: ProcessLife(1),
        sequence: 1,
        features: Features::KNOWN,
    };
    let mut block = AlignedBuffer::zeroed(BLOCK);
    superblock.encode(&mut block);
    for copy in 0..2 {
        put(&mut store, DataFile::Superblock { copy }, &block);
    }
    (store, batches)
}

fn segment(store: &mut TestStore) -> Segment {
    Directory::read(store).unwrap().segment(SEGMENT).unwrap().clone()
}

/// The findings of the walk, and the offsets of the batches that it showed.
fn walked(store: &mut TestStore) -> (Vec<Finding>, Vec<u64>) {
    let segment = segment(store);
    let mut shown = Vec::new();
    let findings = walk(store, &segment, &mut |_, batch| shown.push(batch.place().offset.0)).unwrap();
    (findings, shown)
}

#[test]
fn a_whole_segment_gives_its_batches_and_no_finding() {
    let (mut store, _) = directory(Vec::new());
    let before = store.image();
    let (findings, shown) = walked(&mut store);
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(shown, [100, 102, 104]);
    assert!(store.image() == before, "nothing was changed");
}

#[test]
fn every_flipped_byte_of_a_segment_file_is_found_where_it_lies_with_its_batch_and_offsets() {
    let (store, batches) = directory(Vec::new());
    let length = store.image()[&FILE].len();
    for at in 0..length {
        let mut store = store.clone();
        store.rot(FILE, at, |bytes| bytes[0] ^= 0x10);
        let (findings, shown) = walked(&mut store);
        assert!(!findings.is_empty(), "byte {at} is not found");
        let finding = &findings[0];
        assert!(finding.file == Some(FILE) && finding.position <= at as u64, "byte {at}: {finding:?}");
        let nth = batches
            .iter()
            .position(|placed| (placed.position as usize..).take(placed.length as usize).any(|p| p == at));
        if let Some(nth) = nth {
            let from = 100 + 2 * nth as u64;
            let span = OffsetSpan { from: Offset(from), to: Offset(from + 2) };
            assert_eq!((finding.position, finding.batch), (batches[nth].position, Some(nth as u64)), "byte {at}");
            assert_eq!(finding.offsets, Some(span), "byte {at}: {finding:?}");
            assert_eq!(shown.len(), 2, "byte {at}: the others are shown");
            assert_eq!(findings.len(), 1, "byte {at}: {findings:?}");
        } else {
            assert_eq!(finding.offsets, None, "byte {at}: {finding:?}");
            assert_eq!(shown, [100, 102, 104], "byte {at}");
        }
    }
}

#[test]
fn a_committed_hole_is_no_finding() {
    let hole = Hole { from: Offset(102), to: Offset(104), records_at_most: 2, cause: HoleCause::Unreadable };
    let (mut store, batches) = directory(vec![hole]);
    store.rot(FILE, batches[1].position as usize, |bytes| bytes[..200].fill(0));
    let (findings, shown) = walked(&mut store);
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(shown, [100, 104]);
}

#[test]
fn zeros_over_several_batches_cost_exactly_those() {
    let (mut store, batches) = directory(Vec::new());
    let (from, to) = (batches[0].position as usize, batches[2].position as usize);
    store.rot(FILE, from, |bytes| bytes[..to - from].fill(0));
    let (findings, shown) = walked(&mut store);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].offsets, Some(OffsetSpan { from: Offset(100), to: Offset(104) }));
    assert_eq!(shown, [104]);
}

#[test]
fn a_block_that_the_device_cannot_give_and_a_missing_file_are_told_as_such() {
    let (store, batches) = directory(Vec::new());
    let mut unreadable = store.clone();
    unreadable.make_unreadable(FILE, batches[0].position / BLOCK as u64);
    let (findings, _) = walked(&mut unreadable);
    assert!(findings.iter().any(|finding| matches!(finding.fault, Fault::Device)), "{findings:?}");
    let mut missing = store;
    missing.remove(FILE).unwrap();
    let (findings, _) = walked(&mut missing);
    assert!(matches!(findings[..], [Finding { fault: Fault::FileMissing, .. }]), "{findings:?}");
    assert_eq!(findings[0].offsets, Some(OffsetSpan { from: Offset(100), to: Offset(106) }));
}

#[test]
fn without_a_catalog_a_segment_is_walked_by_its_own_header() {
    let (mut store, batches) = directory(Vec::new());
    store.rot(CATALOG, 80, |bytes| bytes[0] ^= 1);
    let read = Directory::read(&mut store).unwrap();
    assert!(read.findings.iter().any(|finding| matches!(finding.fault, Fault::Catalog(_))), "{:?}", read.findings);
    assert_eq!(read.segment(SEGMENT).unwrap().source, Source::Itself);
    let (findings, shown) = walked(&mut store);
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(shown, [100, 102, 104]);
    store.rot(FILE, batches[1].position as usize + 100, |bytes| bytes[0] ^= 1);
    let (findings, shown) = walked(&mut store);
    assert_eq!(findings[0].offsets, Some(OffsetSpan { from: Offset(102), to: Offset(104) }));
    assert_eq!(shown, [100, 104]);
}

#[test]
fn a_file_of_a_deleted_range_that_is_still_there_is_listed_and_not_judged() {
    let (mut store, batches) = directory(Vec::new());
    let mut catalog = Catalog::new(ChainId { shard: ShardId(0), shards: 1, generation: Generation(5) }, 1);
    let whole = Directory::read(&mut store).unwrap();
    let record = whole.segment(SEGMENT).unwrap().record.clone();
    let range = record.header.range;
    catalog.put_segment(record);
    catalog.delete_range(range);
    let snapshot = catalog.snapshot();
    put(&mut store, CATALOG, &snapshot.buffer);
    // Its bytes may be half gone.
    store.rot(FILE, batches[1].position as usize, |bytes| bytes.fill(0));
    let directory = Directory::read(&mut store).unwrap();
    let segment = directory.segment(SEGMENT).unwrap();
    assert_eq!((segment.source, segment.files.as_slice()), (Source::Deletion, &[FILE][..]));
    assert!(walk(&mut store, segment, &mut |_, _| panic!("nothing of it is read")).unwrap().is_empty());
    store.remove(FILE).unwrap();
    let directory = Directory::read(&mut store).unwrap();
    assert!(directory.segment(SEGMENT).is_none());
}
