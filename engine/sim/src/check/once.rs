//! Once: a reading has each record at most once, none that its sender was told is not stored, and none that nobody sent.

use super::{Pass, Violation};
use crate::history::{Fate, History, RecordId, identify};

/// The checker.
#[derive(Default)]
pub struct Once {
    /// Records read.
    pub checked: u64,
}

impl Once {
    /// A reading has a record. Returns its name.
    ///
    /// # Errors
    /// It must not be there, or not be so.
    pub fn read(
        &mut self,
        history: &mut History,
        pass: &mut Pass,
        key: Option<&[u8]>,
        value: &[u8],
        now_ns: u64,
    ) -> Result<RecordId, Violation> {
        self.checked += 1;
        let never = |id| Violation::NeverSent { pass: pass.number, topic: pass.topic, id };
        let id = identify(key, value).ok_or_else(|| never(None))?;
        let sent = history.get(id).ok_or_else(|| never(Some(id)))?;
        if sent.topic != pass.topic || !sent.is_value(id, value) || !sent.is_key(id, key) {
            return Err(never(Some(id)));
        }
        if sent.fate == Fate::NotStored {
            return Err(Violation::NotStoredButRead { pass: pass.number, id });
        }
        if !pass.take(id) {
            return Err(Violation::Twice { pass: pass.number, id });
        }
        history.mark_read(id, now_ns);
        Ok(id)
    }

    /// A sender was told what became of a record.
    ///
    /// # Errors
    /// It had been told before, or is told of a record as not stored that was read.
    pub fn settled(&mut self, history: &mut History, id: RecordId, fate: Fate, now_ns: u64) -> Result<(), Violation> {
        if !history.settle(id, fate, now_ns) {
            return Err(Violation::SettledTwice { id, fate });
        }
        if fate == Fate::NotStored && history.get(id).is_some_and(|sent| sent.read_ns.is_some()) {
            return Err(Violation::NotStoredButRead { pass: 0, id });
        }
        Ok(())
    }
}
