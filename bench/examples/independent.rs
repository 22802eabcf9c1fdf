//! `independent ADDRESS TOPIC SECONDS [VALUE BYTES]`: one record at a time by the client of `bench/independent`; prints p50 and p99 of
//! the response time as JSON, in microseconds. `bench/agreement` puts them beside the load test's.

#[path = "../independent/client.rs"]
mod client;

use std::time::{Duration, Instant};

/// Records before the measured ones.
const WARMUP: usize = 1_000;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, topic, seconds, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: independent ADDRESS TOPIC SECONDS [VALUE BYTES]");
        std::process::exit(2);
    };
    let wrong = |_| std::io::Error::new(std::io::ErrorKind::InvalidInput, "SECONDS and VALUE BYTES are numbers");
    let seconds = seconds.parse().map_err(wrong)?;
    let value = vec![7; rest.first().map_or(Ok(1024), |bytes| bytes.parse()).map_err(wrong)?];
    let mut client = client::Client::open(address, topic)?;
    for _ in 0..WARMUP {
        client.store(&value)?;
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut times = Vec::with_capacity(1 << 20);
    while Instant::now() < until {
        times.push(client.store(&value)?);
    }
    times.sort_unstable();
    let us = |permille: usize| times[(times.len() * permille / 1000).min(times.len() - 1)].as_nanos() as f64 / 1e3;
    println!("{{\"samples\":{},\"p50_us\":{},\"p99_us\":{}}}", times.len(), us(500), us(990));
    Ok(())
}
