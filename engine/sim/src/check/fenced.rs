//! Fenced: once a record of a producer's later epoch was acknowledged, no record of the same key that an earlier epoch sends after that is
//! stored, wherever the key has gone since.

use std::collections::BTreeMap;

use sealog_engine::types::{ProducerEpoch, ProducerId};

use super::Violation;
use crate::history::{Fate, RecordId, Sent};

/// The first acknowledgement of each epoch, in ns of virtual time.
type Epochs = BTreeMap<ProducerEpoch, u64>;

/// The checker.
#[derive(Default)]
pub struct Fenced {
    /// Records of an epoch that another had fenced when they were sent.
    pub checked: u64,
    acknowledged: BTreeMap<(ProducerId, u32, u32), Epochs>,
}

impl Fenced {
    /// A sender was told what became of a record.
    ///
    /// # Errors
    /// It is stored, and its epoch had been fenced before it was sent.
    pub fn settled(&mut self, id: RecordId, sent: &Sent) -> Result<(), Violation> {
        let (Some((producer, epoch)), Some(key)) = (sent.identity, sent.key) else { return Ok(()) };
        let epochs = self.acknowledged.entry((producer, sent.topic, key)).or_default();
        let later = (std::ops::Bound::Excluded(epoch), std::ops::Bound::Unbounded);
        if epochs.range(later).any(|(_, at_ns)| *at_ns < sent.sent_ns) {
            self.checked += 1;
            if sent.fate == Fate::Stored {
                return Err(Violation::StoredThoughFenced { id, epoch });
            }
        }
        if sent.fate == Fate::Stored {
            epochs.entry(epoch).or_insert(sent.settled_ns);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Shape;

    fn sent(epoch: u32, sent_ns: u64, fate: Fate) -> Sent {
        Sent {
            topic: 0,
            key: Some(3),
            shape: Shape::Named,
            identity: Some((ProducerId(7), ProducerEpoch(epoch))),
            value_bytes: 8,
            sent_ns,
            deadline_ns: 0,
            fate,
            settled_ns: sent_ns + 10,
            read_ns: None,
        }
    }

    #[test]
    fn a_record_of_an_earlier_epoch_is_not_stored_once_a_later_one_was_acknowledged() {
        let mut fenced = Fenced::default();
        let id = RecordId { writer: 0, number: 0 };
        assert!(fenced.settled(id, &sent(1, 0, Fate::Stored)).is_ok());
        assert!(fenced.settled(id, &sent(2, 100, Fate::Stored)).is_ok());
        assert!(fenced.settled(id, &sent(1, 110, Fate::Stored)).is_ok(), "it may have overtaken the other");
        assert!(fenced.settled(id, &sent(1, 111, Fate::NotStored)).is_ok());
        assert!(matches!(fenced.settled(id, &sent(1, 111, Fate::Stored)), Err(Violation::StoredThoughFenced { .. })));
        assert!(fenced.settled(id, &sent(2, 111, Fate::Stored)).is_ok());
        assert_eq!(fenced.checked, 2);
    }
}
