//! The load test of Sealog.
