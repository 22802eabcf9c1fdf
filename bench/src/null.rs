//! A node with nothing behind it: the real server's frames and sessions, and an answer at once to everything. What a load costs
//! against it is what client and carrying cost, and the rate that it takes is the most that one client thread can drive.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;

use glommio::channels::shared_channel;
use glommio::{LocalExecutorBuilder, Placement};
use sealog_engine::api::Refusal;
use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::{ControlRequest, ReplyTo, Request, ShardRequest};
use sealog_engine::api::response::{Response, Route, Stored, TopicView};
use sealog_engine::format::batch::BatchRef;
use sealog_engine::types::{ClusterId, Epoch, KeySpan, NodeId, ProducerEpoch, ProducerId, RangeId, ShardId, TopicId};
use sealog_net::server::{Server, ServerSettings};
use sealog_net::session::{Handshake, NodeIdentity, SessionLimits};

/// Bytes of the largest batch that is taken.
const BATCH_BYTES_MAX: u32 = 16 << 20;
/// Memory of the server's executor.
const IO_MEMORY_BYTES: usize = 1 << 20;

/// Called on the server's thread with the number of each produce, from 0 on, before it is answered.
pub type OnProduce = Box<dyn FnMut(u64) + Send>;

/// A running one, on a thread of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct NullNode {
    address: SocketAddr,
    stop: Option<shared_channel::SharedSender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

struct Null {
    replies: Rc<dyn Replies>,
    on_produce: RefCell<Option<(OnProduce, u64)>>,
}

impl NullNode {
    /// Starts one on a free port of the loopback, on this core or any.
    ///
    /// # Errors
    /// No thread, executor or socket can be had.
    ///
    /// # Panics
    /// If its thread did.
    pub fn start(cpu: Option<usize>, on_produce: Option<OnProduce>) -> io::Result<Self> {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = shared_channel::new_bounded(1);
        let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
        let thread = std::thread::Builder::new().name("null".to_owned()).spawn(move || {
            let executor =
                LocalExecutorBuilder::new(placement).io_memory(IO_MEMORY_BYTES).make().map_err(io::Error::from)?;
            executor.run(async move {
                let listen = SocketAddr::from(([127, 0, 0, 1], 0));
                let limits = SessionLimits {
                    batch_bytes_max: BATCH_BYTES_MAX,
                    fetch_bytes_max: BATCH_BYTES_MAX,
                    connection_bytes_max: 1 << 30,
                };
                let identity = NodeIdentity { cluster: ClusterId(1), node: NodeId(1), shards: 1 };
                let server =
                    Server::bind(ServerSettings::new(listen, ShardId(0), Handshake { identity, limits }), None)?;
                let service = Rc::new(Null {
                    replies: server.replies(),
                    on_produce: RefCell::new(on_produce.map(|on_produce| (on_produce, 0))),
                });
                _ = tell.send(server.local_addr());
                let serving = glommio::spawn_local(server.serve(service));
                // The other side sends nothing: this ends when it is dropped.
                _ = stopped.connect().await.recv().await;
                serving.cancel().await;
                Ok(())
            })
        })?;
        match told.recv() {
            Ok(address) => Ok(Self { address, stop: Some(stop), thread: Some(thread) }),
            // The thread has ended without an address: its error says why.
            Err(_) => match thread.join().expect("the null node does not panic") {
                Err(error) => Err(error),
                Ok(()) => Err(io::ErrorKind::AddrNotAvailable.into()),
            },
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullNode {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl ShardService for Null {
    fn request(&self, to: ReplyTo, _deadline_ms: u32, request: Request<'_>) {
        let response = match request {
            Request::Shard(ShardRequest::Produce { batch, .. }) => {
                if let Some((on_produce, number)) = self.on_produce.borrow_mut().as_mut() {
                    on_produce(*number);
                    *number += 1;
                }
                Response::Stored(Stored { records: record_count(batch), repeat: false })
            }
            Request::Shard(_) => Response::Refused(Refusal::BadRequest),
            Request::Control(ControlRequest::Routes { .. }) => {
                Response::Routes { topic: topic(), routes: vec![route()] }
            }
            Request::Control(ControlRequest::CreateTopic { .. }) => Response::Topic(topic()),
            Request::Control(
                ControlRequest::DeleteTopic { .. }
                | ControlRequest::SplitRange { .. }
                | ControlRequest::MergeRanges { .. }
                | ControlRequest::Lineage { .. },
            ) => Response::Refused(Refusal::UnknownTopic),
            Request::Control(ControlRequest::ListTopics) => Response::Topics(vec![topic()]),
            Request::Control(ControlRequest::OpenProducer { .. }) => {
                Response::Producer { producer: ProducerId(1), epoch: ProducerEpoch(1) }
            }
        };
        self.replies.reply(to, response);
    }

    fn flush(&self) {
        self.replies.flush();
    }

    fn disconnected(&self, _connection: u32) {}
}

/// As the batch says of itself; nothing else of it is looked at.
fn record_count(batch: &[u8]) -> u32 {
    BatchRef::trust(batch).map_or(0, BatchRef::record_count)
}

fn topic() -> TopicView {
    TopicView {
        topic: TopicId(1),
        name: "null".to_owned(),
        ranges: 1,
        keyspace_version: 1,
        batch_bytes_max: BATCH_BYTES_MAX,
        auto_split: None,
    }
}

fn route() -> Route {
    Route { range: RangeId(1), span: KeySpan::ALL, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) }
}
