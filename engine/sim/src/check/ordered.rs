//! Ordered per key: a reading has one writer's records of a key in the order of sending, and a record that was sent after
//! another's acknowledgement, by anyone, behind it.
//!
//! The second is checked in one walk: while reading, the record sent last so far is kept; one that had been acknowledged before
//! that was sent must not come behind it.

use super::{Pass, Violation};
use crate::history::{Fate, History, RecordId};

/// The checker.
#[derive(Default)]
pub struct Ordered {
    /// Records read behind another of their key.
    pub checked: u64,
}

impl Ordered {
    /// A reading has a record that was sent.
    ///
    /// # Errors
    /// It had to come earlier.
    pub fn read(&mut self, history: &History, pass: &mut Pass, id: RecordId) -> Result<(), Violation> {
        let Some(sent) = history.get(id) else { return Ok(()) };
        let Some(key) = sent.key else { return Ok(()) };
        let number = pass.number;
        let seen = pass.key(key);
        if let Some(last) = seen.writers.insert(id.writer, id.number) {
            self.checked += 1;
            if last > id.number {
                let first = RecordId { writer: id.writer, number: last };
                return Err(Violation::Reordered { pass: number, key, first, second: id });
            }
        }
        match seen.sent_last {
            Some((sent_ns, early)) => {
                self.checked += 1;
                if sent.fate == Fate::Stored && sent.settled_ns < sent_ns {
                    return Err(Violation::Inverted { pass: number, key, early, late: id });
                }
                if sent.sent_ns > sent_ns {
                    seen.sent_last = Some((sent.sent_ns, id));
                }
            }
            None => seen.sent_last = Some((sent.sent_ns, id)),
        }
        Ok(())
    }
}
