//! One seed from beginning to end: what is drawn, the phases of a run, and what is reported.
//!
//! ```text
//!  topics made | load, with faults                     | healed: all settled | probes | read, cut, read, restart, read
//!              | until events, operations and crashes  |                     |        |
//! ```

mod draw;
mod heal;

use sealog_engine::types::time::SECOND_NS;

pub use self::draw::Topic;
use self::draw::draw;
use crate::check::{Mode, Violation};
use crate::client::{Admin, Application, CHURN_NAME, Churn, Reshaper, Roller, Tally, Wanted};
use crate::coverage::Coverage;
use crate::faults::Fault;
use crate::workload::{ReaderPlan, Writer};
use crate::world::{Happening, World};

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

/// Longest virtual time of the load, whatever was drawn.
const LOAD_MAX_NS: u64 = 600 * SECOND_NS;
/// In one of so many runs an operator has ranges rolled.
const ROLLER_ONE_IN: u64 = 4;
/// In one of so many runs a writer opens another's id again and again: without splits and merges, and with them.
const RIVAL_ONE_IN: [u64; 2] = [6, 2];

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Report {
    let mut world = draw(seed, options);
    let ended = world.run_phases(options);
    world.report(seed, ended.err())
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
