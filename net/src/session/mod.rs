//! What a connection says and hears, without the connection: the hello, frames to requests, responses to frames, and on the
//! client's side answers. Pure; the server's and the client's drivers carry bytes to and from it.

pub mod answer;
pub mod handshake;
pub mod inbound;
pub mod outbound;

pub use answer::Answer;
pub use handshake::{Handshake, NodeIdentity, SessionLimits};
pub use inbound::{Inbound, read};
pub use outbound::append;
