//! The digest over everything that happened, and, on demand, the words for it.
//!
//! Two runs of one seed must give one digest: it is how a change that brings in a clock, a random hasher or a thread is noticed.

use std::collections::VecDeque;
use std::fmt;

/// Events that are kept to be printed when a check fails.
const KEPT: usize = 60;

/// What happened so far, as a number.
pub struct Trace {
    digest: u64,
    events: u64,
    /// Say everything at once.
    loud: bool,
    /// Keep the last words for a failure.
    keeps: bool,
    last: VecDeque<String>,
}

impl Trace {
    /// A trace that prints each event if `loud`, and keeps the words of the last ones if `keeps`.
    #[must_use]
    pub fn new(loud: bool, keeps: bool) -> Self {
        Self { digest: 0x5ea1_0609, events: 0, loud, keeps, last: VecDeque::new() }
    }

    /// An event of a kind, at a virtual time, with what tells it from others of its kind.
    pub fn event(&mut self, at_ns: u64, kind: u8, what: u64) {
        self.events += 1;
        self.mix(at_ns);
        self.mix(what ^ (u64::from(kind) << 56));
    }

    /// More of the event: anything that must be the same in the next run.
    pub fn mix(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }

    /// Bytes of the event.
    pub fn mix_bytes(&mut self, bytes: &[u8]) {
        self.mix(xxhash_rust::xxh3::xxh3_64(bytes));
    }

    /// Whether anyone listens to words.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.loud || self.keeps
    }

    /// Words for the event. They are made only if someone listens.
    pub fn say(&mut self, at_ns: u64, words: impl FnOnce() -> String) {
        if !self.listens() {
            return;
        }
        let line = format!("{:>14.6} ms  {}", ms(at_ns), words());
        if self.loud {
            println!("{line}");
        }
        if self.keeps {
            if self.last.len() == KEPT {
                self.last.pop_front();
            }
            self.last.push_back(line);
        }
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The digest so far.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// Nanoseconds in milliseconds, for people.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.last.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(events: &[(u64, u8, u64)]) -> u64 {
        let mut trace = Trace::new(false, false);
        events.iter().for_each(|(at, kind, what)| trace.event(*at, *kind, *what));
        trace.digest()
    }

    #[test]
    fn the_digest_tells_time_kind_content_and_order_apart() {
        let base = digest(&[(1, 1, 1), (2, 2, 2)]);
        assert_eq!(base, digest(&[(1, 1, 1), (2, 2, 2)]));
        for other in [[(2, 2, 2), (1, 1, 1)], [(1, 1, 1), (3, 2, 2)], [(1, 1, 1), (2, 3, 2)], [(1, 1, 1), (2, 2, 3)]] {
            assert_ne!(base, digest(&other));
        }
    }

    #[test]
    fn words_are_made_only_for_who_listens_and_the_last_are_kept() {
        let mut silent = Trace::new(false, false);
        silent.say(0, || panic!("nobody listens"));
        let mut keeping = Trace::new(false, true);
        (0..100).for_each(|n| keeping.say(n, || format!("event {n}")));
        let kept = keeping.to_string();
        assert!(kept.contains("event 99") && !kept.contains("event 39"));
    }
}
