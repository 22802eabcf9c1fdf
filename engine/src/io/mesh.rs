//! What shards of one node say to each other, over lock-free channels, one for each ordered pair.
//!
//! A message is put into a queue of its receiver and sent by a task of its own: **no receiver ever awaits a send**, so two shards
//! that fill each other's channels cannot wait for each other. The queues are bounded where load could fill them: a request
//! that finds `REQUESTS_MAX` messages waiting is refused at its origin.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use glommio::channels::channel_mesh::{Full, MeshBuilder, Receivers, Senders};
use glommio::channels::shared_channel::ConnectedReceiver;

use super::notify::Notify;
use crate::api::request::{ControlRequest, ReplyTo, ShardRequest};
use crate::api::response::Response;
use crate::replica::message::{ToController, ToReplica};
use crate::types::{Epoch, RangeId, ShardId};

/// Messages that a channel holds.
const CHANNEL_MESSAGES: usize = 1024;
/// Messages waiting for one shard above which a request is refused.
const REQUESTS_MAX: usize = 4096;

/// Where all shards of a node meet once.
pub(super) type Builder = MeshBuilder<Message, Full>;

/// The meeting place for `shards`.
pub(super) fn builder(shards: u16) -> Builder {
    MeshBuilder::full(usize::from(shards), CHANNEL_MESSAGES)
}

/// From one shard to another.
#[derive(Debug)]
pub(super) enum Message {
    /// The first on every channel: who sends on it.
    From(ShardId),
    /// A request for a range there.
    Request {
        to: ReplyTo,
        deadline_ns: u64,
        request: OwnedRequest,
    },
    /// A request for the controller.
    Control {
        to: ReplyTo,
        deadline_ns: u64,
        request: ControlRequest,
    },
    /// An answer to a connection there.
    Reply {
        to: ReplyTo,
        response: Response,
    },
    /// A connection of the sender is gone.
    Disconnected {
        to: ReplyTo,
    },
    ToController(ToController),
    ToReplica(ToReplica),
}

/// A request that has left its receive buffer.
#[derive(Debug)]
pub(super) enum OwnedRequest {
    Produce {
        range: RangeId,
        epoch: Epoch,
        batch: Vec<u8>,
    },
    /// One that borrows nothing.
    Other(ShardRequest<'static>),
}

impl OwnedRequest {
    pub(super) fn of(request: ShardRequest<'_>) -> Self {
        match request {
            ShardRequest::Produce { range, epoch, batch } => Self::Produce { range, epoch, batch: batch.to_vec() },
            ShardRequest::Fetch { range, offset, bytes_max, wait_ms } => {
                Self::Other(ShardRequest::Fetch { range, offset, bytes_max, wait_ms })
            }
            ShardRequest::Bounds { range } => Self::Other(ShardRequest::Bounds { range }),
            ShardRequest::Since { range, timestamp_ms } => Self::Other(ShardRequest::Since { range, timestamp_ms }),
            ShardRequest::Settle { range, producer } => Self::Other(ShardRequest::Settle { range, producer }),
            ShardRequest::Roll { range } => Self::Other(ShardRequest::Roll { range }),
            ShardRequest::Describe { range } => Self::Other(ShardRequest::Describe { range }),
        }
    }

    pub(super) fn borrow(&self) -> ShardRequest<'_> {
        match self {
            Self::Produce { range, epoch, batch } => ShardRequest::Produce { range: *range, epoch: *epoch, batch },
            Self::Other(request) => *request,
        }
    }
}

/// A queue towards one shard.
#[derive(Default)]
struct Outgoing {
    messages: RefCell<VecDeque<Message>>,
    filled: Notify,
}

/// This shard's end of the mesh.
pub(super) struct Mesh {
    /// By shard; its own stays empty.
    outgoing: Vec<Rc<Outgoing>>,
    incoming: RefCell<Vec<ConnectedReceiver<Message>>>,
}

impl Mesh {
    /// Joins all shards, which must all do so.
    pub(super) async fn join(builder: Builder, shard: ShardId) -> Self {
        let (senders, mut receivers): (Senders<Message>, Receivers<Message>) =
            builder.join().await.expect("every shard joins the mesh once");
        let (senders, own) = (Rc::new(senders), receivers.peer_id());
        let shards = senders.nr_consumers();
        let outgoing: Vec<Rc<Outgoing>> = (0..shards).map(|_| Rc::default()).collect();
        for peer in (0..shards).filter(|peer| *peer != own) {
            assert!(senders.try_send_to(peer, Message::From(shard)).is_ok(), "a new channel has room");
        }
        let mut incoming = Vec::new();
        for (peer, stream) in receivers.streams() {
            let Some(Message::From(from)) = stream.recv().await else {
                panic!("the first message on a channel says who sends");
            };
            incoming.push(stream);
            let queue = outgoing[usize::from(from.0)].clone();
            let senders = senders.clone();
            glommio::spawn_local(async move {
                loop {
                    let next = queue.messages.borrow_mut().pop_front();
                    match next {
                        None => queue.filled.wait().await,
                        Some(message) => {
                            if senders.send_to(peer, message).await.is_err() {
                                return;
                            }
                        }
                    }
                }
            })
            .detach();
        }
        Self { outgoing, incoming: RefCell::new(incoming) }
    }

    /// From now on `receive` is called with each message that comes, by a task for each peer.
    pub(super) fn listen(&self, receive: &Rc<dyn Fn(Message)>) {
        for stream in self.incoming.take() {
            let receive = receive.clone();
            glommio::spawn_local(async move {
                while let Some(message) = stream.recv().await {
                    receive(message);
                }
            })
            .detach();
        }
    }

    /// The mesh of a node with one shard.
    pub(super) fn alone() -> Self {
        Self { outgoing: Vec::new(), incoming: RefCell::default() }
    }

    /// Whether another request may be sent there.
    pub(super) fn admits(&self, shard: ShardId) -> bool {
        self.outgoing[usize::from(shard.0)].messages.borrow().len() < REQUESTS_MAX
    }

    /// Sends, in order, without waiting.
    pub(super) fn send(&self, shard: ShardId, message: Message) {
        let outgoing = &self.outgoing[usize::from(shard.0)];
        outgoing.messages.borrow_mut().push_back(message);
        outgoing.filled.notify();
    }
}
