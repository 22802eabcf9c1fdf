//! The wire from outside: golden bytes of every kind, round trips of everything that can be said, and bytes that nobody meant.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod golden;
mod round_trip;
