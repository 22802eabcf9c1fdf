//! The long-running process: what it is told (`config`), how it begins and ends (`start`, `signals`), and what it says of itself
//! (`health`, `metrics`) over HTTP (`http`) and to a supervisor (`supervisor`); whether this host is fit for it (`fitness`). `embedded` is the same node inside a demo or a load test.

pub(crate) mod config;
pub(crate) mod embedded;
pub(crate) mod fitness;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod metrics;
pub(crate) mod signals;
pub(crate) mod start;
pub(crate) mod supervisor;
