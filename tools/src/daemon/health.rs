//! What a daemon says of itself.

use std::sync::atomic::{AtomicU8, Ordering};

use super::metrics::{self, Shards};
use crate::log::DroppedLines;

/// Where a daemon is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Life {
    Starting = 0,
    Ready = 1,
    Stopping = 2,
}

/// What does not change once it is ready, for `/status` and the ready line.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Facts {
    pub(crate) version: &'static str,
    pub(crate) commit: &'static str,
    pub(crate) pid: u32,
    pub(crate) listen: String,
    pub(crate) http: Option<String>,
    pub(crate) data_dir: String,
    pub(crate) shards: u16,
    /// The core of each shard.
    pub(crate) cpus: Vec<usize>,
    /// The way to make journal groups durable, and how it was found.
    pub(crate) sync: String,
    pub(crate) cluster: String,
    pub(crate) node: String,
    /// How many times this data directory was started.
    pub(crate) start: u64,
}

/// Shared by the HTTP thread and the main one.
#[derive(Debug)]
pub(crate) struct Health {
    life: AtomicU8,
    pub(crate) facts: Facts,
    pub(crate) shards: Shards,
    pub(crate) dropped_lines: DroppedLines,
}

impl Health {
    pub(crate) fn new(facts: Facts, shards: Shards, dropped_lines: DroppedLines) -> Self {
        Self { life: AtomicU8::new(Life::Starting as u8), facts, shards, dropped_lines }
    }

    pub(crate) fn set(&self, life: Life) {
        self.life.store(life as u8, Ordering::Release);
    }

    fn life(&self) -> Life {
        match self.life.load(Ordering::Acquire) {
            0 => Life::Starting,
            1 => Life::Ready,
            _ => Life::Stopping,
        }
    }

    /// Whether requests are taken.
    pub(crate) fn is_ready(&self) -> Result<(), &'static str> {
        match self.life() {
            Life::Starting => Err("starting"),
            Life::Ready => Ok(()),
            Life::Stopping => Err("stopping"),
        }
    }

    /// Whether the process is worth keeping: a shard whose disk failed will not heal.
    pub(crate) fn is_healthy(&self) -> Result<(), &'static str> {
        if self.shards.0.iter().any(|shard| shard.snapshot().write_failed > 0) {
            return Err("a write has failed; a shard takes no more records");
        }
        Ok(())
    }

    /// Facts and counters.
    pub(crate) fn status(&self) -> serde_json::Value {
        let mut status = serde_json::to_value(&self.facts).expect("facts are plain data");
        status["ready"] = self.is_ready().is_ok().into();
        status["log_lines_dropped"] = self.dropped_lines.count().into();
        status["counters"] = metrics::as_json(&self.shards);
        status
    }
}

#[cfg(test)]
mod tests {
    use sealog_engine::shard::counters::Counters;

    use super::*;

    pub(crate) fn health() -> Health {
        let facts = Facts {
            version: "0",
            commit: "c",
            pid: 1,
            listen: "l".into(),
            http: None,
            data_dir: "d".into(),
            shards: 1,
            cpus: vec![0],
            sync: "linked".into(),
            cluster: "0".into(),
            node: "n1".into(),
            start: 1,
        };
        Health::new(facts, Shards(vec![std::sync::Arc::default()]), DroppedLines::default())
    }

    #[test]
    fn it_is_ready_only_between_its_start_and_its_stop() {
        let health = health();
        assert_eq!(health.is_ready(), Err("starting"));
        health.set(Life::Ready);
        assert_eq!((health.is_ready(), health.status()["ready"].as_bool()), (Ok(()), Some(true)));
        health.set(Life::Stopping);
        assert_eq!(health.is_ready(), Err("stopping"));
    }

    #[test]
    fn a_failed_write_makes_it_unhealthy() {
        let health = health();
        assert!(health.is_healthy().is_ok());
        health.shards.0[0].publish(&Counters { write_failed: 1, ..Counters::default() });
        assert!(health.is_healthy().is_err());
    }
}
