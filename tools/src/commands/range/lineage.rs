//! The ranges of a topic, sealed ones too, as a tree: below each what was made of it.
//!
//! ```text
//! r1        sealed  r2 r3
//! ├─ r2     sealed  r4
//! └─ r3     sealed  r4
//!    └─ r4  active          merged of r2 too
//! ```
//! **Invariants**: each range is shown once, behind all its ancestors: one that was merged stands below the upper of the two halves.

use std::collections::BTreeMap;
use std::fmt;

use sealog_engine::api::response::RangeLineage;
use sealog_engine::types::RangeId;
use sealog_net::client::blocking::Admin;
use serde::Serialize;

use super::super::columns;
use crate::exit::Failure;

/// Whether a range takes records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Active,
    Sealed,
}

/// A range as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Member {
    pub(super) range: String,
    /// Least key hash, in hexadecimal.
    pub(super) first_hash: String,
    /// Greatest key hash, inclusive.
    pub(super) last_hash: String,
    state: State,
    epoch: u64,
    node: String,
    shard: u16,
    /// What it was split from, or merged of.
    parents: Vec<String>,
    /// What it became, by key span.
    successors: Vec<String>,
    /// What is drawn before its name.
    #[serde(skip)]
    branch: String,
}

/// Ranges in the order of the tree.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Tree(Vec<Member>);

impl From<&RangeLineage> for Member {
    fn from(range: &RangeLineage) -> Self {
        let names = |ranges: &[RangeId]| ranges.iter().map(ToString::to_string).collect();
        let RangeLineage { route, parents, successors } = range;
        Self {
            range: route.range.to_string(),
            first_hash: format!("{:016x}", route.span.first().0),
            last_hash: format!("{:016x}", route.span.last().0),
            state: if successors.is_empty() { State::Active } else { State::Sealed },
            epoch: route.epoch.0,
            node: route.node.to_string(),
            shard: route.shard.0,
            parents: names(parents),
            successors: names(successors),
            branch: String::new(),
        }
    }
}

impl Tree {
    pub(super) fn of(admin: &mut Admin, topic: &str) -> Result<Self, Failure> {
        let ranges = admin.lineage(topic).map_err(|error| Failure::of_topic(error, topic))?;
        Ok(Self::new(&ranges))
    }

    fn new(ranges: &[RangeLineage]) -> Self {
        let by_id: BTreeMap<RangeId, &RangeLineage> = ranges.iter().map(|range| (range.route.range, range)).collect();
        let first = |range: &&RangeLineage| range.route.span.first();
        // What is to be shown, the next one last: a range, what is drawn before it, and what before those below it.
        let mut left: Vec<(&RangeLineage, String, String)> = Vec::new();
        let mut roots: Vec<&RangeLineage> = ranges.iter().filter(|range| range.parents.is_empty()).collect();
        roots.sort_by_key(first);
        left.extend(roots.into_iter().rev().map(|root| (root, String::new(), String::new())));
        let mut shown = Vec::new();
        while let Some((range, branch, below)) = left.pop() {
            shown.push(Member { branch, ..range.into() });
            let is_here = |child: &&&RangeLineage| {
                child.parents.iter().max_by_key(|parent| by_id.get(parent).map(first)) == Some(&range.route.range)
            };
            let children: Vec<&RangeLineage> =
                range.successors.iter().filter_map(|child| by_id.get(child)).filter(is_here).copied().collect();
            for (at, child) in children.iter().enumerate().rev() {
                let (mark, line) = if at + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                left.push((child, format!("{below}{mark}"), format!("{below}{line}")));
            }
        }
        Self(shown)
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |member: &Member| {
            let state = match member.state {
                State::Active => "active",
                State::Sealed => "sealed",
            };
            let note = match &member.parents[..] {
                [other, _above] => format!("merged of {other} too"),
                _ => String::new(),
            };
            [
                format!("{}{}", member.branch, member.range),
                member.first_hash.clone(),
                member.last_hash.clone(),
                state.to_owned(),
                member.successors.join(" "),
                note,
                member.epoch.to_string(),
            ]
        };
        let heading = ["range", "first hash", "last hash", "state", "became", "note", "epoch"];
        columns::write(f, heading, 6, &self.0.iter().map(row).collect::<Vec<_>>())
    }
}
