//! `sealog range split` and `merge`: what became of the ranges, or why nothing did.

use std::fmt;

use sealog_engine::api::error::Refusal;
use sealog_engine::api::response::RangeLineage;
use sealog_engine::types::RangeId;
use sealog_net::client::blocking::{Admin, RequestError};
use sealog_net::wire::Refused;
use serde::Serialize;
use thiserror::Error;

use super::lineage::Member;
use crate::exit::{Exit, Failure};

/// Why ranges are not split or merged, where the node's own words are not enough.
#[derive(Debug, Error)]
enum ReshapeError {
    #[error("topic {topic} has no range {range}; `sealog range list {topic}` shows the active ones")]
    NoSuchRange { topic: String, range: RangeId },
    #[error("range {range} of {topic} is not active any more: it became {}; name an active one", names(became))]
    NotActive { topic: String, range: RangeId, became: Vec<RangeId> },
    #[error("range {range} of {topic} has a single key hash: it cannot be split")]
    OneHash { topic: String, range: RangeId },
    #[error(
        "ranges {} and {} of {topic} are not the two halves of one key span, and only such can be merged: {}",
        ranges[0], ranges[1], halves(*ranges, *buddies)
    )]
    NotBuddies { topic: String, ranges: [RangeId; 2], buddies: [Option<RangeId>; 2] },
}

fn names(ranges: &[RangeId]) -> String {
    ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn halves(ranges: [RangeId; 2], buddies: [Option<RangeId>; 2]) -> String {
    let half = |(range, buddy): (RangeId, Option<RangeId>)| match buddy {
        Some(buddy) => format!("{range}'s other half is {buddy}"),
        None => format!("{range}'s other half is no active range"),
    };
    ranges.into_iter().zip(buddies).map(half).collect::<Vec<_>>().join(", ")
}

/// What took the place of ranges, as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Reshaped {
    topic: String,
    /// What is sealed now.
    ranges: Vec<String>,
    /// What takes their records, by key span.
    successors: Vec<Member>,
}

/// Splits a range at the middle of its key span.
pub(super) fn split(admin: &mut Admin, topic: &str, range: RangeId) -> Result<Reshaped, Failure> {
    let known = lineage_of(admin, topic, &[range])?;
    let children = admin.split(topic, range).map_err(|error| failure(error, topic, &[range], &known))?;
    Ok(Reshaped::new(topic, &[range], &children))
}

/// Makes one range of two.
pub(super) fn merge(admin: &mut Admin, topic: &str, ranges: [RangeId; 2]) -> Result<Reshaped, Failure> {
    let known = lineage_of(admin, topic, &ranges)?;
    let child = admin.merge(topic, ranges).map_err(|error| failure(error, topic, &ranges, &known))?;
    Ok(Reshaped::new(topic, &ranges, &[child]))
}

/// The ranges of a topic, among which these must be.
fn lineage_of(admin: &mut Admin, topic: &str, ranges: &[RangeId]) -> Result<Vec<RangeLineage>, Failure> {
    let known = admin.lineage(topic).map_err(|error| Failure::of_topic(error, topic))?;
    match ranges.iter().find(|range| find(&known, **range).is_none()) {
        Some(range) => {
            Err(Failure::new(Exit::Failed, ReshapeError::NoSuchRange { topic: topic.to_owned(), range: *range }))
        }
        None => Ok(known),
    }
}

fn find(known: &[RangeLineage], range: RangeId) -> Option<&RangeLineage> {
    known.iter().find(|known| known.route.range == range)
}

fn failure(error: RequestError, topic: &str, ranges: &[RangeId], known: &[RangeLineage]) -> Failure {
    let RequestError::Refused(Refused { refusal: Some(refusal), .. }) = &error else { return error.into() };
    let topic = topic.to_owned();
    let told = match (refusal, ranges) {
        (Refusal::Sealed { successors, .. }, _) => {
            let became: Vec<RangeId> = successors.iter().map(|route| route.range).collect();
            let sealed = |range: &&RangeId| find(known, **range).is_some_and(|range| !range.successors.is_empty());
            let range = *ranges.iter().find(sealed).unwrap_or(&ranges[0]);
            ReshapeError::NotActive { topic, range, became }
        }
        (Refusal::OneHash, [range, ..]) => ReshapeError::OneHash { topic, range: *range },
        (Refusal::NotBuddies, [one, other]) => {
            let ranges = [*one, *other];
            ReshapeError::NotBuddies { topic, ranges, buddies: ranges.map(|range| buddy(known, range)) }
        }
        _ => return Failure::of_topic(error, &topic),
    };
    Failure::new(Exit::Failed, told)
}

/// The active range of the other half of a range's span.
fn buddy(known: &[RangeLineage], range: RangeId) -> Option<RangeId> {
    let span = find(known, range)?.route.span.buddy()?;
    let active = |range: &&RangeLineage| range.successors.is_empty() && range.route.span == span;
    known.iter().find(active).map(|range| range.route.range)
}

impl Reshaped {
    fn new(topic: &str, ranges: &[RangeId], successors: &[RangeLineage]) -> Self {
        Self {
            topic: topic.to_owned(),
            ranges: ranges.iter().map(ToString::to_string).collect(),
            successors: successors.iter().map(Member::from).collect(),
        }
    }
}

impl fmt::Display for Reshaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.ranges.len() == 1 { "split" } else { "merged" };
        writeln!(f, "{done} {} of {}", self.ranges.join(" and "), self.topic)?;
        for Member { range, first_hash, last_hash, .. } in &self.successors {
            writeln!(f, "{range} takes the keys of {first_hash} to {last_hash}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_that_was_given_up_may_be_tried_again() {
        let refused = |refusal| RequestError::Refused(Refused::from(refusal));
        let failure = |refusal| failure(refused(refusal), "t", &[RangeId(1), RangeId(2)], &[]);
        for refusal in [Refusal::MergeGivenUp { delay_ms: 50 }, Refusal::Reshaping { delay_ms: 50 }] {
            let text = refusal.to_string();
            let failure = failure(refusal);
            assert_eq!((failure.exit, failure.to_string()), (Exit::TryAgain, format!("topic t: {text}")));
        }
        assert_eq!(failure(Refusal::TooManyRanges { most: 4 }).exit, Exit::Failed);
    }
}
