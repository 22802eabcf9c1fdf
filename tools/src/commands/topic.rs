//! `sealog topic`.

use std::fmt;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::{Args, Subcommand};
use sealog_engine::api::TopicView;
use serde::Serialize;
use thiserror::Error;

use super::client::Client;
use super::range;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Create, list, describe and delete topics.
#[derive(Debug, Args)]
pub(crate) struct Topic {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a topic.
    Create {
        /// Up to 249 letters, digits, `.`, `_` and `-`.
        name: String,
        /// Ranges that share the keys; a power of two.
        #[arg(long, value_name = "N", default_value_t = 1)]
        ranges: u32,
        /// Split a range of the topic by itself when three of its segments in a row were full, up to so many ranges, and merge two when time
        /// alone ended three of each, down to --ranges. 64 if no number is given.
        #[arg(long, value_name = "RANGES_MAX", num_args = 0..=1, default_missing_value = "64")]
        auto_split: Option<u32>,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// List all topics.
    List {
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Describe one topic: its settings, and its ranges with their ends.
    Describe {
        /// Its name.
        name: String,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Delete a topic with all its records, for ever. Its name is free at once; its files are removed in the background.
    Delete {
        /// Its name.
        name: String,
        /// Do not ask. Needed where standard input is no terminal.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        client: Client,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

/// A topic as it is printed.
#[derive(Serialize)]
struct Line {
    name: String,
    id: String,
    ranges: u32,
    batch_bytes_max: u32,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Created(Line);

#[derive(Serialize)]
#[serde(transparent)]
struct List(Vec<Line>);

/// A topic that is no more.
#[derive(Serialize)]
struct Deleted {
    name: String,
    id: String,
    deleted: bool,
}

/// There is nobody to be asked.
#[derive(Debug, Error)]
#[error("deleting topic {name} cannot be taken back: say --yes, for there is no terminal to ask on")]
struct NotAsked {
    name: String,
}

/// The bounds of a topic that splits by itself exclude each other.
#[derive(Debug, Error)]
#[error(
    "--auto-split {most} is below --ranges {ranges}: give the most ranges that the topic may have, {ranges} or more"
)]
struct TooFew {
    most: u32,
    ranges: u32,
}

/// There is no such topic.
#[derive(Debug, Error)]
#[error("there is no topic {name}; `sealog topic list` shows those there are")]
struct NoTopic {
    name: String,
}

/// One topic with all that is known of it.
#[derive(Serialize)]
struct Description {
    name: String,
    id: String,
    batch_bytes_max: u32,
    keyspace_version: u8,
    /// It splits by itself, up to so many ranges.
    auto_split: Option<u32>,
    /// In ranges that are sealed too.
    records_at_most: u64,
    /// Active ones.
    ranges: range::List,
}

impl Topic {
    pub(super) fn run(&self) -> Outcome {
        match &self.action {
            Action::Create { name, ranges, auto_split, client, format } => {
                if let Some(most) = auto_split.filter(|most| most < ranges) {
                    return Err(Failure::new(Exit::Usage, TooFew { most, ranges: *ranges }));
                }
                let mut admin = client.admin()?;
                let created = match auto_split {
                    None => admin.create_topic(name, *ranges),
                    Some(most) => admin.create_splitting_topic(name, *ranges, *most),
                };
                let topic = created.map_err(|error| Failure::of_topic(error, name))?;
                format.print(&Created(topic.into()))?;
            }
            Action::List { client, format } => {
                let topics = client.admin()?.list_topics()?;
                format.print(&List(topics.into_iter().map(Line::from).collect()))?;
            }
            Action::Delete { name, yes, client, format } => return delete(name, *yes, client, *format),
            Action::Describe { name, client, format } => {
                let mut admin = client.admin()?;
                let (topic, ranges) = range::ranges_of(&mut admin, name)?;
                let records_at_most = ranges.records() + range::sealed_records(&mut admin, name)?;
                format.print(&Description {
                    name: topic.name,
                    id: topic.topic.to_string(),
                    batch_bytes_max: topic.batch_bytes_max,
                    keyspace_version: topic.keyspace_version,
                    auto_split: topic.auto_split,
                    records_at_most,
                    ranges,
                })?;
            }
        }
        Ok(Exit::Done)
    }
}

fn delete(name: &str, yes: bool, client: &Client, format: Format) -> Outcome {
    if !yes && !io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, NotAsked { name: name.to_owned() }));
    }
    let mut admin = client.admin()?;
    let topic = admin.list_topics()?.into_iter().find(|topic| topic.name == name);
    let Some(topic) = topic else {
        return Err(Failure::new(Exit::Failed, NoTopic { name: name.to_owned() }));
    };
    if !yes && !is_wanted(&topic)? {
        eprintln!("nothing was deleted");
        return Ok(Exit::Failed);
    }
    // That topic and no other: somebody may have created another of its name since.
    admin.delete_topic(name, Some(topic.topic))?;
    format.print(&Deleted { name: topic.name, id: topic.topic.to_string(), deleted: true })?;
    Ok(Exit::Done)
}

/// Asks on the terminal.
fn is_wanted(topic: &TopicView) -> io::Result<bool> {
    let mut terminal = io::stderr().lock();
    write!(terminal, "delete topic {} ({}) with all its records, for ever? [y/N] ", topic.name, topic.topic)?;
    terminal.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

impl From<TopicView> for Line {
    fn from(topic: TopicView) -> Self {
        Self {
            name: topic.name,
            id: topic.topic.to_string(),
            ranges: topic.ranges,
            batch_bytes_max: topic.batch_bytes_max,
        }
    }
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = if self.0.ranges == 1 { "1 range".to_owned() } else { format!("{} ranges", self.0.ranges) };
        writeln!(f, "created topic {} with {ranges}", self.0.name)
    }
}

impl fmt::Display for Deleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "deleted topic {} ({})", self.name, self.id)
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "topic {} ({})", self.name, self.id)?;
        writeln!(f, "largest batch {} bytes, key hash version {}", self.batch_bytes_max, self.keyspace_version)?;
        if let Some(most) = self.auto_split {
            writeln!(f, "splits and merges its ranges by itself, up to {most}")?;
        }
        writeln!(f, "records at most {}", self.records_at_most)?;
        self.ranges.fmt(f)
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|topic| topic.name.len()).max().unwrap_or(0).max(4);
        writeln!(f, "{:width$}  {:>6}  {:>12}", "name", "ranges", "max batch")?;
        for topic in &self.0 {
            writeln!(f, "{:width$}  {:>6}  {:>12}", topic.name, topic.ranges, topic.batch_bytes_max)?;
        }
        Ok(())
    }
}
