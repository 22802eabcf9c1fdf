//! What was asked of a node and what it told, up to a place of the timeline; and what a batch holds, from its name alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sealog_engine::types::random::Generator;

/// One batch: who made it, in which range it lies, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BatchId {
    pub producer: u64,
    pub range: u64,
    pub sequence: u64,
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.producer, self.range, self.sequence)
    }
}

impl BatchId {
    /// The values of its records.
    pub fn values(self) -> Vec<Vec<u8>> {
        let mut draw = Generator::new(self.producer << 40 ^ self.range << 20 ^ self.sequence);
        let records = 1 + draw.draw() % 5;
        let value = |_| {
            let bytes_max = match draw.draw() % 24 {
                0 => 12_000,
                1..8 => 2_000,
                _ => 300,
            };
            let words = (draw.draw() % bytes_max) / 8;
            (0..words).flat_map(|_| draw.draw().to_le_bytes()).collect()
        };
        (0..records).map(value).collect()
    }
}

/// What is known at a place of the timeline.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By the number of the request.
    requests: BTreeMap<u64, BatchId>,
    pub sent: BTreeSet<BatchId>,
    pub stored: BTreeSet<BatchId>,
    /// Batches that a reader was given, by range and first offset.
    pub read: BTreeMap<(u64, u64), BatchId>,
    /// Spans that a reader was told to be gone, by range and first offset.
    pub gaps: BTreeMap<(u64, u64), u64>,
    pub topic: bool,
    pub producers: BTreeSet<u64>,
    /// A node is between its start and its being ready.
    pub starting: bool,
}

impl History {
    /// Takes one note.
    pub fn note(&mut self, note: &str) {
        let mut words = note.split(' ');
        let what = words.next().expect("a word");
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        let batch = |at: usize| BatchId { producer: numbers[at], range: numbers[at + 1], sequence: numbers[at + 2] };
        match what {
            "sent" => {
                self.requests.insert(numbers[0], batch(1));
                self.sent.insert(batch(1));
            }
            "stored" => {
                self.stored.insert(self.requests[&numbers[0]]);
            }
            "read" => {
                self.read.insert((numbers[2], numbers[0]), batch(1));
            }
            "gap" => {
                self.gaps.insert((numbers[0], numbers[1]), numbers[2]);
            }
            "topic" => self.topic = true,
            "producer" => {
                self.producers.insert(numbers[0]);
            }
            "starting" => self.starting = true,
            "started" => self.starting = false,
            other => panic!("a note that nobody writes: {other}"),
        }
    }
}
