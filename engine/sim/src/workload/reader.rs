//! A reader: one application with one consumer. It reads a topic from its beginning, over and over, goes on by cursor when its
//! process dies, and holds what it gets to what was sent.

use std::ops::ControlFlow;

use sealog_engine::types::TopicId;
use sealog_engine::types::time::{MICROSECOND_NS, MILLISECOND_NS};
use sealog_net::client::core::consumer::{ConsumerSettings, Delivery, End, Event, Start};
use sealog_net::client::core::{Consumer, Cursor};

use super::passing::says_gone;

use crate::check::{Mode, Pass, Violation};
use crate::client::Application;
use crate::random::Random;
use crate::world::World;

/// Where a reader begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where the topic did.
    Beginning,
    /// The same, by a cursor that was taken when the topic was made.
    FirstCursor,
    /// Behind the newest record.
    Latest,
    /// At the records of so many ms ago, by the wall clock.
    Ago(u64),
}

/// What a reader is like.
#[derive(Clone, Debug)]
pub struct ReaderPlan {
    pub place: Place,
    pub topic: u32,
    pub topic_name: String,
    /// The one topic of that name that it reads; `None`: there is only one.
    pub expected: Option<TopicId>,
    /// Reads to the committed ends and no further, once.
    pub once: bool,
    /// Reads to the committed ends, and then all of it again.
    pub to_end: bool,
    /// Longest time of one reading, in ms.
    pub pass_ms: u64,
    pub fetch_bytes: u32,
    pub wait_ms: u32,
    pub direct: bool,
    /// Of 100 deliveries, how many are broken off.
    pub break_percent: u64,
}

impl ReaderPlan {
    /// One that follows a topic while faults happen.
    #[must_use]
    pub fn drawn(topic: u32, topic_name: &str, mut draws: Random) -> Self {
        Self {
            place: Place::Beginning,
            topic,
            topic_name: topic_name.to_owned(),
            expected: None,
            once: false,
            to_end: false,
            pass_ms: draws.spread_between(50, 5_000),
            fetch_bytes: *draws.pick(&[1, 64 << 10, 4 << 20]),
            wait_ms: *draws.pick(&[1, 10, 1_000]),
            direct: draws.one_in(2),
            break_percent: *draws.pick(&[0, 0, 10]),
        }
    }

    /// One that reads all there is, once.
    #[must_use]
    pub fn thorough(topic: u32, topic_name: &str, mut draws: Random) -> Self {
        Self {
            place: if draws.one_in(2) { Place::Beginning } else { Place::FirstCursor },
            once: true,
            pass_ms: u64::MAX / MILLISECOND_NS,
            wait_ms: 50,
            ..Self::drawn(topic, topic_name, draws.fork("plan"))
        }
        .with_direct(draws.one_in(2))
    }

    /// The same, but from anywhere: what it reads has an order, and need not be all there is.
    #[must_use]
    pub fn from_anywhere(self, mut draws: Random) -> Self {
        let place = match draws.below(4) {
            0 => Place::Latest,
            1 => Place::Ago(draws.spread_between(1, 1_000)),
            2 => Place::FirstCursor,
            _ => Place::Beginning,
        };
        let to_end = matches!(place, Place::Beginning | Place::FirstCursor) && draws.one_in(2);
        Self { place, to_end, ..self }
    }

    fn with_direct(self, direct: bool) -> Self {
        Self { direct, ..self }
    }
}

/// A reader.
pub struct Reader {
    pub(crate) core: Consumer,
    plan: ReaderPlan,
    random: Random,
    pass: Pass,
    pass_ends_ns: u64,
    /// Where the last process had come to, if that is known.
    saved: Option<Cursor>,
    /// A delivery was broken off: it goes on then.
    go_on_ns: Option<u64>,
    /// A range of it stands still on a damaged disk.
    failed: bool,
    /// It reads what it is at to the end, and nothing again.
    closing: bool,
    retired: bool,
}

impl Reader {
    /// Whether it reads to an end, and has not come there.
    #[must_use]
    pub fn is_short_of_its_end(&self) -> bool {
        self.plan.to_end && !self.retired && !self.failed && !self.core.is_done()
    }

    /// It begins no reading any more.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Whether it does nothing any more.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Virtual time at which it goes on by itself.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        if self.retired {
            return None;
        }
        let again = (!self.plan.once && !self.plan.to_end).then_some(self.pass_ends_ns);
        [self.go_on_ns, again].into_iter().flatten().min()
    }
}

fn settings(plan: &ReaderPlan, start: Start, seed: u64) -> ConsumerSettings {
    ConsumerSettings {
        client: "reader".to_owned(),
        start,
        end: if plan.once || plan.to_end { End::Committed } else { End::Never },
        fetch_bytes: plan.fetch_bytes,
        wait_ms: plan.wait_ms,
        direct: plan.direct,
        ..ConsumerSettings::new(&plan.topic_name, seed)
    }
}

impl World {
    /// A reader begins. Returns its number as a client.
    pub fn add_reader(&mut self, plan: ReaderPlan, mut random: Random) -> usize {
        let now_ns = self.queue.now_ns();
        let core = Consumer::new(settings(&plan, self.start_of(&plan), random.word()));
        let pass = self.begin_pass(plan.topic);
        let pass_ends_ns = now_ns.saturating_add(plan.pass_ms * MILLISECOND_NS);
        let reader = Reader {
            core,
            plan,
            random,
            pass,
            pass_ends_ns,
            saved: None,
            go_on_ns: None,
            failed: false,
            closing: false,
            retired: false,
        };
        self.add_client(Application::Reader(Box::new(reader)))
    }

    fn begin_pass(&mut self, topic: u32) -> Pass {
        self.passes += 1;
        Pass::new(self.passes, topic, self.queue.now_ns())
    }

    /// Where a reader begins now.
    fn start_of(&self, plan: &ReaderPlan) -> Start {
        let now_ms = self.node.clock.read(self.queue.now_ns()).wall_ms;
        match plan.place {
            Place::Latest => Start::Latest,
            Place::Ago(ms) => Start::Time(now_ms.saturating_sub(ms)),
            Place::FirstCursor => self.beginnings.get(&plan.topic_name).cloned().map_or(Start::Earliest, Start::Cursor),
            Place::Beginning => Start::Earliest,
        }
    }

    fn reader(&mut self, number: usize) -> &mut Reader {
        match &mut self.clients[number].application {
            Application::Reader(reader) => reader,
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Writer(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => {
                panic!("client {number} is no reader")
            }
        }
    }

    pub(super) fn act_reader(&mut self, number: usize) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        self.heed(number)?;
        if self.reader(number).retired {
            return Ok(());
        }
        self.deliver(number)?;
        let reader = self.reader(number);
        if reader.plan.to_end && reader.core.is_done() && !reader.closing {
            self.end_pass(number)?;
            self.reader(number).pass_ends_ns = 0;
        }
        let reader = self.reader(number);
        let ends = reader.pass_ends_ns <= now_ns && (!reader.plan.to_end || reader.pass_ends_ns == 0);
        if !reader.plan.once && ends {
            let (topic, seed, plan) = (reader.plan.topic, reader.random.word(), reader.plan.clone());
            let start = self.start_of(&plan);
            let reader = self.reader(number);
            reader.core = Consumer::new(settings(&reader.plan, start, seed));
            reader.saved = None;
            reader.failed = false;
            reader.pass_ends_ns = now_ns + reader.plan.pass_ms * MILLISECOND_NS;
            let pass = self.begin_pass(topic);
            self.reader(number).pass = pass;
            self.close_connections(number);
        }
        Ok(())
    }

    /// Takes what a reader was told apart from records.
    fn heed(&mut self, number: usize) -> Result<(), Violation> {
        let mode = self.mode;
        while let Some(event) = self.reader(number).core.poll_event() {
            self.trace.say(self.queue.now_ns(), || format!("reader {number}: {event:?}"));
            let expected = self.reader(number).plan.expected;
            let what = match event {
                Event::Ready => {
                    let found = self.reader(number).core.cursor().map(|cursor| cursor.topic());
                    if self.is_another(expected, found)? {
                        self.retire(number);
                        return Ok(());
                    }
                    continue;
                }
                // A cursor of its topic is none of the next one's.
                Event::BadCursor(_) if self.is_doomed(expected) => {
                    self.retire(number);
                    return Ok(());
                }
                Event::Failed(failure) if says_gone(&failure) && self.is_doomed(expected) => {
                    self.retire(number);
                    return Ok(());
                }
                Event::Damaged { .. } | Event::RangeFailed { .. } | Event::Failed(_) if mode == Mode::Beyond => {
                    self.reader(number).failed = true;
                    continue;
                }
                Event::Damaged { .. } => "it served what does not verify",
                Event::RangeFailed { .. } => "it refused a fetch for good",
                Event::Expired { .. } => "it called expired what nobody deleted",
                Event::BadCursor(_) => "it refused its own cursor",
                Event::Failed(_) => "it ended a consumer that did nothing wrong",
            };
            return Err(Violation::Node { what });
        }
        Ok(())
    }

    /// Reads what has come.
    fn deliver(&mut self, number: usize) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let now = self.clients[number].clock.read(now_ns);
        let Self { clients, history, checks, trace, gaps_read, .. } = self;
        let Application::Reader(reader) = &mut clients[number].application else { return Ok(()) };
        let Reader { core, pass, random, plan, go_on_ns, .. } = &mut **reader;
        let mut broken = Ok(());
        *go_on_ns = None;
        let flow = core.deliver(now, &mut |delivery| {
            match delivery {
                Delivery::Record { record, .. } => {
                    let value = record.value.unwrap_or_default();
                    let read = checks.once.read(history, pass, record.key.key(), value, now_ns);
                    let read = read.and_then(|id| {
                        trace.mix(u64::from(id.writer) << 32 | u64::from(id.number));
                        checks.ordered.read(history, pass, id)
                    });
                    if let Err(violation) = read {
                        broken = Err(violation);
                        return ControlFlow::Break(());
                    }
                }
                Delivery::Gap { range, gap } => {
                    trace.say(now_ns, || format!("reader {number} is told {range} {gap:?}"));
                    pass.gap_records += gap.records_at_most;
                    *gaps_read += 1;
                }
            }
            if random.percent(plan.break_percent) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if flow.is_break() {
            *go_on_ns = Some(now_ns + random.between(1, 500) * MICROSECOND_NS);
        }
        broken
    }

    /// The reader's process died: another goes on where it had come to.
    pub(super) fn restart_reader(&mut self, number: usize) {
        let reader = self.reader(number);
        reader.saved = reader.core.cursor().or_else(|| reader.saved.take());
        let (saved, seed, plan) = (reader.saved.clone(), reader.random.word(), reader.plan.clone());
        let start = saved.map_or_else(|| self.start_of(&plan), Start::Cursor);
        let reader = self.reader(number);
        reader.core = Consumer::new(settings(&reader.plan, start, seed));
        reader.go_on_ns = None;
    }

    /// Whether a reader has read all there was.
    pub(crate) fn reader_is_done(&mut self, number: usize) -> bool {
        let reader = self.reader(number);
        reader.core.is_done() || reader.failed
    }

    /// A reading has come to its end.
    ///
    /// # Errors
    /// Something is not in it.
    pub(crate) fn end_pass(&mut self, number: usize) -> Result<(), Violation> {
        let Self { clients, history, checks, mode, .. } = self;
        let Application::Reader(reader) = &mut clients[number].application else { return Ok(()) };
        // A range that stands still was told: what it holds is not silently gone.
        if reader.failed {
            return Ok(());
        }
        checks.durable.pass_ended(history, &reader.pass, *mode)
    }

    /// A reader has done its work.
    pub(crate) fn retire(&mut self, number: usize) {
        let reader = self.reader(number);
        reader.retired = true;
        self.close_connections(number);
    }
}
