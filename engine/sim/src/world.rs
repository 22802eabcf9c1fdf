//! The whole of one run: node, network, clients, faults and checkers around one queue of events.
//!
//! ```text
//!            +--------------------- Happening, at its time ----------------------+
//!            v                                                                   |
//!  queue -> dispatch -> Node(input) | Wire(transit) | Client | Fault | Start -> queue
//!                            |                                                   ^
//!                            +--> answers --> frames --> network ----------------+
//! ```
//! After each event the schedule of faults is asked whether the node crashes now, and the run ends at the first broken promise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sealog_engine::api::EngineConfig;
use sealog_engine::api::port::DataFile;
use sealog_engine::api::request::ReplyTo;
use sealog_engine::api::response::Response;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{ShardId, TopicId};
use sealog_net::client::core::Cursor;
use sealog_net::session::{self, Inbound};
use sealog_net::wire::decoder::ReceiveBuffer;
use sealog_net::wire::frame::Frame;
use sealog_net::wire::hello;

use crate::check::{Checks, Mode, Violation};
use crate::client::SimClient;
use crate::coverage::Coverage;
use crate::disk::{Disk, DiskProfile};
use crate::faults::{Fault, Faults, Moment};
use crate::history::History;
use crate::network::{ConnectionId, Network, NetworkProfile, NodeEnd, Transit, receive};
use crate::node::{Around, Input, Mesh, Node};
use crate::queue::Queue;
use crate::random::Random;
use crate::scenario::Topic;
use crate::trace::Trace;

/// What happens.
#[derive(Debug)]
pub enum Happening {
    /// To the process of that incarnation.
    Node(u64, Input),
    /// The process of that incarnation ends, before its disk has done what it waits for.
    Ends(u64, Fault),
    /// The node's machine starts a process.
    Start,
    /// It has opened its directory.
    Begin(u64),
    /// On a connection.
    Wire(Transit),
    /// A client's time has come.
    Client(usize),
    /// A small fault comes.
    Fault,
    /// The disk is as it was before a fault.
    DiskMends,
    /// A pause of the node may be over.
    NodeGoesOn,
}

/// One run.
pub struct World {
    pub queue: Queue<Happening>,
    pub random: Random,
    pub faults: Faults,
    pub trace: Trace,
    pub coverage: Coverage,
    pub checks: Checks,
    pub history: History,
    pub node: Node,
    pub network: Network,
    pub clients: Vec<SimClient>,
    pub mode: Mode,
    pub crashes: u64,
    pub(crate) answers: Vec<(ReplyTo, Response)>,
    pub(crate) touched: Vec<ConnectionId>,
    /// The node does nothing before that; what comes to it waits, in order.
    pub(crate) node_paused_until_ns: u64,
    pub(crate) node_held: VecDeque<Happening>,
    /// Shards of the next start are drawn from `1..=` this.
    pub(crate) shards_most: u16,
    /// The slowness of the disk in good weather.
    pub(crate) disk_slowness: u64,
    pub(crate) topics: Vec<Topic>,
    /// Ranges are split and merged, and operators ask for some of that.
    pub(crate) has_reshapes: bool,
    pub(crate) has_operators: bool,
    /// Where the topics begin whose ranges are split and merged.
    pub(crate) beginnings: BTreeMap<String, Cursor>,
    /// Topics made that come and go.
    pub(crate) passing: u32,
    /// Topics that somebody has asked to delete.
    pub(crate) doomed: BTreeSet<TopicId>,
    /// Readings begun.
    pub(crate) passes: u32,
    pub(crate) gaps_read: u64,
    /// Segments of answered rolls, found sealed at the end.
    pub(crate) rolls_sealed: u64,
    /// Ranges that were said to be split or merged, found so at the end.
    pub(crate) reshapes_stand: u64,
    /// What the controller says to this shard waits, in order.
    pub(crate) deaf: Option<(ShardId, Vec<Happening>)>,
    /// A start ended in a refusal, on a disk that was damaged beyond what one copy survives.
    pub(crate) refused_to_start: bool,
    /// While it is there, what the disk has done is not told, and gathers here.
    pub(crate) disk_held: Option<Vec<Happening>>,
    /// Events since the time last moved.
    spins: u64,
    next_sample: u64,
}

/// What a run is made of.
pub struct Parts {
    pub random: Random,
    pub faults: Faults,
    pub trace: Trace,
    pub config: EngineConfig,
    pub disk: DiskProfile,
    pub network: NetworkProfile,
    pub mode: Mode,
    pub shards_most: u16,
    pub topics: Vec<Topic>,
}

/// The longest time between a crash and the next start.
const RESTART_MS_MAX: u64 = 50;
/// Events between two looks at memory.
const EVENTS_A_SAMPLE: u64 = 256;
/// Events in one instant above which time stands still.
const SPINS_MAX: u64 = 100_000;

impl World {
    /// A machine with an empty disk, and nobody there.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { random, faults, trace, config, disk, network, mode, shards_most, topics } = parts;
        Self {
            queue: Queue::default(),
            faults,
            trace,
            coverage: Coverage::default(),
            checks: Checks::default(),
            history: History::default(),
            node: Node::new(random.fork("node"), Disk::new(random.fork("disk"), disk), config),
            network: Network::new(random.fork("network"), network),
            clients: Vec::new(),
            mode,
            crashes: 0,
            answers: Vec::new(),
            touched: Vec::new(),
            node_paused_until_ns: 0,
            node_held: VecDeque::new(),
            shards_most,
            disk_slowness: disk.slowness,
            topics,
            has_reshapes: false,
            has_operators: false,
            beginnings: BTreeMap::new(),
            passing: 0,
            doomed: BTreeSet::new(),
            passes: 0,
            gaps_read: 0,
            rolls_sealed: 0,
            reshapes_stand: 0,
            deaf: None,
            refused_to_start: false,
            disk_held: None,
            spins: 0,
            next_sample: 0,
            random: random.fork("world"),
        }
    }

    /// Takes one event, if there is one by `until_ns`.
    ///
    /// # Errors
    /// A broken promise.
    pub fn step(&mut self, until_ns: u64) -> Result<bool, Violation> {
        let before_ns = self.queue.now_ns();
        let Some(happening) = self.queue.take(until_ns) else { return Ok(false) };
        self.spins = if self.queue.now_ns() == before_ns { self.spins + 1 } else { 0 };
        if self.spins > SPINS_MAX {
            return Err(Violation::Node { what: "it does something without end, and time stands still" });
        }
        self.dispatch(happening)?;
        self.send_answers();
        if self.node.disk.take_group_sync_failed() && self.faults.weather.crash_every > 0 {
            self.faults.group_sync_failed();
        }
        if let Some(violation) = self.checks.found.take() {
            return Err(violation);
        }
        if self.trace.events() >= self.next_sample {
            self.next_sample = self.trace.events() + EVENTS_A_SAMPLE;
            self.sample_memory()?;
        }
        if self.node.is_up()
            && let Some(fault) = self.faults.take_crash(self.node.life_events())
        {
            self.crash(fault);
        }
        Ok(true)
    }

    fn sample_memory(&mut self) -> Result<(), Violation> {
        let (unwritten, bound) = self.node.unwritten();
        self.checks.memory.sample("bytes that are not in a segment", unwritten, bound)?;
        let a_connection = u64::from(self.node.config().batch_bytes_max) * 2 + (64 << 10);
        let bound = self.network.len() as u64 * a_connection;
        self.checks.memory.sample("bytes of receive buffers", self.network.node_memory(), bound)
    }

    fn dispatch(&mut self, happening: Happening) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let to_node = matches!(
            happening,
            Happening::Node(..) | Happening::Wire(Transit::Connect(_) | Transit::ToNode(..) | Transit::NodeEnds(_))
        );
        if to_node && (now_ns < self.node_paused_until_ns || !self.node_held.is_empty()) {
            self.node_held.push_back(happening);
            return Ok(());
        }
        self.dispatch_now(happening)
    }

    fn dispatch_now(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Node(incarnation, input) => {
                if let (Some(held), Input::Disk { .. }) = (&mut self.disk_held, &input) {
                    held.push(Happening::Node(incarnation, input));
                } else if let Some((deaf, held)) = &mut self.deaf
                    && matches!(&input, Input::Shard { shard, message: Mesh::ToReplica(_) } if shard == deaf)
                {
                    held.push(Happening::Node(incarnation, input));
                } else {
                    let (node, mut around) = self.split();
                    node.take(&mut around, incarnation, input);
                }
            }
            Happening::Ends(incarnation, fault) => {
                let goes_wrong = self.faults.weather.crash_every > 0;
                if goes_wrong && incarnation == self.node.incarnation() && self.node.is_up() {
                    self.crash(fault);
                }
            }
            Happening::Start => self.start()?,
            Happening::Begin(incarnation) => self.begin(incarnation),
            Happening::Wire(transit) => self.transit(transit)?,
            Happening::Client(client) => self.client_wakes(client)?,
            Happening::Fault => self.small_fault()?,
            Happening::NodeGoesOn => {
                if self.queue.now_ns() >= self.node_paused_until_ns {
                    while let Some(held) = self.node_held.pop_front() {
                        self.dispatch_now(held)?;
                        self.send_answers();
                    }
                }
            }
            Happening::DiskMends => {
                self.node.disk.set_slowness(self.disk_slowness);
                self.node.disk.set_full(false);
            }
        }
        Ok(())
    }

    /// The node, and all that it needs to take a step.
    pub(crate) fn split(&mut self) -> (&mut Node, Around<'_>) {
        let around = Around {
            queue: &mut self.queue,
            faults: &mut self.faults,
            trace: &mut self.trace,
            coverage: &mut self.coverage,
            checks: &mut self.checks,
            answers: &mut self.answers,
            mode: self.mode,
            crashes: self.crashes,
        };
        (&mut self.node, around)
    }

    /// The node's process ends; another starts after a while.
    pub fn crash(&mut self, fault: Fault) {
        self.stop_node(fault);
        let delay_ms = self.random.between(0, RESTART_MS_MAX);
        self.queue.put(self.queue.now_ns() + delay_ms * MILLISECOND_NS, Happening::Start);
    }

    /// The node's process ends.
    pub fn stop_node(&mut self, fault: Fault) {
        let report = self.node.crash(fault);
        self.crashes += 1;
        self.coverage.fault(fault);
        self.trace.event(self.queue.now_ns(), 5, fault.row() as u64);
        self.trace.say(self.queue.now_ns(), || format!("---- {}: {report:?}", fault.name()));
        self.answers.clear();
        self.node_paused_until_ns = 0;
        self.queue.put(self.queue.now_ns(), Happening::NodeGoesOn);
        self.network.lose_node(&mut self.queue);
    }

    /// A process starts, or is stopped in the middle of its recovery, again and again.
    fn start(&mut self) -> Result<(), Violation> {
        if self.node.is_starting() {
            return Ok(());
        }
        if self.faults.weather.crash_every > 0 && self.shards_most > 1 {
            let shards = u16::try_from(self.random.between(1, u64::from(self.shards_most))).expect("few shards");
            if shards != self.node.shards() {
                self.coverage.fault(Fault::OtherShards);
                self.node.set_shards(shards);
            }
        }
        if let Some(calls) = self.faults.recovery_stop() {
            self.node.disk.stop_after_calls(calls);
        }
        self.trace.say(self.queue.now_ns(), || "---- start".to_owned());
        let opened = self.node.open(&mut self.checks);
        self.trace.event(self.queue.now_ns(), 8, self.node.disk.calls());
        if self.node.disk.take_stopped() {
            self.coverage.fault(Fault::StopInRecovery);
            let cut = self.faults.random().one_in(2);
            self.crash(if cut { Fault::PowerCut } else { Fault::Kill });
            return Ok(());
        }
        match opened {
            Ok(spent_ns) => {
                let begins_ns = self.queue.now_ns() + spent_ns;
                self.queue.put(begins_ns, Happening::Begin(self.node.incarnation()));
                Ok(())
            }
            Err(error) if error.is_full() => {
                self.queue.put(self.queue.now_ns() + RESTART_MS_MAX * MILLISECOND_NS, Happening::Start);
                Ok(())
            }
            Err(error) if self.mode == Mode::Beyond && error.is_damage() => {
                self.trace.say(self.queue.now_ns(), || format!("---- refuses to start: {error}"));
                self.refused_to_start = true;
                Ok(())
            }
            Err(error) => Err(Violation::NoStart { error: error.to_string() }),
        }
    }

    fn begin(&mut self, incarnation: u64) {
        let (node, mut around) = self.split();
        node.begin(&mut around, incarnation);
        self.faults.arm();
        self.faults.moment(Moment::Started);
    }

    fn transit(&mut self, transit: Transit) -> Result<(), Violation> {
        match transit {
            Transit::Connect(id) => {
                let taken = self.node.is_up();
                self.network.answer_connect(&mut self.queue, id, taken);
            }
            Transit::ToNode(id, bytes) => {
                self.node_receives(id, &bytes);
            }
            Transit::NodeEnds(id) => {
                if let Some(NodeEnd { shard: Some(shard), .. }) = self.network.end_node(id) {
                    let to = ReplyTo { shard, connection: id.0, correlation: 0 };
                    let (node, mut around) = self.split();
                    node.disconnected(&mut around, to);
                }
            }
            Transit::Connected(_) | Transit::ToClient(..) | Transit::ClientEnds(_) => {
                self.arrives_at_client(transit)?
            }
        }
        Ok(())
    }

    /// Bytes of a client reach the node: what a connection's task does there.
    fn node_receives(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(mut end) = self.network.lend_node(id) else { return };
        let NodeEnd { buffer, shard, answers } = &mut end;
        let kept = receive(buffer, bytes, |buffer| self.frames(id, buffer, shard, answers));
        if let (Some(shard), true) = (*shard, self.node.is_up()) {
            let (node, mut around) = self.split();
            node.flush(&mut around, shard);
        }
        self.network.give_node(id, end);
        self.network.send_answers(&mut self.queue, id);
        if kept.is_err() {
            self.network.close_by_node(&mut self.queue, id);
        }
    }

    /// All whole frames that a connection has.
    ///
    /// # Errors
    /// The connection is to be closed.
    fn frames(
        &mut self,
        id: ConnectionId,
        buffer: &mut ReceiveBuffer,
        shard: &mut Option<ShardId>,
        answers: &mut Vec<u8>,
    ) -> Result<(), Close> {
        let Some(handshake) = self.node.handshake() else { return Err(Close) };
        loop {
            let frame = match buffer.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => {
                    session::handshake::decode_bye(&error).append(answers);
                    return Err(Close);
                }
            };
            match *shard {
                Some(shard) => self.frame(id, shard, &frame, answers, &handshake)?,
                None => match handshake.judge(&frame) {
                    Ok(greeted) => {
                        let on = greeted.shard.unwrap_or_else(|| self.node.any_shard());
                        *shard = Some(on);
                        handshake.welcome(on).append(answers, greeted.correlation);
                        buffer.set_bounds(16 * 1024, handshake.limits.frame_bytes_max());
                    }
                    Err(bye) => {
                        bye.append(answers);
                        return Err(Close);
                    }
                },
            }
        }
    }

    fn frame(
        &mut self,
        id: ConnectionId,
        shard: ShardId,
        frame: &Frame<'_>,
        answers: &mut Vec<u8>,
        handshake: &session::Handshake,
    ) -> Result<(), Close> {
        let to = ReplyTo { shard, connection: id.0, correlation: frame.correlation };
        match session::read(frame, &handshake.limits) {
            Ok(Inbound::Request(request)) => {
                let (node, mut around) = self.split();
                node.request(&mut around, to, frame.deadline_ms, request);
            }
            Ok(Inbound::Ping) => hello::append_pong(answers, frame.correlation),
            Ok(Inbound::End) => return Err(Close),
            Err(_) => {
                let refused = Response::Refused(sealog_engine::api::Refusal::BadRequest);
                session::append(answers, frame.correlation, &refused);
            }
        }
        Ok(())
    }

    /// Puts the answers of the last event on their way.
    fn send_answers(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let mut answers = std::mem::take(&mut self.answers);
        for (to, response) in answers.drain(..) {
            let id = ConnectionId(to.connection);
            // An answer to a connection that is gone is dropped.
            let Some(end) = self.network.node_end(id) else { continue };
            if end.answers.is_empty() {
                self.touched.push(id);
            }
            session::append(&mut end.answers, to.correlation, &response);
        }
        self.answers = answers;
        for id in self.touched.drain(..) {
            self.network.send_answers(&mut self.queue, id);
        }
    }

    fn small_fault(&mut self) -> Result<(), Violation> {
        if self.faults.weather.fault_every_us == 0 {
            return Ok(());
        }
        let fault = self.faults.small();
        self.inflict(fault)?;
        if let Some(next_ns) = self.faults.next_small_ns() {
            self.queue.put(self.queue.now_ns() + next_ns, Happening::Fault);
        }
        Ok(())
    }

    /// Lets something go wrong now. What is to end by itself does so.
    ///
    /// # Errors
    /// A broken promise that it brought to light.
    pub fn inflict(&mut self, fault: Fault) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let random = self.faults.random();
        let while_ns = random.spread_between(100_000, 200_000_000);
        self.trace.say(now_ns, || format!("---- {}", fault.name()));
        self.trace.event(now_ns, 6, fault.row() as u64);
        match fault {
            Fault::ConnectionReset => {
                let Some(id) = self.network.any() else { return Ok(()) };
                self.network.reset(&mut self.queue, id);
            }
            Fault::SlowConnection => {
                let Some(id) = self.network.any() else { return Ok(()) };
                self.network.hold(id, now_ns + while_ns);
            }
            Fault::ClientPause => {
                let client = random.index(self.clients.len());
                self.clients[client].pause(now_ns + while_ns);
            }
            Fault::ClientRestart => {
                let client = random.index(self.clients.len());
                self.client_restarts(client)?;
            }
            Fault::NodePause => {
                self.node_paused_until_ns = self.node_paused_until_ns.max(now_ns + while_ns / 4);
                self.queue.put(self.node_paused_until_ns, Happening::NodeGoesOn);
            }
            Fault::SlowDisk => {
                let slowness = random.spread_between(4, 100);
                self.node.disk.set_slowness(self.disk_slowness * slowness);
                self.queue.put(now_ns + while_ns, Happening::DiskMends);
            }
            Fault::FullDisk => {
                self.node.disk.set_full(true);
                self.queue.put(now_ns + while_ns, Happening::DiskMends);
            }
            Fault::WallClockJump => {
                let ms = i64::try_from(random.spread_between(1, 40_000_000_000)).expect("below 63 bits");
                self.node.clock.jump(if random.one_in(2) { ms } else { -ms });
            }
            Fault::BitRot => {
                let target = Target::draw(self.faults.random());
                self.node.disk.rot(|file| target.is_of(file));
            }
            Fault::UnreadableBlock => {
                let target = Target::draw(self.faults.random());
                self.node.disk.make_unreadable(|file| target.is_of(file));
            }
            Fault::FailedSync => self.node.disk.fail_syncs(1),
            Fault::FailedWrite => self.node.disk.fail_writes(1),
            Fault::Kill | Fault::PowerCut if self.node.is_up() => {
                self.crash(fault);
                return Ok(());
            }
            Fault::Kill
            | Fault::PowerCut
            | Fault::StopInRecovery
            | Fault::StalledCatalog
            | Fault::OtherShards
            | Fault::DuplicateMessage
            | Fault::LateMessage
            | Fault::DeafShard => return Ok(()),
        }
        self.coverage.fault(fault);
        Ok(())
    }
}

/// The files of which damage hits one.
#[derive(Clone, Copy)]
enum Target {
    Journals,
    Segments,
    Any,
}

impl Target {
    fn draw(random: &mut Random) -> Self {
        *random.pick(&[Self::Journals, Self::Journals, Self::Segments, Self::Any])
    }

    fn is_of(self, file: DataFile) -> bool {
        match self {
            Self::Journals => matches!(file, DataFile::Journal { .. }),
            Self::Segments => matches!(file, DataFile::Segment { .. }),
            Self::Any => true,
        }
    }
}

/// A connection is to be closed.
struct Close;
