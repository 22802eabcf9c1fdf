//! Clients: the real client core in virtual time, a driver between it and the network, and the application on top.
//!
//! ```text
//!  application (workload) <-- events -- core -- outbound --> driver --> network
//!                          -- send ---->     <-- frames ----        <--
//! ```
//! The driver does what a real one does: connects what is wanted, writes what is to be written, gives frames, and calls `tick` in time.

mod admin;
mod churn;
mod operator;
mod plain;
mod reshaper;
mod roller;

use std::collections::VecDeque;

use sealog_engine::types::Now;
use sealog_net::client::core::{Client, LinkId};

pub use admin::{Admin, Wanted};
pub use churn::{CHURN_NAME, Churn, News};
pub use operator::{Operator, Told};
pub use plain::{Plain, PlainCore};
pub use reshaper::{Reshaper, Tally};
pub use roller::Roller;

use crate::check::Violation;
use crate::network::{ConnectionId, Transit, receive};
use crate::queue::Clock;
use crate::workload::{Reader, Writer};
use crate::world::{Happening, World};

/// What a client does.
pub enum Application {
    Admin(Admin),
    Churn(Box<Churn>),
    Writer(Box<Writer>),
    Reader(Box<Reader>),
    Plain(Plain),
    Roller(Roller),
    Reshaper(Box<Reshaper>),
    Operator(Operator),
}

/// One client.
pub struct SimClient {
    pub application: Application,
    pub clock: Clock,
    /// By link.
    connections: Vec<Option<ConnectionId>>,
    paused_until_ns: u64,
    /// What has come while it was paused, in order.
    held: VecDeque<Transit>,
    timer_ns: Option<u64>,
}

impl Application {
    fn core(&mut self) -> &mut dyn Client {
        match self {
            Self::Admin(admin) => admin,
            Self::Churn(churn) => &mut **churn,
            Self::Writer(writer) => &mut writer.core,
            Self::Reader(reader) => &mut reader.core,
            Self::Plain(plain) => plain.core(),
            Self::Roller(roller) => roller,
            Self::Reshaper(reshaper) => &mut **reshaper,
            Self::Operator(operator) => operator,
        }
    }
}

impl SimClient {
    /// A client that has not begun.
    #[must_use]
    pub fn new(application: Application) -> Self {
        Self {
            application,
            clock: Clock::default(),
            connections: Vec::new(),
            paused_until_ns: 0,
            held: VecDeque::new(),
            timer_ns: None,
        }
    }

    /// It does nothing before that, or a later time that was said before.
    pub fn pause(&mut self, until_ns: u64) {
        self.paused_until_ns = self.paused_until_ns.max(until_ns);
    }

    /// It goes on.
    pub fn go_on(&mut self, now_ns: u64) {
        self.paused_until_ns = self.paused_until_ns.min(now_ns);
    }

    /// When its last pause ends or ended.
    #[must_use]
    pub fn paused_until_ns(&self) -> u64 {
        self.paused_until_ns
    }

    fn now(&self, at_ns: u64) -> Now {
        self.clock.read(at_ns)
    }

    fn connection(&mut self, link: LinkId) -> &mut Option<ConnectionId> {
        if self.connections.len() <= link.0 {
            self.connections.resize(link.0 + 1, None);
        }
        &mut self.connections[link.0]
    }
}

impl World {
    /// A client begins. Returns its number.
    pub fn add_client(&mut self, application: Application) -> usize {
        let mut client = SimClient::new(application);
        client.clock.restart(self.queue.now_ns(), self.random.below(1 << 40));
        self.clients.push(client);
        let number = self.clients.len() - 1;
        self.queue.put(self.queue.now_ns(), Happening::Client(number));
        number
    }

    /// If a client is paused, the time at which it goes on.
    fn paused(&self, client: usize) -> Option<u64> {
        let until_ns = self.clients[client].paused_until_ns;
        (until_ns > self.queue.now_ns()).then_some(until_ns)
    }

    /// The time that a client waited for has come.
    pub(crate) fn client_wakes(&mut self, number: usize) -> Result<(), Violation> {
        if let Some(until_ns) = self.paused(number) {
            self.queue.put(until_ns, Happening::Client(number));
            return Ok(());
        }
        while let Some(transit) = self.clients[number].held.pop_front() {
            self.client_transit(number, transit)?;
        }
        let at_ns = self.queue.now_ns();
        let client = &mut self.clients[number];
        if matches!(&client.application, Application::Reader(reader) if reader.is_retired()) {
            return Ok(());
        }
        if client.timer_ns.is_some_and(|armed| armed > at_ns) {
            return Ok(());
        }
        client.timer_ns = None;
        let now = client.now(at_ns);
        client.application.core().tick(now);
        self.pump(number)
    }

    /// Something comes to a client.
    pub(crate) fn arrives_at_client(&mut self, transit: Transit) -> Result<(), Violation> {
        let (Transit::Connected(id) | Transit::ToClient(id, _) | Transit::ClientEnds(id)) = &transit else {
            unreachable!("what comes to the node does not come here")
        };
        let Some((number, _)) = self.client_of(*id) else { return Ok(()) };
        let paused = self.paused(number);
        if paused.is_some() || !self.clients[number].held.is_empty() {
            self.clients[number].held.push_back(transit);
            if let Some(until_ns) = paused {
                self.queue.put(until_ns, Happening::Client(number));
            }
            return Ok(());
        }
        self.client_transit(number, transit)
    }

    fn client_transit(&mut self, number: usize, transit: Transit) -> Result<(), Violation> {
        match transit {
            Transit::Connected(id) => {
                let Some((_, link)) = self.client_of(id) else { return Ok(()) };
                self.clients[number].application.core().opened(link);
            }
            Transit::ToClient(id, bytes) => self.client_receives(number, id, &bytes)?,
            Transit::ClientEnds(id) => {
                let Some((_, link)) = self.client_of(id) else { return Ok(()) };
                self.network.end_client(id);
                let client = &mut self.clients[number];
                *client.connection(link) = None;
                let now = client.now(self.queue.now_ns());
                client.application.core().closed(now, link);
            }
            Transit::Connect(_) | Transit::ToNode(..) | Transit::NodeEnds(_) => {}
        }
        self.pump(number)
    }

    fn client_of(&mut self, id: ConnectionId) -> Option<(usize, LinkId)> {
        self.network.client_end(id).map(|end| (end.client, end.link))
    }

    fn client_receives(&mut self, number: usize, id: ConnectionId, bytes: &[u8]) -> Result<(), Violation> {
        let Some(end) = self.network.client_end(id) else { return Ok(()) };
        let link = end.link;
        let client = &mut self.clients[number];
        let now = client.clock.read(self.queue.now_ns());
        let core = client.application.core();
        let understood = receive(&mut end.buffer, bytes, |buffer| {
            loop {
                match buffer.next_frame() {
                    Ok(Some(frame)) => core.received(now, link, &frame).map_err(|_| ())?,
                    Ok(None) => return Ok(()),
                    Err(_) => return Err(()),
                }
            }
        });
        if understood.is_err() {
            return Err(Violation::Node { what: "it sent what its own client does not understand" });
        }
        Ok(())
    }

    /// Lets the application act, then does what the core wants, and sees to it that its time comes.
    pub(crate) fn pump(&mut self, number: usize) -> Result<(), Violation> {
        let at_ns = self.queue.now_ns();
        self.trace.event(at_ns, 4, number as u64);
        if matches!(&self.clients[number].application, Application::Reader(reader) if reader.is_retired()) {
            return Ok(());
        }
        self.act(number)?;
        self.close_condemned(number);
        let client = &mut self.clients[number];
        let now = client.now(at_ns);
        while let Some((link, _)) = client.application.core().links().wanted(now) {
            let id = self.network.connect(&mut self.queue, number, link);
            *client.connection(link) = Some(id);
        }
        let count = client.application.core().links().count();
        for link in (0..count).map(LinkId) {
            let outbound = client.application.core().links().outbound(link);
            if outbound.is_empty() {
                continue;
            }
            let bytes = std::mem::take(outbound);
            if let Some(id) = *client.connection(link) {
                self.network.send_to_node(&mut self.queue, id, bytes);
            }
        }
        self.arm_client(number);
        Ok(())
    }

    /// Closes what the core has given up.
    fn close_condemned(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let now = client.now(self.queue.now_ns());
        while let Some(link) = client.application.core().links().condemned() {
            if let Some(id) = client.connection(link).take() {
                self.network.close_by_client(&mut self.queue, id);
            }
            client.application.core().closed(now, link);
        }
    }

    fn arm_client(&mut self, number: usize) {
        let at_ns = self.queue.now_ns();
        let client = &mut self.clients[number];
        let core_ns = client.application.core().next_ns().map(|ns| client.clock.virtual_ns(ns));
        let own_ns = match &client.application {
            Application::Admin(_)
            | Application::Churn(_)
            | Application::Plain(_)
            | Application::Roller(_)
            | Application::Reshaper(_)
            | Application::Operator(_) => None,
            Application::Writer(writer) => writer.next_ns(),
            Application::Reader(reader) => reader.next_ns(),
        };
        let Some(next_ns) = [core_ns, own_ns].into_iter().flatten().min() else { return };
        // A client that wakes does not wake again in the same instant.
        let next_ns = next_ns.max(at_ns + 1);
        if client.timer_ns.is_none_or(|armed| next_ns < armed) {
            client.timer_ns = Some(next_ns);
            self.queue.put(next_ns, Happening::Client(number));
        }
    }

    /// The client's end of all its connections is closed: its process is gone.
    pub(crate) fn close_connections(&mut self, number: usize) {
        for id in std::mem::take(&mut self.clients[number].connections).into_iter().flatten() {
            self.network.close_by_client(&mut self.queue, id);
        }
        self.clients[number].timer_ns = None;
        self.clients[number].held.clear();
    }

    /// A client's process dies, and another goes on in its place.
    pub(crate) fn client_restarts(&mut self, number: usize) -> Result<(), Violation> {
        if !self.restart_application(number)? {
            return Ok(());
        }
        self.close_connections(number);
        let origin_ns = self.random.below(1 << 40);
        let now_ns = self.queue.now_ns();
        self.clients[number].clock.restart(now_ns, origin_ns);
        self.queue.put(now_ns, Happening::Client(number));
        Ok(())
    }
}
