//! What a supervisor (systemd's notify protocol) is told: ready, stopping, and now and then that every shard moves.
//!
//! ```text
//! shard 0  ──beat──> counter 0 ──┐
//! shard 1  ──beat──> counter 1 ──┼──> thread `watchdog`: all counted on since the last look?  yes: WATCHDOG=1
//!   ..                           ┘                                                            no: nothing, and a line in the log
//! ```
//! A beat is a task of the shard's own executor: one that is stuck, starved or spinning beats no more. **Invariant**: one shard that does
//! not move starves the watchdog, whatever the others do; nothing is beaten or fed where no supervisor asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sd_notify::NotifyState;
use sealog_engine::types::ShardId;

/// Beats in one time that the supervisor waits; a look takes half of it.
const BEATS: u32 = 8;

/// How often each shard has beaten.
#[derive(Clone, Debug)]
pub(crate) struct Beats {
    counters: Arc<[AtomicU64]>,
    interval: Duration,
}

/// Feeds the watchdog until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Beats {
    /// For so many shards, if a supervisor wants to know.
    pub(crate) fn asked_for(shards: u16) -> Option<Self> {
        let patience = sd_notify::watchdog_enabled()?;
        Some(Self::new(shards, patience))
    }

    fn new(shards: u16, patience: Duration) -> Self {
        Self { counters: (0..shards).map(|_| AtomicU64::new(0)).collect(), interval: patience / BEATS }
    }

    /// Beats for one shard, for ever; to be run by its executor.
    pub(crate) async fn beat(self, shard: ShardId) {
        loop {
            self.counters[usize::from(shard.0)].fetch_add(1, Ordering::Relaxed);
            glommio::timer::sleep(self.interval).await;
        }
    }

    fn read(&self) -> Vec<u64> {
        self.counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect()
    }

    /// The shards that have not beaten since.
    fn still(&self, since: &[u64]) -> Vec<usize> {
        self.read()
            .iter()
            .zip(since)
            .enumerate()
            .filter(|(_, (now, then))| now == then)
            .map(|(shard, _)| shard)
            .collect()
    }

    /// Begins to feed.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn feed(self) -> std::io::Result<Watchdog> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let mut since = self.read();
            while stopped.recv_timeout(self.interval * (BEATS / 2)) == Err(RecvTimeoutError::Timeout) {
                let still = self.still(&since);
                if still.is_empty() {
                    since = self.read();
                    tell(&[NotifyState::Watchdog]);
                } else {
                    tracing::error!(shards = ?still, "shards do not move; the watchdog is not fed");
                }
            }
        })?;
        Ok(Watchdog { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Requests are taken.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A stop has begun.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor cannot be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_that_stands_still_is_enough() {
        let beats = Beats::new(3, Duration::from_secs(1));
        let since = beats.read();
        assert_eq!(beats.still(&since), [0, 1, 2]);
        for moved in [0, 2] {
            beats.counters[moved].fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(beats.still(&since), [1]);
        beats.counters[1].fetch_add(1, Ordering::Relaxed);
        assert!(beats.still(&since).is_empty());
    }
}
