use super::*;
use crate::io::testing::disk_dir;
use crate::types::{SegmentId, ShardId};

const JOURNAL: DataFile = DataFile::Journal { shard: ShardId(0), file: 1 };
const SEGMENT: DataFile = DataFile::Segment { segment: SegmentId(0x2a), part: 0 };

#[test]
fn what_was_written_reads_back_and_the_rest_of_a_new_file_is_zeros() {
    let Some(dir) = disk_dir() else { return };
    let mut store = DiskStore::new(dir.path().to_owned());
    for (file, fill) in [(JOURNAL, Fill::Zeroed), (SEGMENT, Fill::Allocated)] {
        let bytes = 3 * IO_BYTES_MAX + BLOCK;
        store.create(file, bytes as u64, fill).expect("create");
        store.sync_folder(file.folder()).expect("sync folder");
        let mut blocks = AlignedBuffer::zeroed(IO_BYTES_MAX + 2 * BLOCK);
        blocks.fill(7);
        store.write(file, BLOCK as u64, &blocks).expect("write");
        store.sync(file).expect("sync");

        let mut again = DiskStore::new(dir.path().to_owned());
        assert_eq!(again.length(file), Ok(Some(bytes as u64)));
        let read = again.read(file, 0, usize::MAX).expect("read");
        assert_eq!((read.length, read.bytes.len()), (bytes, bytes));
        assert_eq!(read.unreadable, []);
        let (written, end) = (BLOCK, BLOCK + blocks.len());
        assert!(read.bytes[..written].iter().all(|byte| *byte == 0));
        assert!(read.bytes[written..end].iter().all(|byte| *byte == 7));
        assert!(read.bytes[end..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_read_gives_no_byte_beyond_what_was_asked_for_or_exists() {
    let Some(dir) = disk_dir() else { return };
    let mut store = DiskStore::new(dir.path().to_owned());
    fs::write(store.path(DataFile::Superblock { copy: 0 }), vec![9; BLOCK + 10]).expect("a file of a part of a block");
    for (position, length, expected) in [(0, 100, 100), (0, BLOCK * 4, BLOCK + 10), (BLOCK, 4, 4), (8 * BLOCK, 1, 0)] {
        let read = store.read(DataFile::Superblock { copy: 0 }, position as u64, length).expect("read");
        assert_eq!(read.length, expected, "{length} at {position}");
        assert!(read.bytes[..expected].iter().all(|byte| *byte == 9));
        assert!(read.bytes[expected..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_list_holds_our_files_only_sorted_and_a_missing_folder_is_empty() {
    let Some(dir) = disk_dir() else { return };
    let mut store = DiskStore::new(dir.path().to_owned());
    assert_eq!(store.list(Folder::Journal), Ok(vec![]));
    for file in [1, 0] {
        store.create(DataFile::Journal { shard: ShardId(0), file }, 0, Fill::Allocated).expect("create");
    }
    store.create(DataFile::Superblock { copy: 1 }, 0, Fill::Allocated).expect("create");
    fs::write(dir.path().join("journal/0000.0.new"), b"left over").expect("write");
    fs::write(dir.path().join("notes"), b"somebody's").expect("write");
    let file = |file| DataFile::Journal { shard: ShardId(0), file };
    assert_eq!(store.list(Folder::Journal), Ok(vec![file(0), file(1)]));
    assert_eq!(store.list(Folder::Root), Ok(vec![DataFile::Superblock { copy: 1 }]));
    assert_eq!(store.list(Folder::SegmentsOf(0x2a)), Ok(vec![]));
}

#[test]
fn a_file_that_is_not_there_has_no_length_cannot_be_read_and_is_removed_without_error() {
    let Some(dir) = disk_dir() else { return };
    let mut store = DiskStore::new(dir.path().to_owned());
    assert_eq!(store.length(SEGMENT), Ok(None));
    let target = StoreTarget::File(SEGMENT);
    let refused = StoreError { action: StoreAction::Read, file: target, position: 4096, errno: libc::ENOENT };
    assert_eq!(store.read(SEGMENT, 4096, 1).err(), Some(refused));
    assert_eq!(store.remove(SEGMENT), Ok(()));
    store.create(SEGMENT, 4096, Fill::Allocated).expect("create");
    store.write(SEGMENT, 0, &AlignedBuffer::zeroed(BLOCK)).expect("write");
    assert_eq!(store.remove(SEGMENT), Ok(()));
    assert_eq!(store.length(SEGMENT), Ok(None));
    assert!(store.read(SEGMENT, 0, 1).is_err(), "a removed file is not read through an old descriptor");
}

#[test]
fn creating_a_file_again_replaces_it() {
    let Some(dir) = disk_dir() else { return };
    let mut store = DiskStore::new(dir.path().to_owned());
    store.create(JOURNAL, 2 * BLOCK as u64, Fill::Zeroed).expect("create");
    let mut blocks = AlignedBuffer::zeroed(BLOCK);
    blocks.fill(7);
    store.write(JOURNAL, 0, &blocks).expect("write");
    store.create(JOURNAL, BLOCK as u64, Fill::Zeroed).expect("create");
    let read = store.read(JOURNAL, 0, 2 * BLOCK).expect("read");
    assert_eq!(read.length, BLOCK);
    assert!(read.bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn a_data_directory_is_locked_once_and_the_refusal_names_the_holder() {
    let Some(dir) = disk_dir() else { return };
    let held = lock(dir.path()).expect("the first lock");
    match lock(dir.path()).expect_err("a second lock") {
        LockError::Held { pid, .. } => assert_eq!(pid, Some(std::process::id())),
        LockError::Io { error, .. } => panic!("{error}"),
    }
    drop(held);
    drop(lock(dir.path()).expect("the lock again"));
    assert!(matches!(lock(&dir.path().join("absent")), Err(LockError::Io { .. })));
}
