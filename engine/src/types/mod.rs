//! The words that everyone shares: ids, offsets, epochs, the keyspace, time and limits. Imports nothing of Sealog.

pub mod buffer;
pub mod epoch;
pub mod id;
pub mod keyspace;
pub mod limits;
pub mod offset;
pub mod random;
pub mod time;

pub use buffer::AlignedBuffer;
pub use epoch::{Epoch, ProducerEpoch, Run};
pub use id::{ClusterId, DiskId, Generation, NodeId, ProcessLife, ProducerId, RangeId, SegmentId, ShardId, TopicId};
pub use keyspace::{KeyHash, KeySpan};
pub use offset::{Offset, Sequence};
pub use random::Generator;
pub use time::Now;
