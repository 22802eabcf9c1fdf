//! Runs plans: what the metadata group has decided is carried to the shards, and what they answer becomes the next change.

pub mod command;
pub mod event;
