//! The simulator: one node of Sealog and its clients in one thread, from one seed. The engine's and the client's own code runs
//! in virtual time, on a disk that forgets and a network that breaks, and checkers hold it to what it promises.

pub mod check;
pub mod client;
pub mod coverage;
pub mod disk;
pub mod faults;
pub mod history;
pub mod mutants;
pub mod network;
pub mod node;
pub mod queue;
pub mod random;
pub mod scenario;
pub mod script;
pub mod trace;
pub mod workload;
pub mod world;
