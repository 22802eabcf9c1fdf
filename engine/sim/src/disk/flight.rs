//! Operations in flight: given now, done after a while, in any order.
//!
//! Nothing of an operation shows before it is done, but a crash before that may leave any part of it.

use sealog_engine::api::port::DataFile;
use sealog_engine::shard::command::FileOperation;
use sealog_engine::shard::event::{Failed, FileResult};
use sealog_engine::types::AlignedBuffer;
use sealog_engine::types::time::{MICROSECOND_NS, MILLISECOND_NS};

use super::{Disk, EIO, FileId};

/// The longest stall.
const STALL_MS_MAX: u64 = 500;

/// Names an operation in flight. Never given twice in one life of the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(pub u64);

/// To do.
#[derive(Debug)]
pub enum Operation {
    /// One of the engine's file operations.
    File(FileOperation),
    /// One journal group: its bytes, and then a sync if it asks for one.
    Group { file: DataFile, position: u64, buffer: Box<AlignedBuffer>, length: usize, sync: bool },
}

/// Done.
#[derive(Debug)]
pub enum Completed {
    File(Result<FileResult, Failed>),
    Group { buffer: Box<AlignedBuffer>, outcome: Result<(), Failed> },
}

/// An operation and, for a sync, which writes it covers.
pub(super) struct Flight {
    pub(super) operation: Operation,
    covers: Option<(FileId, u64)>,
}

impl Disk {
    /// Takes an operation. Returns its name and after how many ns it is to be completed.
    ///
    /// # Panics
    /// If a write is not of whole blocks, or if one that is in flight shares a block with it: their order would be left to chance.
    pub fn submit(&mut self, operation: Operation) -> (Ticket, u64) {
        if let Some(span) = write_span(&operation) {
            for other in self.flights.values().filter_map(|flight| write_span(&flight.operation)) {
                let apart = other.0 != span.0 || other.2 <= span.1 || span.2 <= other.1;
                assert!(apart, "two writes in flight share a block: {other:?} and {span:?}");
            }
        }
        let covers = match &operation {
            Operation::File(FileOperation::Sync { file }) => {
                self.listed.get(file).map(|id| (*id, self.files[id].serial()))
            }
            Operation::File(_) | Operation::Group { .. } => None,
        };
        let latency_ns = self.latency_ns(&operation) + self.stall_ns(&operation);
        self.ticket_next += 1;
        let ticket = Ticket(self.ticket_next);
        self.flights.insert(ticket, Flight { operation, covers });
        (ticket, latency_ns)
    }

    /// Completes an operation. `None` if it was in flight at a crash.
    pub fn complete(&mut self, ticket: Ticket) -> Option<Completed> {
        let Flight { operation, covers } = self.flights.remove(&ticket)?;
        Some(match operation {
            Operation::Group { file, position, buffer, length, sync } => {
                let outcome = self.write_group(file, position, &buffer[..length], sync);
                Completed::Group { buffer, outcome }
            }
            Operation::File(operation) => Completed::File(self.perform(operation, covers)),
        })
    }

    fn write_group(&mut self, file: DataFile, position: u64, bytes: &[u8], sync: bool) -> Result<(), Failed> {
        let position = place(position);
        if self.take_write_failure() {
            self.write_some(file, position, bytes);
            return Err(Failed { errno: EIO });
        }
        if sync && self.take_sync_failure() {
            self.group_sync_failed = true;
            let file = self.file(file)?;
            file.write(position, bytes);
            let serial = file.serial();
            file.lose(serial);
            return Err(Failed { errno: EIO });
        }
        let write_only = self.profile.sync_covers_write_only;
        let file = self.file(file)?;
        match (sync, write_only) {
            (false, _) => file.write(position, bytes),
            (true, true) => file.write_through(position, bytes),
            (true, false) => {
                let serial = file.serial();
                file.sync(serial);
                file.write_through(position, bytes);
            }
        }
        Ok(())
    }

    fn perform(&mut self, operation: FileOperation, covers: Option<(FileId, u64)>) -> Result<FileResult, Failed> {
        match operation {
            FileOperation::Create { file, bytes, fill: _ } => self.create(file, bytes)?,
            FileOperation::Write { file, position, buffer, length } => {
                if self.take_write_failure() {
                    self.write_some(file, place(position), &buffer[..length]);
                    return Err(Failed { errno: EIO });
                }
                self.file(file)?.write_shared(place(position), buffer, length);
            }
            FileOperation::Sync { file } => {
                let fails = self.take_sync_failure();
                self.file(file)?;
                let (id, serial) = covers.ok_or(Failed { errno: super::ENOENT })?;
                if let Some(file) = self.files.get_mut(&id) {
                    if fails {
                        file.lose(serial);
                        return Err(Failed { errno: EIO });
                    }
                    file.sync(serial);
                }
            }
            FileOperation::SyncFolder { folder } => self.sync_folder(folder)?,
            FileOperation::Read { file, position, length } => {
                let (bytes, there, unreadable) = self.file(file)?.read(place(position), length);
                if !unreadable.is_empty() {
                    return Err(Failed { errno: EIO });
                }
                return Ok(FileResult::Read { bytes, length: there });
            }
            FileOperation::Remove { file } => self.remove(file),
        }
        Ok(FileResult::Done)
    }

    /// Of a write that did not come to its end: any of its sectors, or a part of them from the beginning.
    pub(super) fn write_some(&mut self, file: DataFile, position: usize, bytes: &[u8]) {
        let mut random = self.random.clone();
        let count = bytes.len().div_ceil(super::SECTOR) as u64;
        let (prefix, scattered) = match (self.tear_at, random.below(4)) {
            (Some(sectors), _) => (sectors, false),
            (None, 0) => (0, false),
            (None, 1) => (count, false),
            (None, 2) => (random.between(0, count), false),
            (None, _) => (0, true),
        };
        if let Ok(file) = self.file(file) {
            for (index, sector) in super::file::sectors(bytes.len()).enumerate() {
                if (index as u64) < prefix || scattered && random.one_in(2) {
                    file.write(position + sector.start, &bytes[sector]);
                }
            }
        }
        self.random = random;
    }

    fn latency_ns(&mut self, operation: &Operation) -> u64 {
        let random = &mut self.random;
        let transfer = |bytes: usize| (bytes as u64).div_ceil(2);
        let ns = match operation {
            Operation::Group { length, sync, .. } => {
                let sync_ns = if *sync { random.spread_between(20, 400) * MICROSECOND_NS } else { 0 };
                random.between(5, 20) * MICROSECOND_NS + transfer(*length) + sync_ns
            }
            Operation::File(FileOperation::Write { length, .. } | FileOperation::Read { length, .. }) => {
                random.spread_between(10, 200) * MICROSECOND_NS + transfer(*length)
            }
            Operation::File(
                FileOperation::Create { .. }
                | FileOperation::Sync { .. }
                | FileOperation::SyncFolder { .. }
                | FileOperation::Remove { .. },
            ) => random.spread_between(30, 2_000) * MICROSECOND_NS,
        };
        ns * self.profile.slowness
    }

    /// How much longer than that it takes.
    fn stall_ns(&mut self, operation: &Operation) -> u64 {
        let may_stall = match operation {
            Operation::File(
                FileOperation::Create { .. } | FileOperation::Sync { .. } | FileOperation::SyncFolder { .. },
            ) => self.profile.stall_one_in > 0,
            Operation::File(
                FileOperation::Write { .. } | FileOperation::Read { .. } | FileOperation::Remove { .. },
            )
            | Operation::Group { .. } => false,
        };
        if may_stall && self.stalls.one_in(self.profile.stall_one_in) {
            self.stalls.spread_between(2, STALL_MS_MAX) * MILLISECOND_NS
        } else {
            0
        }
    }
}

/// File, first byte and end of a write.
fn write_span(operation: &Operation) -> Option<(DataFile, u64, u64)> {
    let (file, position, length) = match operation {
        Operation::Group { file, position, length, .. }
        | Operation::File(FileOperation::Write { file, position, length, .. }) => (*file, *position, *length),
        Operation::File(
            FileOperation::Create { .. }
            | FileOperation::Sync { .. }
            | FileOperation::SyncFolder { .. }
            | FileOperation::Read { .. }
            | FileOperation::Remove { .. },
        ) => return None,
    };
    let block = sealog_engine::types::limits::BLOCK as u64;
    assert!(
        position.is_multiple_of(block) && (length as u64).is_multiple_of(block),
        "{file}: a write is of whole blocks"
    );
    Some((file, position, position + length as u64))
}

/// A position as an index.
pub(super) fn place(position: u64) -> usize {
    usize::try_from(position).expect("a simulated file fits the memory")
}
