//! The controller on shard 0: performs its commands on a journal and files of its own.

use super::bell::Bell;
use super::files::Files;
use super::journal_writer::{GroupWrite, JournalWriter};
use crate::controller::command::{Command, Commands};
use crate::controller::controller::Controller;
use crate::controller::event::Event;
use crate::shard::event::Failed;
use crate::types::Now;

/// The controller's performer.
pub(super) struct ControllerLoop {
    controller: Controller,
    commands: Commands,
    journal: JournalWriter,
    files: Files,
}

impl ControllerLoop {
    pub(super) fn new(controller: Controller, journal: JournalWriter, files: Files) -> Self {
        Self { controller, commands: Vec::new(), journal, files }
    }

    pub(super) fn journal_bell(&self) -> &Bell {
        self.journal.bell()
    }

    pub(super) fn files_bell(&self) -> &Bell {
        self.files.bell()
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.controller.next_deadline()
    }

    /// Gives an event; `perform` does what it wants.
    pub(super) fn step(&mut self, now: Now, event: Event) {
        self.controller.step(now, event, &mut self.commands);
    }

    pub(super) fn journal_finished(&mut self, now: Now) {
        while let Some(written) = self.journal.finished().expect("the metadata journal's ring answers") {
            let outcome = written.outcome.map_err(|failure| Failed { errno: failure.errno() });
            self.step(now, Event::GroupWritten { buffer: written.buffer, outcome });
        }
    }

    pub(super) fn files_finished(&mut self, now: Now) {
        let Self { controller, commands, files, .. } = self;
        let mut done = |token, outcome| controller.step(now, Event::FileDone { token, outcome }, commands);
        files.finished(&mut done).expect("the metadata files' ring answers");
    }

    /// Performs what concerns the disk, and gives the rest to `other`.
    pub(super) fn perform(&mut self, mut other: impl FnMut(Command)) {
        while !self.commands.is_empty() {
            for command in std::mem::take(&mut self.commands) {
                match command {
                    Command::WriteGroup { file, position, buffer, length } => {
                        let group = GroupWrite { file: usize::from(file), position, length, durable: true, buffer };
                        self.journal.start(group).expect("the metadata journal's ring takes submissions");
                    }
                    Command::File { token, operation } => self.files.start(token, operation),
                    Command::Reply { .. } | Command::Tell { .. } => other(command),
                }
            }
        }
        self.files.submit().expect("the metadata files' ring takes submissions");
    }
}
