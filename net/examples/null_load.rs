//! Server and client with nothing behind them: what carrying frames costs.
//!
//! `null_load [connections] [outstanding] [seconds] [value bytes]`: a service that answers every produce at once, on one core; one
//! client thread on another; one record a batch and a frame. Prints frames a second and the round trip's percentiles.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;

use glommio::{LocalExecutorBuilder, Placement};
use sealog_engine::api::error::Outcome;
use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::{ControlRequest, ReplyTo, Request};
use sealog_engine::api::response::{Response, Route, Stored, TopicView};
use sealog_engine::types::{ClusterId, Epoch, KeySpan, NodeId, ProducerEpoch, ProducerId, RangeId, ShardId, TopicId};
use sealog_net::client::core::producer::{ProducerSettings, Record};
use sealog_net::client::glommio::Producer;
use sealog_net::server::{Server, ServerSettings};
use sealog_net::session::{Handshake, NodeIdentity, SessionLimits};

struct Null {
    replies: Rc<dyn Replies>,
}

impl ShardService for Null {
    fn request(&self, to: ReplyTo, _deadline_ms: u32, request: Request<'_>) {
        let topic = TopicView {
            topic: TopicId(1),
            name: String::new(),
            ranges: 1,
            keyspace_version: 1,
            batch_bytes_max: 1 << 20,
            auto_split: None,
        };
        let route =
            Route { range: RangeId(1), span: KeySpan::ALL, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) };
        let response = match request {
            Request::Shard(_) => Response::Stored(Stored { records: 1, repeat: false }),
            Request::Control(ControlRequest::Routes { .. }) => Response::Routes { topic, routes: vec![route] },
            Request::Control(_) => Response::Producer { producer: ProducerId(1), epoch: ProducerEpoch(1) },
        };
        self.replies.reply(to, response);
    }

    fn flush(&self) {
        self.replies.flush();
    }

    fn disconnected(&self, _connection: u32) {}
}

fn serve() -> SocketAddr {
    let (tell, told) = mpsc::channel();
    let started =
        LocalExecutorBuilder::new(Placement::Fixed(0)).io_memory(1 << 20).name("server").spawn(|| async move {
            let limits =
                SessionLimits { batch_bytes_max: 1 << 20, fetch_bytes_max: 1 << 20, connection_bytes_max: 64 << 20 };
            let identity = NodeIdentity { cluster: ClusterId(1), node: NodeId(1), shards: 1 };
            let listen = "127.0.0.1:0".parse().unwrap();
            let server =
                Server::bind(ServerSettings::new(listen, ShardId(0), Handshake { identity, limits }), None).unwrap();
            tell.send(server.local_addr()).unwrap();
            let service = Rc::new(Null { replies: server.replies() });
            server.serve(service).await;
        });
    std::mem::forget(started.unwrap());
    told.recv().unwrap()
}

/// One connection's load: keeps `outstanding` records under way.
async fn load(address: SocketAddr, seed: u64, outstanding: u32, seconds: u64, bytes: usize) -> (u64, Vec<u32>) {
    let mut settings = ProducerSettings::new("topic", seed);
    settings.one_record_a_batch = true;
    settings.records_in_flight = outstanding;
    let mut producer = Producer::open(address, settings).await.unwrap();
    let value = vec![7u8; bytes];
    let mut sent_at = vec![0u64; outstanding as usize];
    let (mut stored, mut latencies) = (0u64, Vec::with_capacity(1 << 24));
    let end_ns = producer.now().monotonic_ns + seconds * 1_000_000_000;
    loop {
        let now = producer.now();
        if now.monotonic_ns >= end_ns {
            return (stored, latencies);
        }
        while producer.in_flight() < outstanding {
            let key = stored.to_le_bytes();
            let record = Record { key: Some(&key), value: Some(&value), ..Record::default() };
            let token = producer.send(now, &record).unwrap();
            sent_at[usize::try_from(token % u64::from(outstanding)).unwrap()] = now.monotonic_ns;
        }
        producer.turn(now);
        producer.wait(Some(end_ns)).await;
        producer.done(&mut |done, at| {
            assert_eq!(done.outcome, Outcome::Stored);
            let sent = sent_at[usize::try_from(done.first % u64::from(outstanding)).unwrap()];
            latencies.push(u32::try_from((at.monotonic_ns - sent) / 100).unwrap_or(u32::MAX));
            stored += 1;
        });
    }
}

fn main() {
    let argument = |at: usize, default: u64| std::env::args().nth(at).map_or(default, |a| a.parse().unwrap());
    let (connections, outstanding) = (argument(1, 2), argument(2, 256));
    let (seconds, bytes) = (argument(3, 5), usize::try_from(argument(4, 1024)).unwrap());
    let address = serve();
    let each = u32::try_from((outstanding / connections).max(1)).unwrap();
    let client = LocalExecutorBuilder::new(Placement::Fixed(1)).io_memory(1 << 20).name("client");
    let results = client.spawn(move || async move {
        let load = |seed| glommio::spawn_local(load(address, seed, each, seconds, bytes));
        let tasks: Vec<_> = (1..=connections).map(load).collect();
        let mut all = vec![];
        for task in tasks {
            all.push(task.await);
        }
        all
    });
    let results = results.unwrap().join().unwrap();
    let stored: u64 = results.iter().map(|r| r.0).sum();
    let mut latencies: Vec<u32> = results.into_iter().flat_map(|r| r.1).collect();
    latencies.sort_unstable();
    let at = |permille: usize| f64::from(latencies[latencies.len() * permille / 1000]) / 10.0;
    println!(
        "{} frames/s, {connections} connections, {outstanding} outstanding, {bytes} B; p50 {} p99 {} p99.9 {} µs",
        stored / seconds,
        at(500),
        at(990),
        at(999)
    );
}
