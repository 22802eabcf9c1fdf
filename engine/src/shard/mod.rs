//! One core of a node: its ranges, journal and files, as one state machine. Shards share nothing.

pub mod command;
pub mod counters;
pub mod event;
