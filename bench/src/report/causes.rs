//! The refusals' numbers as words, for reports.

/// What a refusal of this number is called; 0 is none: the deadline passed without an answer.
#[must_use]
pub fn name(code: u16) -> String {
    const NAMES: [&str; 27] = [
        "no answer in time",
        "unknown topic",
        "topic exists",
        "bad topic name",
        "bad range count",
        "unknown range",
        "not primary",
        "sealed",
        "stale epoch",
        "opening",
        "producer fenced",
        "out of order",
        "unknown producer",
        "too many producers",
        "overloaded",
        "disk full",
        "write failed",
        "too few replicas",
        "batch too large",
        "bad batch",
        "doubtful",
        "expired",
        "beyond end",
        "unreadable",
        "deadline passed",
        "stopping",
        "bad request",
    ];
    NAMES.get(usize::from(code)).map_or_else(|| format!("code {code}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use sealog_engine::api::Refusal;

    use super::*;

    #[test]
    fn numbers_have_the_names_of_their_refusals() {
        for (refusal, expected) in [
            (Refusal::UnknownTopic, "unknown topic"),
            (Refusal::Overloaded { delay_ms: 1 }, "overloaded"),
            (Refusal::Doubtful, "doubtful"),
            (Refusal::BadRequest, "bad request"),
        ] {
            assert_eq!(name(refusal.code()), expected);
        }
        assert_eq!(name(999), "code 999");
    }
}
