use super::*;
use crate::io::store::{Opening, fill_with_zeros, open_direct};
use crate::io::testing::disk_dir;

struct Bench {
    ring: Ring,
    file: DiskFile,
    folder: DiskFile,
    dir: tempfile::TempDir,
}

/// A small ring and a zero-filled file of 8 MiB.
fn bench() -> Option<Bench> {
    let dir = disk_dir()?;
    let file = open_direct(&dir.path().join("file"), Opening::Create).expect("open");
    fill_with_zeros(&file, 8 << 20).expect("fill");
    let folder = OwnedFd::from(std::fs::File::open(dir.path()).expect("open"));
    Some(Bench { ring: Ring::new(8).expect("a ring"), file: file.into(), folder: folder.into(), dir })
}

fn patterned(bytes: usize, seed: u8) -> Box<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    for (block, content) in buffer.chunks_mut(BLOCK).enumerate() {
        content.fill(seed.wrapping_add(u8::try_from(block % 251).expect("below 251")));
    }
    Box::new(buffer)
}

fn finish(ring: &mut Ring, operations: usize) -> Vec<Completion> {
    let mut ended = Vec::new();
    while ended.len() < operations {
        ring.wait(&mut |completion| ended.push(completion)).expect("a ring that works");
    }
    assert_eq!(ring.in_flight(), 0);
    ended.sort_by_key(|completion| completion.token);
    ended
}

#[test]
fn what_a_linked_write_of_many_pieces_made_durable_reads_back() {
    let Some(Bench { mut ring, file, .. }) = bench() else { return };
    let bytes = 3 * IO_BYTES_MAX - BLOCK;
    assert!(bytes <= ring.linked_bytes_max());
    let buffer = Buffer::Owned(patterned(bytes, 3));
    ring.write(7, &file, 8192, 0..bytes, buffer, Durability::LinkedSync);
    let completion = finish(&mut ring, 1).remove(0);
    assert_eq!(completion.token, 7);
    assert!(matches!(completion.outcome, Ok(Done::Performed)), "{:?}", completion.outcome);
    let written = completion.buffer.into_owned();

    ring.read(8, &file, 8192, bytes, Box::new(AlignedBuffer::zeroed(bytes)));
    let completion = finish(&mut ring, 1).remove(0);
    assert!(matches!(completion.outcome, Ok(Done::Read { bytes: read }) if read == bytes), "{:?}", completion.outcome);
    assert!(**completion.buffer.into_owned() == **written, "other bytes came back");
}

#[test]
fn a_shared_buffer_is_written_from_the_span_given() {
    let Some(Bench { mut ring, file, .. }) = bench() else { return };
    let shared = Arc::new(*patterned(4 * BLOCK, 100));
    for (token, durability) in [(0, Durability::None), (1, Durability::LinkedSync), (2, Durability::Dsync)] {
        let span = BLOCK..3 * BLOCK;
        ring.write(token, &file, token * 65536, span, Buffer::Shared(Arc::clone(&shared)), durability);
    }
    for completion in finish(&mut ring, 3) {
        assert!(matches!(completion.outcome, Ok(Done::Performed)), "{:?}", completion.outcome);
    }
    assert_eq!(Arc::strong_count(&shared), 1, "every buffer was given back");
    for token in 0..3 {
        ring.read(token, &file, token * 65536, 3 * BLOCK, Box::new(AlignedBuffer::zeroed(3 * BLOCK)));
    }
    for completion in finish(&mut ring, 3) {
        let read = completion.buffer.into_owned();
        assert!(read[..2 * BLOCK] == shared[BLOCK..3 * BLOCK]);
        assert!(read[2 * BLOCK..].iter().all(|byte| *byte == 0), "nothing behind the span was written");
    }
}

#[test]
fn a_read_ends_where_the_file_ends() {
    let Some(Bench { mut ring, file, .. }) = bench() else { return };
    let asked = 2 * IO_BYTES_MAX;
    ring.read(0, &file, (8 << 20) - (IO_BYTES_MAX + BLOCK) as u64, asked, Box::new(AlignedBuffer::zeroed(asked)));
    ring.read(1, &file, 8 << 20, BLOCK, Box::new(AlignedBuffer::zeroed(BLOCK)));
    let ended = finish(&mut ring, 2);
    assert!(matches!(ended[0].outcome, Ok(Done::Read { bytes }) if bytes == IO_BYTES_MAX + BLOCK), "{:?}", ended[0]);
    assert!(matches!(ended[1].outcome, Ok(Done::Read { bytes: 0 })), "{:?}", ended[1]);
}

#[test]
fn more_operations_than_the_ring_has_places_all_complete() {
    let Some(Bench { mut ring, file, .. }) = bench() else { return };
    for token in 0..500 {
        let buffer = Buffer::Owned(patterned(2 * BLOCK, 1));
        let durability = if token % 50 == 0 { Durability::LinkedSync } else { Durability::None };
        ring.write(token, &file, token * 8192, 0..2 * BLOCK, buffer, durability);
    }
    ring.submit().expect("submit");
    let ended = finish(&mut ring, 500);
    assert!(ended.iter().enumerate().all(|(token, c)| c.token == token as u64 && c.outcome.is_ok()));
}

#[test]
fn a_write_to_a_file_that_cannot_be_written_fails_with_its_errno_and_not_with_the_cancelled_sync() {
    let Some(Bench { mut ring, dir, .. }) = bench() else { return };
    let read_only = OwnedFd::from(std::fs::File::open(dir.path().join("file")).expect("open"));
    let buffer = Buffer::Owned(patterned(2 * IO_BYTES_MAX, 1));
    ring.write(0, &read_only.into(), 0, 0..2 * IO_BYTES_MAX, buffer, Durability::LinkedSync);
    let completion = finish(&mut ring, 1).remove(0);
    assert_eq!(completion.outcome.expect_err("not writable"), Failure::Errno(libc::EBADF));
    assert_eq!(completion.buffer.into_owned().len(), 2 * IO_BYTES_MAX, "the buffer comes back");
    assert_eq!(ring.completions_due, 0, "nothing else comes");
}

#[test]
fn a_short_write_is_a_failure_and_its_sync_does_not_hide_it() {
    let Some(Bench { mut ring, .. }) = bench() else { return };
    // A pipe with room for one block takes a part of a write of two.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, BLOCK).expect("a small pipe");
    let writer = DiskFile::from(writer);
    ring.write(0, &writer, 0, 0..2 * BLOCK, Buffer::Owned(patterned(2 * BLOCK, 1)), Durability::LinkedSync);
    let completion = finish(&mut ring, 1).remove(0);
    assert_eq!(completion.outcome.expect_err("a part only"), Failure::Short { written: BLOCK, expected: 2 * BLOCK });
    assert_eq!(ring.completions_due, 0, "nothing else comes");
    drop(reader);
}

#[test]
fn a_chain_that_fails_in_its_middle_is_a_failure() {
    let Some(Bench { mut ring, .. }) = bench() else { return };
    // A file that holds the first piece and cannot grow.
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
    let sealed = rustix::fs::memfd_create("sealed", flags).expect("a file in memory");
    rustix::fs::ftruncate(&sealed, IO_BYTES_MAX as u64).expect("its length");
    rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::GROW).expect("a seal");
    let sealed = DiskFile::from(sealed);
    let bytes = 3 * IO_BYTES_MAX;
    ring.write(0, &sealed, 0, 0..bytes, Buffer::Owned(patterned(bytes, 1)), Durability::LinkedSync);
    let completion = finish(&mut ring, 1).remove(0);
    assert_eq!(completion.outcome.expect_err("one piece only"), Failure::Errno(libc::EPERM));
    ring.sync(1, &sealed);
    assert!(finish(&mut ring, 1)[0].outcome.is_ok());
    assert_eq!(ring.completions_due, 0, "nothing else has come");
}

#[test]
fn chains_of_many_pieces_complete_once_each() {
    let Some(Bench { mut ring, file, .. }) = bench() else { return };
    for token in 0..60 {
        let bytes = 2 * IO_BYTES_MAX + BLOCK;
        let buffer = Buffer::Owned(patterned(bytes, 1));
        ring.write(token, &file, token % 4 * bytes as u64, 0..bytes, buffer, Durability::LinkedSync);
    }
    assert!(finish(&mut ring, 60).iter().all(|completion| completion.outcome.is_ok()));
    assert_eq!(ring.completions_due, 0, "nothing else comes");
}

#[test]
fn a_sync_that_fails_behind_a_good_write_is_a_failure() {
    let Some(Bench { mut ring, .. }) = bench() else { return };
    // A pipe can be written but not synced.
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let writer = DiskFile::from(writer);
    ring.write(0, &writer, 0, 0..BLOCK, Buffer::Owned(patterned(BLOCK, 1)), Durability::LinkedSync);
    let completion = finish(&mut ring, 1).remove(0);
    assert_eq!(completion.outcome.expect_err("no sync"), Failure::Errno(libc::EINVAL));
    drop(reader);
}

#[test]
fn files_are_made_named_synced_and_removed_through_the_ring() {
    let Some(Bench { mut ring, folder, dir, .. }) = bench() else { return };
    ring.open(0, &folder, c"new".into(), OpenAs::Create);
    let Ok(Done::Opened(made)) = finish(&mut ring, 1).remove(0).outcome else { panic!("not opened") };
    ring.allocate(1, &made, 4 * 65536);
    ring.sync(2, &made);
    assert!(finish(&mut ring, 2).iter().all(|c| c.outcome.is_ok()));
    assert_eq!(std::fs::metadata(dir.path().join("new")).expect("metadata").len(), 4 * 65536);
    ring.write(1, &made, 0, 0..BLOCK, Buffer::Owned(patterned(BLOCK, 1)), Durability::None);
    ring.rename(2, &folder, c"new".into(), c"named".into());
    ring.open(3, &folder, c".".into(), OpenAs::Folder);
    let mut ended = finish(&mut ring, 3);
    let Ok(Done::Opened(here)) = ended.remove(2).outcome else { panic!("not opened") };
    ring.sync_folder(4, &here);
    ring.release(5, &made, 0..4 * 65536);
    assert!(finish(&mut ring, 2).iter().all(|c| c.outcome.is_ok()));
    assert!(std::fs::read(dir.path().join("named")).expect("read").iter().all(|byte| *byte == 0), "released");
    ring.unlink(6, &folder, c"named".into());
    assert!(finish(&mut ring, 1)[0].outcome.is_ok());
    for (token, path) in [(0, c"named"), (1, c"absent/x")] {
        ring.open(token, &folder, path.into(), OpenAs::Existing);
        let outcome = finish(&mut ring, 1).remove(0).outcome;
        assert_eq!(outcome.expect_err("absent"), Failure::Errno(libc::ENOENT));
    }
}

#[test]
fn the_bell_rings_once_something_has_completed() {
    let Some(Bench { mut ring, file, .. }) = bench() else { return };
    ring.write(0, &file, 0, 0..BLOCK, Buffer::Owned(patterned(BLOCK, 1)), Durability::LinkedSync);
    ring.submit().expect("submit");
    let mut ended = 0;
    while ended == 0 {
        ring.bell().wait();
        ring.completions(&mut |_| ended += 1).expect("a ring that works");
    }
}

#[test]
fn a_ring_dropped_with_operations_in_flight_waits_for_the_kernel_to_let_go() {
    let Some(Bench { mut ring, file, .. }) = bench() else { return };
    let shared = Arc::new(*patterned(64 * BLOCK, 9));
    for token in 0..40 {
        let buffer = Buffer::Shared(Arc::clone(&shared));
        ring.write(token, &file, token * 65536 * 4, 0..shared.len(), buffer, Durability::LinkedSync);
    }
    ring.submit().expect("submit");
    drop(ring);
    assert_eq!(Arc::strong_count(&shared), 1);
}
