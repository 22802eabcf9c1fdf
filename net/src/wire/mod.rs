//! Frames and their bodies: what lies on the wire, byte for byte. Pure functions between bytes and the words of
//! `sealog_engine::api`; nothing here waits, allocates before a length was checked, or believes a byte whose checksum fails.
//!
//! ```text
//! |  header, 32 bytes  |  struct part, checksummed  |  bytes, which carry checksums of their own  |
//! ```

pub mod client;
pub mod control;
pub mod decoder;
pub mod frame;
pub mod hello;
pub mod kind;
pub mod refusal;

pub use decoder::{DecodeError, Decoded, ReceiveBuffer, decode};
pub use frame::{BodyError, Frame, FrameHeader, Head};
pub use hello::{Bye, ByeReason, Hello, Welcome};
pub use kind::Kind;
pub use refusal::Refused;
