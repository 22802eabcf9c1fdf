//! A disk in memory that forgets what was not synced.
//!
//! ```text
//!              write done             sync done
//!  in flight ------------> cached ---------------> durable        bytes, told apart by 512-byte sector
//!              create done            folder synced
//!  in flight ------------> listed ---------------> durable name
//!
//!  kill -9      cached bytes and names stay; of what was in flight any sectors may have been written
//!  power cut    durable ones stay; of the others, in flight too, any sectors, writes or names stay, or none
//! ```
//! The page cache belongs to the machine and not to the process: a file that was closed, or whose process is long dead, still
//! loses what nobody synced. A sync covers the writes that were done when it was submitted, and no later one. On a disk
//! with `sync_covers_write_only` the sync of a journal group covers that group's own bytes alone, as forced unit access does.
//!
//! Invariants: without an injected fault a synced byte and a synced name never change but by a write; a read gives cached bytes.

mod crash;
mod file;
mod flight;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sealog_engine::api::port::{DataFile, Folder};
use sealog_engine::shard::event::Failed;

pub use crash::CutReport;
use file::File;
pub use file::Keep;
pub use flight::{Completed, Operation, Ticket};

use crate::random::Random;

/// Bytes that reach the medium together or not at all.
pub const SECTOR: usize = 512;

const EIO: i32 = 5;
const ENOENT: i32 = 2;
/// The error number of a full disk.
pub const ENOSPC: i32 = 28;

/// How this disk behaves.
#[derive(Clone, Copy, Debug)]
pub struct DiskProfile {
    /// Multiplies every latency.
    pub slowness: u64,
    /// The sync of a journal group covers only that group's bytes.
    pub sync_covers_write_only: bool,
    /// Of so many creations and syncs of files one takes very long, while all else goes on; 0: none does. Journal groups never do.
    pub stall_one_in: u64,
}

/// A journal group that was in flight when its process ended.
pub struct TornGroup {
    pub file: DataFile,
    pub position: u64,
    /// What was to be written.
    pub bytes: Vec<u8>,
}

/// Names one file's bytes: a name may be given to other bytes while the old ones are still what a power cut would bring back.
type FileId = u64;

/// One machine's disk with one data directory.
pub struct Disk {
    random: Random,
    /// Chance for stalls alone.
    stalls: Random,
    profile: DiskProfile,
    files: BTreeMap<FileId, File>,
    file_next: FileId,
    listed: BTreeMap<DataFile, FileId>,
    durable_names: BTreeMap<DataFile, FileId>,
    flights: BTreeMap<Ticket, flight::Flight>,
    ticket_next: u64,
    /// Blocking calls left until the machine stops in the middle of one.
    calls_left: Option<u64>,
    /// The machine has stopped in a blocking call: nothing has any effect until `kill` or `cut_power`.
    stopped: bool,
    calls: u64,
    spent_ns: u64,
    full: bool,
    syncs_to_fail: u32,
    writes_to_fail: u32,
    group_sync_failed: bool,
    torn: Vec<TornGroup>,
    /// So many sectors of each write that does not come to its end are done; `None`: chance says.
    tear_at: Option<u64>,
    /// What a power cut keeps; `None`: chance says.
    keep_at_cut: Option<Keep>,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(random: Random, profile: DiskProfile) -> Self {
        Self {
            stalls: random.fork("stalls"),
            random,
            profile,
            files: BTreeMap::new(),
            file_next: 0,
            listed: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            flights: BTreeMap::new(),
            ticket_next: 0,
            calls_left: None,
            stopped: false,
            calls: 0,
            spent_ns: 0,
            full: false,
            syncs_to_fail: 0,
            writes_to_fail: 0,
            group_sync_failed: false,
            torn: Vec::new(),
            tear_at: None,
            keep_at_cut: None,
        }
    }

    /// Multiplies every latency from now on.
    pub fn set_slowness(&mut self, slowness: u64) {
        self.profile.slowness = slowness.max(1);
    }

    /// From now on nothing stalls.
    pub fn end_stalls(&mut self) {
        self.profile.stall_one_in = 0;
    }

    /// While full, no file can be made; those that exist have their bytes.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// The machine stops in the `calls`-th blocking call from now, 1 being the next.
    pub fn stop_after_calls(&mut self, calls: u64) {
        self.calls_left = Some(calls);
    }

    /// Whether it has stopped in a blocking call. Forgets a stop that has not come.
    pub fn take_stopped(&mut self) -> bool {
        self.calls_left = None;
        self.stopped
    }

    /// Blocking calls made so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Time that blocking calls have taken since this was last asked, in ns.
    pub fn take_spent_ns(&mut self) -> u64 {
        std::mem::take(&mut self.spent_ns)
    }

    /// Operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Bytes of all files that are listed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.listed.values().map(|id| self.files[id].length() as u64).sum()
    }

    /// The next `count` syncs fail, and what they were to make durable never will be: beyond what the model survives.
    pub fn fail_syncs(&mut self, count: u32) {
        self.syncs_to_fail = count;
    }

    /// Whether the sync of a journal group has failed since this was last asked.
    pub fn take_group_sync_failed(&mut self) -> bool {
        std::mem::take(&mut self.group_sync_failed)
    }

    /// The next `count` writes fail after any part of their bytes: beyond what the model survives.
    pub fn fail_writes(&mut self, count: u32) {
        self.writes_to_fail = count;
    }

    /// Of each write that does not come to its end the first `sectors` are done; `None`: chance says which.
    pub fn tear_at(&mut self, sectors: Option<u64>) {
        self.tear_at = sectors;
    }

    /// What a power cut keeps of what was not durable; `None`: chance says.
    pub fn keep_at_cut(&mut self, keep: Option<Keep>) {
        self.keep_at_cut = keep;
    }

    /// The groups that were in flight at crashes since this was last asked.
    pub fn take_torn(&mut self) -> Vec<TornGroup> {
        std::mem::take(&mut self.torn)
    }

    /// What a file now holds of `length` bytes at a position; fewer if it is shorter.
    #[must_use]
    pub fn peek(&self, file: DataFile, position: u64, length: usize) -> &[u8] {
        let bytes = self.listed.get(&file).map_or(&[][..], |id| self.files[id].cached());
        let from = flight::place(position).min(bytes.len());
        &bytes[from..(from + length).min(bytes.len())]
    }

    /// All that is listed, by name, with its cached bytes: for tests and for a look at a failed seed.
    pub fn contents(&self) -> impl Iterator<Item = (DataFile, &[u8])> {
        self.listed.iter().map(|(name, id)| (*name, self.files[id].cached()))
    }

    fn file(&mut self, name: DataFile) -> Result<&mut File, Failed> {
        let id = self.listed.get(&name).ok_or(Failed { errno: ENOENT })?;
        Ok(self.files.get_mut(id).expect("a listed file has bytes"))
    }

    fn create(&mut self, name: DataFile, bytes: u64) -> Result<(), Failed> {
        if self.full {
            return Err(Failed { errno: ENOSPC });
        }
        let length = usize::try_from(bytes).map_err(|_| Failed { errno: ENOSPC })?;
        let id = self.file_next;
        self.file_next += 1;
        self.files.insert(id, File::new(length));
        let replaced = self.listed.insert(name, id);
        self.forget(replaced);
        Ok(())
    }

    fn remove(&mut self, name: DataFile) {
        let removed = self.listed.remove(&name);
        self.forget(removed);
    }

    fn sync_folder(&mut self, folder: Folder) -> Result<(), Failed> {
        if self.take_sync_failure() {
            return Err(Failed { errno: EIO });
        }
        let in_folder = |name: &&DataFile| name.folder() == folder;
        let gone: Vec<_> =
            self.durable_names.keys().filter(in_folder).filter(|n| !self.listed.contains_key(n)).copied().collect();
        for name in gone {
            let removed = self.durable_names.remove(&name);
            self.forget(removed);
        }
        let there: Vec<_> = self.listed.iter().filter(|(name, _)| in_folder(name)).map(|(n, id)| (*n, *id)).collect();
        for (name, id) in there {
            let replaced = self.durable_names.insert(name, id);
            self.forget(replaced.filter(|old| *old != id));
        }
        Ok(())
    }

    /// Drops the bytes that no name leads to any more.
    fn forget(&mut self, id: Option<FileId>) {
        if let Some(id) = id
            && !self.listed.values().any(|other| *other == id)
            && !self.durable_names.values().any(|other| *other == id)
        {
            self.files.remove(&id);
        }
    }

    fn take_sync_failure(&mut self) -> bool {
        let fails = self.syncs_to_fail > 0;
        self.syncs_to_fail = self.syncs_to_fail.saturating_sub(1);
        fails
    }

    fn take_write_failure(&mut self) -> bool {
        let fails = self.writes_to_fail > 0;
        self.writes_to_fail = self.writes_to_fail.saturating_sub(1);
        fails
    }
}
