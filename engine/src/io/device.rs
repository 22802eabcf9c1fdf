//! What the kernel tells of the block device under a directory: its flushes, and whether it caches writes.
//!
//! A directory's device number leads to `/sys/dev/block/MAJOR:MINOR`; for a partition, cache mode and flushes belong to the
//! folder above, the whole disk. File systems that hide their device behind a number of their own (btrfs, overlay) tell nothing.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether a device may hold writes that are not durable yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteCache {
    /// A write is durable only after a flush (or with FUA).
    WriteBack,
    /// A completed write is durable, or so the device says.
    WriteThrough,
}

/// Flushes that the disk under a directory has done since boot. `None` if the kernel does not tell.
#[must_use]
pub fn flushes(dir: &Path) -> Option<u64> {
    flushes_of(&fs::read_to_string(disk(dir).ok()?.join("stat")).ok()?)
}

/// The write cache of the disk under a directory. `None` if the kernel does not tell.
#[must_use]
pub fn write_cache(dir: &Path) -> Option<WriteCache> {
    match fs::read_to_string(disk(dir).ok()?.join("queue/write_cache")).ok()?.trim() {
        "write back" => Some(WriteCache::WriteBack),
        "write through" => Some(WriteCache::WriteThrough),
        _ => None,
    }
}

/// Whether the disk under a directory can make a single write durable without a flush. `None` if the kernel does not tell.
#[must_use]
pub fn has_fua(dir: &Path) -> Option<bool> {
    Some(fs::read_to_string(disk(dir).ok()?.join("queue/fua")).ok()?.trim() == "1")
}

/// The name of the disk under a directory, such as `nvme0n1`.
#[must_use]
pub fn name(dir: &Path) -> Option<String> {
    Some(disk(dir).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// The folder in /sys of the whole disk under a directory.
fn disk(dir: &Path) -> io::Result<PathBuf> {
    let device = fs::metadata(dir)?.st_dev();
    let link = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    Ok(whole_disk(fs::canonicalize(link)?))
}

/// A partition has no queue of its own; the disk is the folder that holds it.
fn whole_disk(device: PathBuf) -> PathBuf {
    match device.parent() {
        Some(parent) if device.join("partition").exists() => parent.to_owned(),
        Some(_) | None => device,
    }
}

/// Field 16 of 17; kernels before 5.5 have fewer.
fn flushes_of(stat: &str) -> Option<u64> {
    stat.split_ascii_whitespace().nth(15)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn flushes_are_the_sixteenth_figure() {
        assert_eq!(flushes_of(" 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 160 17\n"), Some(160));
        assert_eq!(flushes_of("1 2 3 4 5 6 7 8 9 10 11"), None);
    }

    #[test]
    fn a_partition_leads_to_its_disk() {
        let sys = tempfile::tempdir().expect("a folder");
        let partition = sys.path().join("vda/vda1");
        fs::create_dir_all(&partition).expect("folders");
        assert_eq!(whole_disk(partition.clone()), partition, "a disk below a controller");
        fs::write(partition.join("partition"), "1\n").expect("write");
        assert_eq!(whole_disk(partition), sys.path().join("vda"));
    }

    #[test]
    fn every_device_in_sys_that_has_a_queue_tells_its_cache() {
        let Ok(devices) = fs::read_dir("/sys/dev/block") else {
            writeln!(io::stderr(), "SKIPPED: no /sys/dev/block here").expect("standard error");
            return;
        };
        let mut told = 0;
        for device in devices {
            let disk =
                whole_disk(fs::canonicalize(device.expect("an entry").path()).expect("a link that leads somewhere"));
            let stat = fs::read_to_string(disk.join("stat")).expect("stat");
            assert!(disk.join("queue/write_cache").exists(), "{}", disk.display());
            assert!(flushes_of(&stat).is_some(), "{stat}");
            told += 1;
        }
        if told == 0 {
            writeln!(io::stderr(), "SKIPPED: no block device here").expect("standard error");
        }
    }
}
