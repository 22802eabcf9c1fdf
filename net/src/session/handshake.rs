//! The hello: what a node answers to a client's first frame.

use sealog_engine::api::EngineConfig;
use sealog_engine::types::{ClusterId, NodeId, ShardId};

use crate::wire::decoder::DecodeError;
use crate::wire::frame::{BodyError, FRAME_BYTES_CEILING, FRAME_OVERHEAD_MAX, Frame, VERSION};
use crate::wire::hello::{Bye, ByeReason, Hello, Welcome};
use crate::wire::kind::Kind;

/// Bytes of entries that one fetch gives at most, unless configured, or one batch alone is larger.
const FETCH_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// Who a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeIdentity {
    pub cluster: ClusterId,
    pub node: NodeId,
    /// Its shards; at least 1.
    pub shards: u16,
}

/// What a node takes on one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Bytes of the largest batch.
    pub batch_bytes_max: u32,
    /// Bytes of entries that one fetch gives at most, unless one batch alone is larger.
    pub fetch_bytes_max: u32,
    /// Bytes of requests that may be unanswered; at so many it is not read any more.
    pub connection_bytes_max: u64,
}

/// The node's side of the hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handshake {
    pub identity: NodeIdentity,
    pub limits: SessionLimits,
}

/// A hello that was understood and taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeted {
    /// Its correlation id, for the welcome.
    pub correlation: u64,
    /// The shard on which the connection is to live; `None`: where it is.
    pub shard: Option<ShardId>,
    /// The client's name, for people.
    pub client: String,
}

impl From<&EngineConfig> for SessionLimits {
    fn from(config: &EngineConfig) -> Self {
        Self {
            batch_bytes_max: config.batch_bytes_max,
            fetch_bytes_max: FETCH_BYTES_MAX,
            connection_bytes_max: config.connection_bytes_max,
        }
    }
}

impl SessionLimits {
    /// Bytes of the longest frame that the node takes once the hello has succeeded.
    #[must_use]
    pub fn frame_bytes_max(&self) -> u32 {
        self.batch_bytes_max.saturating_add(FRAME_OVERHEAD_MAX).min(FRAME_BYTES_CEILING)
    }
}

impl Handshake {
    /// Judges a connection's first frame.
    ///
    /// # Errors
    /// The bye to send before the connection is closed.
    pub fn judge(&self, frame: &Frame<'_>) -> Result<Greeted, Bye> {
        if frame.kind != Kind::Hello.number() {
            return Err(Bye::new(ByeReason::HelloExpected, "the first frame must be a hello"));
        }
        let hello = Hello::read(frame).map_err(|error| body_bye(&error))?;
        if hello.version_min > VERSION || hello.version_max < VERSION {
            let text = format!(
                "the client speaks versions {} to {}, this node {VERSION}",
                hello.version_min, hello.version_max
            );
            return Err(Bye::new(ByeReason::NoCommonVersion, &text));
        }
        if let Some(cluster) = hello.cluster.filter(|c| *c != self.identity.cluster) {
            let text = format!("the client means cluster {:032x}, this is {:032x}", cluster.0, self.identity.cluster.0);
            return Err(Bye::new(ByeReason::ForeignCluster, &text));
        }
        // A shard that is not there (the node may have been restarted with fewer) is no error: requests are forwarded.
        let shard = hello.shard.filter(|s| s.0 < self.identity.shards);
        Ok(Greeted { correlation: frame.correlation, shard, client: hello.client })
    }

    /// The answer to a hello that was taken, from the shard that now has the connection.
    #[must_use]
    pub fn welcome(&self, shard: ShardId) -> Welcome {
        Welcome {
            version: VERSION,
            features: 0,
            cluster: self.identity.cluster,
            node: self.identity.node,
            shards: self.identity.shards,
            shard,
            frame_bytes_max: self.limits.frame_bytes_max(),
            batch_bytes_max: self.limits.batch_bytes_max,
            fetch_bytes_max: self.limits.fetch_bytes_max,
            connection_bytes_max: self.limits.connection_bytes_max,
        }
    }
}

/// The bye for bytes that are no frame.
#[must_use]
pub fn decode_bye(error: &DecodeError) -> Bye {
    Bye::new(ByeReason::BadFrame, &error.to_string())
}

/// The bye for a hello that cannot be read.
fn body_bye(error: &BodyError) -> Bye {
    Bye::new(ByeReason::BadFrame, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::decoder::{Decoded, decode};
    use crate::wire::hello::append_ping;

    fn handshake() -> Handshake {
        Handshake {
            identity: NodeIdentity { cluster: ClusterId(7), node: NodeId(1), shards: 2 },
            limits: SessionLimits::from(&EngineConfig::default()),
        }
    }

    fn hello() -> Hello {
        Hello {
            version_min: 1,
            version_max: 1,
            features: 0,
            cluster: None,
            shard: None,
            client: "test".into(),
            authentication: vec![],
        }
    }

    fn judge(hello: &Hello) -> Result<Greeted, u16> {
        let mut bytes = vec![];
        hello.append(&mut bytes, 9);
        let Ok(Decoded::Frame { frame, .. }) = decode(&bytes, 1 << 16) else { panic!("a hello is a frame") };
        handshake().judge(&frame).map_err(|bye| bye.reason)
    }

    #[test]
    fn a_hello_is_taken_and_its_shard_kept_if_it_exists() {
        let taken = |shard| Ok(Greeted { correlation: 9, shard, client: "test".into() });
        assert_eq!(judge(&hello()), taken(None));
        assert_eq!(judge(&Hello { shard: Some(ShardId(1)), ..hello() }), taken(Some(ShardId(1))));
        assert_eq!(judge(&Hello { shard: Some(ShardId(2)), ..hello() }), taken(None));
        assert_eq!(judge(&Hello { cluster: Some(ClusterId(7)), ..hello() }), taken(None));
        assert_eq!(judge(&Hello { version_min: 0, version_max: 9, ..hello() }), taken(None));
    }

    #[test]
    fn another_cluster_another_version_and_another_first_frame_are_refused() {
        let foreign = Hello { cluster: Some(ClusterId(8)), ..hello() };
        assert_eq!(judge(&foreign), Err(ByeReason::ForeignCluster.number()));
        for (version_min, version_max) in [(2, 3), (0, 0), (2, 0)] {
            let other = Hello { version_min, version_max, ..hello() };
            assert_eq!(judge(&other), Err(ByeReason::NoCommonVersion.number()));
        }
        let mut bytes = vec![];
        append_ping(&mut bytes, 1);
        let Ok(Decoded::Frame { frame, .. }) = decode(&bytes, 1 << 16) else { panic!("a ping is a frame") };
        assert_eq!(handshake().judge(&frame).unwrap_err().reason, ByeReason::HelloExpected.number());
    }
}
