//! Carries the bytes of many clients' cores over sockets of one thread.
//!
//! ```text
//! wait ──> read what is ready, give frames to the cores ──> the load's turn: sends ──> write what the cores want written ──> wait
//! ```
//! **Invariant**: one wait, and at most one read and one write a connection, for everything that is ready.

use std::io;
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use sealog_engine::types::Now;
use sealog_net::client::core::{Client, LinkId};
use sealog_net::wire::ReceiveBuffer;

use super::poller::{Poller, Socket};

/// Bytes that one read takes at most, unless a frame is longer.
const RECEIVE_BYTES: usize = 256 * 1024;

/// Both clocks of this process, as the cores want them.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall_start_ms: u64,
}

/// One connection of one client.
#[derive(Debug)]
struct Connection {
    socket: Socket,
    received: ReceiveBuffer,
    /// The poller also waits until it can be written to.
    waits_to_write: bool,
}

/// A client and its connections, by link.
#[derive(Debug)]
struct Member<C> {
    client: C,
    connections: Vec<Option<Connection>>,
}

/// Drives clients of one kind.
#[derive(Debug)]
pub struct Driver<C> {
    addresses: Vec<SocketAddr>,
    members: Vec<Member<C>>,
    poller: Poller,
    clock: Clock,
    ready: Vec<u64>,
    disconnects: u64,
    frame_bytes_max: u32,
}

impl Clock {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), wall_start_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
    }

    /// The wall clock at the start, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn wall_start_ms(&self) -> u64 {
        self.wall_start_ms
    }

    /// Now. One reading: the wall clock runs on from the start, so a step of it during a run goes unseen.
    #[must_use]
    pub fn now(&self) -> Now {
        // From 1 on: to the cores 0 is before everything.
        let monotonic_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        Now { monotonic_ns, wall_ms: self.wall_start_ms + monotonic_ns / 1_000_000 }
    }
}

impl<C: Client> Driver<C> {
    /// Of `clients`, which connect to `addresses` in turn. `frame_bytes_max` bounds the frames that a node may send.
    ///
    /// # Errors
    /// No more file descriptors.
    ///
    /// # Panics
    /// If there is no address.
    pub fn new(addresses: Vec<SocketAddr>, clients: Vec<C>, clock: Clock, frame_bytes_max: u32) -> io::Result<Self> {
        assert!(!addresses.is_empty(), "a client connects to somewhere");
        let members = clients.into_iter().map(|client| Member { client, connections: Vec::new() }).collect();
        Ok(Self {
            addresses,
            members,
            poller: Poller::new()?,
            clock,
            ready: Vec::with_capacity(256),
            disconnects: 0,
            frame_bytes_max,
        })
    }

    /// The clock of the cores.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Connections that broke.
    #[must_use]
    pub fn disconnects(&self) -> u64 {
        self.disconnects
    }

    /// The clients, in the order in which they were given.
    pub fn clients(&mut self) -> impl Iterator<Item = &mut C> {
        self.members.iter_mut().map(|member| &mut member.client)
    }

    /// One client.
    pub fn client(&mut self, index: usize) -> &mut C {
        &mut self.members[index].client
    }

    /// Sleeps until something has come or a core is due, at most until `until_ns`, and gives the cores what has come.
    /// `heard(client, index, read_ns)` is called behind each read, with the time at which it returned.
    ///
    /// # Errors
    /// The poller's; a broken connection is none, its core is told.
    pub fn wait(&mut self, until_ns: u64, mut heard: impl FnMut(&mut C, usize, u64)) -> io::Result<()> {
        let due_ns = self.members.iter().filter_map(|member| member.client.next_ns()).min();
        let until_ns = due_ns.map_or(until_ns, |due| due.min(until_ns));
        let left_ns = until_ns.saturating_sub(self.clock.now().monotonic_ns);
        self.ready.clear();
        self.ready.extend(self.poller.wait(Some(left_ns))?);
        for at in 0..self.ready.len() {
            let (member, link) = split(self.ready[at]);
            self.receive(member, link)?;
            let read_ns = self.clock.now().monotonic_ns;
            heard(&mut self.members[member].client, member, read_ns);
        }
        let now = self.clock.now();
        if due_ns.is_some_and(|due| due <= now.monotonic_ns) {
            for member in 0..self.members.len() {
                self.members[member].client.tick(now);
                while let Some(LinkId(link)) = self.members[member].client.links().condemned() {
                    self.close(member, link);
                }
                self.connect(member)?;
            }
        }
        Ok(())
    }

    /// Writes what the cores want written.
    ///
    /// # Errors
    /// The poller's.
    pub fn write(&mut self) -> io::Result<()> {
        for member in 0..self.members.len() {
            for link in 0..self.members[member].connections.len() {
                self.write_link(member, link)?;
            }
        }
        Ok(())
    }

    /// One read of a connection, and what can be told from it.
    fn receive(&mut self, member: usize, link: usize) -> io::Result<()> {
        let Member { client, connections } = &mut self.members[member];
        let Some(connection) = &mut connections[link] else { return Ok(()) };
        let received = connection.socket.receive(connection.received.space());
        let now = self.clock.now();
        let mut intact = match received {
            Ok(bytes) => {
                connection.received.filled(bytes);
                true
            }
            Err(_) => false,
        };
        while intact {
            match connection.received.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => intact = client.received(now, LinkId(link), &frame).is_ok(),
                Err(_) => intact = false,
            }
        }
        if !intact {
            self.close(member, link);
        }
        Ok(())
    }

    fn close(&mut self, member: usize, link: usize) {
        let now = self.clock.now();
        let Member { client, connections } = &mut self.members[member];
        connections[link] = None;
        client.closed(now, LinkId(link));
        self.disconnects += 1;
    }

    /// Makes the connections that a core wants now.
    fn connect(&mut self, member: usize) -> io::Result<()> {
        loop {
            let now = self.clock.now();
            let entry = &mut self.members[member];
            let Some((LinkId(link), _)) = entry.client.links().wanted(now) else { return Ok(()) };
            if entry.connections.len() <= link {
                entry.connections.resize_with(link + 1, || None);
            }
            match Socket::connect(self.addresses[member % self.addresses.len()]) {
                Ok(socket) => {
                    self.poller.add(&socket, join(member, link))?;
                    let received = ReceiveBuffer::new(RECEIVE_BYTES, self.frame_bytes_max);
                    entry.connections[link] = Some(Connection { socket, received, waits_to_write: false });
                    entry.client.opened(LinkId(link));
                }
                Err(_) => entry.client.closed(now, LinkId(link)),
            }
        }
    }

    fn write_link(&mut self, member: usize, link: usize) -> io::Result<()> {
        let Member { client, connections } = &mut self.members[member];
        let Some(connection) = &mut connections[link] else { return Ok(()) };
        let outbound = client.links().outbound(LinkId(link));
        if outbound.is_empty() {
            return Ok(());
        }
        match connection.socket.send(outbound) {
            Ok(()) => {
                let stuck = !outbound.is_empty();
                if stuck != connection.waits_to_write {
                    connection.waits_to_write = stuck;
                    self.poller.want_write(&connection.socket, join(member, link), stuck)?;
                }
            }
            Err(_) => self.close(member, link),
        }
        Ok(())
    }
}

fn join(member: usize, link: usize) -> u64 {
    (member as u64) << 32 | link as u64
}

fn split(token: u64) -> (usize, usize) {
    let part = |bits: u64| usize::try_from(bits).expect("below 2^32");
    (part(token >> 32), part(token & u64::from(u32::MAX)))
}
