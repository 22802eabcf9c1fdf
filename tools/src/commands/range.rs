//! `sealog range`: the logs of a topic's key spans. An inspection: the ordinary clients never see an offset.

use std::fmt;

use clap::{Args, Subcommand};
use sealog_engine::api::TopicView;
use sealog_engine::api::response::Route;
use sealog_engine::types::Offset;
use sealog_net::client::blocking::Admin;
use serde::Serialize;

use super::client::Client;
use super::columns;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Look at the ranges of a topic.
#[derive(Debug, Args)]
pub(crate) struct Range {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the active ranges of a topic, by their key spans.
    List {
        topic: String,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
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
}

#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct List(pub(super) Vec<Line>);

impl Range {
    pub(super) fn run(&self) -> Outcome {
        let Action::List { topic, client, format } = &self.action;
        let (_, ranges) = ranges_of(&mut client.admin()?, topic)?;
        format.print(&ranges)?;
        Ok(Exit::Done)
    }
}

/// A topic with its active ranges and where each begins and ends.
pub(super) fn ranges_of(admin: &mut Admin, topic: &str) -> Result<(TopicView, List), Failure> {
    let (view, routes) = admin.routes(topic)?;
    let mut lines = Vec::new();
    for route in routes {
        let (start, end) = admin.bounds(route.range)?;
        lines.push(Line::new(&route, start, end));
    }
    Ok((view, List(lines)))
}

impl Line {
    fn new(route: &Route, start: Offset, end: Offset) -> Self {
        Self {
            range: route.range.to_string(),
            first_hash: format!("{:016x}", route.span.first().0),
            last_hash: format!("{:016x}", route.span.last().0),
            epoch: route.epoch.0,
            node: route.node.to_string(),
            shard: route.shard.0,
            start: start.0,
            end: end.0,
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
            ]
        };
        let heading = ["range", "first hash", "last hash", "node", "shard", "epoch", "start", "end"];
        columns::write(f, heading, 4, &self.0.iter().map(row).collect::<Vec<_>>())
    }
}
