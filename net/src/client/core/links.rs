//! The connections that a client wants, without the connections: which there should be, what is to be written to each, and when
//! a broken one is tried again.
//!
//! ```text
//! Down --(driver takes it from `wanted`)--> Connecting --opened--> Greeting --welcome--> Up
//!   ^                                           |                     |                 |
//!   +------------------------- closed ----------+---------------------+-----------------+
//! ```
//! Call contract for a driver: connect what [`Links::wanted`] gives and tell `opened` or `closed`; after every call into the core write
//! [`Links::outbound`] of each link, and close what [`Links::condemned`] names; give each received frame to the core.
//!
//! **Invariant**: link 0 is the first one, to any shard of the address given; after its first welcome it stands for the shard that
//! welcomed it.

use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{ClusterId, NodeId, Now, ShardId};

use super::random::Random;
use crate::wire::frame::VERSION;
use crate::wire::hello::{Hello, Welcome};

/// First wait after a broken connection, doubled at each further one.
const RETRY_MS_MIN: u64 = 10;
/// Longest wait.
const RETRY_MS_MAX: u64 = 1_000;
/// Doublings after which the longest wait is reached.
const RETRY_DOUBLINGS: u32 = 7;

/// One connection of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub usize);

/// Where a connection should live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// On whichever node and shard the address leads to.
    Any,
    /// On this shard.
    Shard { node: NodeId, shard: ShardId },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// To be connected at this time, on the monotonic clock.
    Down {
        due_ns: u64,
    },
    Connecting,
    Greeting,
    Up,
}

#[derive(Debug)]
struct Link {
    target: Target,
    state: State,
    failures: u32,
    outbound: Vec<u8>,
    condemned: bool,
    /// When something last came, on the monotonic clock.
    heard_ns: u64,
}

impl Link {
    fn new(target: Target) -> Self {
        Self { target, state: State::Down { due_ns: 0 }, failures: 0, outbound: vec![], condemned: false, heard_ns: 0 }
    }
}

/// All connections of a client.
#[derive(Debug)]
pub struct Links {
    links: Vec<Link>,
    client: String,
    random: Random,
    /// Whether ranges of other shards get connections of their own.
    direct: bool,
    welcome: Option<Welcome>,
}

impl Links {
    /// The first link, wanted at once. With `direct`, [`for_shard`](Self::for_shard) makes one for each shard; else everything goes
    /// over the first, and the node forwards.
    #[must_use]
    pub fn new(client: &str, direct: bool, random: Random) -> Self {
        Self { links: vec![Link::new(Target::Any)], client: client.to_owned(), random, direct, welcome: None }
    }

    /// The first link.
    pub const FIRST: LinkId = LinkId(0);

    /// What the node said of itself, once it did.
    #[must_use]
    pub fn welcome(&self) -> Option<&Welcome> {
        self.welcome.as_ref()
    }

    /// How many links there are; their ids are below it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.links.len()
    }

    /// The link for requests to a shard; made if need be.
    pub fn for_shard(&mut self, node: NodeId, shard: ShardId) -> LinkId {
        let target = Target::Shard { node, shard };
        if !self.direct {
            return Self::FIRST;
        }
        if let Some(known) = self.links.iter().position(|l| l.target == target) {
            return LinkId(known);
        }
        self.links.push(Link::new(target));
        LinkId(self.links.len() - 1)
    }

    /// Whether requests can be written to the link.
    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        self.links[link.0].state == State::Up
    }

    /// The next link to connect now. The driver must tell `opened` or `closed` of it.
    pub fn wanted(&mut self, now: Now) -> Option<(LinkId, Target)> {
        let due = |l: &Link| matches!(l.state, State::Down { due_ns } if due_ns <= now.monotonic_ns);
        let found = self.links.iter().position(due)?;
        self.links[found].state = State::Connecting;
        Some((LinkId(found), self.links[found].target))
    }

    /// When [`wanted`](Self::wanted) will next give a link, on the monotonic clock.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let due = |l: &Link| if let State::Down { due_ns } = l.state { Some(due_ns) } else { None };
        self.links.iter().filter_map(due).min()
    }

    /// A connection stands: says hello.
    pub fn opened(&mut self, link: LinkId) {
        let cluster: Option<ClusterId> = self.welcome.map(|w| w.cluster);
        let link = &mut self.links[link.0];
        link.state = State::Greeting;
        link.outbound.clear();
        let shard = match link.target {
            Target::Any => None,
            Target::Shard { shard, .. } => Some(shard),
        };
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            features: 0,
            cluster,
            shard,
            client: self.client.clone(),
            authentication: vec![],
        };
        hello.append(&mut link.outbound, 0);
    }

    /// The node has welcomed us.
    pub fn welcomed(&mut self, link: LinkId, welcome: Welcome) {
        let entry = &mut self.links[link.0];
        entry.state = State::Up;
        entry.failures = 0;
        if entry.target == Target::Any {
            entry.target = Target::Shard { node: welcome.node, shard: welcome.shard };
        }
        self.welcome = Some(welcome);
    }

    /// A connection is gone, or could not be made; what was to be written to it is forgotten.
    pub fn closed(&mut self, now: Now, link: LinkId) {
        let wait_ms = (RETRY_MS_MIN << self.links[link.0].failures.min(RETRY_DOUBLINGS)).min(RETRY_MS_MAX);
        let due_ns = now.monotonic_ns + self.random.jitter(wait_ms * MILLISECOND_NS);
        let link = &mut self.links[link.0];
        link.outbound.clear();
        link.failures += 1;
        link.condemned = false;
        link.state = State::Down { due_ns };
    }

    /// Something came over a link.
    #[inline]
    pub(crate) fn heard(&mut self, now: Now, link: LinkId) {
        self.links[link.0].heard_ns = now.monotonic_ns;
    }

    /// When something last came over a link, on the monotonic clock.
    pub(crate) fn heard_ns(&self, link: LinkId) -> u64 {
        self.links[link.0].heard_ns
    }

    /// Nothing is heard of a link any more: the driver is to close it.
    pub(crate) fn condemn(&mut self, link: LinkId) {
        let link = &mut self.links[link.0];
        link.condemned = !matches!(link.state, State::Down { .. });
    }

    /// A link that the driver is to close, as if the node had; then it tells `closed`.
    #[must_use]
    pub fn condemned(&self) -> Option<LinkId> {
        self.links.iter().position(|l| l.condemned).map(LinkId)
    }

    /// What is to be written to a link. The driver takes it from the front.
    pub fn outbound(&mut self, link: LinkId) -> &mut Vec<u8> {
        &mut self.links[link.0].outbound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Now {
        Now { monotonic_ns: ms * MILLISECOND_NS, wall_ms: 0 }
    }

    fn welcome(shard: u16) -> Welcome {
        Welcome {
            version: 1,
            features: 0,
            cluster: ClusterId(5),
            node: NodeId(1),
            shards: 2,
            shard: ShardId(shard),
            frame_bytes_max: 1 << 20,
            batch_bytes_max: 1 << 19,
            fetch_bytes_max: 1 << 20,
            connection_bytes_max: 1 << 26,
        }
    }

    #[test]
    fn the_first_link_stands_for_the_shard_that_welcomed_it() {
        let mut links = Links::new("test", true, Random::new(1));
        assert_eq!(links.wanted(at_ms(0)), Some((Links::FIRST, Target::Any)));
        assert_eq!(links.wanted(at_ms(0)), None);
        links.opened(Links::FIRST);
        assert!(!links.outbound(Links::FIRST).is_empty() && !links.is_up(Links::FIRST));
        links.welcomed(Links::FIRST, welcome(1));
        assert!(links.is_up(Links::FIRST));
        assert_eq!(links.for_shard(NodeId(1), ShardId(1)), Links::FIRST);
        let other = links.for_shard(NodeId(1), ShardId(0));
        assert_eq!(links.for_shard(NodeId(1), ShardId(0)), other);
        assert_eq!(links.wanted(at_ms(0)), Some((other, Target::Shard { node: NodeId(1), shard: ShardId(0) })));
    }

    #[test]
    fn without_direct_links_everything_goes_over_the_first() {
        let mut links = Links::new("test", false, Random::new(1));
        assert_eq!(links.for_shard(NodeId(1), ShardId(1)), Links::FIRST);
        assert_eq!(links.count(), 1);
    }

    #[test]
    fn a_broken_link_is_tried_again_ever_later_and_at_most_after_a_second_and_a_quarter() {
        let mut links = Links::new("test", true, Random::new(1));
        let mut now_ms = 0;
        let mut waits = vec![];
        for _ in 0..12 {
            let due_ms = links.next_ns().unwrap().div_ceil(MILLISECOND_NS);
            waits.push(due_ms.saturating_sub(now_ms));
            now_ms = now_ms.max(due_ms);
            assert!(links.wanted(at_ms(now_ms)).is_some());
            links.closed(at_ms(now_ms), Links::FIRST);
        }
        assert!(waits[1] <= 13 && waits[4] >= 60, "{waits:?}");
        assert!(waits[9..].iter().all(|w| (750..=1251).contains(w)), "{waits:?}");
    }
}
