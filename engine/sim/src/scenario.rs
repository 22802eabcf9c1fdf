//! One seed from beginning to end: what is drawn, the phases of a run, and what is reported.
//!
//! ```text
//!  topics made | load, with faults                     | healed: all settled | probes | read, cut, read, restart, read
//!              | until events, operations and crashes  |                     |        |
//! ```

use sealog_engine::api::EngineConfig;
use sealog_engine::types::time::{MILLISECOND_NS, SECOND_NS};

use crate::check::{Mode, Violation};
use crate::client::{Admin, Application, CHURN_NAME, Churn, Reshaper, Roller, SimClient, Tally, Wanted};
use crate::coverage::Coverage;
use crate::disk::DiskProfile;
use crate::faults::{Fault, Faults};
use crate::history::RecordId;
use crate::network::NetworkProfile;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::{Keys, ReaderPlan, Writer, WriterPlan};
use crate::world::{Happening, Parts, World};

/// How a seed is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Events before the load stops.
    pub events_min: u64,
    /// Records sent before the load stops.
    pub operations_min: u64,
    /// Crashes before the load stops.
    pub crashes_min: u64,
    /// `None`: drawn, one seed in eight beyond.
    pub mode: Option<Mode>,
    /// Print every event.
    pub loud: bool,
    /// Keep the words of the last events for a failure.
    pub keeps: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { events_min: 20_000, operations_min: 500, crashes_min: 1, mode: None, loud: false, keeps: false }
    }
}

/// How a seed ended.
pub struct Report {
    pub seed: u64,
    pub mode: Mode,
    pub events: u64,
    pub digest: u64,
    pub virtual_ns: u64,
    pub crashes: u64,
    pub records: u64,
    pub stored: u64,
    pub coverage: Coverage,
    pub violation: Option<Violation>,
    /// The last events, if they were kept.
    pub last: String,
    /// The node refused to start on a damaged disk, which ended the run.
    pub refused_to_start: bool,
}

/// Mean number of events between crashes where a file of the catalog stalls, at least.
const STALLED_CRASH_EVERY: u64 = 4_000;
/// Longest virtual time of the load, whatever was drawn.
const LOAD_MAX_NS: u64 = 600 * SECOND_NS;
/// How long everything that waits may take once nothing goes wrong, beyond its own deadline.
const HEAL_MS: u64 = 5_000;
/// How long a send may take in fine weather.
const PROBE_MS: u64 = 5_000;
/// The longest that a client waits before it connects again, and some more.
const RECONNECT_MS: u64 = 3_000;
/// In one of so many runs an operator has ranges rolled.
const ROLLER_ONE_IN: u64 = 4;
/// In one of so many runs an operator splits and merges ranges; where disks are damaged in one of so many of those.
const RESHAPER_ONE_IN: u64 = 3;
/// In one of so many runs a writer opens another's id again and again: without splits and merges, and with them.
const RIVAL_ONE_IN: [u64; 2] = [6, 2];
/// How long a reading may take in fine weather.
const READ_MAX_NS: u64 = 120 * SECOND_NS;

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Report {
    let mut world = draw(seed, options);
    let ended = world.run_phases(options);
    world.report(seed, ended.err())
}

/// Everything that a seed decides before its first event.
fn draw(seed: u64, options: &Options) -> World {
    let random = Random::new(seed);
    let mut draws = random.fork("scenario");
    let drawn = if draws.one_in(8) { Mode::Beyond } else { Mode::Within };
    let mode = options.mode.unwrap_or(drawn);
    let shards_most = u16::try_from(draws.between(1, 3)).expect("few shards");
    let mut config = draw_config(&mut draws, shards_most);
    let mut stalls = random.fork("stalls");
    let stall_one_in = if mode == Mode::Within && stalls.one_in(5) { *stalls.pick(&[2, 4, 8]) } else { 0 };
    let catalogs_stall = mode == Mode::Within && stall_one_in == 0 && stalls.one_in(6);
    if stall_one_in > 0 || catalogs_stall {
        // More than the journal holds: what fills while a stalled sync is waited for is the journal, and it goes round.
        config.memory_bytes = 16 << 20;
    }
    if catalogs_stall {
        config.batch_bytes_max = 128 << 10;
    }
    let slowness = *draws.pick(&[1, 1, 1, 4, 20]);
    let profile = DiskProfile { slowness, sync_covers_write_only: draws.one_in(4), stall_one_in };
    let network =
        NetworkProfile { delay_us_max: *draws.pick(&[20, 100, 1_000]), pieces_percent: *draws.pick(&[0, 5, 30]) };
    let mut topics = draw_topics(&mut draws, &config);
    let mut faults = Faults::new(random.fork("faults"), mode);
    if catalogs_stall {
        // A journal goes round in one process only if that lives long and much is sent.
        faults.weather.stalled_catalog_percent = 75;
        faults.weather.crash_every = faults.weather.crash_every.max(STALLED_CRASH_EVERY);
        let writer = &mut topics[0].writers[0];
        *writer = flooding(writer.clone());
    }
    let mut reshapes = random.fork("splits and merges");
    let has_reshapes = reshapes.one_in(RESHAPER_ONE_IN) && (mode == Mode::Within || reshapes.one_in(RESHAPER_ONE_IN));
    let has_operators = has_reshapes && !reshapes.one_in(4);
    if has_reshapes && (!has_operators || reshapes.one_in(3)) {
        let topic = &mut topics[0];
        topic.auto_split = Some(topic.ranges.max(16));
        if reshapes.one_in(2) {
            let writer = &mut topic.writers[0];
            *writer = flooding(writer.clone());
        }
    }
    let mut world = World::new(Parts {
        faults,
        trace: Trace::new(options.loud, options.keeps),
        config,
        disk: profile,
        network,
        mode,
        shards_most,
        topics,
        random,
    });
    (world.has_reshapes, world.has_operators) = (has_reshapes, has_operators);
    world.trace.mix(seed);
    world
}

fn draw_config(draws: &mut Random, shards: u16) -> EngineConfig {
    let config = EngineConfig {
        shards,
        journal_files: u16::try_from(draws.between(2, 3)).expect("few files"),
        journal_file_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        segment_age_ms: *draws.pick(&[20, 500, 3_600_000]),
        memory_bytes: 4 << 20,
        batch_bytes_max: *draws.pick(&[4 << 10, 32 << 10, 128 << 10]),
        connection_bytes_max: *draws.pick(&[128 << 10, 64 << 20]),
        idle_marker_us: *draws.pick(&[200, 2_000, 20_000]),
        group_ahead_bytes: *draws.pick(&[4 << 10, 16 << 10, 64 << 10]),
        metadata_file_bytes: 1 << 20,
    };
    config.check().expect("the drawn configuration can work");
    config
}

/// A topic of a run.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub ranges: u32,
    /// It splits and merges by itself, up to so many ranges.
    pub auto_split: Option<u32>,
    pub writers: Vec<WriterPlan>,
    pub readers: u32,
}

fn draw_topics(draws: &mut Random, config: &EngineConfig) -> Vec<Topic> {
    let topics = draws.between(1, 3);
    (0..topics)
        .map(|topic| {
            let name = format!("topic-{topic}");
            let ranges = *draws.pick(&[1, 1, 2, 4, 8]);
            let keys = match draws.below(4) {
                0 => Keys::Shared(1),
                1 => Keys::Shared(5),
                2 => Keys::Shared(500),
                _ => Keys::None,
            };
            let topic = u32::try_from(topic).expect("few topics");
            let writers = (0..draws.between(1, 3)).map(|_| draw_writer(draws, config, topic, &name, keys)).collect();
            Topic {
                name,
                ranges,
                auto_split: None,
                writers,
                readers: u32::try_from(draws.between(1, 2)).expect("few readers"),
            }
        })
        .collect()
}

fn draw_writer(draws: &mut Random, config: &EngineConfig, topic: u32, name: &str, keys: Keys) -> WriterPlan {
    let largest = config.batch_bytes_max - 256;
    WriterPlan {
        topic,
        topic_name: name.to_owned(),
        expected: None,
        keys,
        value_bytes_most: (*draws.pick(&[64, 1_000, 8_000, 60_000])).min(largest),
        value_bytes_max: largest,
        zeros_percent: *draws.pick(&[0, 5, 50]),
        burst_most: *draws.pick(&[1, 10, 50]),
        pause_us_most: *draws.pick(&[500, 5_000, 50_000]),
        batch_bytes: *draws.pick(&[1, 2_000, 1 << 20]),
        one_record_a_batch: draws.one_in(3),
        linger_us: *draws.pick(&[0, 0, 300]),
        records_in_flight: *draws.pick(&[1, 20, 1_000]),
        timeout_ms: *draws.pick(&[300, 2_000, 20_000]),
        direct: draws.one_in(2),
    }
}

/// One that fills a journal in a few milliseconds.
fn flooding(plan: WriterPlan) -> WriterPlan {
    WriterPlan {
        value_bytes_most: plan.value_bytes_max.min(60_000),
        burst_most: 50,
        pause_us_most: 500,
        batch_bytes: 1 << 20,
        records_in_flight: 1_000,
        ..plan
    }
}

impl World {
    fn run_phases(&mut self, options: &Options) -> Result<(), Violation> {
        self.queue.put(0, Happening::Start);
        self.make_topics()?;
        self.begin_load();
        while !self.is_enough(options) {
            if !self.step(LOAD_MAX_NS)? {
                break;
            }
        }
        self.heal()?;
        if self.damaged_beyond_start() {
            return Ok(());
        }
        // On a damaged disk a shard may still refuse, or a range stand still, as long as it says so.
        if self.mode == Mode::Within {
            self.probe()?;
        }
        for after in [None, Some(Fault::PowerCut), Some(Fault::Kill)] {
            if let Some(fault) = after {
                self.crash(fault);
            }
            self.read_all()?;
            if self.damaged_beyond_start() {
                return Ok(());
            }
        }
        if self.mode == Mode::Within {
            self.rolls_sealed =
                self.checks.one_history.rolls_stand(|range, segment| self.node.sealed_end(range, segment))?;
            let deleted = &self.checks.deleted;
            let is_gone = |range| deleted.topic_of(range).is_none_or(|topic| self.doomed.contains(&topic));
            self.reshapes_stand = self.checks.lineage.stands(|range| self.node.standing(range), is_gone)?;
        }
        self.files_are_gone()
    }

    fn make_topics(&mut self) -> Result<(), Violation> {
        let wanted = |topic: &Topic| {
            let Topic { name, ranges, auto_split, .. } = topic;
            Wanted { name: name.clone(), ranges: *ranges, auto_split: *auto_split }
        };
        let wanted = self.topics.iter().map(wanted).collect();
        let seed = self.random.word();
        let admin = self.add_client(Application::Admin(Admin::new(wanted, seed)));
        let until_ns = self.queue.now_ns() + 60 * SECOND_NS;
        while self.topics_left(admin) > 0 {
            if !self.step(until_ns)? {
                let waiting = self.topics_left(admin) as u64;
                return Err(Violation::Stuck { what: "topics to be made", waiting, since_ms: 60_000 });
            }
        }
        if self.has_reshapes {
            while !self.node.is_up() && self.step(until_ns)? {}
            for topic in self.topics.clone() {
                let beginning = self.node.beginning(&topic.name);
                self.beginnings.extend(beginning.map(|beginning| (topic.name, beginning)));
            }
        }
        Ok(())
    }

    fn topics_left(&self, admin: usize) -> usize {
        match &self.clients[admin].application {
            Application::Admin(admin) => admin.left(),
            Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => 0,
        }
    }

    fn begin_load(&mut self) {
        for topic in self.topics.clone() {
            for plan in topic.writers {
                let number = self.history.add_writer();
                let random = self.random.fork(&format!("writer {number}"));
                self.add_client(Application::Writer(Box::new(Writer::new(plan, number, random))));
            }
        }
        for (number, topic) in (0u32..).zip(self.topics.clone()) {
            for reader in 0..topic.readers {
                let random = self.random.fork(&format!("reader {number} {reader}"));
                let plan = ReaderPlan::drawn(number, &topic.name, random.clone());
                let anywhere = random.fork("anywhere");
                let is_free = self.has_reshapes && self.mode == Mode::Within;
                let plan = if is_free { plan.from_anywhere(anywhere) } else { plan };
                self.add_reader(plan, random);
            }
        }
        let mut draws = self.random.fork("churn");
        if self.mode == Mode::Within && draws.one_in(2) {
            let topics = u32::try_from(draws.between(2, 30)).expect("few topics");
            self.add_client(Application::Churn(Box::new(Churn::new(topics, draws))));
        }
        let mut rolls = self.random.fork("rolls by hand");
        if rolls.one_in(ROLLER_ONE_IN) {
            let topics = self.topics.iter().map(|topic| topic.name.clone()).collect();
            self.add_client(Application::Roller(Roller::new(topics, rolls)));
        }
        if self.has_reshapes {
            self.faults.expect_reshapes();
        }
        if self.has_operators {
            let mut reshapes = self.random.fork("reshapers");
            let mut topics: Vec<String> = self.topics.iter().map(|topic| topic.name.clone()).collect();
            if reshapes.one_in(2) {
                topics.push(CHURN_NAME.to_owned());
            }
            // Two do not know of each other.
            for number in 0..=u64::from(reshapes.one_in(3)) {
                let random = reshapes.fork(&format!("reshaper {number}"));
                self.add_client(Application::Reshaper(Box::new(Reshaper::new(topics.clone(), random))));
            }
        }
        self.begin_rivalry();
        if let Some(next_ns) = self.faults.next_small_ns() {
            self.queue.put(self.queue.now_ns() + next_ns, Happening::Fault);
        }
    }

    /// In some runs a writer opens the id of another one, which goes on.
    fn begin_rivalry(&mut self) {
        let mut draws = self.random.fork("rivalry");
        if self.mode != Mode::Within || !draws.one_in(RIVAL_ONE_IN[usize::from(self.has_reshapes)]) {
            return;
        }
        let Some(rival) = (0..self.clients.len()).find(|client| self.is_writer(*client)) else { return };
        let plan = self.topics[0].writers[0].clone();
        let number = self.history.add_writer();
        let pause_us_most = *draws.pick(&[5_000, 50_000, 500_000]);
        let writer = Writer::new(plan, number, draws.fork("writer")).rival_of(rival, pause_us_most);
        self.add_client(Application::Writer(Box::new(writer)));
    }

    fn is_enough(&self, options: &Options) -> bool {
        let records = self.history.records_sent();
        self.trace.events() >= options.events_min
            && records >= options.operations_min
            && self.crashes >= options.crashes_min
            || self.damaged_beyond_start()
    }

    /// On a disk that was damaged beyond what one copy survives, a node may refuse to start.
    fn damaged_beyond_start(&self) -> bool {
        self.mode == Mode::Beyond && self.refused_to_start
    }

    /// Nothing goes wrong any more, and nobody sends: everything that waits must end.
    fn heal(&mut self) -> Result<(), Violation> {
        self.faults.stop();
        self.node.disk.set_slowness(self.disk_slowness);
        self.node.disk.end_stalls();
        self.node.disk.set_full(false);
        self.node.disk.fail_syncs(0);
        self.node.disk.fail_writes(0);
        if self.mode == Mode::Beyond && self.node.is_starting() {
            // A node whose disk has failed a write does nothing more until somebody starts it again.
            self.crash(Fault::Kill);
        }
        self.close_readers()?;
        let now_ns = self.queue.now_ns();
        self.retire_readers();
        let mut timeout_ms = 0;
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.go_on(now_ns);
            self.queue.put(now_ns, Happening::Client(number));
            match &mut client.application {
                Application::Writer(writer) => {
                    writer.stop();
                    timeout_ms = timeout_ms.max(writer.timeout_ms());
                }
                Application::Churn(churn) => churn.stop(),
                Application::Roller(roller) => roller.stop(),
                Application::Reshaper(reshaper) => reshaper.stop(),
                Application::Admin(_) | Application::Reader(_) | Application::Plain(_) | Application::Operator(_) => {}
            }
        }
        let until_ns = now_ns + (timeout_ms + HEAL_MS) * MILLISECOND_NS;
        while self.history.waiting() > 0 && self.step(until_ns)? {}
        let since_ms = (self.queue.now_ns() - now_ns) / MILLISECOND_NS;
        self.checks.progress.nothing_waits("a send to end", self.history.waiting(), since_ms)?;
        let started_by_ns = self.queue.now_ns() + READ_MAX_NS;
        while !self.node.is_up() && !self.damaged_beyond_start() {
            if !self.step(started_by_ns)? {
                return Err(Violation::Stuck {
                    what: "the node to start",
                    waiting: 1,
                    since_ms: READ_MAX_NS / MILLISECOND_NS,
                });
            }
        }
        self.settle_churn()?;
        // Every client that was waiting to connect again has done so.
        let until_ns = self.queue.now_ns() + RECONNECT_MS * MILLISECOND_NS;
        while self.step(until_ns)? {}
        // On a damaged disk a shard may refuse every roll.
        if self.mode == Mode::Within {
            let until_ns = self.queue.now_ns() + HEAL_MS * MILLISECOND_NS;
            while self.rollers().any(Roller::waits) && self.step(until_ns)? {}
            let waiting = self.rollers().filter(|roller| roller.waits()).count() as u64;
            self.checks.progress.nothing_waits("a roll to be told", waiting, HEAL_MS)?;
            let until_ns = self.queue.now_ns() + HEAL_MS * MILLISECOND_NS;
            while self.reshapers().any(Reshaper::waits) && self.step(until_ns)? {}
            let waiting = self.reshapers().filter(|reshaper| reshaper.waits()).count() as u64;
            self.checks.progress.nothing_waits("a split or merge to be told", waiting, HEAL_MS)?;
        }
        Ok(())
    }

    /// What was asked to be deleted is, and what comes after it is there.
    fn settle_churn(&mut self) -> Result<(), Violation> {
        let unsettled = |world: &Self| {
            world
                .clients
                .iter()
                .filter(|client| match &client.application {
                    Application::Churn(churn) => churn.living().is_none(),
                    Application::Admin(_)
                    | Application::Writer(_)
                    | Application::Reader(_)
                    | Application::Plain(_)
                    | Application::Roller(_)
                    | Application::Reshaper(_)
                    | Application::Operator(_) => false,
                })
                .count() as u64
        };
        let until_ns = self.queue.now_ns() + HEAL_MS * MILLISECOND_NS;
        while unsettled(self) > 0 && self.step(until_ns)? {}
        let waiting = unsettled(self);
        self.checks.progress.nothing_waits("a topic to be deleted or made", waiting, HEAL_MS)
    }

    /// Of deleted topics no file is left.
    fn files_are_gone(&mut self) -> Result<(), Violation> {
        let began_ns = self.queue.now_ns();
        let until_ns = began_ns + READ_MAX_NS;
        while let Some((file, topic)) = self.checks.deleted.file_left(self.node.disk.contents()) {
            let now_ns = self.queue.now_ns();
            if now_ns >= until_ns {
                return Err(Violation::FileLeft { file, topic, since_ms: (now_ns - began_ns) / MILLISECOND_NS });
            }
            let next_ns = now_ns + 50 * MILLISECOND_NS;
            self.queue.put(next_ns, Happening::DiskMends);
            while self.step(next_ns)? {}
        }
        Ok(())
    }

    fn rollers(&self) -> impl Iterator<Item = &Roller> {
        self.clients.iter().filter_map(|client| match &client.application {
            Application::Roller(roller) => Some(roller),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => None,
        })
    }

    fn reshapers(&self) -> impl Iterator<Item = &Reshaper> {
        self.clients.iter().filter_map(|client| match &client.application {
            Application::Reshaper(reshaper) => Some(&**reshaper),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Operator(_) => None,
        })
    }

    fn writers(&self) -> impl Iterator<Item = &Writer> {
        self.clients.iter().filter_map(|client| match &client.application {
            Application::Writer(writer) => Some(&**writer),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => None,
        })
    }

    /// Whoever reads to an end comes to it, though writers go on.
    fn close_readers(&mut self) -> Result<(), Violation> {
        let short = |world: &Self| {
            let is_short = |client: &&SimClient| matches!(&client.application, Application::Reader(reader) if reader.is_short_of_its_end());
            world.clients.iter().filter(is_short).count() as u64
        };
        for client in &mut self.clients {
            if let Application::Reader(reader) = &mut client.application {
                reader.close();
            }
        }
        let until_ns = self.queue.now_ns() + READ_MAX_NS;
        while short(self) > 0 && self.step(until_ns)? {}
        let waiting = short(self);
        self.checks.progress.nothing_waits("a reading to end", waiting, READ_MAX_NS / MILLISECOND_NS)
    }

    fn retire_readers(&mut self) {
        for client in 0..self.clients.len() {
            if matches!(self.clients[client].application, Application::Reader(_)) {
                self.retire(client);
            }
        }
    }

    /// Every writer sends once more, and is told that it is stored.
    fn probe(&mut self) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let until_ns = now_ns + HEAL_MS * MILLISECOND_NS;
        let mut probes: Vec<RecordId> = Vec::new();
        let mut left: Vec<usize> = (0..self.clients.len()).filter(|client| self.is_writer(*client)).collect();
        while !left.is_empty() {
            let ready = left.iter().position(|client| self.writer_is_ready(*client));
            let Some(at) = ready else {
                if self.step(until_ns)? {
                    continue;
                }
                break;
            };
            let client = left.remove(at);
            let before = self.history.records_sent();
            self.send_records(client, 1)?;
            if self.history.records_sent() > before {
                probes.extend(self.history.last_of(self.writer_number(client)));
            }
            self.pump(client)?;
        }
        self.checks.progress.nothing_waits("a writer to be ready", left.len() as u64, HEAL_MS)?;
        while self.history.waiting() > 0 && self.step(until_ns + PROBE_MS * MILLISECOND_NS)? {}
        for id in probes {
            if let Some(sent) = self.history.get(id).copied() {
                self.checks.progress.settled_when_healed(id, &sent)?;
            }
        }
        Ok(())
    }

    fn is_writer(&self, client: usize) -> bool {
        match &self.clients[client].application {
            // One whose topic is deleted has none to write to.
            // One whose id another has opened again is refused.
            Application::Writer(writer) => {
                !writer.is_deposed() && writer.expected().is_none_or(|topic| !self.doomed.contains(&topic))
            }
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => false,
        }
    }

    fn writer_is_ready(&self, client: usize) -> bool {
        matches!(&self.clients[client].application, Application::Writer(writer) if writer.is_ready())
    }

    fn writer_number(&self, client: usize) -> u32 {
        match &self.clients[client].application {
            Application::Writer(writer) => writer.number(),
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => u32::MAX,
        }
    }

    /// A new reader of each topic reads all of it.
    fn read_all(&mut self) -> Result<(), Violation> {
        if self.has_reshapes {
            let until_ns = self.queue.now_ns() + READ_MAX_NS;
            while !self.node.is_up() && !self.damaged_beyond_start() && self.step(until_ns)? {}
        }
        let began_ns = self.queue.now_ns();
        let mut readers = Vec::new();
        for (number, topic) in (0u32..).zip(self.topics.clone()) {
            let random = self.random.fork(&format!("final {number} {began_ns}"));
            readers.push(self.add_reader(ReaderPlan::thorough(number, &topic.name, random.clone()), random));
        }
        if let Some((number, name)) = self.passing_plan() {
            let random = self.random.fork(&format!("final passing {began_ns}"));
            readers.push(self.add_reader(ReaderPlan::thorough(number, name, random.clone()), random));
        }
        let until_ns = began_ns + READ_MAX_NS;
        loop {
            let waiting = readers.iter().filter(|reader| !self.reader_is_done(**reader)).count() as u64;
            if waiting == 0 {
                break;
            }
            if self.damaged_beyond_start() {
                return Ok(());
            }
            if !self.step(until_ns)? {
                let since_ms = READ_MAX_NS / MILLISECOND_NS;
                self.checks.progress.nothing_waits("a reading to end", waiting, since_ms)?;
            }
        }
        for reader in readers {
            self.end_pass(reader)?;
            self.retire(reader);
        }
        Ok(())
    }

    fn report_reshapes(&mut self) {
        let sum = |of: fn(Tally) -> u64| self.reshapers().map(|reshaper| of(reshaper.tally())).sum::<u64>();
        let rows = [
            ("splits wanted", sum(|tally| tally.splits_wanted)),
            ("splits done", sum(|tally| tally.splits_done)),
            ("merges wanted", sum(|tally| tally.merges_wanted)),
            ("merges done", sum(|tally| tally.merges_done)),
            ("merges given up", sum(|tally| tally.given_up)),
            ("impossible reshapes", sum(|tally| tally.impossible)),
            ("reshapes found standing", self.reshapes_stand),
            ("reshapes by themselves", if self.has_operators { 0 } else { self.reshapes_stand }),
            ("sent to sealed ranges", self.checks.lineage.refused),
            ("settled by a seal", self.checks.settled_by_seal),
            ("settled by asking", self.checks.settled_by_asking),
            ("records moved", self.writers().map(Writer::moved).sum()),
        ];
        for (name, count) in rows {
            self.coverage.client(name, count);
        }
    }

    fn report(mut self, seed: u64, violation: Option<Violation>) -> Report {
        for (name, count) in self.checks.counts() {
            self.coverage.checker(name, count);
        }
        let fates = self.history.fates();
        self.coverage.client("held when stopped", self.checks.one_history.held);
        self.coverage.client("records sent", self.history.records_sent());
        self.coverage.client("stored", fates[0]);
        self.coverage.client("not stored", fates[1]);
        self.coverage.client("unknown", fates[2]);
        self.coverage.client("records read", self.checks.once.checked);
        self.coverage.client("gaps read", self.gaps_read);
        self.coverage.client("passes", u64::from(self.passes));
        self.coverage.client("topics deleted", self.checks.deleted.topics_gone());
        self.coverage.client("rolls wanted", self.rollers().map(Roller::wishes).sum());
        self.coverage.client("rolls found sealed", self.rolls_sealed);
        self.report_reshapes();
        Report {
            seed,
            mode: self.mode,
            events: self.trace.events(),
            digest: self.trace.digest(),
            virtual_ns: self.queue.now_ns(),
            crashes: self.crashes,
            records: self.history.records_sent(),
            stored: self.history.stored(),
            coverage: self.coverage,
            violation,
            last: self.trace.to_string(),
            refused_to_start: self.refused_to_start,
        }
    }
}
