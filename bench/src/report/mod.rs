//! What a run found: for programs (`summary`), for people (`text`), as files (`files`, `detail`, `page`),
//! and what the machine was (`host`).

pub mod causes;
pub mod compare;
pub mod detail;
pub mod disturbance;
pub mod files;
pub mod history;
pub mod host;
pub mod objective;
pub mod page;
pub mod summary;
mod text;
