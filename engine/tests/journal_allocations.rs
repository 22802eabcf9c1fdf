//! Writing groups and file blocks allocates nothing once everything has been used once. In a test binary of its own, because it
//! counts every allocation of its process.
#![cfg(feature = "glommio")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_engine::api::port::{DataFile, Fill};
use sealog_engine::io::files::Files;
use sealog_engine::io::journal_writer::{GroupWrite, JournalWriter, SyncWay};
use sealog_engine::io::probe::probe;
use sealog_engine::io::store::{Opening, fill_with_zeros, open_direct};
use sealog_engine::shard::command::FileOperation;
use sealog_engine::shard::event::FileToken;
use sealog_engine::types::limits::{BLOCK, IO_BYTES_MAX};
use sealog_engine::types::{AlignedBuffer, SegmentId};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is left to the system's allocator; counting touches no memory of its callers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) };
    }
}

/// Allocations of the whole process during the second of two same runs.
fn second_run(mut run: impl FnMut()) -> u64 {
    run();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn journal_run(way: SyncWay, path: &Path) -> u64 {
    let mut writer = JournalWriter::open(way, &[path.to_owned()]).expect("a journal");
    let largest = 2 * IO_BYTES_MAX;
    let mut buffer = Some(Box::new(AlignedBuffer::zeroed(largest)));
    second_run(|| {
        for (number, length) in [BLOCK, 5 * BLOCK, largest].into_iter().cycle().take(30).enumerate() {
            let (position, buffer_now) = ((number % 2 * BLOCK) as u64, buffer.take().expect("it came back"));
            writer.start(GroupWrite { file: 0, position, length, durable: true, buffer: buffer_now }).expect("start");
            let written = writer.wait().expect("a writer that works");
            assert_eq!(written.outcome, Ok(()));
            buffer = Some(written.buffer);
        }
    })
}

fn files_run(dir: &Path) -> u64 {
    let mut files = Files::new(dir).expect("a ring");
    let file = DataFile::Segment { segment: SegmentId(1), part: 0 };
    let buffer = Arc::new(AlignedBuffer::zeroed(IO_BYTES_MAX));
    let answered = |files: &mut Files, count: u32| {
        let mut answers = 0;
        while answers < count {
            files
                .wait(&mut |_, outcome| {
                    outcome.expect("a disk that works");
                    answers += 1;
                })
                .expect("a ring that works");
        }
    };
    files.start(FileToken(0), FileOperation::Create { file, bytes: 8 << 20, fill: Fill::Allocated });
    answered(&mut files, 1);
    second_run(|| {
        for turn in 0..8 {
            let position = turn * IO_BYTES_MAX as u64;
            let write = FileOperation::Write { file, position, buffer: Arc::clone(&buffer), length: IO_BYTES_MAX };
            files.start(FileToken(turn), write);
        }
        answered(&mut files, 8);
        files.start(FileToken(9), FileOperation::Sync { file });
        answered(&mut files, 1);
    })
}

#[test]
fn writing_and_syncing_allocates_nothing_in_steady_state() {
    let exe = std::env::current_exe().expect("path of the test binary");
    let dir = tempfile::tempdir_in(exe.parent().expect("its folder")).expect("a folder beside it");
    if let Err(unfit) = probe(dir.path(), 1) {
        writeln!(std::io::stderr(), "SKIPPED: {unfit}").expect("standard error");
        return;
    }
    let path: PathBuf = dir.path().join("0000.0");
    fill_with_zeros(&open_direct(&path, Opening::Create).expect("open"), 4 << 20).expect("fill");
    for way in SyncWay::ALL {
        assert_eq!(journal_run(way, &path), 0, "{way}");
    }
    assert_eq!(files_run(dir.path()), 0);
}
