//! The load: what is sent when (`arrivals`, `draws`, `content`, `producers`), what it cost (`tally`, `recorder`, `timeline`, `samples`), and whether it is all there
//! (`ledger`, `consumers`); `reader` is the load of a consumer. `driver` and `poller` carry the bytes; `status` is what the node says
//! of itself, `watch` looks at that and at the machine meanwhile; `disturb` makes something happen.

pub mod arrivals;
pub mod consumers;
pub mod content;
pub mod disturb;
mod draws;
pub mod driver;
pub mod ledger;
pub mod poller;
pub mod producers;
pub mod reader;
pub mod recorder;
pub mod samples;
pub mod settings;
pub mod status;
mod tally;
pub mod timeline;
pub mod watch;
