//! Reading back from a node of one range that tells the ends that a test wants.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};
use sealog_engine::api::response::{Fetched, RangeLineage, Response, Route, TopicView};
use sealog_engine::format::batch::{BatchRef, Place, Stamp, entry_length, place};
use sealog_engine::format::entry::SegmentSeed;
use sealog_engine::format::record::RecordKey;
use sealog_engine::format::{BatchBuilder, Digest};
use sealog_engine::types::{ClusterId, Epoch, KeySpan, NodeId, Offset, RangeId, SegmentId, ShardId, TopicId};
use sealog_net::session::{self, Inbound, SessionLimits};
use sealog_net::wire::{Decoded, Kind, Welcome, decode};

use super::verify;
use crate::load::content::{ContentWriter, LoadRun, key};
use crate::load::ledger::Ledger;
use crate::report::summary::Verification;

const BATCH_BYTES_MAX: u32 = 1 << 20;
const RUN: LoadRun = LoadRun(7);

/// A node whose one range has an entry of one record an offset.
struct Node {
    entries: Vec<Vec<u8>>,
    /// The ends that it tells, one after the other, and then the true one.
    ends: Mutex<VecDeque<u64>>,
}

/// Where the only range is.
fn route() -> Route {
    Route { range: RangeId(1), span: KeySpan::ALL, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) }
}

impl Node {
    /// Holds records of key 0 with these sequences.
    fn new(sequences: &[u64], ends: &[u64]) -> Self {
        let mut content = ContentWriter::new(RUN, 64, true, 1);
        let mut builder = BatchBuilder::new(BATCH_BYTES_MAX as usize);
        let entry = |(sequence, offset): (&u64, u64)| {
            builder.clear();
            builder.push(RecordKey::Key(&key(0)), Some(content.value(0, *sequence, 64)), &[], 1).expect("it fits");
            let bytes = builder.finish(Stamp::default());
            let batch = BatchRef::verify(bytes, BATCH_BYTES_MAX as usize).expect("it was just made");
            let mut entry = vec![0; entry_length(batch.bytes().len())];
            let at = Place { segment: SegmentId(1), offset: Offset(offset), epoch: Epoch(1), append_time_ms: 0 };
            place(&mut entry, SegmentSeed::new(SegmentId(1), 1), at, Digest::default(), batch);
            entry
        };
        let entries = sequences.iter().zip(0..).map(entry).collect();
        Self { entries, ends: Mutex::new(ends.iter().copied().collect()) }
    }

    fn end(&self) -> Offset {
        Offset(self.entries.len() as u64)
    }

    fn respond(&self, request: &Request<'_>) -> Response {
        match request {
            Request::Control(ControlRequest::Routes { topic }) => {
                let (name, batch_bytes_max) = (topic.clone(), BATCH_BYTES_MAX);
                let topic = TopicView {
                    topic: TopicId(1),
                    name,
                    ranges: 1,
                    keyspace_version: 1,
                    batch_bytes_max,
                    auto_split: None,
                };
                Response::Routes { topic, routes: vec![route()] }
            }
            Request::Control(ControlRequest::Lineage { .. }) => {
                let (route, parents, successors) = (route(), vec![], vec![]);
                Response::Lineage { ranges: vec![RangeLineage { route, parents, successors }], more: false }
            }
            Request::Shard(ShardRequest::Bounds { .. }) => {
                let told = self.ends.lock().expect("no thread panics with it").pop_front();
                Response::Bounds { start: Offset(0), end: told.map_or_else(|| self.end(), Offset) }
            }
            Request::Shard(ShardRequest::Fetch { offset, .. }) => {
                let from = usize::try_from(offset.0).expect("a small offset");
                let entries = self.entries[from..].concat();
                Response::Fetched(Fetched {
                    entries,
                    next: self.end(),
                    end: self.end(),
                    gaps: vec![],
                    successors: None,
                })
            }
            Request::Control(_) | Request::Shard(_) => panic!("a reader does not ask for {request:?}"),
        }
    }

    /// Answers one connection until it is closed.
    fn serve(&self, mut stream: TcpStream) {
        let limits =
            SessionLimits { batch_bytes_max: BATCH_BYTES_MAX, fetch_bytes_max: 1 << 20, connection_bytes_max: 1 };
        let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
            received.extend_from_slice(&buffer[..bytes]);
            let (mut taken, mut out) = (0, Vec::new());
            while let Ok(Decoded::Frame { frame, length }) = decode(&received[taken..], u32::MAX) {
                taken += length;
                if frame.kind == Kind::Hello.number() {
                    welcome().append(&mut out, frame.correlation);
                    continue;
                }
                let Ok(Inbound::Request(request)) = session::read(&frame, &limits) else { panic!("not a request") };
                session::append(&mut out, frame.correlation, &self.respond(&request));
            }
            received.drain(..taken);
            if stream.write_all(&out).is_err() {
                return;
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
        batch_bytes_max: BATCH_BYTES_MAX,
        fetch_bytes_max: 1 << 20,
        connection_bytes_max: 1 << 26,
    }
}

/// What reading back finds where four records were acknowledged.
fn verified(node: Node, patience: Duration) -> Verification {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let node = Arc::new(node);
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (node, stream) = (node.clone(), stream.expect("a connection"));
            std::thread::spawn(move || node.serve(stream));
        }
    });
    let mut ledger = Ledger::new(RUN, "t", 1);
    (0..4).for_each(|_| _ = ledger.send(0));
    verify(&ledger, vec![address], patience).expect("it is read to an end")
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn an_end_that_is_told_too_early_is_not_believed() {
    let found = verified(Node::new(&[0, 1, 2, 3], &[0, 1, 1, 3]), LONG);
    assert!(found.passed(), "{found:?}");
    assert_eq!((found.read, found.lost), (4, 0));
}

#[test]
fn what_lies_behind_the_first_end_that_covers_all_is_judged_too() {
    let found = verified(Node::new(&[0, 1, 2, 3, 2], &[4]), LONG);
    assert_eq!((found.read, found.duplicated, found.lost), (5, 1, 0));
}

#[test]
fn a_record_that_never_comes_is_lost_once_patience_ends() {
    let found = verified(Node::new(&[0, 1, 3], &[]), Duration::from_millis(200));
    assert_eq!((found.read, found.lost), (3, 1));
}
