//! Blocking access, as recovery uses it. Each call may be the last: at the one that `Disk::stop_after_calls` names the machine
//! stops with any part of it done, and every later call fails without effect.

use sealog_engine::api::port::{DataFile, Fill, Folder, ReadBytes, Store, StoreAction, StoreError, StoreTarget};
use sealog_engine::shard::event::Failed;
use sealog_engine::types::AlignedBuffer;
use sealog_engine::types::time::MICROSECOND_NS;

use super::flight::place;
use super::{Disk, EIO, ENOENT};

/// How far a call gets.
#[derive(PartialEq, Eq)]
enum Reach {
    Whole,
    Part,
    Nothing,
}

impl Disk {
    fn call(&mut self) -> Reach {
        if self.stopped {
            return Reach::Nothing;
        }
        self.calls += 1;
        self.spent_ns += 30 * MICROSECOND_NS * self.profile.slowness;
        match &mut self.calls_left {
            None => Reach::Whole,
            Some(left) => {
                *left = left.saturating_sub(1);
                if *left > 0 {
                    return Reach::Whole;
                }
                self.stopped = true;
                Reach::Part
            }
        }
    }

    /// A call that changes something: in the call that the machine stops in, chance says whether it does.
    fn change(&mut self) -> (bool, bool) {
        match self.call() {
            Reach::Whole => (true, true),
            Reach::Part => (self.random.one_in(2), false),
            Reach::Nothing => (false, false),
        }
    }
}

fn failed(action: StoreAction, target: StoreTarget, position: u64, errno: i32) -> StoreError {
    StoreError { action, file: target, position, errno }
}

/// The result of a change: what was done, if the machine is still there to say so.
fn told(
    outcome: Result<(), Failed>,
    alive: bool,
    action: StoreAction,
    target: StoreTarget,
    position: u64,
) -> Result<(), StoreError> {
    match outcome {
        Ok(()) if alive => Ok(()),
        Ok(()) => Err(failed(action, target, position, EIO)),
        Err(Failed { errno }) => Err(failed(action, target, position, errno)),
    }
}

impl Store for Disk {
    fn list(&mut self, folder: Folder) -> Result<Vec<DataFile>, StoreError> {
        match self.call() {
            Reach::Whole => Ok(self.listed.keys().filter(|name| name.folder() == folder).copied().collect()),
            Reach::Part | Reach::Nothing => Err(failed(StoreAction::List, StoreTarget::Folder(folder), 0, EIO)),
        }
    }

    fn length(&mut self, file: DataFile) -> Result<Option<u64>, StoreError> {
        match self.call() {
            Reach::Whole => Ok(self.file(file).ok().map(|file| file.length() as u64)),
            Reach::Part | Reach::Nothing => Err(failed(StoreAction::Read, StoreTarget::File(file), 0, EIO)),
        }
    }

    fn read(&mut self, file: DataFile, position: u64, length: usize) -> Result<ReadBytes, StoreError> {
        if self.call() != Reach::Whole {
            return Err(failed(StoreAction::Read, StoreTarget::File(file), position, EIO));
        }
        match self.file(file) {
            Ok(found) => {
                let (bytes, length, unreadable) = found.read(place(position), length);
                Ok(ReadBytes { bytes, length, unreadable })
            }
            Err(_) => Err(failed(StoreAction::Read, StoreTarget::File(file), position, ENOENT)),
        }
    }

    fn create(&mut self, file: DataFile, bytes: u64, _fill: Fill) -> Result<(), StoreError> {
        let (happens, alive) = self.change();
        let outcome = if happens { Disk::create(self, file, bytes) } else { Ok(()) };
        told(outcome, alive, StoreAction::Create, StoreTarget::File(file), 0)
    }

    fn write(&mut self, file: DataFile, position: u64, blocks: &AlignedBuffer) -> Result<(), StoreError> {
        let reach = self.call();
        let at = place(position);
        let outcome = match reach {
            Reach::Nothing => Ok(()),
            Reach::Part => {
                self.write_some(file, at, blocks);
                Ok(())
            }
            Reach::Whole if self.take_write_failure() => {
                self.write_some(file, at, blocks);
                Err(Failed { errno: EIO })
            }
            Reach::Whole => self.file(file).map(|file| file.write(at, blocks)),
        };
        told(outcome, reach == Reach::Whole, StoreAction::Write, StoreTarget::File(file), position)
    }

    fn sync(&mut self, file: DataFile) -> Result<(), StoreError> {
        let (happens, alive) = self.change();
        let fails = happens && self.take_sync_failure();
        let outcome = if happens {
            self.file(file).and_then(|file| {
                let serial = file.serial();
                if fails {
                    file.lose(serial);
                    return Err(Failed { errno: EIO });
                }
                file.sync(serial);
                Ok(())
            })
        } else {
            Ok(())
        };
        told(outcome, alive, StoreAction::Sync, StoreTarget::File(file), 0)
    }

    fn sync_folder(&mut self, folder: Folder) -> Result<(), StoreError> {
        let (happens, alive) = self.change();
        let outcome = if happens { Disk::sync_folder(self, folder) } else { Ok(()) };
        told(outcome, alive, StoreAction::Sync, StoreTarget::Folder(folder), 0)
    }

    fn remove(&mut self, file: DataFile) -> Result<(), StoreError> {
        let (happens, alive) = self.change();
        if happens {
            Disk::remove(self, file);
        }
        told(Ok(()), alive, StoreAction::Remove, StoreTarget::File(file), 0)
    }
}
