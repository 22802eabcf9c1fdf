//! What load to make.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::arrivals::Arrival;
use super::disturb::Disturb;

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

/// Which of a connection's keys a record has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "distribution")]
pub enum KeyDist {
    /// Each as often as any other.
    #[default]
    Uniform,
    /// The n-th of them as often as `1 / n^exponent` says: few keys have most of the records.
    Zipf { exponent: f64 },
}

/// One size of a mix, and how many of the values have it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeShare {
    pub bytes: usize,
    /// Of all values; those of a mix add up to 100.
    pub percent: f64,
}

/// Settings of a produce load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub topic: String,
    /// Ranges that the topic is made with if it does not exist.
    pub ranges: u32,
    pub connections: u32,
    pub pace: Pace,
    /// Bytes of a value; of a mix the mean.
    pub value_bytes: usize,
    /// A mix of sizes; empty: all values have the same.
    #[serde(default)]
    pub sizes: Vec<SizeShare>,
    /// Records in a batch.
    pub batch: u32,
    /// Keys, each written by one connection only.
    pub keys: u32,
    #[serde(default)]
    pub key_dist: KeyDist,
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
    /// What is done to the node in the measured time of each load.
    #[serde(default)]
    pub disturb: Vec<Disturb>,
    /// Of keys, sizes, contents and arrivals: the same seed makes the same records on each connection.
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
            sizes: Vec::new(),
            batch: 1,
            keys: 1024,
            key_dist: KeyDist::Uniform,
            seconds: 10.0,
            warmup_seconds: 2.0,
            verify: false,
            judged: false,
            embedded: false,
            disturbance: false,
            disturb: Vec::new(),
            seed: 1,
            percentiles: Vec::new(),
            timeout_ms: 10_000,
        }
    }
}

impl Settings {
    /// Bytes of the smallest value, and of the largest.
    #[must_use]
    pub fn value_bytes_range(&self) -> (usize, usize) {
        let bytes = || self.sizes.iter().map(|share| share.bytes);
        (bytes().min().unwrap_or(self.value_bytes), bytes().max().unwrap_or(self.value_bytes))
    }
}

/// The mean of a mix in whole bytes, rounded up.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sizes of values are far below 2^53")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean lies between the sizes")]
pub fn mean_bytes(sizes: &[SizeShare]) -> usize {
    sizes.iter().map(|share| share.bytes as f64 * share.percent / 100.0).sum::<f64>().ceil() as usize
}

impl fmt::Display for KeyDist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
        }
    }
}

impl fmt::Display for Settings {
    /// What another run needs to make the same records again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(
            f,
            "topic {}, {}, {}, values of ",
            self.topic,
            count(self.ranges, "range"),
            count(self.connections, "connection")
        )?;
        for (index, share) in self.sizes.iter().enumerate() {
            write!(f, "{}{} B ({} %)", if index == 0 { "" } else { " or " }, share.bytes, share.percent)?;
        }
        if self.sizes.is_empty() {
            write!(f, "{} B", self.value_bytes)?;
        }
        write!(f, ", {} a batch, {} {}, seed {}", self.batch, count(self.keys, "key"), self.key_dist, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_the_records_is_told_in_one_line() {
        assert_eq!(
            Settings::default().to_string(),
            "topic bench, 1 range, 1 connection, values of 1024 B, 1 a batch, 1024 keys uniform, seed 1"
        );
        let sizes = vec![SizeShare { bytes: 128, percent: 70.0 }, SizeShare { bytes: 1024, percent: 30.0 }];
        let settings = Settings {
            value_bytes: mean_bytes(&sizes),
            sizes,
            ranges: 4,
            key_dist: KeyDist::Zipf { exponent: 1.2 },
            seed: 7,
            ..Settings::default()
        };
        assert_eq!((settings.value_bytes, settings.value_bytes_range()), (397, (128, 1024)));
        assert!(settings.to_string().contains("4 ranges"), "{settings}");
        assert!(settings.to_string().contains("values of 128 B (70 %) or 1024 B (30 %)"), "{settings}");
        assert!(settings.to_string().ends_with("1024 keys zipf:1.2, seed 7"), "{settings}");
    }

    #[test]
    fn settings_of_a_report_that_knew_no_mix_still_read() {
        let mut plain = serde_json::to_value(Settings::default()).expect("plain data");
        let fields = plain.as_object_mut().expect("fields");
        assert!(fields.remove("sizes").is_some() && fields.remove("key_dist").is_some());
        assert_eq!(serde_json::from_value::<Settings>(plain).expect("settings"), Settings::default());
    }
}
