//! What the device itself can do: small durable writes, one outstanding, into a zero-filled O_DIRECT file, by each method. The
//! least that any durable append can cost here; calibration picks the journal's way by it, and the bench holds Sealog against it.
//!
//! **Invariant**: every figure is of one write that was durable when the clock was read, the wait for the processor included.

use std::fs;
use std::hint;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::ReadWriteFlags;
use thiserror::Error;

use crate::io::cpu;
use crate::io::journal_writer::{GroupWrite, JournalWriter, OpenJournalError, SyncWay};
use crate::io::ring::Failure;
use crate::io::store::{Opening, fill_with_zeros, open_direct};
use crate::types::AlignedBuffer;
use crate::types::limits::{BLOCK, IO_BYTES_MAX};

/// How a write is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `pwritev2(RWF_DSYNC)`, blocking: the floor.
    PwriteDsync,
    /// `pwrite`, then `fdatasync`, blocking.
    PwriteFdatasync,
    /// As a journal group.
    Journal(SyncWay),
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::PwriteDsync,
        Self::PwriteFdatasync,
        Self::Journal(SyncWay::Linked),
        Self::Journal(SyncWay::Thread),
        Self::Journal(SyncWay::AsyncDsync),
    ];
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PwriteDsync => f.pad("pwritev2(RWF_DSYNC)"),
            Self::PwriteFdatasync => f.pad("pwrite, fdatasync"),
            Self::Journal(way) => way.fmt(f),
        }
    }
}

/// What else the processor does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load<'a> {
    /// The writer sleeps until its write is durable.
    Idle,
    /// The writer's core is kept busy by what it runs itself, as on a loaded shard, and the other cores named by others.
    Busy { others: &'a [usize] },
}

/// When to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    Writes(usize),
    Elapsed(Duration),
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measurement<'a> {
    pub method: Method,
    /// Bytes of each write; whole blocks, at most `IO_BYTES_MAX`.
    pub block_bytes: usize,
    pub until: Until,
    pub load: Load<'a>,
    /// The core that the writer is kept on, or the lowest allowed one.
    pub cpu: Option<usize>,
}

/// The floor could not be measured.
#[derive(Debug, Error)]
pub enum FloorError {
    #[error("cannot make {} and fill it with zeros: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("cannot keep a thread on core {cpu}: {error}")]
    Pin { cpu: usize, error: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error(transparent)]
    Journal(#[from] OpenJournalError),
    #[error("a write failed: {0}")]
    Write(Failure),
    #[error("the ring failed: {0}")]
    Ring(io::Error),
}

/// A zero-filled file to measure on, removed with this.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    bytes: u64,
}

/// Writes before the first one that counts.
const WARM_UP: usize = 16;

impl Scratch {
    /// Makes a file of `bytes` (whole blocks) in `dir`, under a name that the store leaves out of its lists.
    ///
    /// # Errors
    /// It cannot be made or filled.
    pub fn new(dir: &Path, bytes: u64) -> Result<Self, FloorError> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let unique = MADE.fetch_add(1, Ordering::Relaxed);
        let scratch = Self { path: dir.join(format!(".floor-{}-{unique}", std::process::id())), bytes };
        open_direct(&scratch.path, Opening::Create)
            .and_then(|file| fill_with_zeros(&file, bytes))
            .map_err(|error| FloorError::File { path: scratch.path.clone(), error })?;
        Ok(scratch)
    }

    /// Nanoseconds of each durable write, in order.
    ///
    /// # Errors
    /// A core, thread or ring cannot be had, or a write failed.
    ///
    /// # Panics
    /// If `block_bytes` is not of whole blocks, more than `IO_BYTES_MAX`, or does not fit the file.
    pub fn measure(&self, measurement: Measurement<'_>) -> Result<Vec<u64>, FloorError> {
        let bytes = measurement.block_bytes;
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK) && bytes <= IO_BYTES_MAX, "blocks of {bytes} bytes");
        assert!(bytes as u64 <= self.bytes, "blocks of {bytes} bytes in a file of {}", self.bytes);
        let cpu = match measurement.cpu {
            Some(cpu) => cpu,
            None => cpu::first().map_err(|error| FloorError::Pin { cpu: 0, error })?,
        };
        let stop = &AtomicBool::new(false);
        thread::scope(|scope| {
            let mut started = Vec::new();
            for busy in busy_cores(measurement, cpu) {
                let spin = move || spin(busy, stop);
                started.push(thread::Builder::new().spawn_scoped(scope, spin));
            }
            let writer = thread::Builder::new().spawn_scoped(scope, || {
                pin(cpu)?;
                self.write(measurement)
            });
            let measured = writer.map_err(FloorError::Thread).and_then(|writer| writer.join().expect("no panic"));
            stop.store(true, Ordering::Relaxed);
            for spinner in started {
                spinner.map_err(FloorError::Thread)?.join().expect("no panic")?;
            }
            measured
        })
    }

    fn write(&self, measurement: Measurement<'_>) -> Result<Vec<u64>, FloorError> {
        let mut by = match measurement.method {
            Method::PwriteDsync => By::Pwrite { file: self.open()?, sync_after: false },
            Method::PwriteFdatasync => By::Pwrite { file: self.open()?, sync_after: true },
            Method::Journal(way) => {
                let writer = JournalWriter::open(way, std::slice::from_ref(&self.path))?;
                By::Journal { writer, spin: measurement.load != Load::Idle }
            }
        };
        let bytes = measurement.block_bytes;
        let mut buffer = Box::new(AlignedBuffer::zeroed(bytes));
        buffer.fill(0xa5);
        let places = self.bytes / bytes as u64;
        let mut latencies = Vec::with_capacity(match measurement.until {
            Until::Writes(writes) => writes,
            Until::Elapsed(_) => 65_536,
        });
        let mut counted_from = Instant::now();
        for write in 0.. {
            let started = Instant::now();
            if write == WARM_UP {
                counted_from = started;
            }
            let done = match measurement.until {
                Until::Writes(writes) => latencies.len() >= writes,
                Until::Elapsed(time) => write > WARM_UP && started - counted_from >= time,
            };
            if done {
                break;
            }
            buffer = by.write(write as u64 % places * bytes as u64, buffer)?;
            if write >= WARM_UP {
                latencies.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
        }
        Ok(latencies)
    }

    fn open(&self) -> Result<OwnedFd, FloorError> {
        open_direct(&self.path, Opening::Existing).map_err(|error| FloorError::File { path: self.path.clone(), error })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // One that cannot be removed is left behind: it is small, and not ours to the store.
        let _ = fs::remove_file(&self.path);
    }
}

/// The cores that somebody else must keep busy. A journal's writer does so itself on its own, by looking for the end; one that
/// sleeps in the kernel does not.
fn busy_cores(measurement: Measurement<'_>, cpu: usize) -> impl Iterator<Item = usize> {
    let others = match measurement.load {
        Load::Idle => None,
        Load::Busy { others } => Some(others),
    };
    let blocks = matches!(measurement.method, Method::PwriteDsync | Method::PwriteFdatasync);
    let own = (blocks && others.is_some()).then_some(cpu);
    own.into_iter().chain(others.unwrap_or_default().iter().copied().filter(move |other| *other != cpu))
}

fn pin(cpu: usize) -> Result<(), FloorError> {
    cpu::pin(cpu).map_err(|error| FloorError::Pin { cpu, error })
}

fn spin(cpu: usize, stop: &AtomicBool) -> Result<(), FloorError> {
    pin(cpu)?;
    while !stop.load(Ordering::Relaxed) {
        hint::spin_loop();
    }
    Ok(())
}

enum By {
    Pwrite { file: OwnedFd, sync_after: bool },
    Journal { writer: JournalWriter, spin: bool },
}

impl By {
    /// Makes the whole buffer durable at `position` and gives it back.
    fn write(&mut self, position: u64, buffer: Box<AlignedBuffer>) -> Result<Box<AlignedBuffer>, FloorError> {
        match self {
            Self::Pwrite { file, sync_after } => {
                pwrite(file, position, &buffer, *sync_after).map_err(FloorError::Write)?;
                Ok(buffer)
            }
            Self::Journal { writer, spin } => {
                let length = buffer.len();
                let group = GroupWrite { file: 0, position, length, durable: true, buffer };
                writer.start(group).map_err(FloorError::Ring)?;
                let written = loop {
                    if !*spin {
                        break writer.wait().map_err(FloorError::Ring)?;
                    }
                    if let Some(written) = writer.finished().map_err(FloorError::Ring)? {
                        break written;
                    }
                    hint::spin_loop();
                };
                written.outcome.map_err(FloorError::Write)?;
                Ok(written.buffer)
            }
        }
    }
}

fn pwrite(file: &OwnedFd, position: u64, bytes: &[u8], sync_after: bool) -> Result<(), Failure> {
    let flags = if sync_after { ReadWriteFlags::empty() } else { ReadWriteFlags::DSYNC };
    let failed = |errno: rustix::io::Errno| Failure::Errno(errno.raw_os_error());
    let written = rustix::io::pwritev2(file, &[IoSlice::new(bytes)], position, flags).map_err(failed)?;
    if written < bytes.len() {
        return Err(Failure::Short { written, expected: bytes.len() });
    }
    if sync_after {
        rustix::fs::fdatasync(file).map_err(failed)?;
    }
    Ok(())
}

/// The figure that `per_mille` thousandths of `sorted` do not exceed (nearest rank). 0 if there is none.
#[must_use]
pub fn quantile(sorted: &[u64], per_mille: usize) -> u64 {
    debug_assert!(sorted.is_sorted());
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::io::device;
    use crate::io::testing::disk_dir;

    const PLAN: Measurement<'_> = Measurement {
        method: Method::PwriteDsync,
        block_bytes: BLOCK,
        until: Until::Writes(25),
        load: Load::Idle,
        cpu: None,
    };

    #[test]
    fn every_method_gives_as_many_figures_as_writes_idle_and_busy() {
        let Some(dir) = disk_dir() else { return };
        let scratch = Scratch::new(dir.path(), 1 << 20).expect("a file to measure on");
        for method in Method::ALL {
            for load in [Load::Idle, Load::Busy { others: &[] }] {
                let latencies = scratch.measure(Measurement { method, load, ..PLAN }).expect("a measurement");
                assert_eq!(latencies.len(), 25, "{method}");
                assert!(latencies.iter().all(|ns| *ns > 0), "{method}");
            }
        }
        drop(scratch);
        assert_eq!(
            fs::read_dir(dir.path()).expect("list").filter(|e| is_scratch(e.as_ref().expect("entry"))).count(),
            0
        );
    }

    fn is_scratch(entry: &fs::DirEntry) -> bool {
        entry.file_name().to_string_lossy().starts_with(".floor-")
    }

    #[test]
    fn every_write_by_every_method_flushes_a_device_that_caches() {
        let Some(dir) = disk_dir() else { return };
        if device::write_cache(dir.path()) != Some(device::WriteCache::WriteBack)
            || device::has_fua(dir.path()) != Some(false)
        {
            writeln!(io::stderr(), "SKIPPED: this device has no volatile cache that must be flushed, or does not tell")
                .expect("standard error");
            return;
        }
        let scratch = Scratch::new(dir.path(), 1 << 20).expect("a file to measure on");
        for method in Method::ALL {
            let before = device::flushes(dir.path()).expect("a disk that tells its cache tells its flushes");
            scratch.measure(Measurement { method, ..PLAN }).expect("a measurement");
            let flushed = device::flushes(dir.path()).expect("as before") - before;
            assert!(flushed >= 25, "{method}: {flushed} flushes for 25 durable writes");
        }
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        let Some(dir) = disk_dir() else { return };
        let scratch = Scratch::new(dir.path(), 1 << 20).expect("a file to measure on");
        let refused = scratch.measure(Measurement { cpu: Some(1023), ..PLAN });
        assert!(matches!(refused, Err(FloorError::Pin { cpu: 1023, .. })), "{refused:?}");
    }

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let sorted: Vec<u64> = (1..=1000).collect();
        for (per_mille, expected) in [(500, 500), (990, 990), (999, 999), (1000, 1000), (0, 1)] {
            assert_eq!(quantile(&sorted, per_mille), expected);
        }
        assert_eq!(quantile(&[7, 8], 999), 8);
        assert_eq!(quantile(&[], 500), 0);
    }
}
