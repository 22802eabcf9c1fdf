//! Chooses how the journal syncs, by a short measurement at start on the device that it will lie on.
//!
//! Judged by p99 and *with the shards' cores kept busy*: an asynchronous O_DSYNC write is finished by a kernel worker bound to
//! the submitting core, and where that core does not go idle it waits for the scheduler's tick, 4 ms at 250 Hz, which an idle
//! measurement never sees.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use crate::io::floor::{FloorError, Load, Measurement, Method, Scratch, Until, quantile};
use crate::io::journal_writer::{SyncWay, UnknownSyncWay};
use crate::types::limits::BLOCK;

/// The ways that are tried when none is set. Asynchronous O_DSYNC pays only on devices with FUA, and must be set.
pub const CANDIDATES: [SyncWay; 2] = [SyncWay::Linked, SyncWay::Thread];

/// Time that each way is measured for.
pub const TIME_PER_WAY: Duration = Duration::from_millis(150);

const SCRATCH_BYTES: u64 = 8 << 20;

/// The setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncSetting {
    /// Measure and choose.
    #[default]
    Auto,
    /// Take this one, without a measurement.
    Way(SyncWay),
}

impl FromStr for SyncSetting {
    type Err = UnknownSyncWay;

    fn from_str(name: &str) -> Result<Self, UnknownSyncWay> {
        if name == "auto" { Ok(Self::Auto) } else { name.parse().map(Self::Way) }
    }
}

/// What one way did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    pub way: SyncWay,
    pub writes: usize,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

/// What was chosen, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calibration {
    pub chosen: SyncWay,
    /// Empty if the way was set.
    pub measured: Vec<Measured>,
}

/// Chooses a way to sync for journals in `dir` (the data directory), whose shards run on `cpus`: the first is measured on, all
/// are kept busy meanwhile. With no core named, the lowest allowed one.
///
/// # Errors
/// A way could not be measured: the device failed a write, or the host lacks what the probe asks for.
pub fn calibrate(dir: &Path, setting: SyncSetting, cpus: &[usize]) -> Result<Calibration, FloorError> {
    if let SyncSetting::Way(chosen) = setting {
        return Ok(Calibration { chosen, measured: Vec::new() });
    }
    let scratch = Scratch::new(dir, SCRATCH_BYTES)?;
    let mut measured = Vec::with_capacity(CANDIDATES.len());
    for way in CANDIDATES {
        let mut latencies = scratch.measure(Measurement {
            method: Method::Journal(way),
            block_bytes: BLOCK,
            until: Until::Elapsed(TIME_PER_WAY),
            load: Load::Busy { others: cpus },
            cpu: cpus.first().copied(),
        })?;
        latencies.sort_unstable();
        measured.push(Measured {
            way,
            writes: latencies.len(),
            p50_ns: quantile(&latencies, 500),
            p99_ns: quantile(&latencies, 990),
        });
    }
    let chosen = choose(&measured).expect("there are candidates");
    Ok(Calibration { chosen, measured })
}

/// The way with the lowest p99, of equals the one with the lower p50. `None` if nothing was measured.
#[must_use]
pub fn choose(measured: &[Measured]) -> Option<SyncWay> {
    Some(measured.iter().min_by_key(|measured| (measured.p99_ns, measured.p50_ns))?.way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::disk_dir;

    fn measured(way: SyncWay, p50_ns: u64, p99_ns: u64) -> Measured {
        Measured { way, writes: 1000, p50_ns, p99_ns }
    }

    #[test]
    fn the_tail_decides_and_the_median_only_between_equals() {
        let slow_tail = measured(SyncWay::Linked, 40_000, 4_000_000);
        let slow_median = measured(SyncWay::Thread, 60_000, 90_000);
        assert_eq!(choose(&[slow_tail, slow_median]), Some(SyncWay::Thread));
        let equal = measured(SyncWay::Linked, 50_000, 90_000);
        assert_eq!(choose(&[slow_median, equal]), Some(SyncWay::Linked));
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn calibration_measures_every_candidate_and_chooses_one_of_them() {
        let Some(dir) = disk_dir() else { return };
        let calibration = calibrate(dir.path(), SyncSetting::Auto, &[]).expect("a calibration");
        assert_eq!(calibration.measured.iter().map(|m| m.way).collect::<Vec<_>>(), CANDIDATES);
        assert!(calibration.measured.iter().all(|m| m.writes > 0 && m.p50_ns > 0 && m.p50_ns <= m.p99_ns));
        assert_eq!(Some(calibration.chosen), choose(&calibration.measured));
    }

    #[test]
    fn a_way_that_is_set_is_taken_unmeasured() {
        let absent = Path::new("/nonexistent");
        let setting = "async-dsync".parse().expect("a way");
        let calibration = calibrate(absent, setting, &[0]).expect("nothing to fail");
        assert_eq!(calibration, Calibration { chosen: SyncWay::AsyncDsync, measured: vec![] });
        assert_eq!("auto".parse(), Ok(SyncSetting::Auto));
        assert_eq!("fast".parse::<SyncSetting>(), Err(UnknownSyncWay));
    }
}
