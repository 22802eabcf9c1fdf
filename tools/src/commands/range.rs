//! `sealog range`: the logs of a topic's key spans. An inspection: the ordinary clients never see an offset.

mod lineage;
mod reshape;

use std::fmt;

use clap::{Args, Subcommand};
use sealog_engine::api::TopicView;
use sealog_engine::api::response::{RangeDescription, RangeRolled, Route};
use sealog_engine::types::RangeId;
use sealog_net::client::blocking::Admin;
use serde::Serialize;
use thiserror::Error;

use self::lineage::Tree;
use super::client::Client;
use super::columns;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Look at the ranges of a topic; split, merge and roll them.
#[derive(Debug, Args)]
pub(crate) struct Range {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the active ranges of a topic, by their key spans.
    List {
        /// The topic's name.
        topic: String,
        /// List the sealed ranges too, as a tree: below each what was made of it.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Split a range at the middle of its key span.
    ///
    /// The range is sealed, and two new ones take the records of its keys from then on. Producers and consumers that are at work go on by
    /// themselves, and the order of each key holds. If no answer came (75) it may be asked again: a range is split once at most.
    Split {
        /// The topic's name.
        topic: String,
        /// The range as `range list` names it, such as r3.
        #[arg(value_parser = range_id)]
        range: RangeId,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Make one range of the two halves of a key span.
    ///
    /// Both are sealed, and a new one takes the records of their keys from then on. A merge is given up, and both go on as they were, if their
    /// ends cannot be fixed within seconds; that, as no answer at all, ends with 75: it may be asked again.
    Merge {
        /// The topic's name.
        topic: String,
        /// One range, as `range list` names it, such as r3.
        #[arg(value_parser = range_id)]
        one: RangeId,
        /// The other half.
        #[arg(value_parser = range_id)]
        other: RangeId,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Seal the open segment of a range and go on in the next, as the range does by itself when that is full.
    ///
    /// When this ends with 0, every record that was acknowledged before lies in a segment that never changes again. Where no record has
    /// come since the last roll there is nothing to do, which is told and is no failure. If no answer came (75) it may be asked again.
    Roll {
        /// The topic's name.
        topic: String,
        /// The range as `range list` names it, such as r3.
        #[arg(value_parser = range_id)]
        range: RangeId,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

/// A range of the command line.
fn range_id(text: &str) -> Result<RangeId, String> {
    let number = text.strip_prefix('r').unwrap_or(text).parse();
    number.map(RangeId).map_err(|_| "write it as `range list` does, such as r3".to_owned())
}

/// A range that its topic does not have.
#[derive(Debug, Error)]
#[error("topic {topic} has no active range {range}; `sealog range list {topic}` shows those that it has")]
struct NoSuchRange {
    topic: String,
    range: RangeId,
}

/// A range as it is printed.
#[derive(Serialize)]
pub(super) struct Line {
    range: String,
    /// Least key hash, in hexadecimal.
    first_hash: String,
    /// Greatest key hash, inclusive.
    last_hash: String,
    epoch: u64,
    node: String,
    shard: u16,
    /// Trimmed start, inclusive.
    start: u64,
    /// Committed end, exclusive.
    end: u64,
    /// Segments that it consists of, the open one among them.
    segments: u32,
}

#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct List(pub(super) Vec<Line>);

impl Range {
    pub(super) fn run(&self) -> Outcome {
        match &self.action {
            Action::List { topic, all: true, client, format } => {
                format.print(&Tree::of(&mut client.admin()?, topic)?)?;
            }
            Action::Split { topic, range, client, format } => {
                format.print(&reshape::split(&mut client.admin()?, topic, *range)?)?;
            }
            Action::Merge { topic, one, other, client, format } => {
                format.print(&reshape::merge(&mut client.admin()?, topic, [*one, *other])?)?;
            }
            Action::List { topic, all: false, client, format } => {
                let (_, ranges) = ranges_of(&mut client.admin()?, topic)?;
                format.print(&ranges)?;
            }
            Action::Roll { topic, range, client, format } => {
                let rolled = roll(&mut client.admin()?, topic, *range)?;
                format.print(&Rolled::new(topic, *range, rolled))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn roll(admin: &mut Admin, topic: &str, range: RangeId) -> Result<RangeRolled, Failure> {
    let (_, routes) = admin.routes(topic).map_err(|error| Failure::of_topic(error, topic))?;
    if routes.iter().all(|route| route.range != range) {
        return Err(Failure::new(Exit::Failed, NoSuchRange { topic: topic.to_owned(), range }));
    }
    Ok(admin.roll(range)?)
}

/// What became of a roll, as it is printed.
#[derive(Serialize)]
struct Rolled {
    topic: String,
    range: String,
    /// False: there was nothing to seal.
    rolled: bool,
    /// Every record below it, exclusive, lies in a sealed segment.
    end: u64,
    sealed_segment: Option<String>,
    open_segment: Option<String>,
}

impl Rolled {
    fn new(topic: &str, range: RangeId, rolled: RangeRolled) -> Self {
        Self {
            topic: topic.to_owned(),
            range: range.to_string(),
            rolled: rolled.segments.is_some(),
            end: rolled.end.0,
            sealed_segment: rolled.segments.map(|(sealed, _)| sealed.to_string()),
            open_segment: rolled.segments.map(|(_, open)| open.to_string()),
        }
    }
}

impl fmt::Display for Rolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, range, end, .. } = self;
        match (&self.sealed_segment, &self.open_segment) {
            (Some(sealed), Some(open)) => {
                writeln!(f, "rolled {range} of {topic}: {sealed} is sealed at {end}, {open} takes records now")
            }
            (None | Some(_), None | Some(_)) => {
                writeln!(f, "nothing to roll in {range} of {topic}: all of it, up to {end}, is sealed")
            }
        }
    }
}

/// A topic with its active ranges and where each begins and ends.
pub(super) fn ranges_of(admin: &mut Admin, topic: &str) -> Result<(TopicView, List), Failure> {
    let (view, routes) = admin.routes(topic).map_err(|error| Failure::of_topic(error, topic))?;
    let mut lines = Vec::new();
    for route in routes {
        let described = admin.describe(route.range)?;
        lines.push(Line::new(&route, described));
    }
    Ok((view, List(lines)))
}

/// Records of the ranges of a topic that were split or merged, with those that holes hid.
pub(super) fn sealed_records(admin: &mut Admin, topic: &str) -> Result<u64, Failure> {
    let lineage = admin.lineage(topic).map_err(|error| Failure::of_topic(error, topic))?;
    let mut records = 0;
    for range in lineage.iter().filter(|range| !range.successors.is_empty()) {
        let (start, end) = admin.bounds(range.route.range)?;
        records += end.since(start);
    }
    Ok(records)
}

impl Line {
    fn new(route: &Route, described: RangeDescription) -> Self {
        Self {
            range: route.range.to_string(),
            first_hash: format!("{:016x}", route.span.first().0),
            last_hash: format!("{:016x}", route.span.last().0),
            epoch: route.epoch.0,
            node: route.node.to_string(),
            shard: route.shard.0,
            start: described.start.0,
            end: described.end.0,
            segments: described.segments,
        }
    }
}

impl List {
    /// Records of all ranges, with those that holes hid.
    pub(super) fn records(&self) -> u64 {
        self.0.iter().map(|line| line.end - line.start).sum()
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |line: &Line| {
            [
                line.range.clone(),
                line.first_hash.clone(),
                line.last_hash.clone(),
                line.node.clone(),
                line.shard.to_string(),
                line.epoch.to_string(),
                line.start.to_string(),
                line.end.to_string(),
                line.segments.to_string(),
            ]
        };
        let heading = ["range", "first hash", "last hash", "node", "shard", "epoch", "start", "end", "segments"];
        columns::write(f, heading, 4, &self.0.iter().map(row).collect::<Vec<_>>())
    }
}
