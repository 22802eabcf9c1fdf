//! An operation while the kernel has it: what it lends, and what its entries have answered so far. And the slab of them.

use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Buffer, Completion, DiskFile, Done, Failure};
use crate::types::limits::IO_BYTES_MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    /// `linked`: the last entry is the sync.
    Write {
        linked: bool,
    },
    Open,
    /// Succeeds or fails, with nothing to show.
    Plain,
}

pub(super) struct Operation {
    token: u64,
    kind: Kind,
    /// Bytes to be read or written.
    bytes: usize,
    buffer: Buffer,
    /// Kept only so that the descriptor is not closed and given to another file while entries name it.
    _file: Option<DiskFile>,
    /// Kept only so that the entry's pointers stay good.
    pub(super) paths: [Option<CString>; 2],
    /// Entries whose completion has not been reaped.
    pub(super) completions_left: u32,
    /// Bytes from the start on that are surely done: ends at the first short entry.
    intact: usize,
    failure: Option<Failure>,
    opened: Option<DiskFile>,
}

impl Operation {
    pub(super) fn new(token: u64, kind: Kind, bytes: usize, file: Option<DiskFile>, buffer: Buffer) -> Self {
        Self {
            token,
            kind,
            bytes,
            buffer,
            _file: file,
            paths: [None, None],
            completions_left: 0,
            intact: bytes,
            failure: None,
            opened: None,
        }
    }

    /// A cause is kept rather than its consequence: entries behind a failed one in a chain are only cancelled.
    pub(super) fn fail(&mut self, failure: Failure) {
        if matches!(self.failure, None | Some(Failure::Cancelled)) {
            self.failure = Some(failure);
        }
    }

    /// Takes the answer of the entry number `piece`.
    pub(super) fn entry_ended(&mut self, piece: usize, result: i32) {
        self.completions_left -= 1;
        if result < 0 {
            self.fail(if result == -libc::ECANCELED { Failure::Cancelled } else { Failure::Errno(-result) });
            return;
        }
        let start = piece * IO_BYTES_MAX;
        match self.kind {
            Kind::Read | Kind::Write { .. } if start < self.bytes => {
                let expected = (self.bytes - start).min(IO_BYTES_MAX);
                let got = usize::try_from(result).expect("not negative");
                if got < expected {
                    self.intact = self.intact.min(start + got);
                }
            }
            Kind::Open => {
                // SAFETY: the kernel has just opened this descriptor for this operation, and nobody else knows it.
                self.opened = Some(DiskFile::from(unsafe { OwnedFd::from_raw_fd(result) }));
            }
            Kind::Read | Kind::Write { .. } | Kind::Plain => {}
        }
    }

    pub(super) fn into_completion(self) -> Completion {
        let short = matches!(self.kind, Kind::Write { .. }) && self.intact < self.bytes;
        let outcome = match (self.failure, self.kind) {
            // A short write breaks its chain, so what follows says only that it was cancelled.
            (None | Some(Failure::Cancelled), _) if short => {
                Err(Failure::Short { written: self.intact, expected: self.bytes })
            }
            (Some(failure), _) => Err(failure),
            (None, Kind::Read) => Ok(Done::Read { bytes: self.intact }),
            (None, Kind::Open) => Ok(Done::Opened(self.opened.expect("an open that did not fail gave a file"))),
            (None, Kind::Write { .. } | Kind::Plain) => Ok(Done::Performed),
        };
        Completion { token: self.token, outcome, buffer: self.buffer }
    }
}

/// Operations under way by index. Grows to the most that were ever under way at once, then allocates no more.
pub(super) struct Operations {
    places: Vec<Option<Operation>>,
    free: Vec<u32>,
}

impl Operations {
    pub(super) fn with_capacity(operations: usize) -> Self {
        Self { places: Vec::with_capacity(operations), free: Vec::with_capacity(operations) }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, operation: Operation) -> u32 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(operation);
            return index;
        }
        let index = u32::try_from(self.places.len()).expect("fewer than 2^32 operations");
        self.places.push(Some(operation));
        index
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Operation {
        self.places[index as usize].as_mut().expect("an operation that is under way")
    }

    pub(super) fn remove(&mut self, index: u32) -> Operation {
        let operation = self.places[index as usize].take().expect("an operation that is under way");
        self.free.push(index);
        operation
    }
}
