//! The end of a process or of the machine's power, and the damage that time does to a medium.

use sealog_engine::api::port::DataFile;
use sealog_engine::shard::command::FileOperation;
use sealog_engine::types::limits::BLOCK;

use super::file::Keep;
use super::flight::{Operation, place};
use super::{Disk, FileId, TornGroup};

/// What a crash did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct CutReport {
    /// Operations that were in flight.
    pub in_flight: u64,
    /// Sectors that were not durable and stayed.
    pub sectors_kept: u64,
    /// Sectors that were not durable and are gone.
    pub sectors_lost: u64,
    /// Creations and removals that were not durable and stayed.
    pub names_kept: u64,
    /// Creations and removals that were not durable and are undone.
    pub names_lost: u64,
}

impl Disk {
    /// The process is killed: what is in flight is done in part, the page cache stays.
    pub fn kill(&mut self) -> CutReport {
        self.stopped = false;
        self.calls_left = None;
        let flights = std::mem::take(&mut self.flights);
        let report = CutReport { in_flight: flights.len() as u64, ..CutReport::default() };
        for flight in flights.into_values() {
            match flight.operation {
                Operation::Group { file, position, buffer, length, .. } => {
                    self.write_some(file, place(position), &buffer[..length]);
                    self.torn.push(TornGroup { file, position, bytes: buffer[..length].to_vec() });
                }
                Operation::File(FileOperation::Write { file, position, buffer, length }) => {
                    self.write_some(file, place(position), &buffer[..length]);
                }
                Operation::File(FileOperation::Create { file, bytes, .. }) => {
                    if self.random.one_in(2) {
                        // A full disk makes no file, with or without a crash.
                        let _ = self.create(file, bytes);
                    }
                }
                Operation::File(FileOperation::Remove { file }) => {
                    if self.random.one_in(2) {
                        self.remove(file);
                    }
                }
                // A sync that nobody was told of promises nothing.
                Operation::File(
                    FileOperation::Sync { .. } | FileOperation::SyncFolder { .. } | FileOperation::Read { .. },
                ) => {}
            }
        }
        report
    }

    /// The power is cut: only what is durable is sure to stay, and chance says what else does.
    pub fn cut_power(&mut self) -> CutReport {
        let keep = match (self.keep_at_cut, self.random.below(10)) {
            (Some(keep), _) => keep,
            (None, 0..4) => Keep::Nothing,
            (None, 4) => Keep::Everything,
            (None, 5..8) => Keep::AnyWrites,
            (None, _) => Keep::AnySectors,
        };
        let mut report = self.kill();
        self.cut_names(keep, &mut report);
        let mut random = self.random.clone();
        for file in self.files.values_mut().filter(|file| !file.is_durable()) {
            let (kept, lost) = file.cut(keep, &mut random);
            report.sectors_kept += kept;
            report.sectors_lost += lost;
        }
        self.random = random;
        report
    }

    fn cut_names(&mut self, keep: Keep, report: &mut CutReport) {
        let names: std::collections::BTreeSet<DataFile> =
            self.listed.keys().chain(self.durable_names.keys()).copied().collect();
        for name in names {
            let (listed, durable) = (self.listed.get(&name).copied(), self.durable_names.get(&name).copied());
            if listed == durable {
                continue;
            }
            let stays = match keep {
                Keep::Nothing => false,
                Keep::Everything => true,
                Keep::AnyWrites | Keep::AnySectors => self.random.one_in(2),
            };
            let (winner, loser) = if stays { (listed, durable) } else { (durable, listed) };
            *(if stays { &mut report.names_kept } else { &mut report.names_lost }) += 1;
            self.name(name, winner);
            self.forget(loser);
        }
    }

    fn name(&mut self, name: DataFile, id: Option<FileId>) {
        match id {
            Some(id) => {
                self.listed.insert(name, id);
                self.durable_names.insert(name, id);
            }
            None => {
                self.listed.remove(&name);
                self.durable_names.remove(&name);
            }
        }
    }

    /// Flips one bit of one file that `of` names, on the medium and in the cache. Returns where, if there was such a file with bytes.
    pub fn rot(&mut self, of: impl Fn(DataFile) -> bool) -> Option<(DataFile, usize)> {
        let (name, id, length) = self.pick(of)?;
        // Most blocks of a recycled file are old or empty: half of all flips go to its beginning.
        let within = if self.random.one_in(2) { length } else { length.min(64 * 1024) };
        let (position, bit) = (self.random.index(within), self.random.below(8));
        let file = self.files.get_mut(&id)?;
        file.rot(position, u8::try_from(bit).expect("below 8"));
        Some((name, position))
    }

    /// Makes one block of one file that `of` names unreadable. Returns where, if there was such a file with bytes.
    pub fn make_unreadable(&mut self, of: impl Fn(DataFile) -> bool) -> Option<(DataFile, usize)> {
        let (name, id, length) = self.pick(of)?;
        let block = self.random.index(length.div_ceil(BLOCK));
        self.files.get_mut(&id)?.make_unreadable(block);
        Some((name, block * BLOCK))
    }

    fn pick(&mut self, of: impl Fn(DataFile) -> bool) -> Option<(DataFile, FileId, usize)> {
        let candidates: Vec<_> = self
            .listed
            .iter()
            .filter(|(name, id)| of(**name) && self.files[id].length() > 0)
            .map(|(name, id)| (*name, *id, self.files[id].length()))
            .collect();
        (!candidates.is_empty()).then(|| *self.random.pick(&candidates))
    }
}
