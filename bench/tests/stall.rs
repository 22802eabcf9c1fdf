//! A server that stands still is seen by every record that was due meanwhile, not only by the one that happened to wait.

#[path = "../independent/client.rs"]
mod independent;

use std::io::Write as _;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sealog_bench::load::arrivals::Arrival;
use sealog_bench::load::content::LoadRun;
use sealog_bench::load::driver::Clock;
use sealog_bench::load::producers::{OnDisconnect, Phases, ProduceLoad, Produced};
use sealog_bench::load::settings::{Pace, Settings};
use sealog_bench::null::{NullNode, OnProduce};

struct NoPhases;

impl Phases for NoPhases {
    fn begin(&mut self) {}
    fn end(&mut self) {}
}

/// A server; `None`, said aloud, if this host cannot run an executor.
fn node(on_produce: Option<OnProduce>) -> Option<NullNode> {
    NullNode::start(None, on_produce)
        .map_err(|error| writeln!(std::io::stderr(), "SKIPPED: no executor here: {error}").expect("standard error"))
        .ok()
}

fn load(node: &NullNode, pace: Pace) -> Produced {
    let settings = Settings {
        pace,
        seconds: 2.0,
        warmup_seconds: 0.0,
        value_bytes: 64,
        timeout_ms: 60_000,
        ..Settings::default()
    };
    let load = ProduceLoad {
        settings: &settings,
        addresses: vec![node.address()],
        on_disconnect: OnDisconnect::Stop,
        run: LoadRun(1),
        clock: Clock::start(),
        stop: &AtomicBool::new(false),
    };
    load.run(&mut NoPhases).expect("a load")
}

/// Stands still once, for 200 ms, in front of the 500th answer.
fn stall() -> OnProduce {
    Box::new(|number| {
        if number == 500 {
            std::thread::sleep(Duration::from_millis(200));
        }
    })
}

#[test]
fn an_open_loop_sees_a_stall_in_every_record_that_was_due_in_it() {
    let Some(node) = node(Some(stall())) else { return };
    let produced = load(&node, Pace::Open { rate: 1_000.0, arrival: Arrival::Constant });
    assert_eq!(produced.times.len(), 2_000, "each record that was due was sent and answered");
    // Due in the first half of the stall: answered behind its end, 100 ms later at the least. One each millisecond.
    let slow = produced.times.response.count_between(99_000_000, u64::MAX);
    assert!(slow >= 95, "{slow} records saw a stall of 200 ms that 100 of them waited half of");
    let any = produced.times.response.count_between(10_000_000, u64::MAX);
    assert!(any >= 185, "{any} records saw a stall that was due 200 of them");
}

#[test]
fn a_closed_loop_sees_it_once_and_says_that_it_is_one() {
    let Some(node) = node(Some(stall())) else { return };
    let produced = load(&node, Pace::Closed { inflight: 1 });
    assert!(produced.times.response.max() >= 199_000_000);
    assert!(produced.times.len() > 501, "it went on behind the stall");
}

#[test]
fn a_load_against_nothing_is_all_answered() {
    let Some(node) = node(None) else { return };
    let produced = load(&node, Pace::Closed { inflight: 64 });
    assert!(produced.records > 64 && produced.not_stored + produced.unknown == 0);
    assert_eq!(produced.timeline.until(u64::MAX).map(|(_, slice)| slice.response.len()).sum::<u64>(), produced.records);
}

#[test]
fn the_independent_client_speaks_the_protocol() {
    let Some(node) = node(None) else { return };
    let mut client = independent::Client::open(&node.address().to_string(), "null").expect("a connection");
    for _ in 0..100 {
        assert!(client.store(&[7; 1024]).expect("stored") > Duration::ZERO);
    }
}

#[test]
fn the_independent_checksum_is_crc32c() {
    let crc = independent::Crc::new();
    assert_eq!(crc.of(b"123456789"), 0xe306_9283);
    assert_eq!((crc.of(b""), crc.of(&[0; 32])), (0, 0x8a91_36aa));
}
