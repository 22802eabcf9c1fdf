//! A shard's counters as other threads may read them. The shard's performer publishes now and then, with plain relaxed stores; whoever
//! serves `/metrics` reads without a lock and without the shard noticing.
//!
//! **Invariant**: each number is whole, but a snapshot is not one moment: numbers may be of two turns next to each other.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shard::counters::Counters;

/// How a number is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only grows in one life of the process.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One number's name and meaning.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
    /// Reads it from a snapshot.
    pub of: fn(&Counters) -> u64,
}

macro_rules! metrics {
    ($($kind:ident $name:ident: $help:literal,)*) => {
        /// The counters of one shard, published.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct ShardMetrics {
            $($name: AtomicU64,)*
            beats: AtomicU64,
        }

        impl ShardMetrics {
            /// The shard's executor moves.
            pub fn beat(&self) {
                self.beats.fetch_add(1, Ordering::Relaxed);
            }

            /// How often it has beaten: dozens of times a second.
            #[must_use]
            pub fn beats(&self) -> u64 {
                self.beats.load(Ordering::Relaxed)
            }

            /// Shows these to other threads.
            pub fn publish(&self, counters: &Counters) {
                $(self.$name.store(counters.$name, Ordering::Relaxed);)*
            }

            /// What was last published.
            #[must_use]
            pub fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        /// All of them, in the order of [`Counters`].
        pub const METRICS: &[Metric] = &[
            $(Metric { name: stringify!($name), kind: MetricKind::$kind, help: $help, of: |c| c.$name },)*
        ];
    };
}

metrics! {
    Counter batches_taken: "Batches taken into the log",
    Counter records_taken: "Records taken into the log",
    Counter bytes_taken: "Bytes of batches taken into the log",
    Counter batches_stored: "Batches acknowledged as stored, repeats included",
    Counter batches_repeated: "Batches acknowledged that had been stored before",
    Counter produce_refused: "Produce requests refused",
    Counter produce_overloaded: "Produce requests refused for want of room",
    Counter fetches: "Fetch requests",
    Counter bytes_fetched: "Bytes of entries given to readers",
    Counter reads: "Reads of segment files",
    Counter damage_found: "Places in segment files that did not verify when they were read",
    Counter groups: "Journal groups made durable",
    Counter group_bytes: "Bytes of journal groups made durable",
    Counter markers: "Empty groups written when the shard fell idle",
    Counter segments_opened: "Segments opened",
    Counter rolls: "Segments that went on in a successor",
    Counter segments_closed: "Segments closed at a committed end",
    Gauge last_roll_wall_ms: "Wall clock at the last roll in milliseconds since the Unix epoch, 0 before the first",
    Counter checkpoints: "Checkpoints finished",
    Gauge last_checkpoint_begin_wall_ms: "Wall clock at the start of the last finished checkpoint in milliseconds since the Unix epoch, 0 before the first",
    Gauge last_checkpoint_end_wall_ms: "Wall clock at the end of the last finished checkpoint in milliseconds since the Unix epoch, 0 before the first",
    Gauge unwritten_bytes: "Bytes in memory that are not yet in a segment under the catalog",
    Gauge ranges: "Ranges held",
    Gauge waiting_fetches: "Fetches that wait for records",
    Gauge write_failed: "1 once a write has failed and the shard takes no more",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_what_is_read() {
        let metrics = ShardMetrics::default();
        let counters = Counters { groups: 7, write_failed: 1, ..Counters::default() };
        metrics.publish(&counters);
        assert_eq!(metrics.snapshot(), counters);
        let of = |name: &str| METRICS.iter().find(|m| m.name == name).map(|m| (m.of)(&counters));
        assert_eq!((of("groups"), of("write_failed"), of("rolls"), of("none")), (Some(7), Some(1), Some(0), None));
    }
}
