//! Decides how many ranges a topic has, from committed facts. Acts on nothing; the controller does what is wished.

pub mod split_policy;

pub use split_policy::{Wish, decide};
