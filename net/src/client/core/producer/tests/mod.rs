//! The producer against a node that is a few maps in memory, over connections that lose, delay and die.

#![allow(clippy::wildcard_enum_match_arm)]

mod advice;
mod deleted;
mod node;
mod storm;

use sealog_engine::api::error::{Outcome, Refusal};
use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};
use sealog_engine::api::response::Response;
use sealog_engine::format::batch::{BatchRef, Stamp};
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{KeySpan, Now, ProducerEpoch, ProducerId, RangeId};

use super::{Event, Producer, ProducerSettings, Record};
use crate::client::core::{Client, LinkId, Links};
use crate::session::{self, Inbound, SessionLimits};
use crate::wire::{Decoded, Kind, decode};

const LIMITS: SessionLimits =
    SessionLimits { batch_bytes_max: 1 << 20, fetch_bytes_max: 1 << 20, connection_bytes_max: 1 << 26 };

/// A producer whose other end is played by the test.
struct Bench {
    producer: Producer,
    now: Now,
}

/// A produce as the node's end sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    correlation: u64,
    range: RangeId,
    stamp: Stamp,
    values: Vec<Vec<u8>>,
    batch: Vec<u8>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut ProducerSettings)) -> Self {
        let mut settings = ProducerSettings::new("topic", 1);
        settings.one_record_a_batch = true;
        settings.timeout_ms = 1_000;
        change(&mut settings);
        Self { producer: Producer::new(settings), now: Now { monotonic_ns: MILLISECOND_NS, wall_ms: 1_000_000 } }
    }

    /// Ready on a topic of one range, `r1`.
    fn ready(change: impl FnOnce(&mut ProducerSettings)) -> Self {
        let mut bench = Self::new(change);
        bench.connect();
        for request in bench.requests() {
            match request {
                (correlation, Inbound::Request(Request::Control(ControlRequest::OpenProducer { .. }))) => {
                    let response = Response::Producer { producer: ProducerId(7), epoch: ProducerEpoch(3) };
                    bench.answer(correlation, &response);
                }
                (correlation, Inbound::Request(Request::Control(ControlRequest::Routes { .. }))) => {
                    let routes = vec![node::route(1, KeySpan::ALL)];
                    bench.answer(correlation, &Response::Routes { topic: node::topic(), routes });
                }
                other => panic!("not expected: {other:?}"),
            }
        }
        let ready = Event::Ready { producer: ProducerId(7), epoch: ProducerEpoch(3) };
        assert_eq!(bench.producer.poll_event(), Some(ready));
        bench
    }

    fn connect(&mut self) {
        let (link, _) = self.producer.links().wanted(self.now).expect("a link is wanted");
        self.producer.opened(link);
        self.producer.links().outbound(link).clear();
        let mut bytes = vec![];
        node::welcome().append(&mut bytes, 0);
        self.give(link, &bytes);
    }

    fn cut(&mut self) {
        self.producer.closed(self.now, Links::FIRST);
    }

    fn give(&mut self, link: LinkId, bytes: &[u8]) {
        let Ok(Decoded::Frame { frame, .. }) = decode(bytes, u32::MAX) else { panic!("a frame") };
        self.producer.received(self.now, link, &frame).expect("an answer");
        self.producer.turn(self.now);
    }

    fn answer(&mut self, correlation: u64, response: &Response) {
        let mut bytes = vec![];
        session::append(&mut bytes, correlation, response);
        self.give(Links::FIRST, &bytes);
    }

    fn refuse(&mut self, seen: &Seen, refusal: Refusal) {
        self.answer(seen.correlation, &Response::Refused(refusal));
    }

    fn store(&mut self, seen: &Seen) {
        let records = u32::try_from(seen.values.len()).unwrap();
        let stored = sealog_engine::api::response::Stored { records, repeat: false };
        self.answer(seen.correlation, &Response::Stored(stored));
    }

    fn after_ms(&mut self, ms: u64) {
        self.now.monotonic_ns += ms * MILLISECOND_NS;
        self.producer.tick(self.now);
        self.producer.turn(self.now);
    }

    /// Sends records of these values, all of one key.
    fn send(&mut self, values: &[&str]) {
        for value in values {
            let record = Record { key: Some(b"key"), value: Some(value.as_bytes()), ..Record::default() };
            self.producer.send(self.now, &record).expect("there is room");
        }
        self.producer.turn(self.now);
    }

    /// What was written since the last look, as the node reads it.
    fn requests(&mut self) -> Vec<(u64, Inbound<'static>)> {
        let mut found = vec![];
        let bytes = std::mem::take(self.producer.links().outbound(Links::FIRST)).leak();
        let mut rest: &'static [u8] = bytes;
        while let Ok(Decoded::Frame { frame, length }) = decode(rest, u32::MAX) {
            if frame.kind != Kind::Hello.number() {
                found.push((frame.correlation, session::read(&frame, &LIMITS).expect("a request")));
            }
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        found
    }

    /// The produces that were written since the last look.
    fn produced(&mut self) -> Vec<Seen> {
        let read = |(correlation, inbound)| match inbound {
            Inbound::Request(Request::Shard(ShardRequest::Produce { range, batch, .. })) => {
                let parsed = BatchRef::verify(batch, 1 << 20).expect("a batch");
                let values = parsed.records().map(|r| r.unwrap().value.unwrap().to_vec()).collect();
                Seen { correlation, range, stamp: parsed.stamp(), values, batch: batch.to_vec() }
            }
            other => panic!("not a produce: {other:?}"),
        };
        self.requests().into_iter().map(read).collect()
    }

    /// How records ended since the last look: token and outcome.
    fn done(&mut self) -> Vec<(u64, Outcome)> {
        let mut done = vec![];
        while let Some(event) = self.producer.poll_event() {
            match event {
                Event::Done { first, count, outcome, .. } => {
                    done.extend((first..first + u64::from(count)).map(|token| (token, outcome)));
                }
                other => panic!("not expected: {other:?}"),
            }
        }
        done
    }
}
