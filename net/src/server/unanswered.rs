//! A connection's requests that have no answer yet: how many, and of how many bytes.
//!
//! ```text
//!  asked   -> | 7, 90 B | 8, 1 KiB | 9, 1 KiB |      correlation and bytes, in the order in which they came
//!  answered(8) ---------------^                      each once, mostly near the front: a produce waits for the same group as
//! ```                                                those before it; a fetch that waits for a record is passed over
//! A client may give two requests the same number: then the first of them counts as answered first, and the sums are right in the end.

use std::collections::VecDeque;

/// Requests without an answer.
pub(super) struct Unanswered {
    /// Correlation id and bytes, in the order in which they came.
    requests: VecDeque<(u64, u64)>,
    bytes: u64,
    requests_max: usize,
    bytes_max: u64,
}

impl Unanswered {
    /// None yet.
    pub(super) fn new(requests_max: usize, bytes_max: u64) -> Self {
        Self { requests: VecDeque::new(), bytes: 0, requests_max, bytes_max }
    }

    /// A request was taken.
    #[inline]
    pub(super) fn asked(&mut self, correlation: u64, bytes: u64) {
        self.requests.push_back((correlation, bytes));
        self.bytes += bytes;
    }

    /// A request was answered. Whether further ones are taken that were not before.
    #[inline]
    pub(super) fn answered(&mut self, correlation: u64) -> bool {
        let was_full = self.is_full();
        let is_it = |request: &(u64, u64)| request.0 == correlation;
        // What is refused at once was the last to come.
        let at = if self.requests.back().is_some_and(is_it) {
            Some(self.requests.len() - 1)
        } else {
            self.requests.iter().position(is_it)
        };
        let Some((_, bytes)) = at.and_then(|at| self.requests.remove(at)) else { return false };
        self.bytes -= bytes;
        was_full && !self.is_full()
    }

    /// Whether no further request is to be taken. One alone is always taken.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.requests.is_empty() && (self.requests.len() >= self.requests_max || self.bytes >= self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_at_a_number_of_requests_or_of_bytes_until_one_is_answered() {
        let mut unanswered = Unanswered::new(3, 100);
        (0..2).for_each(|correlation| unanswered.asked(correlation, 10));
        assert!(!unanswered.is_full());
        unanswered.asked(2, 10);
        assert!(unanswered.is_full());
        assert!(unanswered.answered(1) && !unanswered.is_full());
        assert!(!unanswered.answered(0), "it was not full");
        unanswered.asked(0, 10);
        unanswered.asked(3, 80);
        assert!(unanswered.is_full());
        unanswered.answered(7);
        assert!(unanswered.is_full(), "an answer to nothing changes nothing");
        unanswered.answered(3);
        assert!(!unanswered.is_full());
    }

    #[test]
    fn one_request_is_taken_whatever_the_bounds() {
        let mut unanswered = Unanswered::new(0, 0);
        assert!(!unanswered.is_full());
        unanswered.asked(1, 1 << 30);
        assert!(unanswered.is_full());
        unanswered.answered(1);
        assert!(!unanswered.is_full());
    }

    #[test]
    fn requests_of_the_same_number_are_answered_one_at_a_time() {
        let mut unanswered = Unanswered::new(10, 100);
        unanswered.asked(1, 60);
        unanswered.asked(2, 1);
        unanswered.asked(1, 60);
        unanswered.answered(1);
        unanswered.answered(2);
        unanswered.answered(1);
        assert_eq!((unanswered.requests.len(), unanswered.bytes), (0, 0));
    }
}
