//! What became of every record of a load, in little memory: nearly all are acknowledged, so only the others are listed.
//!
//! Written to a file it lets another process judge, after a crash of the node, what was acknowledged before. And the judge itself:
//! records are given to it in the order in which they are read.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::content::{self, LoadRun, Value};
use crate::report::summary::Verification;

/// Version of the ledger's file.
const VERSION: u32 = 1;

/// The fate of the records of one load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    version: u32,
    pub run: LoadRun,
    pub topic: String,
    /// Records sent of each key; the sequences of a key are 0 to its number, exclusive.
    sent: Vec<u64>,
    /// Records of which the client was told that they are not stored.
    not_stored: BTreeSet<(u32, u64)>,
    /// Records of which the client was told nothing.
    unknown: BTreeSet<(u32, u64)>,
}

/// A ledger cannot be read or written.
#[derive(Debug, Error)]
pub enum LedgerError {
    #[error("cannot {action} the ledger {path}: {error}")]
    Io { action: &'static str, path: String, error: io::Error },
    #[error("the ledger {path} is not understood: {error}")]
    Format { path: String, error: serde_json::Error },
    #[error("the ledger {path} is of version {found}, this build reads {VERSION}")]
    Version { path: String, found: u32 },
}

impl Ledger {
    /// Nothing sent yet, of `keys` keys.
    #[must_use]
    pub fn new(run: LoadRun, topic: &str, keys: u32) -> Self {
        Self {
            version: VERSION,
            run,
            topic: topic.to_owned(),
            sent: vec![0; keys as usize],
            not_stored: BTreeSet::new(),
            unknown: BTreeSet::new(),
        }
    }

    /// The sequence that the key's next record will have.
    #[must_use]
    pub fn peek(&self, key: u32) -> u64 {
        self.sent[key as usize]
    }

    /// The sequence of the key's next record, which is now sent.
    pub fn send(&mut self, key: u32) -> u64 {
        let sent = &mut self.sent[key as usize];
        *sent += 1;
        *sent - 1
    }

    /// The record will never be stored.
    pub fn refused(&mut self, key: u32, sequence: u64) {
        self.not_stored.insert((key, sequence));
    }

    /// The record may be stored.
    pub fn gave_up(&mut self, key: u32, sequence: u64) {
        self.unknown.insert((key, sequence));
    }

    /// Records acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.sent.iter().sum::<u64>() - self.not_stored.len() as u64 - self.unknown.len() as u64
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), LedgerError> {
        let bytes = serde_json::to_vec(self).expect("a ledger is plain data");
        fs::write(path, bytes).map_err(|error| io_error("write", path, error))
    }

    /// Reads it from a file.
    ///
    /// # Errors
    /// The file cannot be read or is no ledger of this version.
    pub fn load(path: &Path) -> Result<Self, LedgerError> {
        let bytes = fs::read(path).map_err(|error| io_error("read", path, error))?;
        let named = || path.display().to_string();
        let ledger: Self =
            serde_json::from_slice(&bytes).map_err(|error| LedgerError::Format { path: named(), error })?;
        if ledger.version != VERSION {
            return Err(LedgerError::Version { path: named(), found: ledger.version });
        }
        Ok(ledger)
    }
}

fn io_error(action: &'static str, path: &Path, error: io::Error) -> LedgerError {
    LedgerError::Io { action, path: path.display().to_string(), error }
}

/// Judges what is read back.
#[derive(Debug)]
pub struct Judge<'a> {
    ledger: &'a Ledger,
    /// Of each key, the sequence above all that were read.
    next: Vec<u64>,
    /// Sequences that were passed over and have not come.
    missing: BTreeSet<(u32, u64)>,
    found: Verification,
}

impl<'a> Judge<'a> {
    /// Nothing read yet.
    #[must_use]
    pub fn new(ledger: &'a Ledger) -> Self {
        Self {
            ledger,
            next: vec![0; ledger.sent.len()],
            missing: BTreeSet::new(),
            found: Verification {
                acknowledged: ledger.acknowledged(),
                unknown: ledger.unknown.len() as u64,
                ..Verification::default()
            },
        }
    }

    /// The next record of the topic.
    pub fn record(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) {
        match content::read(key, value.unwrap_or_default()) {
            Value::Whole { run, key, sequence } if run == self.ledger.run => self.own(key, sequence),
            Value::Damaged { run } if run == self.ledger.run => self.found.damaged += 1,
            Value::Whole { .. } | Value::Damaged { .. } | Value::Foreign => self.found.foreign += 1,
        }
    }

    fn own(&mut self, key: u32, sequence: u64) {
        self.found.read += 1;
        let sent = self.ledger.sent.get(key as usize).copied().unwrap_or(0);
        if sequence >= sent || self.ledger.not_stored.contains(&(key, sequence)) {
            self.found.unexpected += 1;
            return;
        }
        let next = &mut self.next[key as usize];
        if sequence >= *next {
            self.missing.extend((*next..sequence).map(|passed| (key, passed)));
            *next = sequence + 1;
        } else if self.missing.remove(&(key, sequence)) {
            self.found.reordered += 1;
        } else {
            self.found.duplicated += 1;
        }
    }

    /// A gap notice.
    pub fn gap(&mut self, cause: &str) {
        *self.found.gaps.entry(cause.to_owned()).or_default() += 1;
    }

    /// Records of the load that have come, whole or damaged.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.found.read + self.found.damaged
    }

    /// Acknowledged records that have not come.
    #[must_use]
    pub fn lacking(&self) -> u64 {
        let ledger = self.ledger;
        let kept = |at: &(u32, u64)| !ledger.not_stored.contains(at) && !ledger.unknown.contains(at);
        let passed_over = self.missing.iter().filter(|at| kept(at)).count() as u64;
        // Behind the last one read: all that was sent, less what need not be there.
        let behind: u64 = ledger.sent.iter().zip(&self.next).map(|(sent, next)| sent - next).sum();
        let excused =
            |set: &BTreeSet<(u32, u64)>| set.iter().filter(|(k, s)| *s >= self.next[*k as usize]).count() as u64;
        passed_over + behind - excused(&ledger.not_stored) - excused(&ledger.unknown)
    }

    /// The judgement: everything has been read.
    #[must_use]
    pub fn finish(self) -> Verification {
        Verification { lost: self.lacking(), ..self.found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::content::{ContentWriter, key};

    /// A ledger of two keys with `sent` records each, and what the judge says of the records `read`.
    fn judged(sent: u64, read: &[(u32, u64)], mark: impl Fn(&mut Ledger)) -> Verification {
        let mut ledger = Ledger::new(LoadRun(7), "t", 2);
        for number in 0..2 {
            (0..sent).for_each(|_| _ = ledger.send(number));
        }
        mark(&mut ledger);
        let mut content = ContentWriter::new(LoadRun(7), 64, true, 1);
        let mut judge = Judge::new(&ledger);
        for (number, sequence) in read {
            judge.record(Some(&key(*number)), Some(content.value(*number, *sequence, 64)));
        }
        judge.finish()
    }

    const ALL: [(u32, u64); 6] = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)];

    #[test]
    fn everything_once_and_in_order_passes() {
        let found = judged(3, &ALL, |_| ());
        assert!(found.passed());
        assert_eq!((found.acknowledged, found.read), (6, 6));
    }

    #[test]
    fn a_missing_record_is_lost_wherever_it_is_missing() {
        assert_eq!(judged(3, &ALL[..5], |_| ()).lost, 1, "at the end");
        assert_eq!(judged(3, &ALL[1..], |_| ()).lost, 1, "at the start");
        assert_eq!(judged(3, &[], |_| ()).lost, 6);
    }

    #[test]
    fn a_record_read_twice_is_duplicated_and_a_late_one_reordered() {
        let found = judged(2, &[(0, 0), (0, 1), (0, 0), (1, 1), (1, 0)], |_| ());
        assert_eq!((found.lost, found.duplicated, found.reordered), (0, 1, 1));
        assert!(!found.passed());
    }

    #[test]
    fn an_unknown_record_may_be_there_or_not_but_a_refused_one_may_not() {
        let unknown = |ledger: &mut Ledger| ledger.gave_up(1, 2);
        assert!(judged(3, &ALL, unknown).passed());
        assert!(judged(3, &ALL[..5], unknown).passed());
        let refused = |ledger: &mut Ledger| ledger.refused(0, 1);
        assert_eq!(judged(3, &ALL, refused).unexpected, 1);
        let without: Vec<_> = ALL.into_iter().filter(|at| *at != (0, 1)).collect();
        assert!(judged(3, &without, refused).passed());
    }

    #[test]
    fn records_of_another_load_and_of_nobody_are_foreign() {
        let ledger = Ledger::new(LoadRun(7), "t", 2);
        let mut other = ContentWriter::new(LoadRun(8), 64, true, 1);
        let mut judge = Judge::new(&ledger);
        judge.record(Some(&key(0)), Some(other.value(0, 0, 64)));
        judge.record(None, Some(b"hello"));
        judge.record(None, None);
        let found = judge.finish();
        assert_eq!((found.foreign, found.read, found.passed()), (3, 0, true));
    }

    #[test]
    fn a_ledger_survives_its_file_and_another_version_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ledger");
        let mut ledger = Ledger::new(LoadRun(u64::MAX), "t", 2);
        ledger.send(1);
        ledger.gave_up(1, 0);
        ledger.save(&path).expect("saved");
        assert_eq!(Ledger::load(&path).expect("loaded"), ledger);
        let newer = fs::read_to_string(&path).expect("text").replace("\"version\":1", "\"version\":2");
        fs::write(&path, newer).expect("written");
        assert!(matches!(Ledger::load(&path), Err(LedgerError::Version { found: 2, .. })));
    }
}
