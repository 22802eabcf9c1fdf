//! What a run found: for programs (`summary`), for people (`text`), and what the machine was (`host`).

pub mod causes;
pub mod history;
pub mod host;
pub mod objective;
pub mod summary;
mod text;
