//! Durable: what a sender was told is stored, and what any reader has had, is in every later reading from the beginning.
//!
//! What a reader has had counts as much as an acknowledgement: a record that was served and then lost was never committed.

use super::{Mode, Pass, Violation};
use crate::history::{Fate, History};

/// The checker.
#[derive(Default)]
pub struct Durable {
    /// Records that had to be there.
    pub checked: u64,
}

impl Durable {
    /// A reading has come to the end of its topic.
    ///
    /// # Errors
    /// A record that had to be there is not.
    pub fn pass_ended(&mut self, history: &History, pass: &Pass, mode: Mode) -> Result<(), Violation> {
        let mut missing = 0;
        for (id, sent) in history.records().filter(|(_, sent)| sent.topic == pass.topic) {
            let stored = sent.fate == Fate::Stored && sent.settled_ns <= pass.began_ns;
            let read = sent.read_ns.is_some_and(|at| at <= pass.began_ns);
            if !stored && !read {
                continue;
            }
            self.checked += 1;
            if pass.has(id) {
                continue;
            }
            match mode {
                Mode::Beyond => missing += 1,
                Mode::Within => {
                    return Err(Violation::Lost {
                        id,
                        topic: sent.topic,
                        fate: sent.fate,
                        settled_ns: sent.settled_ns,
                        read_ns: sent.read_ns,
                        pass: pass.number,
                    });
                }
            }
        }
        if missing > pass.gap_records {
            return Err(Violation::LostBeyondGaps { topic: pass.topic, missing, told: pass.gap_records });
        }
        Ok(())
    }
}
