//! A shard's file operations on its ring. Most are one entry; some are a few, one after the other:
//!
//! ```text
//! Write, Read, Sync   (open) -> it
//! Create              make folders -> open NAME.new -> allocate -> (zeros, 64 KiB at a time -> sync) -> rename to NAME
//! SyncFolder          (open) -> sync, then the same for each folder above, up to the data directory
//! Remove              (open) -> unlink -> its bytes are given back 16 MiB at a time
//! ```
//!
//! A crash inside `Create` leaves the old file, if there was one, and a `NAME.new` that the store leaves out. A removed file is
//! first unnamed and then emptied through its descriptor: closing a large one would give back all of it at once, on the shard's
//! own thread. A read that still uses it is waited for, so that no reader sees zeros. Answered only then: whoever removes one file after
//! the other gives back the bytes of one at a time.
//!
//! **Invariants**
//! - a file has at most one descriptor: what was written and its sync go through the same.
//! - an operation is answered once. Nothing here decides, orders or retries: that is the core's.

mod handles;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::api::port::{DataFile, Fill, Folder};
use crate::io::bell::Bell;
use crate::io::recorder::{Act, ActId, Content, Recorder};
use crate::io::ring::{Buffer, Completion, DiskFile, Done, Durability, Failure, OpenAs, Ring};
use crate::shard::command::FileOperation;
use crate::shard::event::{Failed, FileResult, FileToken};
use crate::types::AlignedBuffer;

use handles::Handles;

/// Places in the ring.
const ENTRIES: u32 = 256;
/// Bytes of zeros in one write while a file is filled.
const FILL_BYTES: usize = 64 << 10;
/// Bytes of a removed file that are given back at once.
const RELEASE_BYTES: u64 = 16 << 20;

/// What a file operation came to.
pub type Outcome = Result<FileResult, Failed>;

/// The file operations of one shard. Lives on its thread.
pub struct Files {
    ring: Ring,
    handles: Handles,
    running: Vec<Option<Running>>,
    free: Vec<usize>,
    /// Reused.
    ended: Vec<Completion>,
    zeros: Option<Arc<AlignedBuffer>>,
    /// Removals that wait for the last reader of their file.
    waiting: Vec<usize>,
    recorder: Option<Recorder>,
}

struct Running {
    token: FileToken,
    operation: FileOperation,
    step: Step,
    /// The file that the operation is on, once it is open.
    file: Option<DiskFile>,
    /// The entry under way, if this is recorded and it changes something.
    recorded: Option<ActId>,
}

/// What the ring has been asked for.
#[derive(Clone, Copy)]
enum Step {
    /// Open the file that is there.
    Open,
    /// The last entry of a write, read or sync.
    Perform,
    MakeFolder(Folder),
    OpenNew,
    Allocate,
    Fill {
        position: u64,
    },
    SyncNew,
    Rename,
    OpenFolder(Folder),
    SyncFolder(Folder),
    Unlink,
    Release {
        position: u64,
    },
}

impl Files {
    /// For the data directory `root`, which is there.
    ///
    /// # Errors
    /// It cannot be opened, or no ring can be had.
    pub fn new(root: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            ring: Ring::new(ENTRIES)?,
            handles: Handles::new(root.into()),
            running: Vec::with_capacity(ENTRIES as usize),
            free: Vec::with_capacity(ENTRIES as usize),
            ended: Vec::with_capacity(ENTRIES as usize),
            zeros: None,
            waiting: Vec::new(),
            recorder: None,
        })
    }

    /// Takes down all that is done from now on.
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Takes down that an entry of an operation begins.
    fn begins(&mut self, index: usize, act: Act<'_>) {
        if let Some(recorder) = &self.recorder {
            let recorded = recorder.begin(act);
            self.running(index).recorded = Some(recorded);
        }
    }

    /// Rings when operations may have ended: then call [`Files::finished`].
    #[must_use]
    pub fn bell(&self) -> &Bell {
        self.ring.bell()
    }

    /// Operations started whose descriptors or buffers are still in use.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.running.len() - self.free.len()
    }

    /// Starts an operation. It reaches the kernel with the next [`Files::submit`].
    pub fn start(&mut self, token: FileToken, operation: FileOperation) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        });
        self.running[index] = Some(Running { token, operation, step: Step::Open, file: None, recorded: None });
        self.begin(index);
    }

    /// Hands what was started to the kernel. Call it once a turn.
    ///
    /// # Errors
    /// The kernel refuses the ring: nothing more can be done with it.
    pub fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()
    }

    /// Gives back what has ended, and goes on with what has not.
    ///
    /// # Errors
    /// As [`Files::submit`].
    pub fn finished(&mut self, take: &mut dyn FnMut(FileToken, Outcome)) -> io::Result<()> {
        let mut ended = std::mem::take(&mut self.ended);
        self.ring.completions(&mut |completion| ended.push(completion))?;
        self.take_all(ended, take)
    }

    /// Blocks this thread until an entry has ended, then as [`Files::finished`]. Not for executors.
    ///
    /// # Errors
    /// As [`Files::submit`].
    pub fn wait(&mut self, take: &mut dyn FnMut(FileToken, Outcome)) -> io::Result<()> {
        let mut ended = std::mem::take(&mut self.ended);
        self.ring.wait(&mut |completion| ended.push(completion))?;
        self.take_all(ended, take)
    }

    fn take_all(&mut self, mut ended: Vec<Completion>, take: &mut dyn FnMut(FileToken, Outcome)) -> io::Result<()> {
        if ended.is_empty() {
            self.ended = ended;
            return Ok(());
        }
        for completion in ended.drain(..) {
            self.go_on(completion, take);
        }
        self.ended = ended;
        for index in std::mem::take(&mut self.waiting) {
            let answer = self.release(index, 0);
            self.answer(index, answer, take);
        }
        self.ring.submit()
    }

    fn running(&mut self, index: usize) -> &mut Running {
        self.running[index].as_mut().expect("an operation that is under way")
    }

    fn begin(&mut self, index: usize) {
        match self.running(index).operation {
            FileOperation::Write { file, .. }
            | FileOperation::Sync { file }
            | FileOperation::Read { file, .. }
            | FileOperation::Remove { file } => match self.handles.file(file) {
                Some(handle) => self.with_file(index, handle),
                None => self.open(index, Step::Open, &file.to_string(), OpenAs::Existing),
            },
            FileOperation::Create { file, .. } => self.make_folder(index, file, file.folder()),
            FileOperation::SyncFolder { folder } => self.sync_folder(index, folder),
        }
    }

    /// Takes the end of one entry: the operation's next one, or its answer.
    fn go_on(&mut self, completion: Completion, take: &mut dyn FnMut(FileToken, Outcome)) {
        let index = usize::try_from(completion.token).expect("a place");
        let step = self.running(index).step;
        let recorded = self.running(index).recorded.take();
        if let (Some(recorder), Some(act), Ok(_)) = (&self.recorder, recorded, &completion.outcome) {
            recorder.ended(act);
        }
        let answer = match completion.outcome {
            Ok(done) => self.succeeded(index, step, done, completion.buffer),
            Err(failure) => self.failed(index, step, failure),
        };
        self.answer(index, answer, take);
    }

    fn answer(&mut self, index: usize, answer: Answer, take: &mut dyn FnMut(FileToken, Outcome)) {
        match answer {
            Answer::None => {}
            Answer::Last(outcome) => {
                let token = self.running(index).token;
                self.running[index] = None;
                self.free.push(index);
                take(token, outcome);
            }
        }
    }

    fn succeeded(&mut self, index: usize, step: Step, done: Done, buffer: Buffer) -> Answer {
        match (step, done) {
            (Step::Open, Done::Opened(opened)) => {
                let file = self.running(index).named();
                let handle = self.handles.keep(file, opened);
                self.with_file(index, handle);
            }
            (Step::OpenNew, Done::Opened(opened)) => {
                self.running(index).file = Some(opened);
                self.allocate(index);
            }
            (Step::OpenFolder(folder), Done::Opened(opened)) => {
                self.handles.keep_folder(folder, opened);
                self.sync_folder(index, folder);
            }
            (Step::Perform, Done::Read { bytes }) => {
                return Answer::Last(Ok(FileResult::Read { bytes: *buffer.into_owned(), length: bytes }));
            }
            (Step::MakeFolder(folder), _) => {
                let FileOperation::Create { file, .. } = self.running(index).operation else { unreachable!() };
                self.handles.made(folder);
                self.make_folder(index, file, file.folder());
            }
            (Step::Allocate, _) => self.fill(index, 0),
            (Step::Fill { position }, _) => self.fill(index, position + FILL_BYTES as u64),
            (Step::SyncNew, _) => self.rename(index),
            (Step::Rename, _) => {
                let file = self.running(index).named();
                let handle = self.running(index).file.take().expect("the new file is open");
                self.handles.replace(file, handle);
                return Answer::Last(Ok(FileResult::Done));
            }
            (Step::SyncFolder(folder), _) => match folder.above() {
                Some(above) => self.sync_folder(index, above),
                None => return Answer::Last(Ok(FileResult::Done)),
            },
            (Step::Unlink, _) => return self.release(index, 0),
            (Step::Release { position }, _) => return self.release(index, position + RELEASE_BYTES),
            (Step::Perform, _) => return Answer::Last(Ok(FileResult::Done)),
            (Step::Open | Step::OpenNew | Step::OpenFolder(_), Done::Read { .. } | Done::Performed) => {
                unreachable!("an open that opened nothing")
            }
        }
        Answer::None
    }

    fn failed(&mut self, index: usize, step: Step, failure: Failure) -> Answer {
        let removes = matches!(self.running(index).operation, FileOperation::Remove { .. });
        match (step, failure) {
            (Step::MakeFolder(_), Failure::Errno(libc::EEXIST)) => {
                self.succeeded(index, step, Done::Performed, Buffer::None)
            }
            (Step::Open | Step::Unlink, Failure::Errno(libc::ENOENT)) if removes => Answer::Last(Ok(FileResult::Done)),
            // It is unnamed; the kernel gives the rest back when it is closed.
            (Step::Release { .. }, _) => Answer::Last(Ok(FileResult::Done)),
            _ => Answer::Last(Err(Failed { errno: failure.errno() })),
        }
    }

    fn with_file(&mut self, index: usize, handle: DiskFile) {
        let token = index as u64;
        let running = self.running[index].as_mut().expect("an operation that is under way");
        running.step = Step::Perform;
        match &running.operation {
            FileOperation::Write { file, position, buffer, length } => {
                if let Some(recorder) = &self.recorder {
                    let (file, position, bytes) = (*file, *position, &buffer[..*length]);
                    let act = Act::Write { file, content: Content::Named, position, bytes, durable: false };
                    running.recorded = Some(recorder.begin(act));
                }
                let buffer = Buffer::Shared(Arc::clone(buffer));
                self.ring.write(token, &handle, *position, 0..*length, buffer, Durability::None);
            }
            FileOperation::Sync { file } => {
                let act = Act::Sync { file: *file, content: Content::Named };
                running.recorded = self.recorder.as_ref().map(|recorder| recorder.begin(act));
                self.ring.sync(token, &handle);
            }
            FileOperation::Read { position, length, .. } => {
                let buffer = Box::new(AlignedBuffer::zeroed(*length));
                self.ring.read(token, &handle, *position, *length, buffer);
            }
            FileOperation::Remove { file } => {
                running.step = Step::Unlink;
                running.file = Some(handle);
                running.recorded = self.recorder.as_ref().map(|recorder| recorder.begin(Act::Remove { file: *file }));
                self.handles.forget(*file);
                self.ring.unlink(token, self.handles.root(), path(&file.to_string()));
            }
            FileOperation::Create { .. } | FileOperation::SyncFolder { .. } => {
                unreachable!("opens no file that is there")
            }
        }
    }

    fn open(&mut self, index: usize, step: Step, name: &str, open_as: OpenAs) {
        self.running(index).step = step;
        self.ring.open(index as u64, self.handles.root(), path(name), open_as);
    }

    /// Makes the outermost folder on the way to `folder` that is not known to be there, or opens the new file.
    fn make_folder(&mut self, index: usize, file: DataFile, folder: Folder) {
        if self.handles.is_made(folder) {
            self.begins(index, Act::MakeNew { file });
            return self.open(index, Step::OpenNew, &format!("{file}.new"), OpenAs::Create);
        }
        let mut outermost = folder;
        while let Some(above) = outermost.above().filter(|above| !self.handles.is_made(*above)) {
            outermost = above;
        }
        self.running(index).step = Step::MakeFolder(outermost);
        self.begins(index, Act::MakeFolder { folder: outermost });
        self.ring.make_folder(index as u64, self.handles.root(), path(&outermost.to_string()));
    }

    fn allocate(&mut self, index: usize) {
        let FileOperation::Create { file, bytes, .. } = self.running(index).operation else { unreachable!() };
        if bytes == 0 {
            return self.fill(index, 0);
        }
        self.running(index).step = Step::Allocate;
        self.begins(index, Act::Extend { file, content: Content::New, bytes });
        let file = self.running[index].as_ref().and_then(|running| running.file.as_ref()).expect("it is open");
        self.ring.allocate(index as u64, file, bytes);
    }

    /// Writes the next zeros, if the file is to be filled and is not yet. One write at a time: others' come between them.
    fn fill(&mut self, index: usize, position: u64) {
        let FileOperation::Create { file: name, bytes, fill } = self.running(index).operation else { unreachable!() };
        if fill == Fill::Allocated {
            return self.rename(index);
        }
        let content = Content::New;
        if position >= bytes {
            self.begins(index, Act::Sync { file: name, content });
            let running = self.running[index].as_mut().expect("an operation that is under way");
            running.step = Step::SyncNew;
            return self.ring.sync(index as u64, running.file.as_ref().expect("it is open"));
        }
        let length = usize::try_from(bytes - position).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        self.begins(index, Act::Zero { file: name, content, position, bytes: length as u64 });
        let running = self.running[index].as_mut().expect("an operation that is under way");
        running.step = Step::Fill { position };
        let file = running.file.as_ref().expect("it is open");
        let zeros = self.zeros.get_or_insert_with(|| Arc::new(AlignedBuffer::zeroed(FILL_BYTES)));
        self.ring.write(index as u64, file, position, 0..length, Buffer::Shared(Arc::clone(zeros)), Durability::None);
    }

    fn rename(&mut self, index: usize) {
        let file = self.running(index).named();
        self.running(index).step = Step::Rename;
        self.begins(index, Act::Rename { file });
        let (from, to) = (path(&format!("{file}.new")), path(&file.to_string()));
        self.ring.rename(index as u64, self.handles.root(), from, to);
    }

    fn sync_folder(&mut self, index: usize, folder: Folder) {
        let Some(handle) = self.handles.folder(folder) else {
            return self.open(index, Step::OpenFolder(folder), &folder.to_string(), OpenAs::Folder);
        };
        self.ring.sync_folder(index as u64, handle);
        self.running(index).step = Step::SyncFolder(folder);
        // Nothing reaches the kernel before `submit`.
        self.begins(index, Act::SyncFolder { folder });
    }

    /// Gives back the next bytes of a file that has been unnamed, and lets go of it when all are.
    fn release(&mut self, index: usize, position: u64) -> Answer {
        let running = self.running[index].as_mut().expect("an operation that is under way");
        running.step = Step::Release { position };
        let file = running.file.as_ref().expect("it is open");
        if !file.is_unshared() {
            self.waiting.push(index);
            return Answer::None;
        }
        // Of an open file this is a look at memory.
        let length = rustix::fs::fstat(file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if position >= length {
            return Answer::Last(Ok(FileResult::Done));
        }
        let span = position..length.min(position + RELEASE_BYTES);
        if let Some(recorder) = &self.recorder {
            let (file, bytes) = (running.named(), span.end - span.start);
            running.recorded = Some(recorder.begin(Act::Zero { file, content: Content::Removed, position, bytes }));
        }
        self.ring.release(index as u64, file, span);
        Answer::None
    }
}

/// What the end of an entry means for its operation.
enum Answer {
    /// Not now: another entry is under way.
    None,
    /// It has ended.
    Last(Outcome),
}

impl Running {
    fn named(&self) -> DataFile {
        match self.operation {
            FileOperation::Create { file, .. }
            | FileOperation::Write { file, .. }
            | FileOperation::Sync { file }
            | FileOperation::Read { file, .. }
            | FileOperation::Remove { file } => file,
            FileOperation::SyncFolder { .. } => unreachable!("names no file"),
        }
    }
}

fn path(name: &str) -> CString {
    CString::new(name).expect("our names hold no zero byte")
}
