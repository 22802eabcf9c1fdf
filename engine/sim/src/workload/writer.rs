//! A writer: one application with one producer. It sends bursts, and holds the client library to what it says.

use sealog_engine::api::error::{Outcome, Refusal};
use sealog_engine::types::time::{MICROSECOND_NS, MILLISECOND_NS};
use sealog_engine::types::{ProducerEpoch, ProducerId, Run, TopicId};
use sealog_net::client::core::producer::{Event, Record, SendError};
use sealog_net::client::core::{Failure, Producer, ProducerSettings};

use super::passing::says_gone;
use crate::check::{Mode, Violation};
use crate::client::Application;
use crate::history::{Fate, RecordId, Sent, Shape, key_bytes, own_key_bytes};
use crate::random::Random;
use crate::world::{Happening, World};

/// Which keys a writer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// So many, shared by all writers of the topic.
    Shared(u32),
    None,
}

/// What a writer is like.
#[derive(Clone, Debug)]
pub struct WriterPlan {
    pub topic: u32,
    pub topic_name: String,
    /// The one topic of that name that it writes to; `None`: there is only one.
    pub expected: Option<TopicId>,
    pub keys: Keys,
    /// Bytes of the largest value of most records.
    pub value_bytes_most: u32,
    /// Bytes of the largest value that fits a batch; one record in 100 has it.
    pub value_bytes_max: u32,
    /// Of 100 records, how many have a value of zeros.
    pub zeros_percent: u64,
    /// Records of the largest burst.
    pub burst_most: u64,
    /// Longest time between bursts, in µs.
    pub pause_us_most: u64,
    pub batch_bytes: u32,
    pub one_record_a_batch: bool,
    pub linger_us: u64,
    pub records_in_flight: u32,
    pub timeout_ms: u32,
    pub direct: bool,
}

/// A writer that opens another's id again while that one goes on.
#[derive(Clone, Copy, Debug)]
struct Rivalry {
    /// The other, as a client.
    rival: usize,
    /// Longest time between two times, in µs.
    pause_us_most: u64,
    /// Virtual time at which it does so next.
    next_ns: u64,
}

/// Longest time that a writer goes on with an id that another has opened again, in ms.
const DEPOSED_MS_MAX: u64 = 300;

/// A writer.
pub struct Writer {
    pub(crate) core: Producer,
    plan: WriterPlan,
    random: Random,
    /// The id and epoch that it last had, which it keeps when its process dies.
    identity: Option<(ProducerId, ProducerEpoch)>,
    /// Its number in the history.
    writer: u32,
    /// Records sent, by all processes of this writer.
    sent: u32,
    /// The number of the record that has token 0 of this process.
    token_base: u32,
    next_burst_ns: u64,
    /// It sends no more by itself.
    stopped: bool,
    ready: bool,
    /// Its topic is gone, and it with it.
    retired: bool,
    /// Records that earlier processes of it moved to a range that took the place of a sealed one.
    moved: u64,
    rivalry: Option<Rivalry>,
    /// Another has opened its id again: it goes on until this virtual time, and then as somebody else.
    deposed_until_ns: Option<u64>,
}

impl Writer {
    /// A writer whose number in the history is `writer`.
    #[must_use]
    pub fn new(plan: WriterPlan, writer: u32, mut random: Random) -> Self {
        let core = Producer::new(settings(&plan, random.word()));
        Self {
            core,
            plan,
            random,
            identity: None,
            writer,
            sent: 0,
            token_base: 0,
            next_burst_ns: 0,
            stopped: false,
            ready: false,
            retired: false,
            moved: 0,
            rivalry: None,
            deposed_until_ns: None,
        }
    }

    /// The same, but it opens the id of another client's writer again and again, while that one goes on.
    #[must_use]
    pub fn rival_of(self, rival: usize, pause_us_most: u64) -> Self {
        Self { rivalry: Some(Rivalry { rival, pause_us_most, next_ns: 0 }), ..self }
    }

    /// It sends no more.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Its number in the history.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.writer
    }

    /// The topic that it was made for, if there are several of the name.
    #[must_use]
    pub fn expected(&self) -> Option<TopicId> {
        self.plan.expected
    }

    /// Whether it could send now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether another has opened its id again.
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        self.deposed_until_ns.is_some()
    }

    /// Records that went to the ranges that took the place of a sealed one.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved + self.core.moved()
    }

    /// Longest time that a record of it waits.
    #[must_use]
    pub fn timeout_ms(&self) -> u64 {
        u64::from(self.plan.timeout_ms)
    }

    /// Virtual time of its next burst.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        if !self.ready || self.stopped {
            return None;
        }
        let rivalry_ns = self.rivalry.map(|rivalry| rivalry.next_ns);
        [Some(self.next_burst_ns), rivalry_ns, self.deposed_until_ns].into_iter().flatten().min()
    }

    /// Opening an id again may have succeeded with the answer lost: then its epoch is not the current one any more.
    fn may_be_fenced(&self, failure: &Failure) -> bool {
        let fenced = Refusal::ProducerFenced { epoch: ProducerEpoch(0), run: Run(0) }.code();
        let by_epoch = matches!(failure, Failure::Refused(refused) if refused.code == fenced);
        by_epoch && !self.ready && self.identity.is_some()
    }

    /// Another process takes the place of its own.
    fn renew(&mut self, settings: ProducerSettings) {
        self.moved += self.core.moved();
        self.core = Producer::new(settings);
        self.ready = false;
    }

    /// The next record, as its sender will remember it.
    fn compose(&mut self, now_ns: u64) -> Sent {
        let random = &mut self.random;
        let plan = &self.plan;
        let largest = random.one_in(100);
        let value_bytes = if largest {
            u64::from(plan.value_bytes_max)
        } else {
            random.spread_between(8, u64::from(plan.value_bytes_most).max(9))
        };
        let zeros = random.percent(plan.zeros_percent);
        let key = match plan.keys {
            Keys::Shared(count) if !zeros => Some(u32::try_from(random.below(u64::from(count))).expect("below a u32")),
            Keys::Shared(_) | Keys::None => None,
        };
        Sent {
            topic: plan.topic,
            key,
            shape: if zeros { Shape::Zeros } else { Shape::Named },
            identity: self.core.identity(),
            value_bytes: u32::try_from(value_bytes).expect("below a u32"),
            sent_ns: now_ns,
            deadline_ns: now_ns + u64::from(plan.timeout_ms) * MILLISECOND_NS,
            fate: Fate::Waiting,
            settled_ns: 0,
            read_ns: None,
        }
    }
}

fn settings(plan: &WriterPlan, seed: u64) -> ProducerSettings {
    ProducerSettings {
        client: "writer".to_owned(),
        batch_bytes: plan.batch_bytes,
        one_record_a_batch: plan.one_record_a_batch,
        linger_us: plan.linger_us,
        records_in_flight: plan.records_in_flight,
        timeout_ms: plan.timeout_ms,
        direct: plan.direct,
        ..ProducerSettings::new(&plan.topic_name, seed)
    }
}

impl World {
    fn writer(&mut self, number: usize) -> &mut Writer {
        match &mut self.clients[number].application {
            Application::Writer(writer) => writer,
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Reader(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => {
                panic!("client {number} is no writer")
            }
        }
    }

    pub(super) fn act_writer(&mut self, number: usize) -> Result<(), Violation> {
        self.hear(number)?;
        self.compete(number)?;
        let now_ns = self.queue.now_ns();
        let writer = self.writer(number);
        if writer.ready && !writer.stopped && writer.next_burst_ns <= now_ns {
            let records = writer.random.spread_between(1, writer.plan.burst_most.max(1));
            writer.next_burst_ns =
                now_ns + writer.random.spread_between(1, writer.plan.pause_us_most.max(2)) * MICROSECOND_NS;
            self.send_records(number, records)?;
        }
        let now = self.clients[number].clock.read(now_ns);
        self.writer(number).core.turn(now);
        Ok(())
    }

    /// A writer sends up to `records` now. Returns how many it could.
    ///
    /// # Errors
    /// Its client refuses what it must take.
    pub fn send_records(&mut self, number: usize, records: u64) -> Result<u64, Violation> {
        let now_ns = self.queue.now_ns();
        let now = self.clients[number].clock.read(now_ns);
        for sent_now in 0..records {
            let writer = self.writer(number);
            let sent = writer.compose(now_ns);
            let id = RecordId { writer: writer.writer, number: writer.sent };
            let value = sent.value(id);
            let key = match (sent.shape, sent.key) {
                (Shape::Zeros, _) => Some(own_key_bytes(id)),
                (Shape::Named, key) => key.map(key_bytes),
            };
            let record = Record { key: key.as_deref(), value: Some(&value), ..Record::default() };
            match writer.core.send(now, &record) {
                Ok(token) => {
                    assert_eq!(u64::from(writer.sent - writer.token_base), token, "tokens count the records sent");
                    writer.sent += 1;
                    assert_eq!(self.history.send(id.writer, sent), id, "a writer's records are numbered");
                }
                Err(SendError::Full | SendError::NotReady) => return Ok(sent_now),
                Err(SendError::TooLarge { .. }) => {
                    return Err(Violation::Node { what: "its client refuses a record of the largest size" });
                }
            }
        }
        Ok(records)
    }

    /// Takes what a writer was told.
    fn hear(&mut self, number: usize) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let paused_until_ns = self.clients[number].paused_until_ns();
        while let Some(event) = self.writer(number).core.poll_event() {
            match event {
                Event::Ready { .. } => {
                    let (expected, found) = (self.writer(number).plan.expected, self.writer(number).core.topic());
                    if self.is_another(expected, found)? {
                        self.retire_writer(number)?;
                        continue;
                    }
                    let writer = self.writer(number);
                    writer.ready = true;
                    writer.next_burst_ns = now_ns;
                    self.depose_rival(number);
                }
                Event::Done { first, count, outcome, code } => {
                    let writer = self.writer(number);
                    let first = writer.token_base + u32::try_from(first).expect("a run is short");
                    let ids = (first..first + count).map(|n| (writer.writer, n)).collect::<Vec<_>>();
                    self.trace.say(now_ns, || format!("writer {:?} +{count} {outcome:?} {code}", ids[0]));
                    for (writer, number) in ids {
                        self.told(RecordId { writer, number }, outcome, paused_until_ns)?;
                    }
                }
                Event::Failed(failure) => {
                    self.trace.say(now_ns, || format!("writer {number} failed: {failure}"));
                    let expected = self.writer(number).plan.expected;
                    if says_gone(&failure) && self.is_doomed(expected) {
                        self.retire_writer(number)?;
                        continue;
                    }
                    let explained = self.mode == Mode::Beyond || self.writer(number).may_be_fenced(&failure);
                    if !explained {
                        return Err(Violation::Node { what: "it ended a producer that did nothing wrong" });
                    }
                    self.begin_anew(number, None)?;
                }
            }
        }
        Ok(())
    }

    /// A writer whose id is lost goes on as another one: with this id, or a new one.
    fn begin_anew(&mut self, number: usize, replaces: Option<(ProducerId, ProducerEpoch)>) -> Result<(), Violation> {
        self.give_up(number)?;
        let id = self.history.add_writer();
        let writer = self.writer(number);
        let seed = writer.random.word();
        writer.renew(ProducerSettings { replaces, ..settings(&writer.plan, seed) });
        (writer.identity, writer.writer, writer.sent, writer.token_base) = (replaces, id, 0, 0);
        writer.deposed_until_ns = None;
        self.close_connections(number);
        Ok(())
    }

    /// A rival opens the other's id again when its time has come; whoever was so deposed goes on for a while, and then as somebody else.
    fn compete(&mut self, number: usize) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let writer = self.writer(number);
        if writer.stopped || !writer.ready {
            return Ok(());
        }
        if writer.deposed_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            return self.begin_anew(number, None);
        }
        let Some(rivalry) = &mut writer.rivalry else { return Ok(()) };
        if rivalry.next_ns > now_ns {
            return Ok(());
        }
        rivalry.next_ns = now_ns + writer.random.spread_between(1_000, rivalry.pause_us_most) * MICROSECOND_NS;
        let rival = rivalry.rival;
        match self.writer(rival).core.identity() {
            Some(identity) => self.begin_anew(number, Some(identity)),
            None => Ok(()),
        }
    }

    /// A rival has opened the other's id: that one may be refused from now on.
    fn depose_rival(&mut self, number: usize) {
        let writer = self.writer(number);
        let (Some(rivalry), Some(own)) = (writer.rivalry, writer.core.identity()) else { return };
        let stays_ms = writer.random.spread_between(1, DEPOSED_MS_MAX);
        let until_ns = self.queue.now_ns() + stays_ms * MILLISECOND_NS;
        let rival = self.writer(rivalry.rival);
        if rival.core.identity().is_some_and(|theirs| theirs.0 == own.0 && theirs.1 < own.1) {
            rival.deposed_until_ns = Some(until_ns);
            self.queue.put(until_ns, Happening::Client(rivalry.rival));
        }
    }

    /// Its topic is gone.
    fn retire_writer(&mut self, number: usize) -> Result<(), Violation> {
        self.give_up(number)?;
        let writer = self.writer(number);
        (writer.stopped, writer.ready, writer.retired) = (true, false, true);
        Ok(())
    }

    /// What a writer's process waited for it will never know.
    fn give_up(&mut self, number: usize) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let writer = self.writer(number);
        let (writer, base, sent) = (writer.writer, writer.token_base, writer.sent);
        for number in base..sent {
            let id = RecordId { writer, number };
            if self.history.get(id).is_some_and(|sent| sent.fate == Fate::Waiting) {
                self.checks.once.settled(&mut self.history, id, Fate::Unknown, now_ns)?;
            }
        }
        Ok(())
    }

    fn told(&mut self, id: RecordId, outcome: Outcome, paused_until_ns: u64) -> Result<(), Violation> {
        let now_ns = self.queue.now_ns();
        let fate = match outcome {
            Outcome::Stored => Fate::Stored,
            Outcome::NotStored => Fate::NotStored,
            Outcome::Unknown => Fate::Unknown,
        };
        self.trace.event(now_ns, 7, u64::from(id.writer) << 32 | u64::from(id.number) << 2 | fate as u64);
        self.checks.once.settled(&mut self.history, id, fate, now_ns)?;
        if let Some(sent) = self.history.get(id) {
            self.checks.fenced.settled(id, sent)?;
        }
        let deadline_ns = self.history.get(id).map_or(0, |sent| sent.deadline_ns);
        self.checks.progress.ended("a send", deadline_ns.max(paused_until_ns), now_ns)
    }

    /// The writer's process died: another goes on with its id.
    pub(super) fn restart_writer(&mut self, number: usize) -> Result<(), Violation> {
        if self.writer(number).retired {
            return Ok(());
        }
        self.give_up(number)?;
        let writer = self.writer(number);
        // A process that died before it was told its epoch leaves the one before it: without it the next would be somebody else, whom
        // what is still under way of an earlier process does not know to be later.
        writer.identity = writer.core.identity().or(writer.identity);
        let replaces = writer.identity;
        let seed = writer.random.word();
        writer.renew(ProducerSettings { replaces, ..settings(&writer.plan, seed) });
        writer.token_base = writer.sent;
        Ok(())
    }
}
