//! Gives events to the cores and performs what they want.

use sealog_engine::api::port::{DataFile, Folder};
use sealog_engine::api::request::ReplyTo;
use sealog_engine::api::response::Response;
use sealog_engine::controller;
use sealog_engine::replica::message::{ToController, ToReplica};
use sealog_engine::shard;
use sealog_engine::shard::command::FileOperation;
use sealog_engine::types::{AlignedBuffer, ShardId};

use super::{Around, Input, Mesh, Node, Owner};
use crate::check::Violation;
use crate::disk::{Completed, Operation, Ticket};
use crate::faults::{Fault, Moment, Stall};
use crate::world::Happening;

/// Of errno(3): not done, since what it was to follow failed.
const ECANCELED: i32 = 125;

impl Node {
    /// Something happens to the process of this incarnation; to another's nothing does.
    pub fn take(&mut self, around: &mut Around<'_>, incarnation: u64, input: Input) {
        if incarnation != self.incarnation || self.process.is_none() {
            return;
        }
        match input {
            Input::Disk { owner, ticket, token } => self.disk_done(around, owner, ticket, token),
            Input::Shard { shard, message } => self.mesh(around, shard, message),
            Input::Controller(message) => {
                self.step_controller(around, controller::event::Event::Message(message));
            }
            Input::Control { to, deadline_ns, request } => {
                self.step_controller(around, controller::event::Event::Request { to, deadline_ns, request });
            }
            Input::ShardTimer { shard } => self.shard_timer(around, shard),
            Input::ControllerTimer => self.controller_timer(around),
        }
    }

    /// One event of a shard, and all that it wants done.
    pub(super) fn step_shard(&mut self, around: &mut Around<'_>, id: ShardId, event: shard::event::Event<'_>) {
        let now = self.now(around);
        around.coverage.shard_event(&event);
        let Some(process) = &mut self.process else { return };
        process.events += 1;
        let mut commands = std::mem::take(&mut self.shard_commands);
        process.shards[usize::from(id.0)].shard.step(now, event, &mut commands);
        around.trace.event(around.queue.now_ns(), 1, u64::from(id.0) << 32 | commands.len() as u64);
        for command in commands.drain(..) {
            around.coverage.shard_command(&command);
            self.perform_shard(around, id, command);
        }
        self.shard_commands = commands;
        self.arm_shard(around, id);
    }

    /// One event of the controller, and all that it wants done.
    pub(super) fn step_controller(&mut self, around: &mut Around<'_>, event: controller::event::Event) {
        let now = self.now(around);
        around.coverage.controller_event(&event);
        let is_answer = matches!(event, controller::event::Event::Message(ToController::Promised { .. }));
        let Some(process) = &mut self.process else { return };
        process.events += 1;
        let mut commands = std::mem::take(&mut self.controller_commands);
        process.controller.step(now, event, &mut commands);
        around.trace.event(around.queue.now_ns(), 2, commands.len() as u64);
        for command in commands.drain(..) {
            around.coverage.controller_command(&command);
            let is_group = matches!(command, controller::command::Command::WriteGroup { .. });
            self.perform_controller(around, command);
            if is_answer && is_group {
                around.faults.moment(Moment::EndProposed);
            }
        }
        self.controller_commands = commands;
        self.arm_controller(around);
    }

    fn perform_shard(&mut self, around: &mut Around<'_>, id: ShardId, command: shard::command::Command) {
        match command {
            shard::command::Command::Reply { to, response } => self.reply(around, id, to, response),
            shard::command::Command::WriteGroup { file, position, buffer, length, sync } => {
                around.faults.moment(Moment::GroupSubmitted);
                around.trace.say(around.queue.now_ns(), || {
                    format!("{id} writes a group of {length} at {file}:{position}, sync {sync}")
                });
                let file = DataFile::Journal { shard: id, file };
                let group = Operation::Group { file, position, buffer, length, sync };
                self.write_group(around, id, group);
            }
            shard::command::Command::File { token, operation } => {
                self.submit_file(around, Owner::Shard(id), token, operation);
            }
            shard::command::Command::Tell(message) => {
                around.faults.moment(Moment::Message);
                if matches!(message, ToController::Promised { .. }) {
                    around.faults.moment(Moment::Promised);
                }
                around.coverage.to_controller(&message);
                around.trace.say(around.queue.now_ns(), || format!("{id} tells {message:?}"));
                let copy = message.clone();
                self.deliver(around, Input::Controller(message), || Input::Controller(copy));
            }
        }
    }

    fn perform_controller(&mut self, around: &mut Around<'_>, command: controller::command::Command) {
        match command {
            controller::command::Command::Reply { to, response } => self.reply(around, ShardId(0), to, response),
            controller::command::Command::Tell { shard, message } => {
                around.faults.moment(Moment::Message);
                around.coverage.to_replica(&message);
                around.trace.say(around.queue.now_ns(), || format!("controller tells {shard} {message:?}"));
                let deaf_until_ns = match &message {
                    ToReplica::Seal { .. } => {
                        around.faults.moment(Moment::SealAsked);
                        around.faults.deaf_until_ns(around.queue.now_ns(), shard)
                    }
                    ToReplica::Retired { .. } => {
                        around.faults.moment(Moment::Retired);
                        None
                    }
                    ToReplica::Adopt(_)
                    | ToReplica::Sealed { .. }
                    | ToReplica::Open { .. }
                    | ToReplica::Prepared { .. }
                    | ToReplica::Holes { .. }
                    | ToReplica::Deleted { .. } => None,
                };
                if let Some(until_ns) = deaf_until_ns {
                    around.coverage.fault(Fault::DeafShard);
                    let input = Input::Shard { shard, message: Mesh::ToReplica(message) };
                    around.queue.put(until_ns, Happening::Node(self.incarnation, input));
                    return;
                }
                let copy = message.clone();
                let input = |message: ToReplica| Input::Shard { shard, message: Mesh::ToReplica(message) };
                self.deliver(around, input(message), || input(copy));
            }
            controller::command::Command::WriteGroup { file, position, buffer, length } => {
                around.trace.say(around.queue.now_ns(), || {
                    format!("controller writes a group of {length} at {file}:{position}")
                });
                let file = DataFile::MetadataJournal { file };
                let group = Operation::Group { file, position, buffer, length, sync: true };
                self.submit(around, Owner::Controller, None, group);
            }
            controller::command::Command::File { token, operation } => {
                self.submit_file(around, Owner::Controller, token, operation);
            }
        }
    }

    /// A message between a replica and the controller: late, twice, and overtaken, as the weather is.
    fn deliver(&mut self, around: &mut Around<'_>, input: Input, copy: impl FnOnce() -> Input) {
        let incarnation = self.incarnation;
        let now_ns = around.queue.now_ns();
        let (first_ns, second_ns) = around.faults.deliveries_ns();
        if first_ns > 3_000 {
            around.coverage.fault(Fault::LateMessage);
        }
        around.queue.put(now_ns + first_ns, Happening::Node(incarnation, input));
        if let Some(second_ns) = second_ns {
            around.coverage.fault(Fault::DuplicateMessage);
            around.queue.put(now_ns + second_ns, Happening::Node(incarnation, copy()));
        }
    }

    fn submit_file(
        &mut self,
        around: &mut Around<'_>,
        owner: Owner,
        token: shard::event::FileToken,
        operation: FileOperation,
    ) {
        around.coverage.operation(&operation);
        around.trace.say(around.queue.now_ns(), || format!("{owner:?} wants {operation:?}"));
        self.submit(around, owner, Some(token), Operation::File(operation));
    }

    /// The journal's writer takes a group: at once, or when the one before it is durable.
    fn write_group(&mut self, around: &mut Around<'_>, id: ShardId, group: Operation) {
        let Some(process) = &mut self.process else { return };
        match process.writing.get_mut(&id) {
            Some(waiting) => {
                assert!(waiting.replace(group).is_none(), "one group is written, and one waits");
                around.faults.moment(Moment::GroupBehind);
            }
            None => {
                process.writing.insert(id, None);
                self.submit(around, Owner::Shard(id), None, group);
            }
        }
    }

    /// The writer has come to the end of a group: it begins the next by itself, or gives back the buffer of the one that it will not
    /// write.
    fn group_ended(&mut self, around: &mut Around<'_>, id: ShardId, well: bool) -> Option<Box<AlignedBuffer>> {
        let waiting = self.process.as_mut()?.writing.remove(&id).expect("a group was written");
        match waiting? {
            group if well => {
                self.process.as_mut()?.writing.insert(id, None);
                self.submit(around, Owner::Shard(id), None, group);
                None
            }
            Operation::Group { buffer, .. } => Some(buffer),
            Operation::File(_) => unreachable!("only groups wait"),
        }
    }

    fn submit(
        &mut self,
        around: &mut Around<'_>,
        owner: Owner,
        token: Option<shard::event::FileToken>,
        operation: Operation,
    ) {
        let moment = moment_of(&operation);
        let stall = if is_of_catalog(&operation) { around.faults.stall_catalog() } else { None };
        let (ticket, latency_ns) = self.disk.submit(operation);
        let mut at_ns = around.queue.now_ns() + latency_ns;
        if let Some(Stall { ns, ends_by }) = stall {
            at_ns += ns;
            around.coverage.fault(Fault::StalledCatalog);
            around.trace.event(around.queue.now_ns(), 6, Fault::StalledCatalog.row() as u64);
            around.trace.say(around.queue.now_ns(), || format!("---- stalled catalog, {ns} ns, ends by {ends_by:?}"));
            if let Some(fault) = ends_by {
                around.queue.put(at_ns - 1, Happening::Ends(self.incarnation, fault));
            }
        }
        around.queue.put(at_ns, Happening::Node(self.incarnation, Input::Disk { owner, ticket, token }));
        if let Some(moment) = moment {
            around.faults.moment(moment);
        }
    }

    fn disk_done(
        &mut self,
        around: &mut Around<'_>,
        owner: Owner,
        ticket: Ticket,
        token: Option<shard::event::FileToken>,
    ) {
        let Some(done) = self.disk.complete(ticket) else { return };
        match (done, owner, token) {
            (Completed::Group { buffer, outcome }, Owner::Shard(id), _) => {
                around.faults.moment(Moment::GroupWritten);
                let cancelled = self.group_ended(around, id, outcome.is_ok());
                if let (Err(_), Some(process)) = (&outcome, &mut self.process) {
                    process.failed.insert(id);
                }
                self.step_shard(around, id, shard::event::Event::GroupWritten { buffer, outcome });
                if let Some(buffer) = cancelled {
                    let outcome = Err(shard::event::Failed { errno: ECANCELED });
                    self.step_shard(around, id, shard::event::Event::GroupWritten { buffer, outcome });
                }
            }
            (Completed::Group { buffer, outcome }, Owner::Controller, _) => {
                around.faults.moment(Moment::MetadataGroupWritten);
                self.step_controller(around, controller::event::Event::GroupWritten { buffer, outcome });
            }
            (Completed::File(outcome), Owner::Shard(id), Some(token)) => {
                self.step_shard(around, id, shard::event::Event::FileDone { token, outcome });
            }
            (Completed::File(outcome), Owner::Controller, Some(token)) => {
                self.step_controller(around, controller::event::Event::FileDone { token, outcome });
            }
            (Completed::File(_), _, None) => unreachable!("every file operation has a token"),
        }
    }

    /// Sends an answer to the connection's shard, from which it goes out.
    pub(super) fn reply(&mut self, around: &mut Around<'_>, from: ShardId, to: ReplyTo, response: Response) {
        let has_failed = self.process.as_ref().is_some_and(|process| process.failed.contains(&from));
        if has_failed && matches!(response, Response::Stored(_)) {
            let what = "it says stored behind a journal group that could not be made durable";
            around.checks.violation(Violation::Node { what });
        }
        self.check_answer(around, to, &response);
        if from == to.shard {
            self.answer(around, to, response);
        } else {
            self.send_mesh(around, from, to.shard, Mesh::Reply { to, response });
        }
    }

    /// Sends to another core, behind what was sent to it before.
    pub(super) fn send_mesh(&mut self, around: &mut Around<'_>, from: ShardId, shard: ShardId, message: Mesh) {
        let at_ns = self.mesh_arrival_ns(around, from, shard);
        let input = Input::Shard { shard, message };
        around.queue.put(at_ns, Happening::Node(self.incarnation, input));
    }

    pub(super) fn mesh_arrival_ns(&mut self, around: &mut Around<'_>, from: ShardId, to: ShardId) -> u64 {
        let delay_ns = self.random.between(200, 5_000);
        let Some(process) = &mut self.process else { return around.queue.now_ns() };
        let last_ns = process.mesh_ns.entry((from.0, to.0)).or_insert(0);
        *last_ns = (*last_ns).max(around.queue.now_ns() + delay_ns);
        *last_ns
    }

    fn mesh(&mut self, around: &mut Around<'_>, shard: ShardId, message: Mesh) {
        match message {
            Mesh::Request { to, deadline_ns, request } => {
                let request = request.borrow();
                self.step_shard(around, shard, shard::event::Event::Request { to, deadline_ns, request });
                self.step_shard(around, shard, shard::event::Event::Flush);
            }
            Mesh::Reply { to, response } => self.answer(around, to, response),
            Mesh::Disconnected { to } => self.step_shard(around, shard, shard::event::Event::Disconnected { to }),
            Mesh::ToReplica(message) => self.step_shard(around, shard, shard::event::Event::Message(message)),
        }
    }

    fn arm_shard(&mut self, around: &mut Around<'_>, id: ShardId) {
        let Some(process) = &mut self.process else { return };
        let host = &mut process.shards[usize::from(id.0)];
        let Some(deadline_ns) = host.shard.next_deadline() else { return };
        let at_ns = self.clock.virtual_ns(deadline_ns).max(around.queue.now_ns());
        if host.timer_ns.is_none_or(|armed| at_ns < armed) {
            host.timer_ns = Some(at_ns);
            around.queue.put(at_ns, Happening::Node(self.incarnation, Input::ShardTimer { shard: id }));
        }
    }

    fn arm_controller(&mut self, around: &mut Around<'_>) {
        let Some(process) = &mut self.process else { return };
        let Some(deadline_ns) = process.controller.next_deadline() else { return };
        let at_ns = self.clock.virtual_ns(deadline_ns).max(around.queue.now_ns());
        if process.controller_timer_ns.is_none_or(|armed| at_ns < armed) {
            process.controller_timer_ns = Some(at_ns);
            around.queue.put(at_ns, Happening::Node(self.incarnation, Input::ControllerTimer));
        }
    }

    fn shard_timer(&mut self, around: &mut Around<'_>, id: ShardId) {
        let now = self.now(around);
        let Some(process) = &mut self.process else { return };
        let host = &mut process.shards[usize::from(id.0)];
        if host.timer_ns.is_some_and(|armed| armed > around.queue.now_ns()) {
            return;
        }
        host.timer_ns = None;
        match host.shard.next_deadline() {
            Some(deadline_ns) if deadline_ns <= now.monotonic_ns => {
                self.step_shard(around, id, shard::event::Event::Timer);
            }
            Some(_) => self.arm_shard(around, id),
            None => {}
        }
    }

    fn controller_timer(&mut self, around: &mut Around<'_>) {
        let now = self.now(around);
        let Some(process) = &mut self.process else { return };
        if process.controller_timer_ns.is_some_and(|armed| armed > around.queue.now_ns()) {
            return;
        }
        process.controller_timer_ns = None;
        match process.controller.next_deadline() {
            Some(deadline_ns) if deadline_ns <= now.monotonic_ns => {
                self.step_controller(around, controller::event::Event::Timer);
            }
            Some(_) => self.arm_controller(around),
            None => {}
        }
    }
}

/// Whether it is a step of making a delta of a shard's catalog durable.
fn is_of_catalog(operation: &Operation) -> bool {
    match operation {
        Operation::File(
            FileOperation::Create { file, .. } | FileOperation::Write { file, .. } | FileOperation::Sync { file },
        ) => matches!(file, DataFile::CatalogDelta { .. }),
        Operation::File(FileOperation::SyncFolder { folder }) => *folder == Folder::Catalog,
        Operation::File(FileOperation::Read { .. } | FileOperation::Remove { .. }) | Operation::Group { .. } => false,
    }
}

/// The moment that giving an operation to the disk is.
fn moment_of(operation: &Operation) -> Option<Moment> {
    match operation {
        Operation::Group { sync: false, .. } => Some(Moment::MarkerWritten),
        Operation::Group { .. } => None,
        Operation::File(FileOperation::Write { file, .. }) => Some(match file {
            DataFile::CatalogSnapshot { .. } | DataFile::CatalogDelta { .. } => Moment::CatalogWritten,
            DataFile::Superblock { .. }
            | DataFile::Journal { .. }
            | DataFile::MetadataJournal { .. }
            | DataFile::MetadataSnapshot { .. }
            | DataFile::Segment { .. } => Moment::SegmentWritten,
        }),
        Operation::File(FileOperation::Sync { .. } | FileOperation::SyncFolder { .. }) => Some(Moment::SegmentSynced),
        Operation::File(FileOperation::Create { .. }) => Some(Moment::FileCreated),
        Operation::File(FileOperation::Remove { .. }) => Some(Moment::FileRemoved),
        Operation::File(FileOperation::Read { .. }) => None,
    }
}
