//! The load: what is sent when (`arrivals`, `content`, `producers`), what it cost (`recorder`, `samples`), and whether it is all there
//! (`ledger`, `consumers`). `driver` and `poller` carry the bytes; `status` is what the node says of itself meanwhile.

pub mod arrivals;
pub mod consumers;
pub mod content;
pub mod driver;
pub mod ledger;
pub mod poller;
pub mod producers;
pub mod recorder;
pub mod samples;
pub mod settings;
pub mod status;
