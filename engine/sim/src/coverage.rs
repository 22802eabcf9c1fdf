//! What a run has exercised: a table whose rows must not be zero.
//!
//! A row for every fault, every event and command of shard and controller, every message between them, every answer, and every
//! checker. The rows are written as exhaustive matches: a new variant does not compile until it has a row.

use std::fmt;

use sealog_engine::api::error::Refusal;
use sealog_engine::api::response::Response;
use sealog_engine::controller;
use sealog_engine::replica::message::{ToController, ToReplica};
use sealog_engine::shard;
use sealog_engine::shard::command::FileOperation;

use crate::faults::Fault;

/// Rows of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: &'static str,
    /// A row of zero fails.
    must: bool,
    rows: Vec<(&'static str, u64)>,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    groups: Vec<Group>,
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

const fn row_of(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < names.len() {
        if same(names[at], name) {
            return at;
        }
        at += 1;
    }
    panic!("a row without a name");
}

/// Names of all variants, and a method that counts one: `match` without `_`.
macro_rules! rows {
    ($group:literal, $names:ident, $method:ident, $type:ty, { $($pattern:pat $(if $guard:expr)? => $name:literal,)+ }) => {
        const $names: &[&str] = &[$($name),+];

        impl Coverage {
            #[doc = concat!("Counts one ", $group, ".")]
            #[inline]
            pub fn $method(&mut self, of: &$type) {
                let row = match of {
                    $($pattern $(if $guard)? => const { row_of($names, $name) },)+
                };
                self.groups[const { row_of(GROUPS, $group) }].rows[row].1 += 1;
            }
        }
    };
}

const GROUPS: &[&str] = &[
    "fault",
    "shard event",
    "shard command",
    "file operation",
    "controller event",
    "controller command",
    "to controller",
    "to replica",
    "answer",
    "refusal",
    "checker",
    "client",
];

rows!("shard event", SHARD_EVENTS, shard_event, shard::event::Event<'_>, {
    shard::event::Event::Started => "Started",
    shard::event::Event::Request { .. } => "Request",
    shard::event::Event::Flush => "Flush",
    shard::event::Event::Disconnected { .. } => "Disconnected",
    shard::event::Event::GroupWritten { .. } => "GroupWritten",
    shard::event::Event::FileDone { .. } => "FileDone",
    shard::event::Event::Message(_) => "Message",
    shard::event::Event::Timer => "Timer",
    shard::event::Event::Stopping => "Stopping",
});

rows!("shard command", SHARD_COMMANDS, shard_command, shard::command::Command, {
    shard::command::Command::Reply { .. } => "Reply",
    shard::command::Command::WriteGroup { sync: true, .. } => "WriteGroup",
    shard::command::Command::WriteGroup { sync: false, .. } => "WriteGroup, not synced",
    shard::command::Command::File { .. } => "File",
    shard::command::Command::Tell(_) => "Tell",
});

rows!("file operation", OPERATIONS, operation, FileOperation, {
    FileOperation::Create { .. } => "Create",
    FileOperation::Write { .. } => "Write",
    FileOperation::Sync { .. } => "Sync",
    FileOperation::SyncFolder { .. } => "SyncFolder",
    FileOperation::Read { .. } => "Read",
    FileOperation::Remove { .. } => "Remove",
});

rows!("controller event", CONTROLLER_EVENTS, controller_event, controller::event::Event, {
    controller::event::Event::Request { .. } => "Request",
    controller::event::Event::Message(_) => "Message",
    controller::event::Event::GroupWritten { .. } => "GroupWritten",
    controller::event::Event::FileDone { .. } => "FileDone",
    controller::event::Event::Timer => "Timer",
});

rows!("controller command", CONTROLLER_COMMANDS, controller_command, controller::command::Command, {
    controller::command::Command::Reply { .. } => "Reply",
    controller::command::Command::Tell { .. } => "Tell",
    controller::command::Command::WriteGroup { .. } => "WriteGroup",
    controller::command::Command::File { .. } => "File",
});

rows!("to controller", TO_CONTROLLER, to_controller, ToController, {
    ToController::Ready { .. } => "Ready",
    ToController::NeedOpen { .. } => "NeedOpen",
    ToController::NeedSeal { .. } => "NeedSeal",
    ToController::NeedSuccessor { .. } => "NeedSuccessor",
    ToController::Promised { .. } => "Promised",
    ToController::PromiseRefused { .. } => "PromiseRefused",
    ToController::Rolled { .. } => "Rolled",
    ToController::Unreadable { .. } => "Unreadable",
    ToController::Stopped { .. } => "Stopped",
    ToController::Noted { .. } => "Noted",
});

rows!("to replica", TO_REPLICA, to_replica, ToReplica, {
    ToReplica::Adopt(_) => "Adopt",
    ToReplica::Seal { .. } => "Seal",
    ToReplica::Sealed { .. } => "Sealed",
    ToReplica::Open { .. } => "Open",
    ToReplica::Prepared { .. } => "Prepared",
    ToReplica::Retired { .. } => "Retired",
    ToReplica::Holes { .. } => "Holes",
    ToReplica::Deleted { .. } => "Deleted",
});

rows!("answer", ANSWERS, response, Response, {
    Response::Stored(stored) if !stored.repeat => "Stored",
    Response::Stored(_) => "Stored, a repeat",
    Response::Fetched(fetched) if !fetched.gaps.is_empty() => "Fetched, with a gap",
    Response::Fetched(fetched) if fetched.entries.is_empty() => "Fetched, nothing",
    Response::Fetched(_) => "Fetched",
    Response::Bounds { .. } => "Bounds",
    Response::Settled(_) => "Settled",
    Response::Rolled(rolled) if rolled.segments.is_none() => "Rolled, nothing",
    Response::Rolled(_) => "Rolled",
    Response::Described(_) => "Described",
    Response::Topic(_) => "Topic",
    Response::TopicDeleted { .. } => "TopicDeleted",
    Response::Topics(_) => "Topics",
    Response::Routes { .. } => "Routes",
    Response::Lineage { .. } => "Lineage",
    Response::Producer { .. } => "Producer",
    Response::Refused(_) => "Refused",
});

rows!("refusal", REFUSALS, refusal, Refusal, {
    Refusal::UnknownTopic => "UnknownTopic",
    Refusal::TopicExists => "TopicExists",
    Refusal::BadTopicName => "BadTopicName",
    Refusal::BadRangeCount { .. } => "BadRangeCount",
    Refusal::UnknownRange => "UnknownRange",
    Refusal::NotPrimary { .. } => "NotPrimary",
    Refusal::Sealed { .. } => "Sealed",
    Refusal::StaleEpoch { .. } => "StaleEpoch",
    Refusal::Opening { .. } => "Opening",
    Refusal::ProducerFenced { .. } => "ProducerFenced",
    Refusal::OutOfOrder { .. } => "OutOfOrder",
    Refusal::UnknownProducer => "UnknownProducer",
    Refusal::TooManyProducers { .. } => "TooManyProducers",
    Refusal::Overloaded { .. } => "Overloaded",
    Refusal::DiskFull { .. } => "DiskFull",
    Refusal::WriteFailed => "WriteFailed",
    Refusal::TooFewReplicas { .. } => "TooFewReplicas",
    Refusal::BatchTooLarge { .. } => "BatchTooLarge",
    Refusal::BadBatch(_) => "BadBatch",
    Refusal::Doubtful => "Doubtful",
    Refusal::Expired { .. } => "Expired",
    Refusal::BeyondEnd { .. } => "BeyondEnd",
    Refusal::Unreadable { .. } => "Unreadable",
    Refusal::DeadlinePassed => "DeadlinePassed",
    Refusal::Stopping => "Stopping",
    Refusal::BadRequest => "BadRequest",
    Refusal::OneHash => "OneHash",
    Refusal::NotBuddies => "NotBuddies",
    Refusal::TooManyRanges { .. } => "TooManyRanges",
    Refusal::Reshaping { .. } => "Reshaping",
    Refusal::MergeGivenUp { .. } => "MergeGivenUp",
    Refusal::Judging { .. } => "Judging",
});

const CHECKERS: &[&str] = &[
    "durable",
    "once",
    "ordered",
    "progress",
    "nothing silent",
    "one history",
    "memory",
    "deleted",
    "lineage",
    "fenced",
];
const CLIENT: &[&str] = &[
    "held when stopped",
    "records sent",
    "stored",
    "not stored",
    "unknown",
    "records read",
    "gaps read",
    "passes",
    "topics deleted",
    "rolls wanted",
    "rolls found sealed",
    "splits wanted",
    "splits done",
    "merges wanted",
    "merges done",
    "merges given up",
    "impossible reshapes",
    "reshapes found standing",
    "reshapes by themselves",
    "sent to sealed ranges",
    "settled by a seal",
    "settled by asking",
    "records moved",
];

/// Messages that nothing of a node alone gives: they wait for seals by others. And a stop in order: a simulated node only
/// ever ends by a kill or a power cut.
const NOT_YET: &[(&str, &str)] = &[("to controller", "PromiseRefused"), ("shard event", "Stopping")];

impl Default for Coverage {
    fn default() -> Self {
        let faults: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        let names: [(&[&str], bool); 12] = [
            (&faults, true),
            (SHARD_EVENTS, true),
            (SHARD_COMMANDS, true),
            (OPERATIONS, true),
            (CONTROLLER_EVENTS, true),
            (CONTROLLER_COMMANDS, true),
            (TO_CONTROLLER, true),
            (TO_REPLICA, true),
            (ANSWERS, true),
            (REFUSALS, false),
            (CHECKERS, true),
            (CLIENT, true),
        ];
        let group = |(name, (rows, must)): (&&'static str, (&[&'static str], bool))| Group {
            name,
            must,
            rows: rows.iter().map(|row| (*row, 0)).collect(),
        };
        Self { groups: GROUPS.iter().zip(names).map(group).collect() }
    }
}

impl Coverage {
    /// Counts one fault.
    pub fn fault(&mut self, fault: Fault) {
        self.groups[const { row_of(GROUPS, "fault") }].rows[fault.row()].1 += 1;
    }

    /// Sets how often a checker had something to check.
    pub fn checker(&mut self, name: &'static str, count: u64) {
        self.set("checker", name, count);
    }

    /// Sets what the clients did.
    pub fn client(&mut self, name: &'static str, count: u64) {
        self.set("client", name, count);
    }

    fn set(&mut self, group: &str, name: &str, count: u64) {
        let group = self.groups.iter_mut().find(|found| found.name == group).expect("a group of the table");
        let row = group.rows.iter_mut().find(|row| row.0 == name).expect("a row of the group");
        row.1 = count;
    }

    /// Adds another run's table.
    pub fn add(&mut self, other: &Self) {
        for (group, other) in self.groups.iter_mut().zip(&other.groups) {
            for (row, other) in group.rows.iter_mut().zip(&other.rows) {
                row.1 += other.1;
            }
        }
    }

    /// The rows of a group, with their counts.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn rows_of(&self, group: &str) -> &[(&'static str, u64)] {
        &self.groups.iter().find(|found| found.name == group).expect("a group of the table").rows
    }

    /// Rows that must not be zero and are.
    #[must_use]
    pub fn zero_rows(&self) -> Vec<(&'static str, &'static str)> {
        let zero = |group: &Group| {
            let name = group.name;
            group.rows.iter().filter(|row| row.1 == 0).map(move |row| (name, row.0)).collect::<Vec<_>>()
        };
        let all = self.groups.iter().filter(|group| group.must).flat_map(zero);
        all.filter(|row| !NOT_YET.contains(row)).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in &self.groups {
            writeln!(f, "{}", group.name)?;
            for (name, count) in &group.rows {
                writeln!(f, "  {name:<24}{count:>14}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_what_it_names_and_zero_rows_are_told() {
        let mut coverage = Coverage::default();
        coverage.shard_event(&shard::event::Event::Flush);
        coverage.fault(Fault::PowerCut);
        let zero = coverage.zero_rows();
        assert!(zero.contains(&("shard event", "Timer")) && zero.contains(&("fault", "kill")));
        assert!(!zero.contains(&("shard event", "Flush")) && !zero.contains(&("fault", "power cut")));
        assert!(zero.iter().all(|(group, _)| *group != "refusal"));
    }

    #[test]
    fn tables_add_up() {
        let mut coverage = Coverage::default();
        coverage.checker("once", 3);
        let other = coverage.clone();
        coverage.add(&other);
        let mut expected = Coverage::default();
        expected.checker("once", 6);
        assert_eq!(coverage, expected);
    }
}
