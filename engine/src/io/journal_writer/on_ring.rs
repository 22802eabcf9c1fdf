//! Groups through a ring of their own, so that nothing else's entries stand before them: `Linked` and `AsyncDsync`.

use std::io;
use std::os::fd::OwnedFd;

use super::{CANCELLED, GroupWrite, GroupWritten, SyncWay};
use crate::io::bell::Bell;
use crate::io::ring::{Buffer, DiskFile, Durability, Ring};
use crate::types::limits::{BATCH_BYTES_CEILING, IO_BYTES_MAX};

/// Places in the ring: the chain of the largest group, one batch at the ceiling with its headers, must fit.
const ENTRIES: u32 = 64;

const _: () = assert!(BATCH_BYTES_CEILING / IO_BYTES_MAX + 2 < ENTRIES as usize);

pub(super) struct OnRing {
    ring: Ring,
    files: Vec<DiskFile>,
    durability: Durability,
    /// Submitted and not completed.
    busy: bool,
    /// To be submitted when what is in flight is durable.
    waiting: Option<GroupWrite>,
    /// Not written, because the one before it failed.
    cancelled: Option<GroupWritten>,
    failed: bool,
}

impl OnRing {
    pub(super) fn new(way: SyncWay, files: Vec<OwnedFd>) -> io::Result<Self> {
        let durability = if way == SyncWay::AsyncDsync { Durability::Dsync } else { Durability::LinkedSync };
        let files = files.into_iter().map(DiskFile::from).collect();
        let ring = Ring::new(ENTRIES)?;
        Ok(Self { ring, files, durability, busy: false, waiting: None, cancelled: None, failed: false })
    }

    pub(super) fn start(&mut self, group: GroupWrite) -> io::Result<()> {
        if self.failed {
            self.cancelled = Some(GroupWritten { outcome: Err(CANCELLED), buffer: group.buffer });
            self.ring.bell().ring();
            return Ok(());
        }
        if self.busy {
            self.waiting = Some(group);
            return Ok(());
        }
        self.busy = true;
        let durability = if group.durable { self.durability } else { Durability::None };
        let span = 0..group.length;
        self.ring.write(0, &self.files[group.file], group.position, span, Buffer::Owned(group.buffer), durability);
        self.ring.submit()
    }

    pub(super) fn finished(&mut self) -> io::Result<Option<GroupWritten>> {
        let mut written = None;
        self.ring.completions(&mut |completion| {
            let outcome = completion.outcome.map(|_| ());
            written = Some(GroupWritten { outcome, buffer: completion.buffer.into_owned() });
        })?;
        let Some(GroupWritten { outcome, .. }) = &written else { return Ok(self.cancelled.take()) };
        self.busy = false;
        self.failed = outcome.is_err();
        if let Some(group) = self.waiting.take() {
            self.start(group)?;
        }
        Ok(written)
    }

    pub(super) fn bell(&self) -> &Bell {
        self.ring.bell()
    }
}
