//! Writes journal groups, one at a time: given a buffer, a file of the ring and a position, it makes those bytes durable there
//! and gives the buffer back with the outcome. A second group may be given meanwhile: it is begun when the first is durable, by
//! the writer itself: a thread does that at once, a ring when its completion is looked at.
//!
//! Which of three ways is fastest depends on the device and the kernel, and by a factor of eighty on a busy core, so it is
//! measured at start ([`calibrate`](crate::io::calibrate)) or set:
//!
//! ```text
//! Linked      own ring: WRITE -> FSYNC(datasync), linked          no thread; the sync runs on a kernel worker
//! Thread      a thread: pwritev2(RWF_DSYNC), handed one group     lowest tail where a core is to spare
//! AsyncDsync  own ring: WRITE with RWF_DSYNC                      one command on devices with FUA; elsewhere its completion
//!                                                                 waits for a kernel worker that a busy core keeps out
//! ```
//!
//! **Invariants**
//! - exactly one group is being written; at most one waits behind it. Behind one that failed nothing is written any more.
//! - `Ok` means that every byte of the group is on stable storage (if `durable` was asked for); anything less is an error,
//!   never tried again here.
//! - starting and finishing allocates nothing and takes no lock.

mod on_ring;
#[cfg(test)]
mod tests;
mod thread;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use crate::api::port::DataFile;
use crate::io::bell::Bell;
use crate::io::recorder::{Act, ActId, Content, Recorder};
use crate::io::ring::Failure;
use crate::io::store::{Opening, open_direct};
use crate::types::AlignedBuffer;

use on_ring::OnRing;
use thread::OnThread;

/// How a group becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncWay {
    Linked,
    Thread,
    AsyncDsync,
}

impl SyncWay {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Linked, Self::Thread, Self::AsyncDsync];

    fn name(self) -> &'static str {
        match self {
            Self::Linked => "linked",
            Self::Thread => "thread",
            Self::AsyncDsync => "async-dsync",
        }
    }
}

impl fmt::Display for SyncWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No way to sync has this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not a way to sync: use linked, thread or async-dsync")]
pub struct UnknownSyncWay;

impl FromStr for SyncWay {
    type Err = UnknownSyncWay;

    fn from_str(name: &str) -> Result<Self, UnknownSyncWay> {
        Self::ALL.into_iter().find(|way| way.name() == name).ok_or(UnknownSyncWay)
    }
}

/// One group to be written.
#[derive(Debug)]
pub struct GroupWrite {
    /// Which file of the journal's ring, by its place in the paths that the writer was opened with.
    pub file: usize,
    /// Byte position in that file; a block boundary.
    pub position: u64,
    /// Bytes from the start of `buffer`; whole blocks.
    pub length: usize,
    /// False only for the group that an idle shard writes behind its last one, which nobody waits for.
    pub durable: bool,
    pub buffer: Box<AlignedBuffer>,
}

/// A group's end.
#[derive(Debug)]
pub struct GroupWritten {
    pub outcome: Result<(), Failure>,
    pub buffer: Box<AlignedBuffer>,
}

/// A journal could not be opened for writing.
#[derive(Debug, Error)]
pub enum OpenJournalError {
    #[error("cannot open the journal file {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("cannot set up a ring for the journal: {error}")]
    Ring { error: io::Error },
    #[error("cannot start the journal's writer thread: {error}")]
    Thread { error: io::Error },
}

/// Writes one journal. Lives on the shard's thread.
pub struct JournalWriter {
    way: Way,
    /// Groups given and not given back.
    in_flight: usize,
    recording: Option<GroupRecording>,
}

/// Where groups are taken down.
struct GroupRecording {
    recorder: Recorder,
    /// The files of the ring.
    files: Vec<DataFile>,
    /// The group in flight.
    group: Option<ActId>,
    /// The one behind it, which is taken down when it may have been begun: all of it.
    waiting: Option<Waiting>,
}

/// A group whose writing has not been taken down yet.
struct Waiting {
    file: usize,
    position: u64,
    durable: bool,
    bytes: Vec<u8>,
}

/// The outcome of a group behind one that failed.
const CANCELLED: Failure = Failure::Errno(libc::ECANCELED);
/// Groups that may be given before the first of them is given back.
pub const GROUPS_MAX: usize = 2;

impl GroupRecording {
    fn given(&mut self, group: &GroupWrite) {
        let (file, position, durable, bytes) =
            (group.file, group.position, group.durable, &group.buffer[..group.length]);
        if self.group.is_none() {
            self.begin(file, position, durable, bytes);
        } else {
            self.waiting = Some(Waiting { file, position, durable, bytes: bytes.to_vec() });
        }
    }

    fn begin(&mut self, file: usize, position: u64, durable: bool, bytes: &[u8]) {
        let (file, content) = (self.files[file], Content::Named);
        self.group = Some(self.recorder.begin(Act::Write { file, content, position, bytes, durable }));
    }

    /// The one behind it may have been begun since: nobody has been told, so a cut in between looks as one before.
    fn ended(&mut self, written: &GroupWritten) {
        let (group, waiting) = (self.group.take(), self.waiting.take());
        if let Some(group) = group.filter(|_| written.outcome.is_ok()) {
            self.recorder.ended(group);
            if let Some(Waiting { file, position, durable, bytes }) = waiting {
                self.begin(file, position, durable, &bytes);
            }
        }
    }
}

enum Way {
    Ring(Box<OnRing>),
    Thread(OnThread),
}

impl JournalWriter {
    /// Opens the files of a journal, which exist and are filled.
    ///
    /// # Errors
    /// A file cannot be opened for direct writes, or the ring or thread cannot be had.
    pub fn open(way: SyncWay, paths: &[PathBuf]) -> Result<Self, OpenJournalError> {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let file = open_direct(path, Opening::Existing)
                .map_err(|error| OpenJournalError::File { path: path.clone(), error })?;
            files.push(file);
        }
        let way = match way {
            SyncWay::Linked | SyncWay::AsyncDsync => {
                Way::Ring(Box::new(OnRing::new(way, files).map_err(|error| OpenJournalError::Ring { error })?))
            }
            SyncWay::Thread => Way::Thread(OnThread::new(files).map_err(|error| OpenJournalError::Thread { error })?),
        };
        Ok(Self { way, in_flight: 0, recording: None })
    }

    /// Takes down all that is written from now on; `files` are those of the paths that it was opened with.
    pub fn record(&mut self, recorder: Recorder, files: Vec<DataFile>) {
        self.recording = Some(GroupRecording { recorder, files, group: None, waiting: None });
    }

    /// Starts writing a group, or has it written behind the one that is. Its end is told by the bell, and taken by
    /// [`JournalWriter::finished`].
    ///
    /// # Errors
    /// The kernel refuses the ring itself: the group will not be written, and neither will any other. What it lent is lost
    /// with the writer.
    ///
    /// # Panics
    /// If [`GROUPS_MAX`] have not been given back, there is no such file, or the span is not of whole blocks.
    pub fn start(&mut self, group: GroupWrite) -> io::Result<()> {
        assert!(self.in_flight < GROUPS_MAX, "one group is written, and one waits");
        self.in_flight += 1;
        if let Some(recording) = &mut self.recording {
            recording.given(&group);
        }
        match &mut self.way {
            Way::Ring(ring) => ring.start(group),
            Way::Thread(thread) => {
                thread.start(group);
                Ok(())
            }
        }
    }

    /// The oldest group not given back, if it has ended. Looks at memory only.
    ///
    /// # Errors
    /// As [`JournalWriter::start`].
    pub fn finished(&mut self) -> io::Result<Option<GroupWritten>> {
        let written = match &mut self.way {
            Way::Ring(ring) => ring.finished()?,
            Way::Thread(thread) => thread.finished(),
        };
        self.in_flight -= usize::from(written.is_some());
        if let (Some(recording), Some(written)) = (&mut self.recording, &written) {
            recording.ended(written);
        }
        Ok(written)
    }

    /// Blocks this thread until the oldest group not given back has ended. Not for executors.
    ///
    /// # Errors
    /// As [`JournalWriter::start`].
    ///
    /// # Panics
    /// If none is in flight.
    pub fn wait(&mut self) -> io::Result<GroupWritten> {
        assert!(self.in_flight > 0, "no group to wait for");
        loop {
            if let Some(written) = self.finished()? {
                return Ok(written);
            }
            self.bell().wait();
        }
    }

    /// Whether a group has not been given back.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0
    }

    /// Rings when the group in flight may have ended.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        match &self.way {
            Way::Ring(ring) => ring.bell(),
            Way::Thread(thread) => thread.bell(),
        }
    }
}
