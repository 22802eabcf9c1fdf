//! A catalog's records: what is loaded is written as a snapshot, and that is loaded as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreError};
use sealog_engine::format::checksum;
use sealog_engine::segment::catalog::{Catalog, LoadedCatalog, load};
use sealog_engine::types::limits::{BLOCK, round_up_to_block};
use sealog_engine::types::{AlignedBuffer, Generation, ShardId};
use sealog_fuzz::{bounded, fair, seal};

const SHARD: ShardId = ShardId(0);
const GENERATION: Generation = Generation(100);
const SEQUENCE: u64 = 1;
const HEADER_BYTES: usize = 64;

/// One file in memory.
struct One {
    name: DataFile,
    bytes: Vec<u8>,
}

impl Store for One {
    fn list(&mut self, _: Folder) -> Result<Vec<DataFile>, StoreError> {
        Ok(vec![self.name])
    }

    fn length(&mut self, _: DataFile) -> Result<Option<u64>, StoreError> {
        Ok(Some(self.bytes.len() as u64))
    }

    fn read(&mut self, _: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        let from = usize::try_from(position).expect("a small file");
        let found = &self.bytes[from..self.bytes.len().min(from + length)];
        let mut bytes = AlignedBuffer::zeroed(round_up_to_block(length.max(1)));
        bytes[..found.len()].copy_from_slice(found);
        Ok(ReadBytes { bytes, length: found.len(), unreadable: Vec::new() })
    }

    fn create(&mut self, _: DataFile, _: u64, _: Fill) -> Result<(), StoreError> {
        unreachable!("loading changes nothing")
    }

    fn write(&mut self, _: DataFile, _: u64, _: &AlignedBuffer) -> Result<(), StoreError> {
        unreachable!("loading changes nothing")
    }

    fn sync(&mut self, _: DataFile) -> Result<(), StoreError> {
        unreachable!("loading changes nothing")
    }

    fn sync_folder(&mut self, _: Folder) -> Result<(), StoreError> {
        unreachable!("loading changes nothing")
    }

    fn remove(&mut self, _: DataFile) -> Result<(), StoreError> {
        unreachable!("loading changes nothing")
    }
}

fuzz_target!(|bytes: &[u8]| {
    drop(loaded(bytes));
    let Some(LoadedCatalog { mut catalog, .. }) = loaded(&file_of(bytes)) else { return };
    sound(&catalog);
    let first = catalog.snapshot();
    let LoadedCatalog { catalog: mut second, .. } = loaded(&first.buffer).expect("it was just written");
    assert!(second.segments().eq(catalog.segments()));
    assert_eq!(
        (second.promises(), second.trims(), second.live()),
        (catalog.promises(), catalog.trims(), catalog.live())
    );
    assert!(second.all_uncertain().eq(catalog.all_uncertain()));
    assert_eq!(second.deletions(), catalog.deletions());
    assert_eq!(&second.snapshot().buffer[..], &first.buffer[..]);
});

/// The snapshot whose records are these bytes.
fn file_of(records: &[u8]) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out[..8].copy_from_slice(b"SEALCATA");
    out[8..10].copy_from_slice(&1u16.to_le_bytes());
    out[10] = 1;
    out[12..14].copy_from_slice(&SHARD.0.to_le_bytes());
    out[14..16].copy_from_slice(&1u16.to_le_bytes());
    out[16..24].copy_from_slice(&GENERATION.0.to_le_bytes());
    out[24..32].copy_from_slice(&SEQUENCE.to_le_bytes());
    out[40..48].copy_from_slice(&(records.len() as u64).to_le_bytes());
    out[56..60].copy_from_slice(&checksum(0, records).to_le_bytes());
    seal(&mut out, 0..60, 60);
    out.extend_from_slice(records);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

fn loaded(bytes: &[u8]) -> Option<LoadedCatalog> {
    let name = DataFile::CatalogSnapshot { shard: SHARD, sequence: SEQUENCE };
    let mut store = One { name, bytes: bytes.to_vec() };
    let found = bounded(fair(bytes), || load(&mut store, &[name], SHARD, GENERATION));
    found.ok().flatten()
}

/// What the shard relies on without looking again.
fn sound(catalog: &Catalog) {
    for record in catalog.segments() {
        assert!(record.base() <= record.checkpoint.end);
        _ = record.locate(record.checkpoint.position);
        _ = record.tail();
    }
}
