//! One copy of a range's open tail: which batches are taken, when they are acknowledged, how the tail is sealed and rolled. The
//! protocol knows offsets, never positions in files.

pub mod message;
