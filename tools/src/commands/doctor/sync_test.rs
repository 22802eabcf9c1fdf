//! How long one durable write of a block takes, by each method, with the cores of the shards busy; and whether the device was told to
//! flush. The figures that `journal.sync = auto` chooses by, over a longer time and with the ways that it does not try.

use std::fmt;
use std::time::Duration;

use sealog_engine::io::calibrate::{self, CANDIDATES, SyncSetting};
use sealog_engine::io::device::{self, WriteCache};
use sealog_engine::io::floor::{FloorError, Load, Measurement, Method, Scratch, Until, quantile};
use sealog_engine::io::{cpu, journal_writer::SyncWay};
use sealog_engine::types::limits::BLOCK;
use serde::Serialize;

use crate::daemon::config::Settings;
use crate::daemon::fitness::{Finding, nearest_there};

const SCRATCH_BYTES: u64 = 8 << 20;
/// Time that each method is measured for.
const TIME_PER_METHOD: Duration = Duration::from_millis(800);
/// A disk slower than this holds up every producer.
const SLOW_NS: u64 = 20_000_000;
/// A way to sync that is so many times slower than the best is not the one to set.
const WORSE: u64 = 2;

/// What one method did.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    method: String,
    #[serde(skip)]
    by: Method,
    writes: usize,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    /// Flushes of the whole disk in that time, by whomever, for each write; absent where the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    flushes_per_write: Option<f64>,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SyncTest {
    block_bytes: usize,
    methods: Vec<Measured>,
    /// Whether a write that was not flushed may be lost: `None` if the device does not tell.
    must_flush: Option<bool>,
    /// What `auto` takes by these figures.
    auto: String,
}

/// Measures on the disk of the data directory.
///
/// # Errors
/// A file cannot be made there, a core cannot be had, or a write failed.
pub(super) fn measure(settings: &Settings) -> Result<SyncTest, FloorError> {
    let dir = nearest_there(&settings.data_dir);
    let shards = usize::from(settings.engine.shards);
    let cpus = match &settings.cpus[..] {
        [] => cpu::list().map_err(|error| FloorError::Pin { cpu: 0, error })?.into_iter().take(shards).collect(),
        cpus => cpus[..shards].to_vec(),
    };
    let scratch = Scratch::new(&dir, SCRATCH_BYTES)?;
    let mut methods = Vec::with_capacity(Method::ALL.len());
    for by in Method::ALL {
        let flushes = device::flushes(&dir);
        let mut latencies = scratch.measure(Measurement {
            method: by,
            block_bytes: BLOCK,
            until: Until::Elapsed(TIME_PER_METHOD),
            load: Load::Busy { others: &cpus },
            cpu: cpus.first().copied(),
        })?;
        let flushed = device::flushes(&dir).zip(flushes).map(|(after, before)| after - before);
        latencies.sort_unstable();
        methods.push(Measured {
            method: by.to_string(),
            by,
            writes: latencies.len(),
            p50_ns: quantile(&latencies, 500),
            p99_ns: quantile(&latencies, 990),
            max_ns: quantile(&latencies, 1000),
            flushes_per_write: flushed.map(|flushes| per(flushes, latencies.len())),
        });
    }
    let must_flush = match (device::write_cache(&dir), device::has_fua(&dir)) {
        (Some(WriteCache::WriteBack), Some(fua)) => Some(!fua),
        (Some(WriteCache::WriteThrough), _) => Some(false),
        (Some(WriteCache::WriteBack) | None, _) => None,
    };
    let auto = auto(&methods).to_string();
    Ok(SyncTest { block_bytes: BLOCK, methods, must_flush, auto })
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand of each")]
fn per(flushes: u64, writes: usize) -> f64 {
    // To two places: a third means nothing.
    (flushes as f64 / (writes.max(1) as f64) * 100.0).round() / 100.0
}

/// What a node chooses by these figures.
fn auto(methods: &[Measured]) -> SyncWay {
    let of = |way| {
        let measured = methods.iter().find(|measured| measured.by == Method::Journal(way))?;
        let Measured { writes, p50_ns, p99_ns, .. } = *measured;
        Some(calibrate::Measured { way, writes, p50_ns, p99_ns })
    };
    let measured: Vec<_> = CANDIDATES.into_iter().filter_map(of).collect();
    calibrate::choose(&measured).expect("every way was measured")
}

impl SyncTest {
    /// What is not as it should be.
    pub(super) fn findings(&self, setting: SyncSetting) -> Vec<Finding> {
        let mut findings = Vec::new();
        let unflushed = |measured: &&Measured| measured.flushes_per_write.is_some_and(|flushes| flushes < 0.9);
        if self.must_flush == Some(true)
            && let Some(Measured { method, .. }) = self.methods.iter().find(unflushed)
        {
            findings.push(Finding::warning(
                "flushes",
                format!("{method} ended without a flush of a device that caches writes: a power cut may take what was stored"),
                "mount with barriers (no nobarrier), and let no layer below ignore flushes (cache=unsafe of a virtual disk)",
            ));
        }
        let best = self.journals().map(|measured| measured.p99_ns).min().unwrap_or(0);
        if best > SLOW_NS {
            findings.push(Finding::warning(
                "sync",
                format!("p99 of a durable write is {} µs at best", best / 1_000),
                "use a disk with a protected cache or faster flash, and let nobody else write to it",
            ));
        }
        if let SyncSetting::Way(way) = setting
            && let Some(set) = self.journals().find(|measured| measured.by == Method::Journal(way))
            && set.p99_ns > best.saturating_mul(WORSE)
        {
            let found =
                format!("journal.sync is {way}: p99 {} µs, another way has {} µs", set.p99_ns / 1_000, best / 1_000);
            findings.push(Finding::warning("sync", found, "set journal.sync to auto"));
        }
        findings
    }

    /// What a journal can use.
    fn journals(&self) -> impl Iterator<Item = &Measured> {
        self.methods.iter().filter(|measured| matches!(measured.by, Method::Journal(_)))
    }
}

impl fmt::Display for SyncTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "durable writes of {} bytes, one outstanding, the shards' cores busy (µs)", self.block_bytes)?;
        writeln!(f, "  {:<22} {:>8} {:>9} {:>9} {:>9}  flushes a write", "", "writes", "p50", "p99", "max")?;
        let us = |ns: u64| format!("{}.{}", ns / 1_000, ns % 1_000 / 100);
        for Measured { method, writes, p50_ns, p99_ns, max_ns, flushes_per_write, .. } in &self.methods {
            let (p50, p99, max) = (us(*p50_ns), us(*p99_ns), us(*max_ns));
            let flushes = flushes_per_write.map_or_else(|| "not told".to_owned(), |flushes| format!("{flushes:.2}"));
            writeln!(f, "  {method:<22} {writes:>8} {p50:>9} {p99:>9} {max:>9}  {flushes}")?;
        }
        writeln!(f, "journal.sync = auto takes {} by these figures", self.auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(must_flush: Option<bool>, figures: &[(SyncWay, u64, f64)]) -> SyncTest {
        let measured = |(way, p99_ns, flushes): &(SyncWay, u64, f64)| Measured {
            method: way.to_string(),
            by: Method::Journal(*way),
            writes: 1_000,
            p50_ns: p99_ns / 2,
            p99_ns: *p99_ns,
            max_ns: *p99_ns,
            flushes_per_write: Some(*flushes),
        };
        let methods: Vec<_> = figures.iter().map(measured).collect();
        let auto = auto(&methods).to_string();
        SyncTest { block_bytes: BLOCK, methods, must_flush, auto }
    }

    #[test]
    fn a_device_that_must_flush_and_does_not_is_told() {
        let figures = [(SyncWay::Linked, 90_000, 1.0), (SyncWay::Thread, 80_000, 0.0)];
        let findings = test(Some(true), &figures).findings(SyncSetting::Auto);
        assert!(findings.len() == 1 && findings[0].found.starts_with("thread ended without a flush"), "{findings:?}");
        assert!(test(Some(false), &figures).findings(SyncSetting::Auto).is_empty(), "with FUA nobody flushes");
        assert!(test(None, &figures).findings(SyncSetting::Auto).is_empty());
    }

    #[test]
    fn a_way_that_is_set_and_much_worse_is_told_and_a_slow_disk_too() {
        let figures = [(SyncWay::Linked, 90_000, 1.0), (SyncWay::AsyncDsync, 4_000_000, 1.0)];
        let findings = test(None, &figures).findings(SyncSetting::Way(SyncWay::AsyncDsync));
        assert!(findings.len() == 1 && findings[0].found.contains("p99 4000 µs"), "{findings:?}");
        assert!(test(None, &figures).findings(SyncSetting::Way(SyncWay::Linked)).is_empty());
        let slow = test(None, &[(SyncWay::Linked, 30_000_000, 1.0)]).findings(SyncSetting::Auto);
        assert!(slow.len() == 1 && slow[0].found.contains("30000 µs at best"), "{slow:?}");
    }

    #[test]
    fn auto_takes_the_lower_p99_of_the_ways_that_it_tries() {
        let figures = [(SyncWay::AsyncDsync, 1, 1.0), (SyncWay::Thread, 3, 1.0), (SyncWay::Linked, 2, 1.0)];
        assert_eq!(test(None, &figures).auto, "linked");
    }
}
