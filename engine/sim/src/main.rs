//! The simulator driver.
fn main() {}
