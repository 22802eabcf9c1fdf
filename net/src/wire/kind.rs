//! The kinds of frames. A number, once given, is never given to anything else.
//!
//! ```text
//! 0x0001..0x00ff  session        0x0200..0x02ff  control
//! 0x0100..0x01ff  data path      0x0300..0x03ff  between nodes: reserved
//! ```
//! A request has an even number on the data path and in control, its answer the odd one behind it, unless an answer that exists
//! already serves; any request may instead be answered by `Refused`.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal),+ $(,)?) => {
        /// What a frame is.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[$doc])* $name = $number),+
        }

        impl Kind {
            /// All kinds, by number.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The kind of a number, or `None` if it is not known here.
            #[must_use]
            pub fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// The first frame of a client.
    Hello = 0x0001,
    /// The node's answer to it.
    Welcome = 0x0002,
    /// Are you there?
    Ping = 0x0003,
    /// I am.
    Pong = 0x0004,
    /// The last frame of a connection that is about to be closed, with the reason.
    Bye = 0x0005,
    /// A request was not done: code, outcome, retry, details.
    Refused = 0x0006,

    /// Store a batch.
    Produce = 0x0100,
    /// It is stored.
    Stored = 0x0101,
    /// Give batches of a range.
    Fetch = 0x0102,
    /// Batches as they lie on disk.
    Fetched = 0x0103,
    /// Where does a range begin and end?
    Bounds = 0x0104,
    /// There.
    BoundsAre = 0x0105,
    /// What is stored of a producer in a sealed range?
    Settle = 0x0106,
    /// That.
    Settled = 0x0107,
    /// Seal a range's open segment and go on in its successor.
    Roll = 0x0108,
    /// It is done, or there was nothing to seal.
    Rolled = 0x0109,
    /// Where do the records begin that are not earlier than a time? Answered by `BoundsAre`.
    Since = 0x010a,
    /// What does a range consist of?
    Describe = 0x010c,
    /// That.
    Described = 0x010d,

    /// Create a topic.
    CreateTopic = 0x0200,
    /// One topic.
    Topic = 0x0201,
    /// Give all topics.
    ListTopics = 0x0202,
    /// All topics.
    Topics = 0x0203,
    /// Give a topic's ranges.
    Routes = 0x0204,
    /// A topic's ranges.
    RoutesAre = 0x0205,
    /// Give a producer id, or the next epoch of one.
    OpenProducer = 0x0206,
    /// A producer id and its epoch.
    Producer = 0x0207,
    /// Delete a topic.
    DeleteTopic = 0x0208,
    /// It is deleted.
    TopicDeleted = 0x0209,
    /// Split a range.
    SplitRange = 0x020a,
    /// Ranges, with what they were made of and became.
    Lineage = 0x020b,
    /// Make one range of two. Answered by `Lineage`.
    MergeRanges = 0x020c,
    /// Give a topic's ranges, sealed ones too. Answered by `Lineage`.
    ListRanges = 0x020e,
}

impl Kind {
    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_given_once_and_leads_back_to_its_kind() {
        for (i, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(Kind::from_number(kind.number()), Some(*kind));
            assert!(Kind::ALL[..i].iter().all(|k| k.number() < kind.number()));
        }
        let known = (0..=u16::MAX).filter(|n| Kind::from_number(*n).is_some()).count();
        assert_eq!(known, Kind::ALL.len());
    }
}
