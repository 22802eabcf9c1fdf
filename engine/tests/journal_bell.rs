//! A glommio executor awaits what completes outside its own rings. In a test binary of its own: executors are made once a
//! process.
#![cfg(feature = "glommio")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use glommio::timer::Timer;
use glommio::{LocalExecutorBuilder, Placement};
use sealog_engine::io::journal_writer::{GroupWrite, JournalWriter, SyncWay};
use sealog_engine::io::probe::{IO_MEMORY_BYTES, probe};
use sealog_engine::io::ring::{Buffer, Completion, DiskFile, Durability, Ring};
use sealog_engine::io::store::{Opening, fill_with_zeros, open_direct};
use sealog_engine::types::AlignedBuffer;
use sealog_engine::types::limits::BLOCK;

const GROUPS: u64 = 200;
const FILE_BYTES: u64 = 4 << 20;

/// Writes groups by one way and awaits each by its bell; another task runs meanwhile, as the shard's connections would.
async fn write_groups(way: SyncWay, path: PathBuf) {
    let mut writer = JournalWriter::open(way, &[path]).expect("a journal");
    let listener = writer.bell().listener().expect("a listener");
    let stop = Rc::new(std::cell::Cell::new(false));
    let seen = Rc::clone(&stop);
    let neighbour = glommio::spawn_local(async move {
        let mut turns = 0u64;
        while !seen.get() {
            turns += 1;
            Timer::new(Duration::from_micros(50)).await;
        }
        turns
    });
    let mut buffer = Box::new(AlignedBuffer::zeroed(BLOCK));
    for number in 0..GROUPS {
        buffer.fill(u8::try_from(number).expect("below 256"));
        let position = number * BLOCK as u64;
        writer.start(GroupWrite { file: 0, position, length: BLOCK, durable: true, buffer }).expect("start");
        buffer = loop {
            listener.heard().await.expect("the bell");
            if let Some(written) = writer.finished().expect("a writer that works") {
                assert_eq!(written.outcome, Ok(()), "{way}");
                break written.buffer;
            }
        };
    }
    stop.set(true);
    assert!(neighbour.await > 0, "the executor ran other tasks meanwhile");
}

/// An executor with nothing else to do sleeps in its own ring, and is woken out of it.
async fn read_back(path: PathBuf) {
    let file = DiskFile::from(open_direct(&path, Opening::Existing).expect("open"));
    let mut ring = Ring::new(64).expect("a ring");
    let listener = ring.bell().listener().expect("a listener");
    for number in 0..GROUPS {
        ring.read(number, &file, number * BLOCK as u64, BLOCK, Box::new(AlignedBuffer::zeroed(BLOCK)));
    }
    ring.write(GROUPS, &file, 0, 0..BLOCK, Buffer::Owned(Box::new(AlignedBuffer::zeroed(BLOCK))), Durability::None);
    ring.submit().expect("submit");
    let mut ended: Vec<Completion> = Vec::new();
    while ended.len() <= usize::try_from(GROUPS).expect("a count") {
        listener.heard().await.expect("the bell");
        ring.completions(&mut |completion| ended.push(completion)).expect("a ring that works");
    }
    for completion in ended.into_iter().filter(|completion| (1..GROUPS).contains(&completion.token)) {
        let expected = u8::try_from(completion.token).expect("below 256");
        assert!(completion.buffer.into_owned().iter().all(|byte| *byte == expected), "group {expected}");
    }
}

#[test]
fn an_executor_hears_of_every_group_written_by_every_way() {
    let exe = std::env::current_exe().expect("path of the test binary");
    let dir = tempfile::tempdir_in(exe.parent().expect("its folder")).expect("a folder beside it");
    if let Err(unfit) = probe(dir.path(), 1) {
        writeln!(std::io::stderr(), "SKIPPED: {unfit}").expect("standard error");
        return;
    }
    let path = dir.path().join("0000.0");
    fill_with_zeros(&open_direct(&path, Opening::Create).expect("open"), FILE_BYTES).expect("fill");
    let executor = LocalExecutorBuilder::new(Placement::Fixed(sealog_engine::io::cpu::first().expect("a core")))
        .io_memory(usize::try_from(IO_MEMORY_BYTES).expect("a size"))
        .spawn(move || async move {
            for way in SyncWay::ALL {
                write_groups(way, path.clone()).await;
                read_back(path.clone()).await;
            }
        })
        .expect("an executor");
    executor.join().expect("no task panicked");
}
