//! A shard's own io_uring for disk work: single-threaded, owning every buffer and file until the kernel is done with them.
//!
//! Why not glommio's: it has no linked entries, allocates and reads more than needed for each operation, and costs 20 to 45 µs
//! on a durable write at depth one. Completions reach the executor by a [`Bell`] that is registered with the ring.
//!
//! ```text
//! write(LinkedSync) of 1.2 MiB:   WRITE 512K -> WRITE 512K -> WRITE 200K -> FSYNC     one chain, one completion
//! write or read of 1.2 MiB:       512K | 512K | 200K side by side                      one completion
//! ```
//!
//! Every entry is at most `IO_BYTES_MAX`: larger ones have left processes unkillable on some kernels. Entries that do not fit
//! the ring wait in a queue of our own; no more are in the kernel than the completion queue holds, so it never overflows.
//!
//! The completions of a chain's inner entries are wanted, though nobody looks at them: with `IOSQE_CQE_SKIP_SUCCESS` a durable
//! write took 10 µs less at the median and a whole scheduler's tick (4 ms) at p99 on a contended core.
//!
//! **Invariants**
//! - an operation gives exactly one [`Completion`], after its last entry: until then its buffer and file are the ring's.
//! - a chain is handed to the kernel in one piece: a sync that lost its write would tell a lie. A ring whose chain was cut all
//!   the same is broken, and keeps what it was lent for ever.
//! - a short write, a failed one and a cancelled sync are failures, never tried again here.

mod operation;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use thiserror::Error;

use crate::io::bell::Bell;
use crate::types::AlignedBuffer;
use crate::types::limits::{BLOCK, IO_BYTES_MAX};

use operation::{Kind, Operation, Operations};

/// An open file. Cheap to clone; closed when the last clone and the last operation on it are gone.
#[derive(Clone, Debug)]
pub struct DiskFile(Rc<OwnedFd>);

impl From<OwnedFd> for DiskFile {
    fn from(fd: OwnedFd) -> Self {
        Self(Rc::new(fd))
    }
}

impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl DiskFile {
    /// Whether nobody else, and no operation under way, has it open through this.
    pub(in crate::io) fn is_unshared(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    fn target(&self) -> types::Fd {
        types::Fd(self.0.as_raw_fd())
    }
}

/// Memory lent to an operation, given back with its completion.
#[derive(Debug)]
pub enum Buffer {
    /// The operation needs none.
    None,
    Owned(Box<AlignedBuffer>),
    /// For writes from memory that also serves reads.
    Shared(Arc<AlignedBuffer>),
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Owned(buffer) => buffer,
            Self::Shared(buffer) => buffer,
        }
    }

    /// The buffer of an operation that was given an owned one.
    ///
    /// # Panics
    /// If it was not.
    #[must_use]
    pub fn into_owned(self) -> Box<AlignedBuffer> {
        match self {
            Self::Owned(buffer) => buffer,
            Self::None | Self::Shared(_) => panic!("the operation was given no buffer of its own"),
        }
    }
}

/// What a write promises when it has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Nothing yet: a sync follows.
    None,
    /// A data sync of the file, linked behind the write.
    LinkedSync,
    /// Each entry is synced by itself (`RWF_DSYNC`): good only on devices with FUA.
    Dsync,
}

/// How a path is opened. Files are opened for direct reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenAs {
    /// A file that must be there.
    Existing,
    /// A file that is made; one that is there is emptied.
    Create,
    /// A folder, to sync it or to name paths below it.
    Folder,
}

/// Why an operation did not do what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    #[error("only {written} of {expected} bytes were written")]
    Short { written: usize, expected: usize },
    /// An entry never ran, because one before it in its chain did not succeed or the kernel cut the chain.
    #[error("cancelled with the rest of its chain")]
    Cancelled,
}

impl Failure {
    /// The errno that the core is told; EIO where there is none.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::Errno(errno) => errno,
            Self::Short { .. } | Self::Cancelled => libc::EIO,
        }
    }
}

/// What an operation did.
#[derive(Debug)]
pub enum Done {
    /// So many bytes from the start on; fewer than asked for only at the end of the file (or before bytes that the device
    /// could not give, which a read from there on will tell).
    Read {
        bytes: usize,
    },
    Opened(DiskFile),
    /// Everything else.
    Performed,
}

/// An operation's end.
#[derive(Debug)]
pub struct Completion {
    /// As given when it was started.
    pub token: u64,
    pub outcome: Result<Done, Failure>,
    pub buffer: Buffer,
}

/// The ring. Not `Send`: it lives and dies on the shard's thread.
pub struct Ring {
    uring: IoUring,
    bell: Bell,
    operations: Operations,
    /// Entries that are not yet in the submission queue, chains together.
    waiting: VecDeque<squeue::Entry>,
    /// Completions that entries in the submission queue or the kernel will give.
    completions_due: usize,
    /// Whether a chain was put into the submission queue since the kernel last emptied it.
    holds_chain: bool,
    /// A chain was cut: what its entries will do, and when, is unknown.
    is_broken: bool,
}

impl Ring {
    /// A ring with `entries` (a power of two) places for submissions and four times as many for completions.
    ///
    /// # Errors
    /// The kernel's; the probe tells what may be wrong.
    pub fn new(entries: u32) -> io::Result<Self> {
        let bell = Bell::new()?;
        let uring = IoUring::builder().dontfork().setup_cqsize(entries * 4).build(entries)?;
        uring.submitter().register_eventfd(bell.as_fd().as_raw_fd())?;
        Ok(Self {
            operations: Operations::with_capacity(entries as usize),
            waiting: VecDeque::with_capacity(entries as usize),
            completions_due: 0,
            holds_chain: false,
            is_broken: false,
            uring,
            bell,
        })
    }

    /// Rings after completions: then call [`Ring::completions`].
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Operations started and not yet given back.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    /// Bytes of the largest write with [`Durability::LinkedSync`]: its chain must fit the ring.
    #[must_use]
    pub fn linked_bytes_max(&self) -> usize {
        (self.uring.params().sq_entries() as usize - 1) * IO_BYTES_MAX
    }

    /// Reads `length` bytes at `position` into the start of `buffer`; both are whole blocks.
    pub fn read(&mut self, token: u64, file: &DiskFile, position: u64, length: usize, buffer: Box<AlignedBuffer>) {
        assert_aligned(position, &(0..length), buffer.len());
        let mut buffer = buffer;
        let start = buffer.as_mut_ptr();
        let index = self.begin(token, Kind::Read, length, Some(file), Buffer::Owned(buffer));
        for (piece, span) in pieces(&(0..length)).enumerate() {
            // The pointer stays good: the buffer's memory does not move with its owner.
            let entry = opcode::Read::new(file.target(), start.wrapping_add(span.start), piece_bytes(&span))
                .offset(position + span.start as u64)
                .build();
            self.push(index, piece, entry);
        }
    }

    /// Writes `span` of `buffer` at `position`; all are whole blocks.
    pub fn write(
        &mut self,
        token: u64,
        file: &DiskFile,
        position: u64,
        span: Range<usize>,
        buffer: Buffer,
        durability: Durability,
    ) {
        assert_aligned(position, &span, buffer.bytes().len());
        let linked = durability == Durability::LinkedSync;
        assert!(!linked || span.len() <= self.linked_bytes_max(), "a chain of {} bytes does not fit", span.len());
        let start = buffer.bytes().as_ptr();
        let flags = if durability == Durability::Dsync { libc::RWF_DSYNC } else { 0 };
        let index = self.begin(token, Kind::Write { linked }, span.len(), Some(file), buffer);
        let mut entries = 0;
        for (piece, part) in pieces(&span).enumerate() {
            let entry = opcode::Write::new(file.target(), start.wrapping_add(part.start), piece_bytes(&part))
                .offset(position + (part.start - span.start) as u64)
                .rw_flags(flags)
                .build();
            if linked {
                self.push_linked(index, piece, entry);
            } else {
                self.push(index, piece, entry);
            }
            entries = piece + 1;
        }
        if linked {
            let entry = opcode::Fsync::new(file.target()).flags(types::FsyncFlags::DATASYNC).build();
            self.push(index, entries, entry);
        }
    }

    /// Makes the bytes of a file durable, and of its metadata what is needed to find them.
    pub fn sync(&mut self, token: u64, file: &DiskFile) {
        let entry = opcode::Fsync::new(file.target()).flags(types::FsyncFlags::DATASYNC).build();
        self.single(token, Kind::Plain, Some(file), entry);
    }

    /// Makes the names in a folder durable.
    pub fn sync_folder(&mut self, token: u64, folder: &DiskFile) {
        self.single(token, Kind::Plain, Some(folder), opcode::Fsync::new(folder.target()).build());
    }

    /// Gives a file space for `bytes` from its start on and makes it as long; it reads as zeros. Whole blocks.
    pub fn allocate(&mut self, token: u64, file: &DiskFile, bytes: u64) {
        self.single(token, Kind::Plain, Some(file), opcode::Fallocate::new(file.target(), bytes).build());
    }

    /// Gives a span of a file back to the file system, without changing its length: a large file is let go in pieces.
    pub fn release(&mut self, token: u64, file: &DiskFile, span: Range<u64>) {
        let entry = opcode::Fallocate::new(file.target(), span.end - span.start)
            .offset(span.start)
            .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
            .build();
        self.single(token, Kind::Plain, Some(file), entry);
    }

    /// Opens a path below `folder`.
    pub fn open(&mut self, token: u64, folder: &DiskFile, path: CString, open_as: OpenAs) {
        let flags = libc::O_CLOEXEC
            | match open_as {
                OpenAs::Existing => libc::O_RDWR | libc::O_DIRECT,
                OpenAs::Create => libc::O_RDWR | libc::O_DIRECT | libc::O_CREAT | libc::O_TRUNC,
                OpenAs::Folder => libc::O_RDONLY | libc::O_DIRECTORY,
            };
        let entry = opcode::OpenAt::new(folder.target(), path.as_ptr()).flags(flags).mode(0o640).build();
        self.named(token, Kind::Open, folder, [Some(path), None], entry);
    }

    /// Makes a folder below `folder`.
    pub fn make_folder(&mut self, token: u64, folder: &DiskFile, path: CString) {
        let entry = opcode::MkDirAt::new(folder.target(), path.as_ptr()).mode(0o750).build();
        self.named(token, Kind::Plain, folder, [Some(path), None], entry);
    }

    /// Removes the name of a file below `folder`.
    pub fn unlink(&mut self, token: u64, folder: &DiskFile, path: CString) {
        let entry = opcode::UnlinkAt::new(folder.target(), path.as_ptr()).build();
        self.named(token, Kind::Plain, folder, [Some(path), None], entry);
    }

    /// Gives a file below `folder` another name there; an existing file of that name is replaced.
    pub fn rename(&mut self, token: u64, folder: &DiskFile, from: CString, to: CString) {
        let entry = opcode::RenameAt::new(folder.target(), from.as_ptr(), folder.target(), to.as_ptr()).build();
        self.named(token, Kind::Plain, folder, [Some(from), Some(to)], entry);
    }

    /// Hands everything started so far to the kernel. Call it once a turn, after the turn's operations.
    ///
    /// # Errors
    /// The kernel refuses the ring itself: nothing more can be done with it. A passing lack of resources is no error: the
    /// bell rings and [`Ring::completions`] tries again.
    pub fn submit(&mut self) -> io::Result<()> {
        loop {
            self.fill_queue();
            if self.uring.submission().is_empty() {
                return Ok(());
            }
            let taken = self.enter(0)?;
            if self.waiting.is_empty() || taken == 0 {
                return Ok(());
            }
        }
    }

    /// Gives back what has completed, without entering the kernel unless entries wait for room.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn completions(&mut self, take: &mut dyn FnMut(Completion)) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.reap(take);
        if !self.waiting.is_empty() || !self.uring.submission().is_empty() {
            self.submit()?;
        }
        Ok(())
    }

    /// Blocks this thread until something has completed, and gives it back. Not for executors.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn wait(&mut self, take: &mut dyn FnMut(Completion)) -> io::Result<()> {
        let before = self.in_flight();
        while self.in_flight() == before && before > 0 {
            self.fill_queue();
            self.enter(1)?;
            self.reap(take);
        }
        Ok(())
    }

    fn begin(&mut self, token: u64, kind: Kind, bytes: usize, file: Option<&DiskFile>, buffer: Buffer) -> u32 {
        self.operations.insert(Operation::new(token, kind, bytes, file.cloned(), buffer))
    }

    fn single(&mut self, token: u64, kind: Kind, file: Option<&DiskFile>, entry: squeue::Entry) {
        let index = self.begin(token, kind, 0, file, Buffer::None);
        self.push(index, 0, entry);
    }

    /// Moving a `CString` does not move its bytes, so the entry's pointers stay good.
    fn named(&mut self, token: u64, kind: Kind, folder: &DiskFile, paths: [Option<CString>; 2], entry: squeue::Entry) {
        let index = self.begin(token, kind, 0, Some(folder), Buffer::None);
        self.operations.get_mut(index).paths = paths;
        self.push(index, 0, entry);
    }

    fn push(&mut self, index: u32, piece: usize, entry: squeue::Entry) {
        self.operations.get_mut(index).completions_left += 1;
        self.waiting.push_back(entry.user_data(user_data(index, piece)));
    }

    /// As `push`, for an entry whose successor must run only after it, and only if it succeeds.
    fn push_linked(&mut self, index: u32, piece: usize, entry: squeue::Entry) {
        self.operations.get_mut(index).completions_left += 1;
        self.waiting.push_back(entry.flags(squeue::Flags::IO_LINK).user_data(user_data(index, piece) | LINKED));
    }

    /// Moves waiting entries into the submission queue as far as they fit, chains whole.
    fn fill_queue(&mut self) {
        let completions = self.uring.params().cq_entries() as usize;
        let mut queue = self.uring.submission();
        while !self.waiting.is_empty() {
            let links = self.waiting.iter().take_while(|entry| entry.get_user_data() & LINKED != 0).count();
            let room = (queue.capacity() - queue.len()).min(completions - self.completions_due);
            if links + 1 > room {
                break;
            }
            self.holds_chain |= links > 0;
            for entry in self.waiting.drain(..=links) {
                // SAFETY: what the entry points to (buffer, paths) and its file are kept by its operation until the entry's
                // completion has been reaped.
                unsafe { queue.push(&entry) }.expect("room was counted");
            }
            self.completions_due += links + 1;
        }
    }

    /// Enters the kernel with what is in the submission queue. Gives the number of entries that it took.
    fn enter(&mut self, want: usize) -> io::Result<usize> {
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let queued = self.uring.submission().len();
        match self.uring.submit_and_wait(want) {
            Ok(taken) if taken >= queued => self.holds_chain = false,
            // The kernel ran out of memory between two entries. Where that was inside a chain, the rest would run unlinked, and
            // its sync tell of bytes that are not written yet.
            Ok(_) if self.holds_chain => {
                self.is_broken = true;
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            Ok(taken) => {
                self.bell.ring();
                return Ok(taken);
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {
                    self.bell.ring();
                    return Ok(0);
                }
                _ => return Err(error),
            },
        }
        Ok(queued)
    }

    fn reap(&mut self, take: &mut dyn FnMut(Completion)) {
        for entry in self.uring.completion() {
            self.completions_due -= 1;
            let index = index_of(entry.user_data());
            let operation = self.operations.get_mut(index);
            operation.entry_ended(piece_of(entry.user_data()), entry.result());
            if operation.completions_left == 0 {
                take(self.operations.remove(index).into_completion());
            }
        }
    }
}

impl Drop for Ring {
    /// Waits for the kernel to let go of the buffers. What was never handed to it is dropped.
    fn drop(&mut self) {
        while self.completions_due > 0 {
            // Entries in the submission queue are handed over, too: they cannot be taken back.
            if self.enter(1).is_err() {
                // The kernel may still write into the buffers: better lost than freed.
                mem::forget(mem::replace(&mut self.operations, Operations::with_capacity(0)));
                return;
            }
            self.reap(&mut |_| ());
        }
    }
}

/// Set in the user data of an entry with a successor in its chain.
const LINKED: u64 = 1 << 31;

fn user_data(index: u32, piece: usize) -> u64 {
    let piece = u64::try_from(piece).expect("a piece's number");
    assert!(piece < LINKED, "an operation of {piece} pieces");
    u64::from(index) << 32 | piece
}

fn index_of(user_data: u64) -> u32 {
    (user_data >> 32) as u32
}

fn piece_of(user_data: u64) -> usize {
    usize::try_from(user_data & (LINKED - 1)).expect("31 bits")
}

/// `span` cut at the largest single read or write.
fn pieces(span: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let Range { start, end } = *span;
    (start..end).step_by(IO_BYTES_MAX).map(move |from| from..end.min(from + IO_BYTES_MAX))
}

fn piece_bytes(piece: &Range<usize>) -> u32 {
    u32::try_from(piece.len()).expect("at most IO_BYTES_MAX")
}

fn assert_aligned(position: u64, span: &Range<usize>, capacity: usize) {
    assert!(!span.is_empty() && span.end <= capacity, "bytes {span:?} of a buffer of {capacity}");
    assert!(
        position.is_multiple_of(BLOCK as u64) && span.start.is_multiple_of(BLOCK) && span.end.is_multiple_of(BLOCK),
        "bytes {span:?} at {position} are not whole blocks"
    );
}
