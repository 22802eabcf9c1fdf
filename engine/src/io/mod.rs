//! The performers: what touches the kernel. They carry out the core's commands and decide nothing.
//!
//! ```text
//! probe            is this host fit? before anything else, through the io-uring crate
//! store            blocking files, for recovery before any shard runs
//! ring             this shard's own io_uring for disk work; owns the buffers while the kernel uses them
//! files            a shard's file operations, each a few steps on the ring
//! journal_writer   one journal group at a time, by the way that `calibrate` found best on this device
//! floor, device    what the device itself can do, and what it says about itself
//! cpu, clock       cores and time
//! wake_latency     bounds the time in which sleeping cores wake, while the node runs
//! recorder         takes down what is asked of the disk, for tests of power cuts
//! heartbeat        wakes an executor that sleeps while tasks are ready
//! bell             an eventfd: how completions wake an executor
//! ```
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod bell;
pub mod calibrate;
pub mod clock;
mod controller_loop;
pub mod cpu;
pub mod device;
pub mod files;
pub mod floor;
mod heartbeat;
pub mod journal_writer;
mod mesh;
pub mod metrics;
pub mod node;
pub mod notify;
pub mod probe;
pub mod recorder;
pub mod ring;
mod shard_loop;
pub mod store;
pub mod wake_latency;

#[cfg(test)]
mod testing;
