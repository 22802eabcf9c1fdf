//! A node whose engine is a few vectors in memory, behind the real server on a real executor.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;

use ::glommio::{LocalExecutorBuilder, Placement};
use sealog_engine::api::error::Refusal;
use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::{ControlRequest, ReplyTo, Request, ShardRequest};
use sealog_engine::api::response::{
    Fetched, RangeDescription, RangeLineage, RangeRolled, Response, Route, Stored, TopicView,
};
use sealog_engine::format::Digest;
use sealog_engine::format::batch::{BatchRef, Place, entry_length, place};
use sealog_engine::format::entry::SegmentSeed;
use sealog_engine::types::{
    ClusterId, Epoch, KeySpan, NodeId, Offset, ProducerEpoch, ProducerId, RangeId, SegmentId, ShardId, TopicId,
};
use sealog_net::server::{HandoverPort, Server, ServerSettings};
use sealog_net::session::{Handshake, NodeIdentity, SessionLimits};

/// Ranges of the one topic.
const RANGES: u32 = 2;
/// A range that says that it is sealed when it is first asked to roll.
pub(crate) const SEALED: RangeId = RangeId(7);

#[derive(Default)]
struct Log {
    entries: Vec<(Offset, Offset, Vec<u8>)>,
    end: Offset,
    /// As sealed: whoever asks again all the same is told something else.
    first_roll_is_refused: bool,
}

/// The engine: one topic, everything stored at once.
struct Memory {
    replies: Rc<dyn Replies>,
    logs: RefCell<BTreeMap<RangeId, Log>>,
}

impl Memory {
    fn topic() -> TopicView {
        TopicView {
            topic: TopicId(1),
            name: "topic".into(),
            ranges: RANGES,
            keyspace_version: 1,
            batch_bytes_max: 1 << 20,
            auto_split: None,
        }
    }

    fn routes() -> Vec<Route> {
        let spans = KeySpan::divide(RANGES).expect("a power of two");
        let route =
            |(span, id)| Route { range: RangeId(id), span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) };
        spans.into_iter().zip(1..).map(route).collect()
    }

    fn shard(&self, request: ShardRequest<'_>) -> Response {
        let mut logs = self.logs.borrow_mut();
        let fresh = || Log { first_roll_is_refused: request.range() == SEALED, ..Log::default() };
        let log = logs.entry(request.range()).or_insert_with(fresh);
        match request {
            ShardRequest::Produce { batch, .. } => {
                let batch = BatchRef::verify(batch, 1 << 20).expect("the client sends batches");
                let mut bytes = vec![0; entry_length(batch.bytes().len())];
                let at = Place { segment: SegmentId(1), offset: log.end, epoch: Epoch(1), append_time_ms: 0 };
                place(&mut bytes, SegmentSeed::new(SegmentId(1), 1), at, Digest::default(), batch);
                let end = log.end.plus(u64::from(batch.record_count()));
                log.entries.push((log.end, end, bytes));
                log.end = end;
                Response::Stored(Stored { records: batch.record_count(), repeat: false })
            }
            ShardRequest::Fetch { offset, .. } => {
                let found = log.entries.iter().filter(|(_, to, _)| *to > offset);
                let entries = found.flat_map(|(_, _, bytes)| bytes.iter().copied()).collect();
                Response::Fetched(Fetched { entries, next: log.end, end: log.end, gaps: vec![], successors: None })
            }
            ShardRequest::Bounds { .. } | ShardRequest::Since { .. } => {
                Response::Bounds { start: Offset(0), end: log.end }
            }
            ShardRequest::Settle { .. } => Response::Refused(Refusal::UnknownRange),
            ShardRequest::Roll { .. } if log.first_roll_is_refused => {
                log.first_roll_is_refused = false;
                Response::Refused(Refusal::Sealed { successors: vec![], last: None })
            }
            ShardRequest::Roll { .. } => Response::Rolled(RangeRolled { end: log.end, segments: None }),
            ShardRequest::Describe { .. } => {
                Response::Described(RangeDescription { start: Offset(0), end: log.end, segments: 1 })
            }
        }
    }
}

impl ShardService for Memory {
    fn request(&self, to: ReplyTo, _deadline_ms: u32, request: Request<'_>) {
        let response = match request {
            Request::Shard(request) => self.shard(request),
            Request::Control(ControlRequest::OpenProducer { .. }) => {
                Response::Producer { producer: ProducerId(1), epoch: ProducerEpoch(1) }
            }
            Request::Control(ControlRequest::Routes { topic }) if topic == "topic" => {
                Response::Routes { topic: Self::topic(), routes: Self::routes() }
            }
            Request::Control(ControlRequest::Routes { .. }) => Response::Refused(Refusal::UnknownTopic),
            Request::Control(ControlRequest::ListTopics) => Response::Topics(vec![Self::topic()]),
            Request::Control(ControlRequest::CreateTopic { name, ranges, .. }) => {
                Response::Topic(TopicView { name, ranges, ..Self::topic() })
            }
            Request::Control(
                ControlRequest::DeleteTopic { .. }
                | ControlRequest::SplitRange { .. }
                | ControlRequest::MergeRanges { .. },
            ) => Response::Refused(Refusal::UnknownTopic),
            Request::Control(ControlRequest::Lineage { .. }) => {
                let root = |route| RangeLineage { route, parents: vec![], successors: vec![] };
                Response::Lineage { ranges: Self::routes().into_iter().map(root).collect(), more: false }
            }
        };
        self.replies.reply(to, response);
    }

    fn flush(&self) {
        self.replies.flush();
    }

    fn disconnected(&self, _connection: u32) {}
}

pub(crate) fn handshake(shards: u16) -> Handshake {
    Handshake {
        identity: NodeIdentity { cluster: ClusterId(5), node: NodeId(1), shards },
        limits: SessionLimits { batch_bytes_max: 1 << 20, fetch_bytes_max: 1 << 22, connection_bytes_max: 1 << 26 },
    }
}

/// Starts one shard on a thread of its own, which stops after `life`; gives its address and what ends with it.
pub(crate) fn start_for(life: std::time::Duration) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20).make().expect("an executor");
        executor.run(async move {
            let listen = "127.0.0.1:0".parse().expect("an address");
            let server = Server::bind(ServerSettings::new(listen, ShardId(0), handshake(1)), None).expect("a port");
            tell.send(server.local_addr()).expect("the test waits");
            let service = Rc::new(Memory { replies: server.replies(), logs: RefCell::default() });
            let stopping = server.clone();
            glommio::spawn_local(async move {
                glommio::timer::sleep(life).await;
                stopping.stop();
            })
            .detach();
            server.clone().serve(service).await;
            while server.connections() > 0 {
                glommio::timer::sleep(std::time::Duration::from_millis(1)).await;
            }
        });
    });
    (told.recv().expect("the shard tells its address"), thread)
}

/// Starts one shard on a thread of its own, for the life of the process.
pub(crate) fn start_shard(
    shard: u16,
    shards: u16,
    handover: Option<HandoverPort>,
    change: impl FnOnce(&mut ServerSettings) + Send + 'static,
) -> SocketAddr {
    let memory = |replies| -> Rc<dyn ShardService> { Rc::new(Memory { replies, logs: RefCell::default() }) };
    start_service((shard, shards), handover, change, memory)
}

/// Starts one shard of so many with the engine that `make` gives.
pub(crate) fn start_service(
    (shard, shards): (u16, u16),
    handover: Option<HandoverPort>,
    change: impl FnOnce(&mut ServerSettings) + Send + 'static,
    make: impl FnOnce(Rc<dyn Replies>) -> Rc<dyn ShardService> + Send + 'static,
) -> SocketAddr {
    let (tell, told) = mpsc::channel();
    let started = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20).spawn(move || async move {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let mut settings = ServerSettings::new(listen, ShardId(shard), handshake(shards));
        change(&mut settings);
        let server = Server::bind(settings, handover).expect("a free port");
        tell.send(server.local_addr()).expect("the test waits");
        let service = make(server.replies());
        server.serve(service).await;
    });
    // The executor ends with the process.
    std::mem::forget(started.expect("an executor"));
    told.recv().expect("the shard tells its address")
}

/// A node of one shard.
pub(crate) fn start() -> SocketAddr {
    start_shard(0, 1, None, |_| ())
}
