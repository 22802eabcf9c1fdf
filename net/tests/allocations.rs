//! A record's way through the client and the node's session allocates nothing in steady state: counted by the allocator itself.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_engine::api::error::Outcome;
use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};
use sealog_engine::api::response::{Response, Route, Stored, TopicView};
use sealog_engine::types::{
    ClusterId, Epoch, KeySpan, NodeId, Now, ProducerEpoch, ProducerId, RangeId, ShardId, TopicId,
};
use sealog_net::client::core::producer::{Event, ProducerSettings, Record};
use sealog_net::client::core::{Client, Links, Producer};
use sealog_net::session::{self, Inbound, SessionLimits};
use sealog_net::wire::{Kind, ReceiveBuffer, Welcome};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RANGES: u32 = 4;

struct Rig {
    producer: Producer,
    now: Now,
    to_node: ReceiveBuffer,
    to_client: ReceiveBuffer,
    answers: Vec<u8>,
    told: u64,
}

fn carry(from: &mut Vec<u8>, to: &mut ReceiveBuffer) {
    let space = to.space();
    space[..from.len()].copy_from_slice(from);
    let bytes = from.len();
    to.filled(bytes);
    from.clear();
}

fn answer(request: &Request<'_>) -> Response {
    match request {
        Request::Shard(ShardRequest::Produce { .. }) => Response::Stored(Stored { records: 1, repeat: false }),
        Request::Control(ControlRequest::OpenProducer { .. }) => {
            Response::Producer { producer: ProducerId(1), epoch: ProducerEpoch(0) }
        }
        Request::Control(ControlRequest::Routes { .. }) => {
            let name = "topic".to_owned();
            let batch_bytes_max = 1 << 20;
            let topic = TopicView {
                topic: TopicId(1),
                name,
                ranges: RANGES,
                keyspace_version: 1,
                batch_bytes_max,
                auto_split: None,
            };
            let spans = KeySpan::divide(RANGES).unwrap().into_iter().zip(1..);
            let route =
                |(span, id)| Route { range: RangeId(id), span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) };
            Response::Routes { topic, routes: spans.map(route).collect() }
        }
        other => panic!("not expected: {other:?}"),
    }
}

impl Rig {
    /// The requests go to the node, and its answers come back.
    fn exchange(&mut self) {
        let limits = SessionLimits { batch_bytes_max: 1 << 20, fetch_bytes_max: 1, connection_bytes_max: 1 << 26 };
        self.producer.turn(self.now);
        carry(self.producer.links().outbound(Links::FIRST), &mut self.to_node);
        while let Some(frame) = self.to_node.next_frame().unwrap() {
            if frame.kind == Kind::Hello.number() {
                welcome().append(&mut self.answers, 0);
            } else if let Inbound::Request(request) = session::read(&frame, &limits).unwrap() {
                session::append(&mut self.answers, frame.correlation, &answer(&request));
            }
        }
        carry(&mut self.answers, &mut self.to_client);
        while let Some(frame) = self.to_client.next_frame().unwrap() {
            self.producer.received(self.now, Links::FIRST, &frame).unwrap();
        }
        while let Some(event) = self.producer.poll_event() {
            if let Event::Done { count, outcome, .. } = event {
                assert_eq!(outcome, Outcome::Stored);
                self.told += u64::from(count);
            }
        }
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0,
        cluster: ClusterId(1),
        node: NodeId(1),
        shards: 1,
        shard: ShardId(0),
        frame_bytes_max: 2 << 20,
        batch_bytes_max: 1 << 20,
        fetch_bytes_max: 1 << 20,
        connection_bytes_max: 1 << 26,
    }
}

#[test]
fn a_record_is_sent_answered_and_told_without_an_allocation() {
    for one_record_a_batch in [true, false] {
        let mut settings = ProducerSettings::new("topic", 1);
        settings.one_record_a_batch = one_record_a_batch;
        let mut rig = Rig {
            producer: Producer::new(settings),
            now: Now { monotonic_ns: 1, wall_ms: 1_700_000_000_000 },
            to_node: ReceiveBuffer::new(1 << 20, 2 << 20),
            to_client: ReceiveBuffer::new(1 << 20, 2 << 20),
            answers: vec![],
            told: 0,
        };
        let (link, _) = rig.producer.links().wanted(rig.now).unwrap();
        rig.producer.opened(link);
        rig.exchange();
        rig.exchange();
        let value = [7; 1024];
        let mut before = 0;
        for round in 0..300u64 {
            if round == 100 {
                before = ALLOCATIONS.load(Ordering::Relaxed);
            }
            rig.now.monotonic_ns += 1_000_000;
            rig.now.wall_ms += 1;
            for i in 0..256 {
                let key = (round * 256 + i).to_le_bytes();
                let record = Record { key: Some(&key), value: Some(&value), ..Record::default() };
                rig.producer.send(rig.now, &record).unwrap();
            }
            rig.exchange();
        }
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(rig.told, 300 * 256);
        if one_record_a_batch {
            assert_eq!(allocated, 0);
        } else {
            // A batch's list of tokens grows to the longest that its slot has met.
            assert!(allocated < 100, "{allocated} allocations in 200 rounds");
        }
    }
}
