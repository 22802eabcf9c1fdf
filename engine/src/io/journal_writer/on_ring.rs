//! Groups through a ring of their own, so that nothing else's entries stand before them: `Linked` and `AsyncDsync`.

use std::io;
use std::os::fd::OwnedFd;

use super::{GroupWrite, GroupWritten, SyncWay};
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
}

impl OnRing {
    pub(super) fn new(way: SyncWay, files: Vec<OwnedFd>) -> io::Result<Self> {
        let durability = if way == SyncWay::AsyncDsync { Durability::Dsync } else { Durability::LinkedSync };
        Ok(Self { ring: Ring::new(ENTRIES)?, files: files.into_iter().map(DiskFile::from).collect(), durability })
    }

    pub(super) fn start(&mut self, group: GroupWrite) -> io::Result<()> {
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
        Ok(written)
    }

    pub(super) fn bell(&self) -> &Bell {
        self.ring.bell()
    }
}
