//! One shard on its executor: gives events to the pure core and performs its commands. It has one arm a command and decides
//! nothing.
//!
//! ```text
//!  connection tasks --request, flush-->+             +--> journal_writer --> disk
//!  journal's bell  --> finished ------>|  Shard      |--> files ----------> disk
//!  files' bell     --> finished ------>|  ::step     |--> replies --------> connections
//!  mesh, controller --> message ------>|             |--> mesh, controller
//!  timer --------------------------->  +             +
//! ```
//! All of it is one thread: `core` is borrowed for the length of a turn, and no turn awaits anything.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::clock;
use super::controller_loop::ControllerLoop;
use super::files::Files;
use super::journal_writer::{GroupWrite, JournalWriter};
use super::mesh::{Mesh, Message, OwnedRequest};
use super::metrics::ShardMetrics;
use super::notify::Notify;
use crate::api::error::Refusal;
use crate::api::port::{Replies, ShardService};
use crate::api::request::{ControlRequest, ReplyTo, Request, ShardRequest};
use crate::api::response::Response;
use crate::controller;
use crate::replica::message::{ToController, ToReplica};
use crate::shard::command::{Command, Commands};
use crate::shard::event::{Event, Failed};
use crate::shard::shard::Shard;
use crate::types::{Now, ShardId};

/// Delay advised when another shard's queue is full.
const MESH_DELAY_MS: u32 = 2;
/// Longest wait for clients to take their goodbye.
const FAREWELL_MS: u32 = 1_000;

/// The state that a turn borrows.
struct Core {
    shard: Shard,
    commands: Commands,
    performing: Commands,
    journal: JournalWriter,
    files: Files,
    controller: Option<ControllerLoop>,
}

/// One shard's performer.
pub(super) struct ShardLoop {
    id: ShardId,
    shards: u16,
    core: RefCell<Core>,
    mesh: OnceCell<Mesh>,
    replies: OnceCell<Rc<dyn Replies>>,
    /// When the timer task will wake by itself, on the monotonic clock.
    armed_ns: Cell<u64>,
    rearm: Notify,
    stopping: Cell<bool>,
    /// When the requests that have come since the last flush came: one look at the clocks for all of them.
    arrived: Cell<Option<Now>>,
    metrics: std::sync::Arc<ShardMetrics>,
}

/// What a shard is made of.
pub(super) struct Parts {
    pub(super) id: ShardId,
    pub(super) shards: u16,
    pub(super) shard: Shard,
    pub(super) journal: JournalWriter,
    pub(super) files: Files,
    pub(super) controller: Option<ControllerLoop>,
    pub(super) metrics: std::sync::Arc<ShardMetrics>,
}

impl ShardLoop {
    pub(super) fn new(parts: Parts) -> Rc<Self> {
        Rc::new(Self {
            id: parts.id,
            shards: parts.shards,
            core: RefCell::new(Core {
                shard: parts.shard,
                commands: Vec::with_capacity(1024),
                performing: Vec::with_capacity(1024),
                journal: parts.journal,
                files: parts.files,
                controller: parts.controller,
            }),
            mesh: OnceCell::new(),
            replies: OnceCell::new(),
            armed_ns: Cell::new(u64::MAX),
            rearm: Notify::default(),
            stopping: Cell::new(false),
            arrived: Cell::new(None),
            metrics: parts.metrics,
        })
    }

    /// Connects the shard to its surroundings, starts its tasks and its life. Must run on the shard's executor.
    pub(super) fn start(self: &Rc<Self>, mesh: Mesh, replies: Rc<dyn Replies>) -> std::io::Result<()> {
        assert!(self.mesh.set(mesh).is_ok() && self.replies.set(replies).is_ok(), "a shard starts once");
        let (journal, files, controller) = {
            let core = self.core.borrow();
            let controller = match &core.controller {
                None => None,
                Some(controller) => Some((controller.journal_bell().listener()?, controller.files_bell().listener()?)),
            };
            (core.journal.bell().listener()?, core.files.bell().listener()?, controller)
        };
        self.hear(journal, Self::journal_finished);
        self.hear(files, Self::files_finished);
        if let Some((journal, files)) = controller {
            self.hear(journal, Self::controller_journal_finished);
            self.hear(files, Self::controller_files_finished);
        }
        let own = self.clone();
        let receive: Rc<dyn Fn(Message)> = Rc::new(move |message| own.received(message));
        self.mesh().listen(&receive);
        let own = self.clone();
        glommio::spawn_local(async move { own.keep_time().await }).detach();
        self.turn(|core, now| core.shard.step(now, Event::Started, &mut core.commands));
        Ok(())
    }

    /// A task that calls `finished` each time the bell has rung.
    fn hear(self: &Rc<Self>, bell: super::bell::BellListener, finished: fn(&Self)) {
        let own = self.clone();
        glommio::spawn_local(async move {
            loop {
                bell.heard().await.expect("an eventfd can be read");
                finished(&own);
            }
        })
        .detach();
    }

    /// One turn: `give` hands events to the core, then everything it wants is performed.
    fn turn(&self, give: impl FnOnce(&mut Core, Now)) {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        give(core, clock::now());
        self.perform(core);
        self.arm(core);
    }

    fn perform(&self, core: &mut Core) {
        loop {
            let mut idle = true;
            while !core.commands.is_empty() {
                idle = false;
                std::mem::swap(&mut core.commands, &mut core.performing);
                let mut performing = std::mem::take(&mut core.performing);
                for command in performing.drain(..) {
                    self.perform_one(core, command);
                }
                core.performing = performing;
            }
            if let Some(mut controller) = core.controller.take() {
                controller.perform(|command| {
                    idle = false;
                    match command {
                        controller::command::Command::Reply { to, response } => self.reply(to, response),
                        controller::command::Command::Tell { shard, message } => self.tell(core, shard, message),
                        controller::command::Command::WriteGroup { .. } | controller::command::Command::File { .. } => {
                            unreachable!("performed by the controller's loop")
                        }
                    }
                });
                core.controller = Some(controller);
            }
            if idle {
                break;
            }
        }
        core.files.submit().expect("the files' ring takes submissions");
        self.replies().flush();
        self.metrics.publish(core.shard.counters());
    }

    fn perform_one(&self, core: &mut Core, command: Command) {
        match command {
            Command::Reply { to, response } => self.reply(to, response),
            Command::WriteGroup { file, position, buffer, length, sync } => {
                let group = GroupWrite { file: usize::from(file), position, length, durable: sync, buffer };
                core.journal.start(group).expect("the journal's ring takes submissions");
            }
            Command::File { token, operation } => core.files.start(token, operation),
            Command::Tell(message) => self.tell_controller(core, message),
        }
    }

    fn reply(&self, to: ReplyTo, response: Response) {
        if to.shard == self.id {
            self.replies().reply(to, response);
        } else {
            self.mesh().send(to.shard, Message::Reply { to, response });
        }
    }

    fn tell(&self, core: &mut Core, shard: ShardId, message: ToReplica) {
        if shard == self.id {
            core.shard.step(clock::now(), Event::Message(message), &mut core.commands);
        } else {
            self.mesh().send(shard, Message::ToReplica(message));
        }
    }

    fn tell_controller(&self, core: &mut Core, message: ToController) {
        match &mut core.controller {
            Some(controller) => controller.step(clock::now(), controller::event::Event::Message(message)),
            None => self.mesh().send(ShardId(0), Message::ToController(message)),
        }
    }

    /// A message has come from another shard.
    pub(super) fn received(&self, message: Message) {
        match message {
            Message::From(_) => unreachable!("taken when the mesh was joined"),
            Message::Request { to, deadline_ns, request } => self.turn(|core, now| {
                core.shard.step(now, Event::Request { to, deadline_ns, request: request.borrow() }, &mut core.commands);
                core.shard.step(now, Event::Flush, &mut core.commands);
            }),
            Message::Control { to, deadline_ns, request } => {
                self.turn(|core, now| core.control(now, to, deadline_ns, request));
            }
            Message::Reply { to, response } => {
                self.replies().reply(to, response);
                self.replies().flush();
            }
            Message::Disconnected { to } => {
                self.turn(|core, now| core.shard.step(now, Event::Disconnected { to }, &mut core.commands));
            }
            Message::ToController(message) => self.turn(|core, _| self.tell_controller(core, message)),
            Message::ToReplica(message) => {
                self.turn(|core, now| core.shard.step(now, Event::Message(message), &mut core.commands));
            }
        }
    }

    fn journal_finished(&self) {
        self.turn(|core, now| {
            while let Some(written) = core.journal.finished().expect("the journal's ring answers") {
                let outcome = written.outcome.map_err(|failure| Failed { errno: failure.errno() });
                let event = Event::GroupWritten { buffer: written.buffer, outcome };
                core.shard.step(now, event, &mut core.commands);
            }
        });
    }

    fn files_finished(&self) {
        self.turn(|core, now| {
            let Core { shard, files, commands, .. } = core;
            let mut done = |token, outcome| shard.step(now, Event::FileDone { token, outcome }, commands);
            files.finished(&mut done).expect("the files' ring answers");
        });
    }

    fn controller_journal_finished(&self) {
        self.turn(|core, now| core.controller.as_mut().expect("it rang").journal_finished(now));
    }

    fn controller_files_finished(&self) {
        self.turn(|core, now| core.controller.as_mut().expect("it rang").files_finished(now));
    }

    /// Lets the timer task know if it would sleep too long.
    fn arm(&self, core: &Core) {
        let deadline = core.next_deadline().unwrap_or(u64::MAX);
        if deadline < self.armed_ns.get() {
            self.armed_ns.set(deadline);
            self.rearm.notify();
        }
    }

    async fn keep_time(&self) {
        loop {
            let deadline = self.core.borrow().next_deadline();
            self.armed_ns.set(deadline.unwrap_or(u64::MAX));
            let Some(deadline) = deadline else {
                self.rearm.wait().await;
                continue;
            };
            let now = clock::monotonic_ns();
            if deadline > now {
                let sleep = async { glommio::timer::sleep(Duration::from_nanos(deadline - now)).await };
                futures_lite::future::or(sleep, self.rearm.wait()).await;
                continue;
            }
            self.turn(|core, now| {
                core.shard.step(now, Event::Timer, &mut core.commands);
                if let Some(controller) = &mut core.controller {
                    controller.step(now, controller::event::Event::Timer);
                }
            });
        }
    }

    /// From now on requests are refused; ends when nothing that was taken is unanswered, it is in segments, and the clients have taken their
    /// goodbye: or have not for so long, as one whose hello never came.
    pub(super) async fn drain(&self) {
        self.stopping.set(true);
        self.wait_while(Shard::is_answering).await;
        self.replies().close();
        // A checkpoint that is under way goes on at full pace from here.
        self.turn(|core, now| core.shard.step(now, Event::Stopping, &mut core.commands));
        self.wait_while(Shard::is_busy).await;
        for _ in 0..FAREWELL_MS {
            if self.replies().is_closed() {
                break;
            }
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wait_while(&self, is_so: fn(&Shard) -> bool) {
        while is_so(&self.core.borrow().shard) {
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
    }

    fn replies(&self) -> &Rc<dyn Replies> {
        self.replies.get().expect("a started shard has replies")
    }

    fn mesh(&self) -> &Mesh {
        self.mesh.get().expect("a started shard has a mesh")
    }

    fn refuse(&self, to: ReplyTo, refusal: Refusal) {
        self.replies().reply(to, Response::Refused(refusal));
    }

    fn forward(&self, to: ReplyTo, shard: ShardId, message: Message) {
        if self.mesh().admits(shard) {
            self.mesh().send(shard, message);
        } else {
            self.refuse(to, Refusal::Overloaded { delay_ms: MESH_DELAY_MS });
        }
    }
}

impl Core {
    fn control(&mut self, now: Now, to: ReplyTo, deadline_ns: u64, request: ControlRequest) {
        let controller = self.controller.as_mut().expect("control requests go to the controller's shard");
        controller.step(now, controller::event::Event::Request { to, deadline_ns, request });
    }

    fn next_deadline(&self) -> Option<u64> {
        let controller = self.controller.as_ref().and_then(ControllerLoop::next_deadline);
        [self.shard.next_deadline(), controller].into_iter().flatten().min()
    }
}

impl ShardService for ShardLoop {
    fn request(&self, to: ReplyTo, deadline_ms: u32, request: Request<'_>) {
        if self.stopping.get() {
            return self.refuse(to, Refusal::Stopping);
        }
        let now = self.arrived.get().unwrap_or_else(clock::now);
        self.arrived.set(Some(now));
        let deadline_ns = match deadline_ms {
            0 => u64::MAX,
            ms => now.monotonic_ns.saturating_add(u64::from(ms) * 1_000_000),
        };
        match request {
            Request::Shard(request) => self.shard_request(now, to, deadline_ns, request),
            Request::Control(request) if self.id == ShardId(0) => {
                self.turn(|core, now| core.control(now, to, deadline_ns, request));
            }
            Request::Control(request) => {
                self.forward(to, ShardId(0), Message::Control { to, deadline_ns, request });
            }
        }
    }

    fn flush(&self) {
        self.arrived.set(None);
        self.turn(|core, now| core.shard.step(now, Event::Flush, &mut core.commands));
    }

    fn disconnected(&self, connection: u32) {
        let to = ReplyTo { shard: self.id, connection, correlation: 0 };
        self.turn(|core, now| core.shard.step(now, Event::Disconnected { to }, &mut core.commands));
        for shard in (0..self.shards).map(ShardId).filter(|shard| *shard != self.id) {
            self.mesh().send(shard, Message::Disconnected { to });
        }
    }
}

impl ShardLoop {
    fn shard_request(&self, now: Now, to: ReplyTo, deadline_ns: u64, request: ShardRequest<'_>) {
        let shard = request.range().shard(self.shards);
        if shard != self.id {
            let request = OwnedRequest::of(request);
            return self.forward(to, shard, Message::Request { to, deadline_ns, request });
        }
        // Commands gather until `flush`: one write and one answer buffer for all that arrived together.
        let core = &mut *self.core.borrow_mut();
        core.shard.step(now, Event::Request { to, deadline_ns, request }, &mut core.commands);
    }
}
