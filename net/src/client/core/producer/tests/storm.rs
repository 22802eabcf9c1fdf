//! Everything at once, from seeds: splits, merges, refusals, cuts with answers lost or requests that arrive after the cut, deadlines.
//! Afterwards each record was told exactly once, and the logs agree with what was told.

use std::collections::BTreeMap;

use sealog_engine::api::error::Outcome;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{KeyHash, Now};

use super::LIMITS;
use super::node::{Mood, Node, welcome};
use crate::client::core::producer::{Event, Producer, ProducerSettings, Record, SendError};
use crate::client::core::{Client, LinkId, Random};
use crate::session::{self, Inbound};
use crate::wire::frame::HEADER_BYTES;
use crate::wire::{Decoded, Kind, decode};

/// One connection: bytes under way in both directions, and answers that wait for the disk.
#[derive(Default)]
struct Pipe {
    to_node: Vec<u8>,
    to_client: Vec<u8>,
    waiting: Vec<(u64, sealog_engine::api::response::Response)>,
}

struct World {
    random: Random,
    now: Now,
    node: Node,
    producer: Producer,
    pipes: BTreeMap<LinkId, Pipe>,
    /// Requests of connections that were cut, still under way.
    strays: Vec<u8>,
    keys: BTreeMap<u64, KeyHash>,
    told: BTreeMap<u64, Outcome>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut settings = ProducerSettings::new("topic", seed);
        settings.one_record_a_batch = random.next_u64().is_multiple_of(2);
        settings.batch_bytes = 300;
        settings.linger_us = [0, 3_000][usize::try_from(random.next_u64() % 2).unwrap()];
        settings.records_in_flight = 64;
        settings.timeout_ms = [150, 1_500][usize::try_from(random.next_u64() % 2).unwrap()];
        Self {
            node: Node::new([1, 2, 4][usize::try_from(random.next_u64() % 3).unwrap()]),
            random,
            now: Now { monotonic_ns: MILLISECOND_NS, wall_ms: 1_000_000 },
            producer: Producer::new(settings),
            pipes: BTreeMap::new(),
            strays: vec![],
            keys: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.next_u64().is_multiple_of(one_in)
    }

    /// What a driver does: connects, ends the turn, carries bytes.
    fn drive(&mut self) {
        while let Some((link, _)) = self.producer.links().wanted(self.now) {
            self.producer.opened(link);
            self.pipes.insert(link, Pipe::default());
        }
        self.producer.tick(self.now);
        self.producer.turn(self.now);
        for (link, pipe) in &mut self.pipes {
            pipe.to_node.append(self.producer.links().outbound(*link));
        }
        while let Some(event) = self.producer.poll_event() {
            match event {
                Event::Ready { .. } => {}
                Event::Done { first, count, outcome, .. } => {
                    for token in first..first + u64::from(count) {
                        assert_eq!(self.told.insert(token, outcome), None, "{token} was told twice");
                    }
                }
                Event::Failed(failure) => panic!("{failure}"),
            }
        }
    }

    fn send(&mut self) {
        let key = self.random.next_u64() % 12;
        let value = self.keys.len().to_string();
        let key = format!("key-{key}");
        let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() };
        match self.producer.send(self.now, &record) {
            Ok(token) => {
                assert_eq!(self.keys.insert(token, KeyHash::of(key.as_bytes())), None);
            }
            Err(SendError::NotReady | SendError::Full) => {}
            Err(error @ SendError::TooLarge { .. }) => panic!("{error}"),
        }
    }

    /// The node takes one frame of a connection.
    fn node_takes(&mut self, link: LinkId) {
        let Some(pipe) = self.pipes.get_mut(&link) else { return };
        let Ok(Decoded::Frame { frame, length }) = decode(&pipe.to_node, u32::MAX) else { return };
        if frame.kind == Kind::Hello.number() {
            welcome().append(&mut pipe.to_client, frame.correlation);
        } else if let Inbound::Request(request) = session::read(&frame, &LIMITS).unwrap() {
            let given = self.node.handle(request);
            if given.later {
                pipe.waiting.push((frame.correlation, given.response));
            } else {
                session::append(&mut pipe.to_client, frame.correlation, &given.response);
            }
        }
        pipe.to_node.drain(..length);
    }

    fn disk_is_done(&mut self, link: LinkId) {
        let Some(pipe) = self.pipes.get_mut(&link) else { return };
        for (correlation, response) in pipe.waiting.drain(..) {
            session::append(&mut pipe.to_client, correlation, &response);
        }
    }

    fn client_takes(&mut self, link: LinkId) {
        let Some(pipe) = self.pipes.get_mut(&link) else { return };
        let Ok(Decoded::Frame { frame, length }) = decode(&pipe.to_client, u32::MAX) else { return };
        self.producer.received(self.now, link, &frame).unwrap();
        pipe.to_client.drain(..length);
    }

    /// A connection dies; what was under way to the node may still arrive.
    fn cut(&mut self, link: LinkId) {
        let Some(pipe) = self.pipes.remove(&link) else { return };
        if self.random.next_u64().is_multiple_of(2) {
            self.strays.extend(pipe.to_node);
        }
        self.producer.closed(self.now, link);
    }

    fn stray_arrives(&mut self) {
        let Ok(Decoded::Frame { frame, length }) = decode(&self.strays, u32::MAX) else { return };
        if let Ok(Inbound::Request(request)) = session::read(&frame, &LIMITS) {
            self.node.handle(request);
        }
        self.strays.drain(..length.max(HEADER_BYTES));
    }

    fn step(&mut self) {
        let link = LinkId(usize::try_from(self.random.next_u64()).unwrap_or(0) % self.producer.links().count());
        match self.random.next_u64() % 100 {
            0..30 => self.send(),
            30..55 => self.node_takes(link),
            55..70 => self.disk_is_done(link),
            70..90 => self.client_takes(link),
            90..93 => self.stray_arrives(),
            93..98 => self.now.monotonic_ns += self.random.next_u64() % (10 * MILLISECOND_NS),
            98 => {
                let moods = [Mood::Fine, Mood::Fine, Mood::Fine, Mood::Overloaded, Mood::Opening, Mood::StaleEpoch];
                self.node.mood = moods[usize::try_from(self.random.next_u64() % 6).unwrap()];
            }
            _ => match self.random.next_u64() % 5 {
                0 => self.cut(link),
                1 | 2 => {
                    let (pick, split) = (self.random.next_u64(), self.chance(2));
                    self.node.reshape(pick, split);
                }
                3 => {
                    let pick = self.random.next_u64();
                    self.node.fence(pick);
                }
                _ => self.now.monotonic_ns += self.random.next_u64() % (300 * MILLISECOND_NS),
            },
        }
        self.drive();
    }

    /// Everything works again, and all that is under way ends.
    fn heal(&mut self) {
        self.node.mood = Mood::Fine;
        for _ in 0..4_000 {
            for link in self.pipes.keys().copied().collect::<Vec<_>>() {
                self.node_takes(link);
                self.disk_is_done(link);
                self.client_takes(link);
            }
            self.now.monotonic_ns += MILLISECOND_NS;
            self.drive();
            if self.producer.in_flight() == 0 && self.told.len() == self.keys.len() {
                return;
            }
        }
        panic!("{} records were never told: {:#?}", self.producer.in_flight(), self.producer);
    }

    fn check(&mut self) {
        while !self.strays.is_empty() {
            self.stray_arrives();
        }
        let mut found: BTreeMap<u64, usize> = BTreeMap::new();
        let mut last: BTreeMap<KeyHash, u64> = BTreeMap::new();
        for (hash, value) in self.node.read() {
            let token: u64 = std::str::from_utf8(&value).unwrap().parse().unwrap();
            *found.entry(token).or_default() += 1;
            let before = last.insert(hash, token);
            assert!(before.is_none_or(|b| b < token), "{token} lies behind {before:?} of its key");
        }
        for (token, outcome) in &self.told {
            let times = found.get(token).copied().unwrap_or(0);
            match outcome {
                Outcome::Stored => assert_eq!(times, 1, "{token} was told as stored"),
                Outcome::NotStored => assert_eq!(times, 0, "{token} was told as not stored"),
                Outcome::Unknown => assert!(times <= 1, "{token} is stored {times} times"),
            }
        }
    }
}

fn run(seed: u64) -> [usize; 3] {
    let mut world = World::new(seed);
    for _ in 0..3_000 {
        world.step();
    }
    world.heal();
    world.check();
    [Outcome::Stored, Outcome::NotStored, Outcome::Unknown].map(|o| world.told.values().filter(|t| **t == o).count())
}

#[test]
fn through_any_storm_each_record_is_told_once_and_the_logs_agree() {
    let seeds: u64 = std::env::var("STORM_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(200);
    let mut totals = [0; 3];
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        let counts = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    println!("told: stored, not stored, unknown: {totals:?}");
    assert!(totals.iter().all(|t| *t > 100), "each outcome is met: {totals:?}");
}
