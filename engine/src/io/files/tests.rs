use super::*;
use crate::io::testing::disk_dir;
use crate::types::limits::BLOCK;
use crate::types::{SegmentId, ShardId};

const SEGMENT: DataFile = DataFile::Segment { segment: SegmentId(0x2a), part: 0 };
const JOURNAL: DataFile = DataFile::Journal { shard: ShardId(0), file: 0 };

fn files() -> Option<(Files, tempfile::TempDir)> {
    let dir = disk_dir()?;
    Some((Files::new(dir.path()).expect("a ring"), dir))
}

/// Does the operations side by side and gives their outcomes in the order given.
fn perform(files: &mut Files, operations: Vec<FileOperation>) -> Vec<Outcome> {
    let count = operations.len();
    for (token, operation) in (0..).zip(operations) {
        files.start(FileToken(token), operation);
    }
    let mut outcomes: Vec<(FileToken, Outcome)> = Vec::new();
    while outcomes.len() < count {
        files.wait(&mut |token, outcome| outcomes.push((token, outcome))).expect("a ring that works");
    }
    outcomes.sort_by_key(|(token, _)| *token);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn settle(files: &mut Files) {
    while files.in_flight() > 0 {
        files.wait(&mut |token, _| panic!("{token:?} was answered twice")).expect("a ring that works");
    }
}

fn filled(blocks: usize, content: u8) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK);
    buffer.fill(content);
    Arc::new(buffer)
}

fn create(file: DataFile, bytes: u64, fill: Fill) -> FileOperation {
    FileOperation::Create { file, bytes, fill }
}

fn done(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| matches!(outcome, Ok(FileResult::Done)))
}

#[test]
fn a_segment_is_made_written_synced_read_and_removed() {
    let Some((mut files, dir)) = files() else { return };
    assert!(done(&perform(&mut files, vec![create(SEGMENT, 1 << 20, Fill::Allocated)])));
    assert!(dir.path().join("segments/2a/000000000000002a.0").exists());
    let write = FileOperation::Write { file: SEGMENT, position: 8192, buffer: filled(4, 7), length: 3 * BLOCK };
    assert!(done(&perform(&mut files, vec![write])));
    let syncs = vec![FileOperation::Sync { file: SEGMENT }, FileOperation::SyncFolder { folder: SEGMENT.folder() }];
    assert!(done(&perform(&mut files, syncs)));
    let read = FileOperation::Read { file: SEGMENT, position: 0, length: 8 * BLOCK };
    let Ok(FileResult::Read { bytes, length }) = perform(&mut files, vec![read]).remove(0) else { panic!("no read") };
    assert_eq!((length, bytes.len()), (8 * BLOCK, 8 * BLOCK));
    for (block, content) in bytes.chunks(BLOCK).enumerate() {
        let expected = if (2..5).contains(&block) { 7 } else { 0 };
        assert!(content.iter().all(|byte| *byte == expected), "block {block}");
    }
    assert!(done(&perform(&mut files, vec![FileOperation::Remove { file: SEGMENT }])));
    assert!(!dir.path().join(SEGMENT.to_string()).exists());
    settle(&mut files);
    let read = FileOperation::Read { file: SEGMENT, position: 0, length: BLOCK };
    let outcome = perform(&mut files, vec![read]).remove(0);
    assert_eq!(outcome.expect_err("removed"), Failed { errno: libc::ENOENT });
}

#[test]
fn a_file_that_takes_the_place_of_another_is_read_instead_of_it_and_leaves_nothing_behind() {
    let Some((mut files, dir)) = files() else { return };
    assert!(done(&perform(&mut files, vec![create(JOURNAL, 5 << 16, Fill::Zeroed)])));
    let write = FileOperation::Write { file: JOURNAL, position: 0, buffer: filled(1, 7), length: BLOCK };
    assert!(done(&perform(&mut files, vec![write])));
    let bytes = (1 << 16) + BLOCK as u64;
    assert!(done(&perform(&mut files, vec![create(JOURNAL, bytes, Fill::Zeroed)])));
    let read = FileOperation::Read { file: JOURNAL, position: 0, length: 1 << 20 };
    let Ok(FileResult::Read { bytes: read, length }) = perform(&mut files, vec![read]).remove(0) else {
        panic!("no read")
    };
    assert_eq!(length as u64, bytes);
    assert!(read.iter().all(|byte| *byte == 0));
    let names: Vec<_> =
        std::fs::read_dir(dir.path().join("journal")).expect("list").map(|e| e.expect("entry").file_name()).collect();
    assert_eq!(names, ["0000.0"]);
}

#[test]
fn a_filled_file_has_every_block_written() {
    let Some((mut files, dir)) = files() else { return };
    assert!(done(&perform(&mut files, vec![create(JOURNAL, 1 << 20, Fill::Zeroed)])));
    // An extent that is only allocated shows as a hole to this seek.
    let file = std::fs::File::open(dir.path().join(JOURNAL.to_string())).expect("open");
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(1 << 20));
}

#[test]
fn reads_that_are_under_way_when_their_file_is_removed_see_its_bytes() {
    let Some((mut files, _dir)) = files() else { return };
    let bytes: usize = 8 << 20;
    for _ in 0..4 {
        perform(&mut files, vec![create(SEGMENT, bytes as u64, Fill::Allocated)]);
        let write =
            FileOperation::Write { file: SEGMENT, position: 0, buffer: filled(bytes / BLOCK, 9), length: bytes };
        assert!(done(&perform(&mut files, vec![write])));
        // More than the device takes at once, so that some have not begun when the name is gone.
        let positions = (0..bytes as u64).step_by(BLOCK);
        let mut operations: Vec<_> =
            positions.map(|position| FileOperation::Read { file: SEGMENT, position, length: BLOCK }).collect();
        let reads = operations.len();
        operations.push(FileOperation::Remove { file: SEGMENT });
        for outcome in &perform(&mut files, operations)[..reads] {
            let Ok(FileResult::Read { bytes: read, length: BLOCK }) = outcome else { panic!("{outcome:?}") };
            assert!(read.iter().all(|byte| *byte == 9));
        }
        settle(&mut files);
    }
}

#[test]
fn many_files_at_once_are_each_answered_once() {
    let Some((mut files, dir)) = files() else { return };
    let segments: Vec<_> = (0..600).map(|id| DataFile::Segment { segment: SegmentId(id), part: 0 }).collect();
    let each = |operation: &dyn Fn(DataFile) -> FileOperation| segments.iter().map(|file| operation(*file)).collect();
    assert!(done(&perform(&mut files, each(&|file| create(file, 8192, Fill::Allocated)))));
    let write = |file| FileOperation::Write { file, position: 4096, buffer: filled(1, 5), length: BLOCK };
    assert!(done(&perform(&mut files, each(&write))));
    assert!(done(&perform(&mut files, each(&|file| FileOperation::Sync { file }))));
    assert!(std::fs::read(dir.path().join(segments[599].to_string())).expect("read")[4096..].iter().all(|b| *b == 5));
    assert!(done(&perform(&mut files, each(&|file| FileOperation::Remove { file }))));
    settle(&mut files);
    assert!(done(&perform(&mut files, each(&|file| FileOperation::Remove { file }))), "absent ones are no error");
}

#[test]
fn a_file_that_cannot_be_made_says_why_and_leaves_the_old_one() {
    let Some((mut files, dir)) = files() else { return };
    std::fs::write(dir.path().join("segments"), b"in the way").expect("write");
    let outcome = perform(&mut files, vec![create(SEGMENT, 4096, Fill::Allocated)]).remove(0);
    assert_eq!(outcome.expect_err("no folder"), Failed { errno: libc::ENOTDIR });
    assert!(done(&perform(&mut files, vec![create(JOURNAL, 4096, Fill::Zeroed)])));
    let outcome = perform(&mut files, vec![create(JOURNAL, 1 << 60, Fill::Zeroed)]).remove(0);
    assert!(matches!(outcome.expect_err("no such space").errno, libc::EFBIG | libc::ENOSPC));
    assert_eq!(std::fs::metadata(dir.path().join(JOURNAL.to_string())).expect("the old one").len(), 4096);
    let outcome = perform(&mut files, vec![FileOperation::SyncFolder { folder: Folder::Catalog }]).remove(0);
    assert_eq!(outcome.expect_err("no folder"), Failed { errno: libc::ENOENT });
}
