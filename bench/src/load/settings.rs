//! What load to make.

use serde::{Deserialize, Serialize};

use super::arrivals::Arrival;

/// How records are paced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "loop")]
pub enum Pace {
    /// On a schedule, whatever the answers do.
    Open {
        /// Records a second, over all connections.
        rate: f64,
        arrival: Arrival,
    },
    /// A new record for each answer.
    Closed {
        /// Unanswered records on each connection.
        inflight: u32,
    },
}

/// Settings of a produce load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub topic: String,
    /// Ranges that the topic is made with if it does not exist.
    pub ranges: u32,
    pub connections: u32,
    pub pace: Pace,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Records in a batch.
    pub batch: u32,
    /// Keys, each written by one connection only.
    pub keys: u32,
    pub seconds: f64,
    /// Before the measured seconds, and left out of the figures.
    pub warmup_seconds: f64,
    /// Read everything back and judge it.
    pub verify: bool,
    /// Values carry a hash of their own content, so that they can be judged, now or later.
    pub judged: bool,
    /// The node ran inside this process.
    pub embedded: bool,
    /// Tell records near rolls and checkpoints from the others.
    pub disturbance: bool,
    /// Of keys, contents and arrivals.
    pub seed: u64,
    /// Percentiles that are reported beside the usual ones, such as 99.5.
    #[serde(default)]
    pub percentiles: Vec<f64>,
    /// How long an unanswered record is waited for, in milliseconds.
    pub timeout_ms: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            topic: "bench".to_owned(),
            ranges: 1,
            connections: 1,
            pace: Pace::Open { rate: 10_000.0, arrival: Arrival::Constant },
            value_bytes: 1024,
            batch: 1,
            keys: 1024,
            seconds: 10.0,
            warmup_seconds: 2.0,
            verify: false,
            judged: false,
            embedded: false,
            disturbance: false,
            seed: 1,
            percentiles: Vec::new(),
            timeout_ms: 10_000,
        }
    }
}
