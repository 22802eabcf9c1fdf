//! Performs the directives of a script.
//!
//! Records of a script are not made by the workload: a writer here sends the key and value that it is told, and a reader prints them.
//! The checkers of single answers look on all the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use sealog_engine::api::EngineConfig;
use sealog_engine::api::request::ControlRequest;
use sealog_engine::api::response::RangeLineage;
use sealog_engine::types::time::{MILLISECOND_NS, SECOND_NS};
use sealog_engine::types::{RangeId, ShardId};
use sealog_net::client::core::consumer::{ConsumerSettings, Delivery};
use sealog_net::client::core::producer::{Event, Record};
use sealog_net::client::core::{Consumer, Producer, ProducerSettings};

use super::ScriptError;
use super::directive::Directive;
use crate::check::Mode;
use crate::client::{Admin, Application, Operator, Plain, PlainCore, Told, Wanted};
use crate::disk::{DiskProfile, Keep};
use crate::faults::{Fault, Faults, Moment};
use crate::network::NetworkProfile;
use crate::random::Random;
use crate::trace::Trace;
use crate::world::{Happening, Parts, World};

/// How long anything may take that a script waits for.
const PATIENCE_NS: u64 = 30 * SECOND_NS;

/// A world that a script moves.
pub(super) struct ScriptWorld {
    world: World,
    /// Clients by name.
    writers: BTreeMap<String, usize>,
    readers: u64,
}

impl ScriptWorld {
    pub(super) fn new(directive: &Directive) -> Result<Self, ScriptError> {
        if directive.verb != "node" {
            return Err(ScriptError::Missing { line: directive.line, what: "node" });
        }
        let shards = directive.number("shards")?.unwrap_or(1);
        let config = EngineConfig {
            shards,
            journal_file_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            memory_bytes: 4 << 20,
            batch_bytes_max: 64 << 10,
            idle_marker_us: directive.number("marker_us")?.unwrap_or(2_000),
            metadata_file_bytes: 1 << 20,
            ..EngineConfig::default()
        };
        let random = Random::new(directive.number("seed")?.unwrap_or(1));
        let world = World::new(Parts {
            faults: Faults::none(random.fork("faults")),
            trace: Trace::new(std::env::var_os("SEALOG_TRACE").is_some(), false),
            config,
            disk: DiskProfile { slowness: 1, sync_covers_write_only: directive.has("fua"), stall_one_in: 0 },
            network: NetworkProfile { delay_us_max: 20, pieces_percent: 0 },
            mode: Mode::Within,
            shards_most: shards,
            topics: Vec::new(),
            random,
        });
        Ok(Self { world, writers: BTreeMap::new(), readers: 0 })
    }

    /// The first start.
    pub(super) fn begin(&mut self, directive: &Directive) -> Result<(), ScriptError> {
        self.world.queue.put(0, Happening::Start);
        self.wait(directive, "the first start", |world| world.node.is_up())
    }

    pub(super) fn perform(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        match directive.verb.as_str() {
            "topic" => self.topic(directive),
            "writer" => self.writer(directive),
            "send" => self.send(directive),
            "run" => {
                let ms = directive.number("ms")?.ok_or(ScriptError::Missing { line: directive.line, what: "ms" })?;
                self.run_for(directive, ms)?;
                Ok(String::new())
            }
            "settle" => self.settle(directive),
            "hold" => {
                self.world.disk_held.get_or_insert_with(Vec::new);
                Ok(String::new())
            }
            "release" => {
                for happening in self.world.disk_held.take().unwrap_or_default() {
                    self.world.queue.put(self.world.queue.now_ns(), happening);
                }
                Ok(String::new())
            }
            "reset" => {
                let now_ns = self.world.queue.now_ns();
                self.world.network.reset_all(&mut self.world.queue);
                self.world.queue.put(now_ns, Happening::DiskMends);
                self.run_for(directive, 1)?;
                Ok(String::new())
            }
            "crash" => self.crash(directive),
            "start" => self.start(directive),
            "jump" => {
                let ms = directive.number("ms")?.ok_or(ScriptError::Missing { line: directive.line, what: "ms" })?;
                self.world.node.clock.jump(ms);
                Ok(String::new())
            }
            "pause" => self.pause(directive),
            "split" => {
                let (topic, range) = (directive.name(0, "a topic's name")?.to_owned(), range_of(directive, 1)?);
                self.operate(directive, ControlRequest::SplitRange { topic, range })
            }
            "merge" => {
                let topic = directive.name(0, "a topic's name")?.to_owned();
                let ranges = [range_of(directive, 1)?, range_of(directive, 2)?];
                self.operate(directive, ControlRequest::MergeRanges { topic, ranges })
            }
            "ranges" => {
                let topic = directive.name(0, "a topic's name")?.to_owned();
                self.operate(directive, ControlRequest::Lineage { topic, after: RangeId(0) })
            }
            "deaf" => {
                let word = directive.name(0, "a shard's number")?;
                let number = word.parse();
                let number = number.map_err(|_| ScriptError::Word { line: directive.line, word: word.to_owned() })?;
                self.world.deaf = Some((ShardId(number), Vec::new()));
                Ok(String::new())
            }
            "hear" => {
                for happening in self.world.deaf.take().map(|(_, held)| held).unwrap_or_default() {
                    self.world.queue.put(self.world.queue.now_ns(), happening);
                }
                Ok(String::new())
            }
            "crash-at" => self.crash_at(directive),
            "read" => self.read(directive),
            _ => Err(directive.unknown()),
        }
    }

    fn step(&mut self, directive: &Directive, until_ns: u64) -> Result<bool, ScriptError> {
        self.world.step(until_ns).map_err(|violation| ScriptError::Violation { line: directive.line, violation })
    }

    fn run_for(&mut self, directive: &Directive, ms: u64) -> Result<(), ScriptError> {
        let until_ns = self.world.queue.now_ns() + ms * MILLISECOND_NS;
        while self.step(directive, until_ns)? {}
        self.world.queue.skip_to(until_ns);
        Ok(())
    }

    fn wait(
        &mut self,
        directive: &Directive,
        what: &'static str,
        done: impl Fn(&World) -> bool,
    ) -> Result<(), ScriptError> {
        let until_ns = self.world.queue.now_ns() + PATIENCE_NS;
        while !done(&self.world) {
            if !self.step(directive, until_ns)? {
                return Err(ScriptError::Stuck { line: directive.line, what });
            }
        }
        Ok(())
    }

    fn topic(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        let name = directive.name(0, "a topic's name")?.to_owned();
        let ranges = directive.number("ranges")?.unwrap_or(1);
        let wanted = vec![Wanted { name, ranges, auto_split: None }];
        let seed = self.world.random.word();
        let admin = self.world.add_client(Application::Admin(Admin::new(wanted, seed)));
        self.wait(directive, "the making of a topic", |world| match &world.clients[admin].application {
            Application::Admin(admin) => admin.left() == 0,
            Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => true,
        })?;
        Ok("made\n".to_owned())
    }

    fn writer(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        let name = directive.name(0, "a writer's name")?.to_owned();
        let settings = ProducerSettings {
            timeout_ms: directive.number("timeout_ms")?.unwrap_or(10_000),
            ..ProducerSettings::new(directive.text("topic")?, self.world.random.word())
        };
        let plain = Plain::new(PlainCore::Producer(Box::new(Producer::new(settings))));
        let client = self.world.add_client(Application::Plain(plain));
        self.wait(directive, "the opening of a producer", |world| match &world.clients[client].application {
            Application::Plain(Plain { core: PlainCore::Producer(core), .. }) => core.is_ready(),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => true,
        })?;
        self.writers.insert(name, client);
        self.told(client);
        Ok("ready\n".to_owned())
    }

    fn producer(&mut self, client: usize) -> &mut Producer {
        match &mut self.world.clients[client].application {
            Application::Plain(Plain { core: PlainCore::Producer(core), .. }) => core,
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => {
                panic!("client {client} is a writer")
            }
        }
    }

    fn send(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        let line = directive.line;
        let name = directive.name(0, "a writer's name")?;
        let unknown = || ScriptError::Unknown { line, what: "writer", name: name.to_owned() };
        let client = *self.writers.get(name).ok_or_else(unknown)?;
        let value = directive.text("value")?.to_owned();
        let key = directive.text_or("key", "key").to_owned();
        let now = self.world.clients[client].clock.read(self.world.queue.now_ns());
        let bytes = directive.number("bytes")?.unwrap_or(0);
        let mut out = String::new();
        for number in 0..directive.number("count")?.unwrap_or(1u32) {
            let mut value = if number == 0 { value.clone() } else { format!("{value}{number}") };
            value.extend(std::iter::repeat_n('.', bytes - value.len().min(bytes)));
            let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() };
            let sent = self.producer(client).send(now, &record);
            match sent {
                Ok(token) => writeln!(out, "{name}/{token} sent"),
                Err(error) => writeln!(out, "not sent: {error}"),
            }
            .expect("a string takes everything");
        }
        self.producer(client).turn(now);
        self.world.pump(client).map_err(|violation| ScriptError::Violation { line, violation })?;
        Ok(out)
    }

    /// What a client's application was told since it was last asked.
    fn told(&mut self, client: usize) -> Vec<Event> {
        match &mut self.world.clients[client].application {
            Application::Plain(plain) => std::mem::take(&mut plain.told),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => Vec::new(),
        }
    }

    fn settle(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        let ms: u64 = directive.number("ms")?.unwrap_or(10_000);
        let until_ns = self.world.queue.now_ns() + ms * MILLISECOND_NS;
        let clients: Vec<(String, usize)> = self.writers.iter().map(|(name, client)| (name.clone(), *client)).collect();
        while clients.iter().any(|(_, client)| self.producer(*client).in_flight() > 0) {
            if !self.step(directive, until_ns)? {
                break;
            }
        }
        let mut out = String::new();
        for (name, client) in clients {
            for event in self.told(client) {
                match event {
                    Event::Ready { .. } => {}
                    Event::Done { first, count, outcome, .. } => {
                        for token in first..first + u64::from(count) {
                            writeln!(out, "{name}/{token} {outcome:?}").expect("a string takes everything");
                        }
                    }
                    Event::Failed(failure) => writeln!(out, "{name} {failure}").expect("a string takes everything"),
                }
            }
            let waiting = self.producer(client).in_flight();
            if waiting > 0 {
                writeln!(out, "{name} waits for {waiting}").expect("a string takes everything");
            }
        }
        Ok(out)
    }

    fn crash(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        let fault = match directive.name(0, "kill or power")? {
            "kill" => Fault::Kill,
            "power" => Fault::PowerCut,
            word => return Err(ScriptError::Word { line: directive.line, word: word.to_owned() }),
        };
        self.world.node.disk.tear_at(directive.number("sectors")?);
        if fault == Fault::PowerCut {
            let keep = match directive.text_or("keep", "nothing") {
                "nothing" => Keep::Nothing,
                "everything" => Keep::Everything,
                "writes" => Keep::AnyWrites,
                "sectors" => Keep::AnySectors,
                word => return Err(ScriptError::Word { line: directive.line, word: word.to_owned() }),
            };
            self.world.node.disk.keep_at_cut(Some(keep));
        }
        self.world.disk_held = None;
        self.world.stop_node(fault);
        self.world.node.disk.tear_at(None);
        self.world.node.disk.keep_at_cut(None);
        Ok("down\n".to_owned())
    }

    fn crash_at(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        let word = |word: &str| ScriptError::Word { line: directive.line, word: word.to_owned() };
        let moment = match directive.name(0, "a moment")? {
            "seal-asked" => Moment::SealAsked,
            "promised" => Moment::Promised,
            "end-proposed" => Moment::EndProposed,
            "metadata-written" => Moment::MetadataGroupWritten,
            "retired" => Moment::Retired,
            other => return Err(word(other)),
        };
        let fault = match directive.name(1, "kill or power")? {
            "kill" => Fault::Kill,
            "power" => Fault::PowerCut,
            other => return Err(word(other)),
        };
        self.world.faults.arm_at(moment, directive.number("pass")?.unwrap_or(0), fault);
        Ok(String::new())
    }

    fn pause(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        let line = directive.line;
        let name = directive.name(0, "a writer's name")?;
        let unknown = || ScriptError::Unknown { line, what: "writer", name: name.to_owned() };
        let client = *self.writers.get(name).ok_or_else(unknown)?;
        let ms: u64 = directive.number("ms")?.ok_or(ScriptError::Missing { line, what: "ms" })?;
        let until_ns = self.world.queue.now_ns() + ms * MILLISECOND_NS;
        self.world.clients[client].pause(until_ns);
        self.world.queue.put(until_ns, Happening::Client(client));
        Ok(String::new())
    }

    /// Asks the controller.
    fn operate(&mut self, directive: &Directive, request: ControlRequest) -> Result<String, ScriptError> {
        let seed = self.world.random.word();
        let client = self.world.add_client(Application::Operator(Operator::new(request, seed)));
        if directive.has("nowait") {
            return Ok(String::new());
        }
        let told = |world: &World| match &world.clients[client].application {
            Application::Operator(operator) => operator.told().cloned(),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_) => None,
        };
        self.wait(directive, "the answer to an operator", |world| told(world).is_some())?;
        let ranges = match told(&self.world).expect("it was waited for") {
            Told::Refused(refused) => return Ok(format!("{}\n", refused.text)),
            Told::Lineage(ranges) => ranges,
        };
        let list = |ranges: &[RangeId]| ranges.iter().map(RangeId::to_string).collect::<Vec<_>>().join(" ");
        let mut out = String::new();
        for RangeLineage { route, parents, successors } in ranges {
            write!(out, "{}", route.range).expect("a string takes everything");
            if !parents.is_empty() {
                write!(out, " of {}", list(&parents)).expect("a string takes everything");
            }
            let end =
                if successors.is_empty() { " active".to_owned() } else { format!(" became {}", list(&successors)) };
            writeln!(out, "{end}").expect("a string takes everything");
        }
        Ok(out)
    }

    fn start(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        if let Some(shards) = directive.number("shards")? {
            self.world.node.set_shards(shards);
        }
        if let Some(calls) = directive.number("stop")? {
            self.world.node.disk.stop_after_calls(calls);
            let opened = self.world.node.open(&mut self.world.checks);
            let stopped = self.world.node.disk.take_stopped();
            if opened.is_ok() {
                self.world.stop_node(Fault::Kill);
            }
            return Ok(if stopped { "stopped\n" } else { "opened in fewer calls, then killed\n" }.to_owned());
        }
        self.world.queue.put(self.world.queue.now_ns(), Happening::Start);
        self.wait(directive, "a start", |world| world.node.is_up())?;
        Ok("up\n".to_owned())
    }

    fn read(&mut self, directive: &Directive) -> Result<String, ScriptError> {
        self.readers += 1;
        let settings =
            ConsumerSettings { wait_ms: 10, ..ConsumerSettings::new(directive.text("topic")?, 1_000 + self.readers) };
        let plain = Plain::new(PlainCore::Consumer(Box::new(Consumer::new(settings))));
        let client = self.world.add_client(Application::Plain(plain));
        let until_ns = self.world.queue.now_ns() + PATIENCE_NS;
        let mut out = String::new();
        loop {
            let now = self.world.clients[client].clock.read(self.world.queue.now_ns());
            let Application::Plain(Plain { core: PlainCore::Consumer(core), .. }) =
                &mut self.world.clients[client].application
            else {
                panic!("client {client} is a reader")
            };
            let flow = core.deliver(now, &mut |delivery| {
                match delivery {
                    Delivery::Record { record, .. } => {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        let key = record.key.key().map_or_else(|| "-".to_owned(), text);
                        let value = record.value.map_or_else(|| "-".to_owned(), text);
                        writeln!(out, "{key} {}", value.trim_end_matches('.'))
                    }
                    Delivery::Gap { gap, .. } => {
                        writeln!(out, "gap {} {} {:?}", gap.from, gap.to, gap.cause)
                    }
                }
                .expect("a string takes everything");
                ControlFlow::Continue(())
            });
            assert!(flow.is_continue(), "nothing breaks off the delivery");
            if core.is_done() {
                break;
            }
            self.world.pump(client).map_err(|violation| ScriptError::Violation { line: directive.line, violation })?;
            if !self.step(directive, until_ns)? {
                return Err(ScriptError::Stuck { line: directive.line, what: "a reading" });
            }
        }
        self.world.close_connections(client);
        Ok(out)
    }
}

/// The number of a range: the `n`-th word.
fn range_of(directive: &Directive, n: usize) -> Result<RangeId, ScriptError> {
    let word = directive.name(n, "a range's number")?;
    let digits = word.trim_start_matches('r');
    let number = digits.parse().map_err(|_| ScriptError::Word { line: directive.line, word: word.to_owned() })?;
    Ok(RangeId(number))
}
