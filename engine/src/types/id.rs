//! Identities. Each is a number given once and never reused; each has a type of its own so that two cannot be swapped.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A topic. Given by the metadata group, from 1.
    TopicId(u64), "t"
);
id!(
    /// A range: the log of one key span of one topic. Given by the metadata group, from 1.
    RangeId(u64), "r"
);
id!(
    /// A segment of a range. Given by the metadata group, from 1, never reused.
    SegmentId(u64), "s"
);
id!(
    /// A node of the cluster. Given by the cluster, from 1.
    NodeId(u32), "n"
);
id!(
    /// One core of a node, from 0.
    ShardId(u16), "shard-"
);
id!(
    /// A producer. 0 is *no producer*: such a batch is neither deduplicated nor ordered against others.
    ProducerId(u64), "p"
);
id!(
    /// A cluster; random, drawn when it is founded.
    ClusterId(u128), "c"
);
id!(
    /// A data directory; random, drawn when it is made.
    DiskId(u128), "d"
);
id!(
    /// One life of a node's process: the start counter of its data directory.
    ProcessLife(u64), "life-"
);
id!(
    /// A generation of a node's journals: a random number drawn at each start, which seeds the checksums of all groups, so
    /// that groups of an earlier life do not verify in a recycled file.
    Generation(u64), "g"
);

impl ProducerId {
    /// *No producer.*
    pub const NONE: Self = Self(0);
}

impl RangeId {
    /// The shard that holds this range on a node of `shards` shards.
    ///
    /// Stated, not stored: a node may restart with another number of shards, and a client may compute it from a route.
    ///
    /// # Panics
    /// If `shards` is 0.
    #[must_use]
    pub fn shard(self, shards: u16) -> ShardId {
        assert!(shards > 0, "a node has at least one shard");
        #[expect(clippy::cast_possible_truncation, reason = "a remainder by a u16 fits a u16")]
        ShardId((self.0 % u64::from(shards)) as u16)
    }
}
