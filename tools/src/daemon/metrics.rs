//! The shards' counters, and the process's own, in the Prometheus text format.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use sealog_engine::io::metrics::{METRICS, MetricKind, ShardMetrics};

use crate::log::DroppedLines;

/// The published counters of a node's shards, by shard.
#[derive(Clone, Debug)]
pub(crate) struct Shards(pub(crate) Vec<Arc<ShardMetrics>>);

impl Collector for Shards {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshots: Vec<_> = self.0.iter().map(|shard| shard.snapshot()).collect();
        for metric in METRICS {
            let (kind, help) = match metric.kind {
                MetricKind::Counter => (MetricType::Counter, metric.help),
                MetricKind::Gauge => (MetricType::Gauge, metric.help),
            };
            let mut family = encoder.encode_descriptor(metric.name, help, None, kind)?;
            for (shard, counters) in snapshots.iter().enumerate() {
                let label = [("shard", shard.to_string())];
                let value = (metric.of)(counters);
                let line = family.encode_family(&label)?;
                match metric.kind {
                    MetricKind::Counter => ConstCounter::new(value).encode(line)?,
                    MetricKind::Gauge => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(line)?,
                }
            }
        }
        Ok(())
    }
}

/// Lines of the log that nobody took in time.
#[derive(Debug)]
struct LogLines(DroppedLines);

impl Collector for LogLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Lines of the log dropped because nobody took them fast enough";
        let line = encoder.encode_descriptor("log_lines_dropped", help, None, MetricType::Counter)?;
        ConstCounter::new(self.0.count()).encode(line)
    }
}

/// A registry of everything that a daemon counts.
pub(crate) fn registry(shards: Shards, dropped_lines: DroppedLines) -> Registry {
    let mut registry = Registry::with_prefix("sealog");
    registry.register_collector(Box::new(shards));
    registry.register_collector(Box::new(LogLines(dropped_lines)));
    registry
}

/// The counters of all shards as JSON: a list of objects, by shard.
pub(crate) fn as_json(shards: &Shards) -> serde_json::Value {
    let object = |shard: &Arc<ShardMetrics>| -> serde_json::Value {
        let counters = shard.snapshot();
        METRICS.iter().map(|metric| (metric.name.to_owned(), serde_json::Value::from((metric.of)(&counters)))).collect()
    };
    shards.0.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use sealog_engine::shard::counters::Counters;

    use super::*;

    #[test]
    fn each_counter_is_a_line_a_shard() {
        let shards = Shards(vec![Arc::default(), Arc::default()]);
        shards.0[1].publish(&Counters { groups: 7, ranges: 3, ..Counters::default() });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry(shards.clone(), DroppedLines::default()))
            .expect("written to a string");
        for line in [
            "# TYPE sealog_groups counter",
            "sealog_groups_total{shard=\"0\"} 0",
            "sealog_groups_total{shard=\"1\"} 7",
            "# TYPE sealog_ranges gauge",
            "sealog_ranges{shard=\"1\"} 3",
            "sealog_log_lines_dropped_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(as_json(&shards)[1]["groups"], 7);
    }
}
