//! Groups through a thread that writes and syncs in one blocking call.
//!
//! ```text
//!   shard                                    writer
//!   places[n % 2] = group n
//!   requested = n + 1 ─────── call ────────▶ reads the place, pwritev2(RWF_DSYNC)
//!                                            place = what came of it
//!   reads the place  ◀─────── bell ───────── finished = n + 1, then group n + 1, if it is there
//! ```
//!
//! The place of group n belongs to the writer from the store of `requested` that counts it to the store of `finished` that does, and to
//! the shard otherwise; two counters are enough, and neither side ever waits for the other.

use std::cell::UnsafeCell;
use std::io;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::io::ReadWriteFlags;

use super::{CANCELLED, GROUPS_MAX, GroupWrite, GroupWritten};
use crate::io::bell::Bell;
use crate::io::cpu;
use crate::io::ring::Failure;
use crate::types::limits::{BLOCK, IO_BYTES_MAX};

enum Place {
    Empty,
    Requested(GroupWrite),
    Finished(GroupWritten),
}

struct Shared {
    places: [UnsafeCell<Place>; GROUPS_MAX],
    /// Groups handed over, ever. Stored by the shard only.
    requested: AtomicU64,
    /// Groups given back, ever. Stored by the writer only.
    finished: AtomicU64,
    stop: AtomicBool,
    /// Wakes the writer.
    call: Bell,
    /// Wakes the shard.
    bell: Bell,
    files: Vec<OwnedFd>,
}

// SAFETY: `places` is the only part that is not `Sync`. Group n is at n % 2, and at most two are not taken back. The writer touches the
// place of a group only while that is counted by `requested` and not by `finished`, the shard only before it is counted by
// `requested` or once it is by `finished`; each counter is stored with Release after its side's last touch and loaded with
// Acquire before the other's first. All that they hold is `Send`.
unsafe impl Sync for Shared {}

pub(super) struct OnThread {
    shared: Arc<Shared>,
    /// The shard's own count of groups handed over, and of those it has taken back.
    requested: u64,
    taken: u64,
    writer: Option<thread::JoinHandle<()>>,
}

impl OnThread {
    pub(super) fn new(files: Vec<OwnedFd>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            places: std::array::from_fn(|_| UnsafeCell::new(Place::Empty)),
            requested: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            call: Bell::new()?,
            bell: Bell::new()?,
            files,
        });
        let theirs = Arc::clone(&shared);
        let writer = thread::Builder::new().name("journal".into()).spawn(move || {
            // A pinned shard would pass its pin on, and the writer would wait for the core that it is to relieve. Where the
            // cores cannot be set it stays where it was born.
            let _ = cpu::unpin();
            theirs.serve();
        })?;
        Ok(Self { shared, requested: 0, taken: 0, writer: Some(writer) })
    }

    pub(super) fn start(&mut self, group: GroupWrite) {
        assert!(group.file < self.shared.files.len(), "no journal file {}", group.file);
        assert!(group.position.is_multiple_of(BLOCK as u64) && group.length.is_multiple_of(BLOCK), "not whole blocks");
        assert!(group.length > 0 && group.length <= group.buffer.len(), "bytes {} of the buffer", group.length);
        assert!(self.requested - self.taken < GROUPS_MAX as u64, "one group is written, and one waits");
        // SAFETY: the last group of this place has been taken back, and this one is not yet requested: the place is the shard's.
        unsafe { *self.shared.place(self.requested).get() = Place::Requested(group) };
        self.requested += 1;
        self.shared.requested.store(self.requested, Ordering::Release);
        self.shared.call.ring();
    }

    pub(super) fn finished(&mut self) -> Option<GroupWritten> {
        if self.shared.finished.load(Ordering::Acquire) == self.taken {
            return None;
        }
        let group = self.taken;
        self.taken += 1;
        // SAFETY: the writer has finished this group, so its place is the shard's.
        match unsafe { std::mem::replace(&mut *self.shared.place(group).get(), Place::Empty) } {
            Place::Finished(written) => Some(written),
            Place::Empty | Place::Requested(_) => unreachable!("the writer left no result"),
        }
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.shared.bell
    }
}

impl Drop for OnThread {
    /// Waits for the group in flight: the file must not be written after the journal's owner has let it go.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.call.ring();
        if let Some(writer) = self.writer.take() {
            writer.join().expect("the journal's writer does not panic");
        }
    }
}

impl Shared {
    fn place(&self, group: u64) -> &UnsafeCell<Place> {
        &self.places[usize::try_from(group % GROUPS_MAX as u64).expect("below the number of places")]
    }

    fn serve(&self) {
        let mut served = 0;
        let mut failed = false;
        loop {
            let requested = self.requested.load(Ordering::Acquire);
            if requested == served {
                if self.stop.load(Ordering::Acquire) {
                    return;
                }
                self.call.wait();
                continue;
            }
            // SAFETY: this group has been requested and is not finished, so its place is the writer's.
            let place = unsafe { &mut *self.place(served).get() };
            let Place::Requested(group) = std::mem::replace(place, Place::Empty) else {
                unreachable!("a request without a group");
            };
            // A valid group proves every earlier one: none is written behind one that is not there.
            let outcome = if failed { Err(CANCELLED) } else { write_group(&self.files[group.file], &group) };
            failed |= outcome.is_err();
            *place = Place::Finished(GroupWritten { outcome, buffer: group.buffer });
            served += 1;
            self.finished.store(served, Ordering::Release);
            self.bell.ring();
        }
    }
}

/// Writes a group; if it is to be durable and fits one write, with the sync in the same call. Nothing is tried again, not even
/// after EINTR: it could have come from the sync, and a failed sync is final.
fn write_group(file: &OwnedFd, group: &GroupWrite) -> Result<(), Failure> {
    let single = group.length <= IO_BYTES_MAX;
    let flags = if group.durable && single { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    for (piece, bytes) in group.buffer[..group.length].chunks(IO_BYTES_MAX).enumerate() {
        let start = piece * IO_BYTES_MAX;
        let written = rustix::io::pwritev2(file, &[IoSlice::new(bytes)], group.position + start as u64, flags)
            .map_err(|errno| Failure::Errno(errno.raw_os_error()))?;
        if written < bytes.len() {
            return Err(Failure::Short { written: start + written, expected: group.length });
        }
    }
    if group.durable && !single {
        // RWF_DSYNC on each piece would be a flush each, on the last alone would (with FUA) leave out the others.
        rustix::fs::fdatasync(file).map_err(|errno| Failure::Errno(errno.raw_os_error()))?;
    }
    Ok(())
}
