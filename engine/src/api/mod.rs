//! What a node can be asked, what it answers, and the ports through which a performer carries both. The public boundary of
//! the engine: `net` and `tools` speak these words and no others.

pub mod config;
pub mod error;
pub mod port;
pub mod request;
pub mod response;

pub use config::EngineConfig;
pub use error::{Outcome, Refusal, Retry};
pub use port::{DataFile, Folder, Peers, Replies, ShardService, Store, StoreError};
pub use request::{ControlRequest, ReplyTo, Request, ShardRequest};
pub use response::{Fetched, Gap, ProducerSettled, Response, Route, Stored, TopicView};
