//! What a supervisor (systemd's notify protocol) is told: ready, stopping, and now and then that every shard moves.
//!
//! ```text
//! shard 0  ──beat──> its metrics ──┐
//! shard 1  ──beat──> its metrics ──┼──> thread `watchdog`: all counted on since the last look?  yes: WATCHDOG=1
//!   ..                             ┘                                                            no: nothing, and a line in the log
//! ```
//! **Invariant**: one shard that does not move starves the watchdog, whatever the others do; nothing is fed where no supervisor asks.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};

use sd_notify::NotifyState;
use sealog_engine::io::metrics::ShardMetrics;

/// Feeds the watchdog until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn beats(shards: &[Arc<ShardMetrics>]) -> Vec<u64> {
    shards.iter().map(|shard| shard.beats()).collect()
}

/// The shards that have not beaten since.
fn still(shards: &[Arc<ShardMetrics>], since: &[u64]) -> Vec<usize> {
    let beats = beats(shards).into_iter().zip(since).enumerate();
    beats.filter(|(_, (now, then))| now == *then).map(|(shard, _)| shard).collect()
}

impl Watchdog {
    /// Begins to feed, if a supervisor wants to know. A look takes half of the time that it waits.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn feed(shards: Vec<Arc<ShardMetrics>>) -> std::io::Result<Option<Self>> {
        let Some(patience) = sd_notify::watchdog_enabled() else { return Ok(None) };
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let mut since = beats(&shards);
            while stopped.recv_timeout(patience / 2) == Err(RecvTimeoutError::Timeout) {
                let still = still(&shards, &since);
                if still.is_empty() {
                    since = beats(&shards);
                    tell(&[NotifyState::Watchdog]);
                } else {
                    tracing::error!(shards = ?still, "shards do not move; the watchdog is not fed");
                }
            }
        })?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
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
        let shards: Vec<Arc<ShardMetrics>> = (0..3).map(|_| Arc::default()).collect();
        let since = beats(&shards);
        assert_eq!(still(&shards, &since), [0, 1, 2]);
        for moved in [0, 2] {
            shards[moved].beat();
        }
        assert_eq!(still(&shards, &since), [1]);
        shards[1].beat();
        assert!(still(&shards, &since).is_empty());
    }
}
