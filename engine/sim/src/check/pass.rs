//! One reading of one topic from its beginning: what the reader has had so far.

use std::collections::BTreeMap;

use crate::history::RecordId;

/// The last records of one key.
#[derive(Default)]
pub(super) struct KeySeen {
    /// The record sent last of all that were read.
    pub(super) sent_last: Option<(u64, RecordId)>,
    /// The last number of each writer.
    pub(super) writers: BTreeMap<u32, u32>,
}

/// One reading.
pub struct Pass {
    /// Its number, for messages.
    pub number: u32,
    pub topic: u32,
    /// What was settled or read before it began must be in it.
    pub began_ns: u64,
    /// Records that the gaps it was told of may have held.
    pub gap_records: u64,
    pub(super) read: Vec<Vec<u64>>,
    pub(super) keys: Vec<KeySeen>,
    records: u64,
}

impl Pass {
    /// A reading that begins now.
    #[must_use]
    pub fn new(number: u32, topic: u32, began_ns: u64) -> Self {
        Self { number, topic, began_ns, gap_records: 0, read: Vec::new(), keys: Vec::new(), records: 0 }
    }

    /// Records it has had.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether it has had a record.
    #[must_use]
    pub fn has(&self, id: RecordId) -> bool {
        let word = self.read.get(id.writer as usize).and_then(|words| words.get(id.number as usize / 64));
        word.is_some_and(|word| word & (1 << (id.number % 64)) != 0)
    }

    /// It has a record. Returns false if it had had it.
    pub(super) fn take(&mut self, id: RecordId) -> bool {
        let (writer, word) = (id.writer as usize, id.number as usize / 64);
        if self.read.len() <= writer {
            self.read.resize_with(writer + 1, Vec::new);
        }
        let words = &mut self.read[writer];
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        let bit = 1 << (id.number % 64);
        let new = words[word] & bit == 0;
        words[word] |= bit;
        self.records += u64::from(new);
        new
    }

    pub(super) fn key(&mut self, key: u32) -> &mut KeySeen {
        let key = key as usize;
        if self.keys.len() <= key {
            self.keys.resize_with(key + 1, KeySeen::default);
        }
        &mut self.keys[key]
    }
}
