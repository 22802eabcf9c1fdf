//! What the applications know: every record that was sent, what its sender was told of it, and whether anyone has read it.
//!
//! ```text
//! value of a record   | writer u32 | number u32 | one byte, a function of both, over and over |
//!                     | zeros                                                                 |   its key then names it
//! ```
//! A record names itself, so that a reader's view is checked against what was sent without any help of the store.

use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{ProducerEpoch, ProducerId};

/// One record: the `number`-th (from 0) of one writer. A writer is an application with one producer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordId {
    pub writer: u32,
    pub number: u32,
}

/// What the sender was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nothing yet.
    Waiting,
    Stored,
    NotStored,
    Unknown,
}

/// How a record's bytes are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// It names itself in its value.
    Named,
    /// A value of zeros; it names itself in its key, which no other record has.
    Zeros,
}

/// One record as its sender sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub topic: u32,
    /// Number of its key in its topic; `None` if it has no key, or one of its own.
    pub key: Option<u32>,
    pub shape: Shape,
    /// The id and epoch under which it is sent; `None`: not known.
    pub identity: Option<(ProducerId, ProducerEpoch)>,
    /// Bytes of the value.
    pub value_bytes: u32,
    pub sent_ns: u64,
    /// When the sender's call must have ended.
    pub deadline_ns: u64,
    pub fate: Fate,
    /// When the sender was told; meaningless while `Waiting`.
    pub settled_ns: u64,
    /// When a reader first had it.
    pub read_ns: Option<u64>,
}

/// Everything that was sent.
#[derive(Default)]
pub struct History {
    writers: Vec<Vec<Sent>>,
    sent: u64,
    waiting: u64,
    stored: u64,
}

/// Bytes of the smallest value that names itself.
pub const NAME_BYTES: usize = 8;

impl History {
    /// One more writer. Returns its number.
    ///
    /// # Panics
    /// If there are more than 2^32.
    pub fn add_writer(&mut self) -> u32 {
        self.writers.push(Vec::new());
        u32::try_from(self.writers.len() - 1).expect("few writers")
    }

    /// A writer hands a record to its producer. Returns its name.
    ///
    /// # Panics
    /// If there is no such writer.
    pub fn send(&mut self, writer: u32, sent: Sent) -> RecordId {
        let records = &mut self.writers[writer as usize];
        records.push(sent);
        self.sent += 1;
        self.waiting += 1;
        RecordId { writer, number: u32::try_from(records.len() - 1).expect("a run is short") }
    }

    /// The sender is told. Returns false if it had been told before: that is a bug of the client.
    ///
    /// # Panics
    /// If there is no such record, or `fate` is none.
    pub fn settle(&mut self, id: RecordId, fate: Fate, now_ns: u64) -> bool {
        assert_ne!(fate, Fate::Waiting, "a record is settled once for all");
        let sent = &mut self.writers[id.writer as usize][id.number as usize];
        if sent.fate != Fate::Waiting {
            return false;
        }
        sent.fate = fate;
        sent.settled_ns = now_ns;
        self.waiting -= 1;
        self.stored += u64::from(fate == Fate::Stored);
        true
    }

    /// A reader has it.
    pub fn mark_read(&mut self, id: RecordId, now_ns: u64) {
        if let Some(sent) = self.writers.get_mut(id.writer as usize).and_then(|r| r.get_mut(id.number as usize)) {
            sent.read_ns.get_or_insert(now_ns);
        }
    }

    /// A record, if it was sent.
    #[must_use]
    pub fn get(&self, id: RecordId) -> Option<&Sent> {
        self.writers.get(id.writer as usize)?.get(id.number as usize)
    }

    /// All records, by writer and number.
    pub fn records(&self) -> impl Iterator<Item = (RecordId, &Sent)> {
        (0u32..).zip(&self.writers).flat_map(|(writer, records)| {
            (0u32..).zip(records).map(move |(number, sent)| (RecordId { writer, number }, sent))
        })
    }

    /// Records sent.
    #[must_use]
    pub fn records_sent(&self) -> u64 {
        self.sent
    }

    /// The last record of a writer.
    #[must_use]
    pub fn last_of(&self, writer: u32) -> Option<RecordId> {
        let records = self.writers.get(writer as usize)?;
        let number = u32::try_from(records.len().checked_sub(1)?).expect("a run is short");
        Some(RecordId { writer, number })
    }

    /// How many senders were told that their record is stored, is not, and that it is unknown.
    #[must_use]
    pub fn fates(&self) -> [u64; 3] {
        let count = |fate| self.records().filter(|(_, sent)| sent.fate == fate).count() as u64;
        [count(Fate::Stored), count(Fate::NotStored), count(Fate::Unknown)]
    }

    /// Records whose sender has not been told.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Records that are stored, as their senders were told.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.stored
    }
}

/// The byte that fills a record's value behind its name.
fn filler(id: RecordId) -> u8 {
    id.number.wrapping_mul(31).wrapping_add(id.writer).to_le_bytes()[0] | 1
}

impl Sent {
    /// The bytes of its value.
    #[must_use]
    pub fn value(&self, id: RecordId) -> Vec<u8> {
        let bytes = self.value_bytes as usize;
        match self.shape {
            Shape::Zeros => vec![0; bytes],
            Shape::Named => {
                let mut value = vec![filler(id); bytes.max(NAME_BYTES)];
                value[..4].copy_from_slice(&id.writer.to_le_bytes());
                value[4..NAME_BYTES].copy_from_slice(&id.number.to_le_bytes());
                value
            }
        }
    }

    /// Whether `value` is what was sent.
    #[must_use]
    pub fn is_value(&self, id: RecordId, value: &[u8]) -> bool {
        let (name, rest, fill) = match self.shape {
            Shape::Zeros => (None, value, 0),
            Shape::Named if value.len() < NAME_BYTES => return false,
            Shape::Named => (Some(&value[..NAME_BYTES]), &value[NAME_BYTES..], filler(id)),
        };
        let expected = match self.shape {
            Shape::Zeros => self.value_bytes as usize,
            Shape::Named => (self.value_bytes as usize).max(NAME_BYTES),
        };
        value.len() == expected && name.is_none_or(|name| name == name_of(id)) && rest.iter().all(|byte| *byte == fill)
    }

    /// Whether `key` is what was sent.
    #[must_use]
    pub fn is_key(&self, id: RecordId, key: Option<&[u8]>) -> bool {
        match (self.shape, self.key) {
            (Shape::Zeros, _) => key.is_some_and(|key| key == own_key_bytes(id)),
            (Shape::Named, Some(number)) => key.is_some_and(|key| key == key_bytes(number)),
            (Shape::Named, None) => key.is_none(),
        }
    }

    /// How long its sender has waited, or waited in all, in ms.
    #[must_use]
    pub fn waited_ms(&self, now_ns: u64) -> u64 {
        let until_ns = if self.fate == Fate::Waiting { now_ns } else { self.settled_ns };
        (until_ns - self.sent_ns) / MILLISECOND_NS
    }
}

fn name_of(id: RecordId) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    name[..4].copy_from_slice(&id.writer.to_le_bytes());
    name[4..].copy_from_slice(&id.number.to_le_bytes());
    name
}

/// The key of the `key`-th key of a topic.
#[must_use]
pub fn key_bytes(key: u32) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// The key that names a record of zeros.
#[must_use]
pub fn own_key_bytes(id: RecordId) -> Vec<u8> {
    let mut key = b"own-".to_vec();
    key.extend_from_slice(&name_of(id));
    key
}

/// Which record a reader has before it, by its key and value; `None` if it is none of ours.
#[must_use]
pub fn identify(key: Option<&[u8]>, value: &[u8]) -> Option<RecordId> {
    let name = match key.and_then(|key| key.strip_prefix(b"own-")) {
        Some(name) => name,
        None => value.get(..NAME_BYTES)?,
    };
    let (writer, number) = name.split_at_checked(4)?;
    Some(RecordId {
        writer: u32::from_le_bytes(writer.try_into().ok()?),
        number: u32::from_le_bytes(number.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(shape: Shape, value_bytes: u32) -> Sent {
        Sent {
            topic: 0,
            key: None,
            shape,
            identity: None,
            value_bytes,
            sent_ns: 0,
            deadline_ns: 0,
            fate: Fate::Waiting,
            settled_ns: 0,
            read_ns: None,
        }
    }

    #[test]
    fn a_record_names_itself_by_value_or_by_key() {
        let id = RecordId { writer: 3, number: 258 };
        let named = sent(Shape::Named, 100);
        let value = named.value(id);
        assert_eq!(value.len(), 100);
        assert_eq!(identify(Some(b"key-1"), &value), Some(id));
        assert_eq!(identify(None, &value), Some(id));
        assert_eq!(identify(Some(&own_key_bytes(id)), &[0; 5]), Some(id));
        assert_eq!(identify(Some(b"own-"), &value), None);
        assert_eq!(identify(None, b"short"), None);
    }

    #[test]
    fn a_changed_value_is_not_what_was_sent() {
        let id = RecordId { writer: 1, number: 2 };
        for shape in [Shape::Named, Shape::Zeros] {
            let sent = sent(shape, 64);
            let value = sent.value(id);
            assert!(sent.is_value(id, &value));
            for position in 0..value.len() {
                let mut changed = value.clone();
                changed[position] ^= 0x10;
                assert!(!sent.is_value(id, &changed), "{shape:?} at {position}");
            }
            assert!(!sent.is_value(id, &value[..63]));
        }
    }

    #[test]
    fn a_record_is_settled_once() {
        let mut history = History::default();
        let writer = history.add_writer();
        let id = history.send(writer, sent(Shape::Named, 8));
        assert_eq!(history.waiting(), 1);
        assert!(history.settle(id, Fate::Stored, 5));
        assert!(!history.settle(id, Fate::NotStored, 6));
        assert_eq!((history.waiting(), history.stored()), (0, 1));
        assert_eq!(history.get(id).map(|sent| sent.fate), Some(Fate::Stored));
    }
}
