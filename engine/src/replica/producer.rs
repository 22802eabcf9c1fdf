//! The producer table: what each producer last stored in a range, so that nothing is stored twice and nothing out of order.
//!
//! It is a function of the log: the table at a segment's base, then `record` for each batch in order. Every replica that has
//! the same batches has the same table, and a table rebuilt after a restart is the one that was lost.
//!
//! Invariants: sorted by producer, each once; `end` of an entry is the end of the batch with sequence `last`.

use crate::api::error::Refusal;
use crate::format::batch::Stamp;
pub use crate::format::segment::ProducerEntry;
use crate::format::segment::TableRef;
use crate::format::segment::table::encode_table;
use crate::format::verdict::DecodeError;
use crate::replica::message::Fence;
use crate::types::limits::RANGE_PRODUCERS_MAX;
use crate::types::{Offset, ProducerEpoch, ProducerId, Run, Sequence};

/// Delay advised when a table is full: a roll may make room.
const FULL_DELAY_MS: u32 = 100;

/// Judgement of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// New: store it.
    Take,
    /// Stored or being stored: answer when the committed end has reached `end`.
    Repeat { end: Offset },
    /// Not this one.
    Refuse(Refusal),
}

/// The table of one range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerTable {
    entries: Vec<ProducerEntry>,
}

impl ProducerTable {
    /// The table of these entries.
    ///
    /// # Errors
    /// The index of the first entry that is not above the one before it.
    pub fn from_entries(entries: Vec<ProducerEntry>) -> Result<Self, usize> {
        match entries.windows(2).position(|pair| pair[0].producer >= pair[1].producer) {
            Some(at) => Err(at + 1),
            None => Ok(Self { entries }),
        }
    }

    /// The table whose payload this is.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let table = TableRef::decode(payload)?;
        let mut entries: Vec<ProducerEntry> = table.iter().collect();
        for entry in &mut entries {
            entry.doubtful |= table.is_all_doubtful();
        }
        Ok(Self { entries })
    }

    /// Appends its payload, as a segment begins with it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_table(out, false, self.entries.iter().copied());
    }

    /// All entries, by producer.
    #[must_use]
    pub fn entries(&self) -> &[ProducerEntry] {
        &self.entries
    }

    /// What is known of a producer.
    #[must_use]
    pub fn get(&self, producer: ProducerId) -> Option<&ProducerEntry> {
        self.find(producer).ok().map(|at| &self.entries[at])
    }

    fn find(&self, producer: ProducerId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&producer, |entry| entry.producer)
    }

    /// Whether a batch with this stamp may be stored now.
    #[must_use]
    pub fn check(&self, stamp: &Stamp) -> Check {
        if stamp.producer == ProducerId::NONE {
            return Check::Take;
        }
        let Ok(at) = self.find(stamp.producer) else {
            return if stamp.sequence != Sequence(0) {
                Check::Refuse(Refusal::UnknownProducer)
            } else if self.entries.len() >= RANGE_PRODUCERS_MAX {
                Check::Refuse(Refusal::TooManyProducers { delay_ms: FULL_DELAY_MS })
            } else {
                Check::Take
            };
        };
        let entry = &self.entries[at];
        match (stamp.epoch, stamp.run).cmp(&(entry.epoch, entry.run)) {
            std::cmp::Ordering::Less => Check::Refuse(Refusal::ProducerFenced { epoch: entry.epoch, run: entry.run }),
            std::cmp::Ordering::Greater if stamp.sequence == Sequence(0) => Check::Take,
            std::cmp::Ordering::Greater => Check::Refuse(Refusal::OutOfOrder { expected: Sequence(0) }),
            std::cmp::Ordering::Equal => check_sequence(entry, stamp.sequence),
        }
    }

    /// Takes note of a batch that now lies in the log, ending at `end` (exclusive). The same on every replica and in recovery.
    pub fn record(&mut self, stamp: &Stamp, end: Offset, seen_ms: u64) {
        if stamp.producer == ProducerId::NONE {
            return;
        }
        let fresh = ProducerEntry {
            producer: stamp.producer,
            epoch: stamp.epoch,
            run: stamp.run,
            last: Some(stamp.sequence),
            end,
            seen_ms,
            doubtful: false,
            doubt_from: Sequence(0),
            doubt_to: Sequence(0),
            finished: stamp.last,
        };
        match self.find(stamp.producer) {
            Err(at) => self.entries.insert(at, fresh),
            Ok(at) => {
                let entry = &mut self.entries[at];
                let same_run = (entry.epoch, entry.run) == (stamp.epoch, stamp.run);
                let (mut doubt_from, mut doubt_to) = (Sequence(0), Sequence(0));
                if same_run {
                    (doubt_from, doubt_to) = (entry.doubt_from, entry.doubt_to);
                    let next = entry.last.map_or(Sequence(0), Sequence::next);
                    if entry.doubtful && stamp.sequence > next {
                        (doubt_from, doubt_to) = (next, stamp.sequence);
                    }
                }
                *entry = ProducerEntry { doubt_from, doubt_to, ..fresh };
            }
        }
    }

    /// What a range that begins must know of these producers: epochs only, so that a batch of an earlier one is refused, and one of this or
    /// a later one begins at sequence 0. Those whose id was never opened again have no earlier epoch.
    #[must_use]
    pub fn fences(&self) -> Vec<Fence> {
        let again = self.entries.iter().filter(|entry| entry.epoch > ProducerEpoch::FIRST);
        again.map(|e| Fence { producer: e.producer, epoch: e.epoch, seen_ms: e.seen_ms }).collect()
    }

    /// Refuses what is older than these. An entry that knows as much stays as it is.
    pub fn fence(&mut self, fences: &[Fence]) {
        for fence in fences {
            let entry = ProducerEntry {
                producer: fence.producer,
                epoch: fence.epoch,
                run: Run(0),
                last: None,
                end: Offset::ZERO,
                seen_ms: fence.seen_ms,
                doubtful: false,
                doubt_from: Sequence(0),
                doubt_to: Sequence(0),
                finished: false,
            };
            match self.find(fence.producer) {
                Err(at) => self.entries.insert(at, entry),
                Ok(at) if self.entries[at].epoch < fence.epoch => self.entries[at] = entry,
                Ok(_) => {}
            }
        }
    }

    /// Behind a hole: what follows each entry may lie in it.
    pub fn doubt(&mut self) {
        for entry in &mut self.entries {
            entry.doubtful = true;
        }
    }

    /// Drops who has finished, or has not been heard of for `expiry_ms` on the retention clock. Only at a segment's base.
    pub fn expire(&mut self, retention_ms: u64, expiry_ms: u64) {
        self.entries.retain(|entry| !entry.finished && retention_ms.saturating_sub(entry.seen_ms) <= expiry_ms);
    }
}

fn check_sequence(entry: &ProducerEntry, sequence: Sequence) -> Check {
    if entry.doubt_from <= sequence && sequence < entry.doubt_to {
        return Check::Refuse(Refusal::Doubtful);
    }
    let expected = match entry.last {
        Some(last) if sequence <= last => return Check::Repeat { end: entry.end },
        Some(last) => last.next(),
        None => Sequence(0),
    };
    if sequence == expected || entry.doubtful { Check::Take } else { Check::Refuse(Refusal::OutOfOrder { expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(producer: u64, epoch: u32, run: u32, sequence: u64) -> Stamp {
        Stamp {
            producer: ProducerId(producer),
            epoch: ProducerEpoch(epoch),
            run: Run(run),
            sequence: Sequence(sequence),
            last: false,
        }
    }

    fn table(stamps: &[Stamp]) -> ProducerTable {
        let mut table = ProducerTable::default();
        for (i, stamp) in stamps.iter().enumerate() {
            assert_eq!(table.check(stamp), Check::Take);
            table.record(stamp, Offset(10 * (i as u64 + 1)), 0);
        }
        table
    }

    #[test]
    fn a_batch_is_taken_once_and_in_order() {
        let table = table(&[stamp(7, 0, 0, 0), stamp(7, 0, 0, 1)]);
        assert_eq!(table.check(&stamp(7, 0, 0, 2)), Check::Take);
        assert_eq!(table.check(&stamp(7, 0, 0, 1)), Check::Repeat { end: Offset(20) });
        assert_eq!(
            table.check(&stamp(7, 0, 0, 0)),
            Check::Repeat { end: Offset(20) },
            "later than its own end is safe"
        );
        assert_eq!(table.check(&stamp(7, 0, 0, 3)), Check::Refuse(Refusal::OutOfOrder { expected: Sequence(2) }));
        assert_eq!(table.check(&stamp(8, 0, 0, 1)), Check::Refuse(Refusal::UnknownProducer));
        assert_eq!(table.check(&stamp(8, 0, 0, 0)), Check::Take);
    }

    #[test]
    fn a_greater_epoch_or_run_starts_again_and_fences_the_smaller() {
        let table = table(&[stamp(7, 1, 1, 0), stamp(7, 1, 1, 1)]);
        let fenced = Check::Refuse(Refusal::ProducerFenced { epoch: ProducerEpoch(1), run: Run(1) });
        assert_eq!(table.check(&stamp(7, 0, 9, 2)), fenced);
        assert_eq!(table.check(&stamp(7, 1, 0, 2)), fenced);
        assert_eq!(table.check(&stamp(7, 2, 0, 0)), Check::Take);
        assert_eq!(table.check(&stamp(7, 1, 2, 0)), Check::Take);
        assert_eq!(table.check(&stamp(7, 1, 2, 1)), Check::Refuse(Refusal::OutOfOrder { expected: Sequence(0) }));
    }

    #[test]
    fn behind_a_hole_any_later_sequence_passes_once_and_what_it_passed_over_is_doubtful() {
        let mut table = table(&[stamp(7, 0, 0, 0), stamp(7, 0, 0, 1)]);
        table.doubt();
        assert_eq!(table.check(&stamp(7, 0, 0, 5)), Check::Take);
        table.record(&stamp(7, 0, 0, 5), Offset(50), 0);
        assert_eq!(table.check(&stamp(7, 0, 0, 1)), Check::Repeat { end: Offset(50) });
        assert_eq!(table.check(&stamp(7, 0, 0, 3)), Check::Refuse(Refusal::Doubtful));
        assert_eq!(table.check(&stamp(7, 0, 0, 5)), Check::Repeat { end: Offset(50) });
        assert_eq!(table.check(&stamp(7, 0, 0, 8)), Check::Refuse(Refusal::OutOfOrder { expected: Sequence(6) }));
    }

    #[test]
    fn a_full_table_refuses_new_producers_only() {
        let mut table = ProducerTable::default();
        for producer in 1..=RANGE_PRODUCERS_MAX as u64 {
            table.record(&stamp(producer, 0, 0, 0), Offset(producer), 0);
        }
        assert_eq!(table.check(&stamp(3, 0, 0, 1)), Check::Take);
        assert_eq!(
            table.check(&stamp(1 << 40, 0, 0, 0)),
            Check::Refuse(Refusal::TooManyProducers { delay_ms: FULL_DELAY_MS })
        );
        table.expire(100, 50);
        assert!(table.entries().is_empty());
    }

    #[test]
    fn a_batch_without_a_producer_leaves_no_trace() {
        let mut table = ProducerTable::default();
        assert_eq!(table.check(&stamp(0, 0, 0, 9)), Check::Take);
        table.record(&stamp(0, 0, 0, 9), Offset(1), 0);
        assert!(table.entries().is_empty());
    }
}
