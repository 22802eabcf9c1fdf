//! The client without its sockets. A core is told what happened and when, and gives bytes to write and events; it never waits.
//!
//! ```text
//!            opened, closed, received(frame), tick                 send, flush, turn
//!  driver ---------------------------------------------> core <--------------------- application
//!         <---------------------------------------------      --------------------->
//!            links: wanted, outbound bytes; next_ns                events
//! ```

pub mod consumer;
pub mod cursor;
pub mod links;
pub mod producer;
pub mod random;
pub(crate) mod routing;

use sealog_engine::types::{Now, TopicId};

pub use consumer::{Consumer, ConsumerSettings};
pub use cursor::{Cursor, CursorEntry, CursorError};
pub use links::{LinkId, Links, Target};
pub use producer::{Producer, ProducerSettings};
pub use random::Random;

use crate::wire::frame::{BodyError, Frame};
use crate::wire::hello::Bye;
use crate::wire::refusal::Refused;

/// What a driver drives. Call contract: as of [`Links`]; and call `tick` at [`next_ns`](Self::next_ns) at the latest.
pub trait Client {
    /// The connections that it wants.
    fn links(&mut self) -> &mut Links;

    /// A connection stands.
    fn opened(&mut self, link: LinkId) {
        self.links().opened(link);
    }

    /// A connection is gone, or could not be made.
    fn closed(&mut self, now: Now, link: LinkId);

    /// A frame has come.
    ///
    /// # Errors
    /// It cannot be what it says it is: close the connection and call [`closed`](Self::closed).
    fn received(&mut self, now: Now, link: LinkId, frame: &Frame<'_>) -> Result<(), BodyError>;

    /// Time has passed.
    fn tick(&mut self, now: Now);

    /// The turn ends: what is to be written goes to the links' outbound bytes.
    fn turn(&mut self, _now: Now) {}

    /// When `tick` or a link is next due, on the monotonic clock.
    fn next_ns(&self) -> Option<u64>;
}

/// The client cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The node does not want this client.
    #[error("the node ended the connection: {}", .0.text)]
    Bye(Bye),
    /// The topic or the producer was refused.
    #[error("refused: {}", .0.text)]
    Refused(Refused),
    /// The topic that it was for is deleted, and another of its name was created since. It is none of this client's.
    #[error("topic {was} was deleted; {now} has its name now")]
    Replaced { was: TopicId, now: TopicId },
}
