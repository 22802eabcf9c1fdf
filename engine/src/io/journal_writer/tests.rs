use super::*;
use crate::io::store::fill_with_zeros;
use crate::io::testing::disk_dir;
use crate::types::limits::{BLOCK, IO_BYTES_MAX};

struct Journal {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

/// A ring of two zero-filled files of 4 MiB.
fn journal() -> Option<Journal> {
    let dir = disk_dir()?;
    let paths: Vec<_> = (0..2).map(|file| dir.path().join(format!("0000.{file}"))).collect();
    for path in &paths {
        fill_with_zeros(&open_direct(path, Opening::Create).expect("open"), 4 << 20).expect("fill");
    }
    Some(Journal { dir, paths })
}

fn group(file: usize, position: u64, bytes: usize, content: u8) -> GroupWrite {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    buffer.fill(content);
    GroupWrite { file, position, length: bytes, durable: true, buffer: Box::new(buffer) }
}

/// Lets no file of this process grow beyond a terabyte.
fn limit_files() {
    let limit = libc::rlimit { rlim_cur: 1 << 40, rlim_max: 1 << 40 };
    // SAFETY: both calls take plain values and change this test process only, in which nothing writes a file as large.
    let limited = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)
    };
    assert_eq!(limited, 0);
}

#[test]
fn every_way_writes_groups_of_every_size_where_they_belong() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    for (content, way) in (1..).zip(SyncWay::ALL) {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        let sizes = [BLOCK, 3 * BLOCK, IO_BYTES_MAX, 2 * IO_BYTES_MAX + BLOCK];
        for (file, bytes) in [0, 1].into_iter().flat_map(|file| sizes.map(|bytes| (file, bytes))) {
            writer.start(group(file, 8192, bytes, content)).expect("start");
            assert!(writer.is_busy());
            let written = writer.wait().expect("a writer that works");
            assert_eq!(written.outcome, Ok(()), "{way}, {bytes} bytes");
            assert_eq!(written.buffer.len(), bytes);
            assert!(!writer.is_busy());
            let bytes_now = std::fs::read(&paths[file]).expect("read");
            assert!(bytes_now[..8192].iter().all(|byte| *byte == 0));
            assert!(bytes_now[8192..8192 + bytes].iter().all(|byte| *byte == content), "{way}, {bytes} bytes");
        }
    }
}

#[test]
fn only_the_length_given_is_written() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    for way in SyncWay::ALL {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        let group = GroupWrite { length: BLOCK, durable: false, ..group(0, 0, 4 * BLOCK, 5) };
        writer.start(group).expect("start");
        assert_eq!(writer.wait().expect("a writer that works").outcome, Ok(()), "{way}");
        let bytes = std::fs::read(&paths[0]).expect("read");
        assert!(bytes[..BLOCK].iter().all(|byte| *byte == 5) && bytes[BLOCK..].iter().all(|byte| *byte == 0), "{way}");
    }
}

#[test]
fn nothing_is_finished_that_was_not_started() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    for way in SyncWay::ALL {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        assert!(writer.finished().expect("a writer that works").is_none());
        writer.start(group(0, 0, BLOCK, 1)).expect("start");
        writer.wait().expect("a writer that works");
        assert!(writer.finished().expect("a writer that works").is_none(), "{way} gave a group back twice");
    }
}

#[test]
fn a_group_that_the_device_has_no_room_for_fails() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    limit_files();
    for way in SyncWay::ALL {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        writer.start(group(0, 1 << 40, BLOCK, 1)).expect("start");
        let written = writer.wait().expect("a writer that works");
        assert_eq!(written.outcome, Err(Failure::Errno(libc::EFBIG)), "{way}");
        assert_eq!(written.buffer.len(), BLOCK, "the buffer comes back");
        writer.start(group(0, 0, BLOCK, 1)).expect("a refusal is an outcome");
        let behind = writer.wait().expect("a writer that works");
        assert_eq!(behind.outcome, Err(CANCELLED), "{way}: nothing is written behind a group that failed");
        assert!(std::fs::read(&paths[0]).expect("read")[..BLOCK].iter().all(|byte| *byte == 0), "{way}");
    }
}

#[test]
fn a_group_given_while_one_is_written_is_written_behind_it_and_given_back_behind_it() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    for way in SyncWay::ALL {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        writer.start(group(0, 0, IO_BYTES_MAX, 1)).expect("start");
        for content in 2..20 {
            // In the same place as the one before: whichever is written last is there.
            writer.start(group(0, 0, IO_BYTES_MAX, content)).expect("start");
            let written = writer.wait().expect("a writer that works");
            assert_eq!((written.outcome, written.buffer[0]), (Ok(()), content - 1), "{way}");
            assert!(writer.is_busy());
        }
        assert_eq!(writer.wait().expect("a writer that works").outcome, Ok(()), "{way}");
        assert!(!writer.is_busy());
        let bytes = std::fs::read(&paths[0]).expect("read");
        assert!(bytes[..IO_BYTES_MAX].iter().all(|byte| *byte == 19), "{way}");
    }
}

#[test]
fn a_group_that_waits_behind_one_that_fails_is_not_written() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    limit_files();
    for way in SyncWay::ALL {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        writer.start(group(0, 1 << 40, BLOCK, 1)).expect("start");
        writer.start(group(0, 0, BLOCK, 1)).expect("start");
        assert_eq!(writer.wait().expect("a writer that works").outcome, Err(Failure::Errno(libc::EFBIG)), "{way}");
        let behind = writer.wait().expect("a writer that works");
        assert_eq!((behind.outcome, behind.buffer.len()), (Err(CANCELLED), BLOCK), "{way}");
        assert!(std::fs::read(&paths[0]).expect("read")[..BLOCK].iter().all(|byte| *byte == 0), "{way}");
    }
}

#[test]
fn a_write_that_reaches_the_limit_of_the_file_is_short_and_so_a_failure() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    limit_files();
    for way in SyncWay::ALL {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        writer.start(group(0, (1 << 40) - BLOCK as u64, 2 * BLOCK, 1)).expect("start");
        let written = writer.wait().expect("a writer that works");
        assert_eq!(written.outcome, Err(Failure::Short { written: BLOCK, expected: 2 * BLOCK }), "{way}");
    }
}

#[test]
fn a_writer_dropped_with_a_group_in_flight_has_written_it() {
    let Some(Journal { dir: _dir, paths }) = journal() else { return };
    for (content, way) in (1..).zip(SyncWay::ALL) {
        let mut writer = JournalWriter::open(way, &paths).expect("open");
        writer.start(group(1, 0, IO_BYTES_MAX, content)).expect("start");
        drop(writer);
        let bytes = std::fs::read(&paths[1]).expect("read");
        assert!(bytes[..IO_BYTES_MAX].iter().all(|byte| *byte == content), "{way}");
    }
}

#[test]
fn a_journal_that_is_not_there_is_named() {
    let Some(Journal { dir, .. }) = journal() else { return };
    let absent = dir.path().join("absent");
    for way in SyncWay::ALL {
        match JournalWriter::open(way, std::slice::from_ref(&absent)).err() {
            Some(OpenJournalError::File { path, error }) => {
                assert_eq!((path, error.kind()), (absent.clone(), io::ErrorKind::NotFound));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_way_to_sync_parses_back_from_its_name() {
    for way in SyncWay::ALL {
        assert_eq!(way.to_string().parse(), Ok(way));
    }
    assert_eq!("fsync".parse::<SyncWay>(), Err(UnknownSyncWay));
}
