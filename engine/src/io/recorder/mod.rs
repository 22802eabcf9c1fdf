//! Records what a node asks of its disk, so that a test can build what a power cut at any moment would have left of it.
//!
//! ```text
//!  store (recovery), files, journal_writer --begin, ended-->+
//!                                                           |--> one file: the timeline
//!  whoever drives the node, what it is told --note--------->+
//!
//!  begin write 7   begin sync 8   ended 7   note "acknowledged"   ended 8      a cut may be before or behind each of them
//! ```
//! An act may have any part of its effect as soon as it has begun, and has all of it (though nothing of it durably) once it has ended. A
//! sync makes durable what had ended when the sync began, once it has ended itself. So acts are noted *before* they are handed to the
//! kernel, and their ends *after* the kernel has told them: the recording never claims more than the device promised.
//!
//! One file behind one lock, and not one a shard: the order of the file is the order of the timeline. A recorded node is slower; one that
//! is not recorded pays a branch an operation.

mod read;
mod store;

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::port::{DataFile, Folder};

pub use read::{ReadRecordingError, Recorded, Recording};
pub use store::RecordedStore;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Which bytes a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Content {
    /// Those under the file's name.
    Named,
    /// Those of `NAME.new`, which is being made.
    New,
    /// Those that had the file's name before it was removed.
    Removed,
}

/// Something that changes the data directory, or makes changes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act<'a> {
    /// A folder is made; one that is there is left alone.
    MakeFolder { folder: Folder },
    /// `NAME.new` is made, empty.
    MakeNew { file: DataFile },
    /// A file is made at least so many bytes long; what is added reads as zeros.
    Extend { file: DataFile, content: Content, bytes: u64 },
    /// Bytes are written; if `durable`, they are synced when the act has ended.
    Write { file: DataFile, content: Content, position: u64, bytes: &'a [u8], durable: bool },
    /// Zeros are written, or a span is given back to the file system and reads as zeros.
    Zero { file: DataFile, content: Content, position: u64, bytes: u64 },
    /// `NAME.new` takes the place of the file.
    Rename { file: DataFile },
    /// The file is removed.
    Remove { file: DataFile },
    /// The file's bytes are made durable.
    Sync { file: DataFile, content: Content },
    /// The names in a folder are made durable (not those in folders above it).
    SyncFolder { folder: Folder },
}

/// Names an act that has begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ActId(pub u64);

/// Writes a recording. Clones write the same one.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Timeline>>);

struct Timeline {
    out: BufWriter<File>,
    /// Acts begun so far.
    begun: u64,
}

impl Recorder {
    /// Begins a recording in a file, which is emptied if it is there. It does not belong into the data directory.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        Ok(Self(Arc::new(Mutex::new(Timeline { out, begun: 0 }))))
    }

    /// Takes down that an act begins; call it before anything of it is asked of the kernel.
    ///
    /// # Panics
    /// If the recording cannot be written: one with a hole would prove nothing.
    pub fn begin(&self, act: Act<'_>) -> ActId {
        self.with(|timeline| {
            timeline.begun += 1;
            read::encode_act(&mut timeline.out, act)?;
            Ok(ActId(timeline.begun - 1))
        })
    }

    /// Takes down that an act has ended well. One that has failed is never ended.
    ///
    /// # Panics
    /// As [`Recorder::begin`].
    pub fn ended(&self, act: ActId) {
        self.with(|timeline| read::encode_ended(&mut timeline.out, act));
    }

    /// Takes down what whoever drives the node wants to find on the timeline.
    ///
    /// # Panics
    /// As [`Recorder::begin`].
    pub fn note(&self, text: &str) {
        self.with(|timeline| read::encode_note(&mut timeline.out, text));
    }

    /// Writes what is still gathered, so that the recording can be read.
    ///
    /// # Panics
    /// As [`Recorder::begin`].
    pub fn flush(&self) {
        self.with(|timeline| timeline.out.flush());
    }

    fn with<T>(&self, take: impl FnOnce(&mut Timeline) -> io::Result<T>) -> T {
        // A shard that panicked left the timeline whole or ended the process.
        let mut timeline = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        take(&mut timeline).expect("the recording can be written")
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SegmentId, ShardId};

    #[test]
    fn a_recording_reads_back_as_it_was_taken_down() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("recording");
        let recorder = Recorder::create(&path).expect("a file");
        let segment = DataFile::Segment { segment: SegmentId(0x1ff), part: 0 };
        let journal = DataFile::Journal { shard: ShardId(1), file: 0 };
        let acts = [
            Act::MakeFolder { folder: Folder::SegmentsOf(0xff) },
            Act::MakeNew { file: segment },
            Act::Extend { file: segment, content: Content::New, bytes: 4096 },
            Act::Rename { file: segment },
            Act::Write { file: journal, content: Content::Named, position: 8192, bytes: &[7; 512], durable: true },
            Act::Zero { file: segment, content: Content::Removed, position: 0, bytes: 4096 },
            Act::Sync { file: segment, content: Content::Named },
            Act::SyncFolder { folder: Folder::Root },
            Act::Remove { file: segment },
        ];
        for act in acts {
            recorder.begin(act);
        }
        recorder.note("so far");
        recorder.ended(ActId(4));
        recorder.flush();
        let recording = Recording::open(&path).expect("whole");
        let mut expected: Vec<Recorded<'_>> =
            acts.into_iter().zip(0..).map(|(act, id)| Recorded::Begun { id: ActId(id), act }).collect();
        expected.extend([Recorded::Note("so far"), Recorded::Ended(ActId(4))]);
        assert_eq!(recording.events().collect::<Vec<_>>(), expected);
    }
}
