//! The session's own frames: hello and welcome, bye.
//!
//! ```text
//! hello    | version min, max | shard wanted | name bytes | auth bytes | features | cluster | name | auth |
//! welcome  | version | node, shards, shard | limits | features | cluster |
//! bye      | reason | text bytes | text |
//! ```
//! The hello is read before anything is agreed on, so it is the one frame that never changes: version 1, this struct part. What a
//! later protocol wants to say goes into `features` and into what both then speak.

use sealog_engine::types::{ClusterId, NodeId, ShardId};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::frame::{self, BodyError, Frame, Head};
use super::kind::Kind;

/// Bytes of the longest client name.
pub const CLIENT_NAME_BYTES_MAX: usize = 255;
/// Bytes of the longest authentication.
pub const AUTHENTICATION_BYTES_MAX: usize = 4096;
/// Bytes of the longest text of a bye.
const BYE_TEXT_BYTES_MAX: usize = 1024;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloStruct {
    version_min: u8,
    version_max: u8,
    shard_wanted: U16,
    name_length: U16,
    authentication_length: U16,
    features: U64,
    cluster: U128,
}

const _: () = assert!(size_of::<HelloStruct>() == 32);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WelcomeStruct {
    version: u8,
    reserved: u8,
    shards: U16,
    shard: U16,
    reserved_2: U16,
    node: U32,
    frame_bytes_max: U32,
    batch_bytes_max: U32,
    fetch_bytes_max: U32,
    connection_bytes_max: U64,
    features: U64,
    cluster: U128,
}

const _: () = assert!(size_of::<WelcomeStruct>() == 56);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ByeStruct {
    reason: U16,
    text_length: U16,
}

/// Number on the wire of *any shard*.
const ANY_SHARD: u16 = u16::MAX;

/// Who a client is, and what it wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Oldest version spoken, inclusive.
    pub version_min: u8,
    /// Newest version spoken, inclusive.
    pub version_max: u8,
    /// Bits of optional abilities; none are defined.
    pub features: u64,
    /// The cluster meant; `None`: whichever this is.
    pub cluster: Option<ClusterId>,
    /// The shard that the connection should live on; `None`: any.
    pub shard: Option<ShardId>,
    /// For people; at most [`CLIENT_NAME_BYTES_MAX`] bytes.
    pub client: String,
    /// Empty; at most [`AUTHENTICATION_BYTES_MAX`] bytes.
    pub authentication: Vec<u8>,
}

/// The node's answer: who it is, and its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The version to speak.
    pub version: u8,
    /// The abilities that both have.
    pub features: u64,
    pub cluster: ClusterId,
    pub node: NodeId,
    /// Shards of the node.
    pub shards: u16,
    /// The shard that the connection lives on.
    pub shard: ShardId,
    /// Bytes of the longest frame that the node takes.
    pub frame_bytes_max: u32,
    /// Bytes of the largest batch.
    pub batch_bytes_max: u32,
    /// Bytes of entries that one fetch gives at most, unless one batch alone is larger.
    pub fetch_bytes_max: u32,
    /// Bytes of requests that this connection may have unanswered; at so many it is not read any more.
    pub connection_bytes_max: u64,
}

/// Why a connection is closed. Numbers are only ever added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum ByeReason {
    /// Received bytes were not a frame.
    BadFrame = 1,
    /// No version is spoken by both.
    NoCommonVersion = 2,
    /// The client meant another cluster.
    ForeignCluster = 3,
    /// The first frame was not a hello, or a later one was.
    HelloExpected = 4,
    /// No hello came in time.
    HelloTimeout = 5,
    /// The node has as many connections as it takes.
    TooManyConnections = 6,
    /// Answers were not read.
    SlowReader = 7,
    /// The node is stopping.
    Stopping = 8,
}

impl ByeReason {
    /// All reasons, by number.
    pub const ALL: &[Self] = &[
        Self::BadFrame,
        Self::NoCommonVersion,
        Self::ForeignCluster,
        Self::HelloExpected,
        Self::HelloTimeout,
        Self::TooManyConnections,
        Self::SlowReader,
        Self::Stopping,
    ];

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The reason of a number, or `None` if it is not known here.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|r| r.number() == number)
    }
}

/// The last frame of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bye {
    /// Number of a [`ByeReason`].
    pub reason: u16,
    /// For people.
    pub text: String,
}

impl Hello {
    /// Appends its frame.
    ///
    /// # Panics
    /// If name or authentication are too long.
    pub fn append(&self, out: &mut Vec<u8>, correlation: u64) {
        assert!(self.client.len() <= CLIENT_NAME_BYTES_MAX && self.authentication.len() <= AUTHENTICATION_BYTES_MAX);
        let length = |bytes: usize| U16::new(u16::try_from(bytes).expect("checked above"));
        let head = HelloStruct {
            version_min: self.version_min,
            version_max: self.version_max,
            shard_wanted: self.shard.map_or(ANY_SHARD, |s| s.0).into(),
            name_length: length(self.client.len()),
            authentication_length: length(self.authentication.len()),
            features: self.features.into(),
            cluster: self.cluster.map_or(0, |c| c.0).into(),
        };
        let structure = [head.as_bytes(), self.client.as_bytes(), &self.authentication].concat();
        frame::append(out, Head::request(Kind::Hello, correlation, 0), &structure, &[]);
    }

    /// Reads the body of a hello.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(frame: &Frame<'_>) -> Result<Self, BodyError> {
        frame.without_bytes()?;
        let found = frame.struct_part.len();
        let (head, rest) = HelloStruct::ref_from_prefix(frame.struct_part)
            .map_err(|_| BodyError::StructLength { found, expected: size_of::<HelloStruct>() })?;
        let (name, authentication) =
            (usize::from(head.name_length.get()), usize::from(head.authentication_length.get()));
        if rest.len() != name + authentication {
            return Err(BodyError::StructLength { found, expected: size_of::<HelloStruct>() + name + authentication });
        }
        if name > CLIENT_NAME_BYTES_MAX {
            return Err(BodyError::Value { field: "hello.client" });
        }
        if authentication > AUTHENTICATION_BYTES_MAX {
            return Err(BodyError::Value { field: "hello.authentication" });
        }
        let client = std::str::from_utf8(&rest[..name]).map_err(|_| BodyError::Value { field: "hello.client" })?;
        Ok(Self {
            version_min: head.version_min,
            version_max: head.version_max,
            features: head.features.get(),
            cluster: Some(head.cluster.get()).filter(|c| *c != 0).map(ClusterId),
            shard: Some(head.shard_wanted.get()).filter(|s| *s != ANY_SHARD).map(ShardId),
            client: client.to_owned(),
            authentication: rest[name..].to_vec(),
        })
    }
}

impl Welcome {
    /// Appends its frame.
    pub fn append(&self, out: &mut Vec<u8>, correlation: u64) {
        let structure = WelcomeStruct {
            version: self.version,
            reserved: 0,
            shards: self.shards.into(),
            shard: self.shard.0.into(),
            reserved_2: 0.into(),
            node: self.node.0.into(),
            frame_bytes_max: self.frame_bytes_max.into(),
            batch_bytes_max: self.batch_bytes_max.into(),
            fetch_bytes_max: self.fetch_bytes_max.into(),
            connection_bytes_max: self.connection_bytes_max.into(),
            features: self.features.into(),
            cluster: self.cluster.0.into(),
        };
        frame::append(out, Head::answer(Kind::Welcome, correlation), structure.as_bytes(), &[]);
    }

    /// Reads the body of a welcome.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(frame: &Frame<'_>) -> Result<Self, BodyError> {
        frame.without_bytes()?;
        let wire: &WelcomeStruct = frame.body()?;
        if wire.shards.get() == 0 {
            return Err(BodyError::Value { field: "welcome.shards" });
        }
        Ok(Self {
            version: wire.version,
            features: wire.features.get(),
            cluster: ClusterId(wire.cluster.get()),
            node: NodeId(wire.node.get()),
            shards: wire.shards.get(),
            shard: ShardId(wire.shard.get()),
            frame_bytes_max: wire.frame_bytes_max.get(),
            batch_bytes_max: wire.batch_bytes_max.get(),
            fetch_bytes_max: wire.fetch_bytes_max.get(),
            connection_bytes_max: wire.connection_bytes_max.get(),
        })
    }
}

impl Bye {
    /// A bye of this code's own reasons; a text that is too long is cut.
    #[must_use]
    pub fn new(reason: ByeReason, text: &str) -> Self {
        let mut end = text.len().min(BYE_TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self { reason: reason.number(), text: text[..end].to_owned() }
    }

    /// Appends its frame.
    ///
    /// # Panics
    /// If the text does not fit a frame's struct part.
    pub fn append(&self, out: &mut Vec<u8>) {
        let text_length = u16::try_from(self.text.len()).expect("a bye's text is short").into();
        let head = ByeStruct { reason: self.reason.into(), text_length };
        let structure = [head.as_bytes(), self.text.as_bytes()].concat();
        frame::append(out, Head::answer(Kind::Bye, 0), &structure, &[]);
    }

    /// Reads the body of a bye.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(frame: &Frame<'_>) -> Result<Self, BodyError> {
        frame.without_bytes()?;
        let found = frame.struct_part.len();
        let (head, rest) = ByeStruct::ref_from_prefix(frame.struct_part)
            .map_err(|_| BodyError::StructLength { found, expected: size_of::<ByeStruct>() })?;
        let text = usize::from(head.text_length.get());
        if rest.len() != text {
            return Err(BodyError::StructLength { found, expected: size_of::<ByeStruct>() + text });
        }
        let text = std::str::from_utf8(rest).map_err(|_| BodyError::Value { field: "bye.text" })?;
        Ok(Self { reason: head.reason.get(), text: text.to_owned() })
    }
}

/// Appends the frame of a ping.
pub fn append_ping(out: &mut Vec<u8>, correlation: u64) {
    frame::append(out, Head::request(Kind::Ping, correlation, 0), &[], &[]);
}

/// Appends the frame of the answer to a ping.
pub fn append_pong(out: &mut Vec<u8>, correlation: u64) {
    frame::append(out, Head::answer(Kind::Pong, correlation), &[], &[]);
}
