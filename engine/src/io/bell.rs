//! An eventfd that wakes an executor (or a thread) when something has completed elsewhere.
//!
//! A glommio executor sleeps in its own ring, so what completes in another ring or on another thread must reach it as a
//! readable file: the executor keeps one read of eight bytes pending. The fd is in blocking mode on purpose: io_uring would
//! answer a read of a non-blocking one with EAGAIN at once instead of arming a poll.
//!
//! **Invariant**: a bell carries no content. Who hears it looks at everything it stands for; rings that come before the
//! look are one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use glommio::io::BufferedFile;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// One eventfd.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Rings it. Never blocks: the counter would have to reach 2^64 - 1 unheard rings.
    pub fn ring(&self) {
        while let Err(errno) = rustix::io::write(&self.fd, &1u64.to_ne_bytes()) {
            assert!(errno == Errno::INTR, "an eventfd refused a write: {errno}");
        }
    }

    /// Blocks this thread until it has rung since the last time it was heard. Not for executors.
    pub fn wait(&self) {
        let mut count = [0u8; 8];
        while let Err(errno) = rustix::io::read(&self.fd, &mut count) {
            assert!(errno == Errno::INTR, "an eventfd refused a read: {errno}");
        }
    }

    /// Something that a task on this thread's executor can await.
    ///
    /// # Errors
    /// No more file descriptors.
    ///
    /// # Panics
    /// If this thread runs no executor.
    pub fn listener(&self) -> io::Result<BellListener> {
        let fd = self.fd.try_clone()?.into_raw_fd();
        // SAFETY: the descriptor was just duplicated and released, so the file is its only owner.
        Ok(BellListener { file: unsafe { BufferedFile::from_raw_fd(fd) } })
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A bell as an executor hears it. One task awaits it at a time.
#[derive(Debug)]
pub struct BellListener {
    file: BufferedFile,
}

impl BellListener {
    /// Ends when the bell has rung since it was last heard.
    ///
    /// # Errors
    /// The read failed; there is no reason it should, short of a lack of memory.
    pub async fn heard(&self) -> io::Result<()> {
        let read = self.file.read_at(0, 8).await.map_err(io::Error::from)?;
        assert!(read.len() == 8, "eventfd {} gave {} bytes", self.file.as_raw_fd(), read.len());
        Ok(())
    }
}
