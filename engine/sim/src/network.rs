//! Connections between clients and the node: bytes on their way, late, in pieces, and never out of order on one connection.
//!
//! ```text
//!  client side                                             node side
//!  core --outbound--> pieces ----- ToNode, later ----->  ReceiveBuffer -> session -> node
//!  core <-- frames -- ReceiveBuffer <-- ToClient, later -- answers <------------- replies
//! ```
//! What breaks a connection reaches the two ends at different times; until then each goes on, and what it sends is lost.

use std::collections::BTreeMap;

use sealog_engine::types::ShardId;
use sealog_engine::types::time::MICROSECOND_NS;
use sealog_net::client::core::LinkId;
use sealog_net::wire::decoder::ReceiveBuffer;

use crate::queue::Queue;
use crate::random::Random;
use crate::world::Happening;

/// One connection, never given twice in a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u32);

/// What arrives somewhere.
#[derive(Debug)]
pub enum Transit {
    /// At the node: a client wants a connection.
    Connect(ConnectionId),
    /// At the client: it stands.
    Connected(ConnectionId),
    /// At the node.
    ToNode(ConnectionId, Vec<u8>),
    /// At the client.
    ToClient(ConnectionId, Vec<u8>),
    /// The node notices that it is gone.
    NodeEnds(ConnectionId),
    /// The client notices that it is gone, or could not be made.
    ClientEnds(ConnectionId),
}

/// Bytes of a receive buffer at rest.
const RESTING: usize = 16 * 1024;
/// Bytes of the longest frame before the hello has succeeded.
const GREETING_LIMIT: u32 = 64 * 1024;

/// The node's end.
pub struct NodeEnd {
    pub buffer: ReceiveBuffer,
    /// The shard that it lives on, once greeted.
    pub shard: Option<ShardId>,
    /// Answers that are not yet under way.
    pub answers: Vec<u8>,
}

/// The client's end.
pub struct ClientEnd {
    pub client: usize,
    pub link: LinkId,
    pub buffer: ReceiveBuffer,
}

/// One connection.
struct Connection {
    node: Option<NodeEnd>,
    client: Option<ClientEnd>,
    /// Nothing arrives before what was sent earlier.
    node_arrival_ns: u64,
    client_arrival_ns: u64,
    /// Bytes are held back until then.
    held_until_ns: u64,
}

/// How the network behaves in one seed.
#[derive(Clone, Copy, Debug)]
pub struct NetworkProfile {
    /// Longest usual delay, in µs.
    pub delay_us_max: u64,
    /// Of 100 sendings, how many arrive in pieces.
    pub pieces_percent: u64,
}

/// All connections.
pub struct Network {
    random: Random,
    profile: NetworkProfile,
    connections: BTreeMap<ConnectionId, Connection>,
    next: u32,
}

impl Network {
    /// A network without connections.
    #[must_use]
    pub fn new(random: Random, profile: NetworkProfile) -> Self {
        Self { random, profile, connections: BTreeMap::new(), next: 0 }
    }

    /// A client wants a connection.
    pub fn connect(&mut self, queue: &mut Queue<Happening>, client: usize, link: LinkId) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        let end = ClientEnd { client, link, buffer: ReceiveBuffer::new(RESTING, u32::MAX) };
        let at_ns = queue.now_ns() + self.delay_ns();
        let connection = Connection {
            node: None,
            client: Some(end),
            node_arrival_ns: at_ns,
            client_arrival_ns: at_ns,
            held_until_ns: 0,
        };
        self.connections.insert(id, connection);
        queue.put(at_ns, Happening::Wire(Transit::Connect(id)));
        id
    }

    /// The node takes a connection, or there is no node to take it.
    pub fn answer_connect(&mut self, queue: &mut Queue<Happening>, id: ConnectionId, taken: bool) {
        let delay_ns = self.delay_ns();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.client.is_none() {
            return;
        }
        let transit = if taken {
            let buffer = ReceiveBuffer::new(RESTING, GREETING_LIMIT);
            connection.node = Some(NodeEnd { buffer, shard: None, answers: Vec::new() });
            Transit::Connected(id)
        } else {
            Transit::ClientEnds(id)
        };
        connection.client_arrival_ns = queue.now_ns() + delay_ns;
        queue.put(connection.client_arrival_ns, Happening::Wire(transit));
    }

    /// The node's end, if it is there.
    pub fn node_end(&mut self, id: ConnectionId) -> Option<&mut NodeEnd> {
        self.connections.get_mut(&id)?.node.as_mut()
    }

    /// Takes the node's end out for as long as its bytes are looked at.
    pub fn lend_node(&mut self, id: ConnectionId) -> Option<NodeEnd> {
        self.connections.get_mut(&id)?.node.take()
    }

    /// Gives it back.
    pub fn give_node(&mut self, id: ConnectionId, end: NodeEnd) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.node = Some(end);
        }
    }

    /// The client's end, if it is there.
    pub fn client_end(&mut self, id: ConnectionId) -> Option<&mut ClientEnd> {
        self.connections.get_mut(&id)?.client.as_mut()
    }

    /// Sends what a client wants written.
    pub fn send_to_node(&mut self, queue: &mut Queue<Happening>, id: ConnectionId, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get(&id) else { return };
        let mut at_ns = connection.node_arrival_ns.max(connection.held_until_ns);
        for piece in self.pieces(bytes) {
            at_ns = at_ns.max(queue.now_ns() + self.delay_ns());
            queue.put(at_ns, Happening::Wire(Transit::ToNode(id, piece)));
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.node_arrival_ns = at_ns;
        }
    }

    /// Sends the answers that the node has gathered on a connection.
    pub fn send_answers(&mut self, queue: &mut Queue<Happening>, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(node) = &mut connection.node else { return };
        let bytes = std::mem::take(&mut node.answers);
        if bytes.is_empty() {
            return;
        }
        let mut at_ns = connection.client_arrival_ns.max(connection.held_until_ns);
        for piece in self.pieces(bytes) {
            at_ns = at_ns.max(queue.now_ns() + self.delay_ns());
            queue.put(at_ns, Happening::Wire(Transit::ToClient(id, piece)));
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.client_arrival_ns = at_ns;
        }
    }

    /// The node closes its end behind what it has sent.
    pub fn close_by_node(&mut self, queue: &mut Queue<Happening>, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.node.take().is_some()
        {
            queue.put(connection.client_arrival_ns, Happening::Wire(Transit::ClientEnds(id)));
        }
    }

    /// The client closes its end behind what it has sent.
    pub fn close_by_client(&mut self, queue: &mut Queue<Happening>, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.client.take().is_some()
        {
            queue.put(connection.node_arrival_ns, Happening::Wire(Transit::NodeEnds(id)));
        }
    }

    /// A connection breaks: each end notices when it will, and what is under way then is lost.
    pub fn reset(&mut self, queue: &mut Queue<Happening>, id: ConnectionId) {
        for transit in [Transit::NodeEnds(id), Transit::ClientEnds(id)] {
            let delay_ns = if self.random.one_in(2) { 0 } else { self.random.spread_between(1_000, 20_000_000) };
            queue.put(queue.now_ns() + delay_ns, Happening::Wire(transit));
        }
    }

    /// Every connection breaks.
    pub fn reset_all(&mut self, queue: &mut Queue<Happening>) {
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            for transit in [Transit::NodeEnds(id), Transit::ClientEnds(id)] {
                queue.put(queue.now_ns(), Happening::Wire(transit));
            }
        }
    }

    /// Holds back the bytes of a connection, both ways.
    pub fn hold(&mut self, id: ConnectionId, until_ns: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.held_until_ns = until_ns;
        }
    }

    /// The process is gone, and with it the node's end of every connection; the clients hear of it sooner or later.
    pub fn lose_node(&mut self, queue: &mut Queue<Happening>) {
        for (id, connection) in &mut self.connections {
            if connection.node.take().is_some() {
                // What was sent before the end still arrives.
                let at_ns =
                    connection.client_arrival_ns.max(queue.now_ns()) + self.random.spread_between(1_000, 5_000_000);
                queue.put(at_ns, Happening::Wire(Transit::ClientEnds(*id)));
            }
        }
    }

    /// The node has noticed that a connection is gone. Returns its end.
    pub fn end_node(&mut self, id: ConnectionId) -> Option<NodeEnd> {
        let end = self.connections.get_mut(&id)?.node.take();
        self.forget(id);
        end
    }

    /// The client has noticed that a connection is gone. Returns its end.
    pub fn end_client(&mut self, id: ConnectionId) -> Option<ClientEnd> {
        let end = self.connections.get_mut(&id)?.client.take();
        self.forget(id);
        end
    }

    fn forget(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(|c| c.node.is_none() && c.client.is_none()) {
            self.connections.remove(&id);
        }
    }

    /// Any connection that stands.
    pub fn any(&mut self) -> Option<ConnectionId> {
        let there: Vec<_> = self.connections.iter().filter(|(_, c)| c.node.is_some()).map(|(id, _)| *id).collect();
        (!there.is_empty()).then(|| *self.random.pick(&there))
    }

    /// Connections that at least one end still has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Bytes that the node's receive buffers hold.
    #[must_use]
    pub fn node_memory(&self) -> u64 {
        self.connections.values().filter_map(|c| c.node.as_ref()).map(|node| node.buffer.memory() as u64).sum()
    }

    fn delay_ns(&mut self) -> u64 {
        self.random.spread_between(5, self.profile.delay_us_max) * MICROSECOND_NS
    }

    fn pieces(&mut self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        if bytes.len() < 2 || !self.random.percent(self.profile.pieces_percent) {
            return vec![bytes];
        }
        let mut pieces = Vec::new();
        while bytes.len() > 1 && pieces.len() < 3 {
            let rest = bytes.split_off(1 + self.random.index(bytes.len() - 1));
            pieces.push(std::mem::replace(&mut bytes, rest));
        }
        pieces.push(bytes);
        pieces
    }
}

/// Puts bytes into a receive buffer, as many at a time as it has space for, and calls `frames` after each.
///
/// # Errors
/// The first that `frames` gives.
pub fn receive<E>(
    buffer: &mut ReceiveBuffer,
    mut bytes: &[u8],
    mut frames: impl FnMut(&mut ReceiveBuffer) -> Result<(), E>,
) -> Result<(), E> {
    while !bytes.is_empty() {
        let space = buffer.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        buffer.filled(count);
        bytes = &bytes[count..];
        frames(buffer)?;
    }
    Ok(())
}
