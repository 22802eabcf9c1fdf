//! The order of each key on a real daemon, while its range is split and merged and clients have routes from before: docs/ordering.md.

mod daemon;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daemon::{Daemon, folder};
use sealog_engine::api::error::Outcome;
use sealog_engine::types::KeyHash;
use sealog_net::client::blocking::{Admin, Producer};
use sealog_net::client::core::producer::{ProducerSettings, Record};

/// For one request or record; far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
const TOPIC: &str = "t";

fn producer(daemon: &Daemon, seed: u64) -> Producer {
    let timeout_ms = u32::try_from(PATIENCE.as_millis()).expect("below 2^32");
    let settings = ProducerSettings { timeout_ms, ..ProducerSettings::new(TOPIC, seed) };
    Producer::open(std::slice::from_ref(&daemon.listen), settings).expect("a producer")
}

fn send(producer: &mut Producer, key: &str, value: &str) {
    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
    producer.send(&Record { key, value, headers: &[], timestamp_ms: None }).expect("taken");
}

/// Records of those that were told since the last call; each must be stored.
fn stored(producer: &mut Producer) -> u64 {
    let done = producer.take_done();
    assert!(done.iter().all(|done| done.outcome == Outcome::Stored), "{done:?}");
    done.iter().map(|done| u64::from(done.count)).sum()
}

/// Whoever waits for records that were sent waits no longer, also when the test has failed.
struct Ended<'a>(&'a AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Release);
    }
}

/// Splits the range of `key` and merges its halves, in turn, `count` times in all: each once `every` more records were sent, half of them for the first.
fn reshape(daemon: &Daemon, key: &str, count: u64, every: u64, sent: &AtomicU64, reshaped: &AtomicU64) {
    let mut admin = Admin::connect(std::slice::from_ref(&daemon.listen), PATIENCE).expect("a connection");
    for n in 0..count {
        while sent.load(Ordering::Acquire) < (n * every) + every / 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (_, routes) = admin.routes(TOPIC).expect("routes");
        let route = routes.iter().find(|r| r.span.contains(KeyHash::of(key.as_bytes()))).expect("a partition");
        if n % 2 == 0 {
            admin.split(TOPIC, route.range).expect("split");
        } else {
            let buddy = routes.iter().find(|r| Some(r.span) == route.span.buddy()).expect("the other half");
            admin.merge(TOPIC, [route.range, buddy.range]).expect("merged");
        }
        reshaped.store(n + 1, Ordering::Release);
    }
}

#[test]
fn a_stale_client_puts_no_record_before_one_that_was_acknowledged_before_it_was_sent() {
    const RESHAPES: u64 = 20;
    const EVERY: u64 = 100;
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &["--shards", "2"]) else { return };
    daemon.ok(&["topic", "create", TOPIC], b"");
    let mut clients = [producer(&daemon, 1), producer(&daemon, 2)];
    let mut asked = 0;
    let (sent, reshaped) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ended = Ended(&sent);
        let admin = scope.spawn(|| reshape(&daemon, "the key", RESHAPES, EVERY, &sent, &reshaped));
        for n in 0..RESHAPES * EVERY {
            // One has the newest routes: it asks anew behind each split and merge. The other has those of the first day, until it is refused.
            let newest = reshaped.load(Ordering::Acquire);
            if asked != newest {
                asked = newest;
                clients[0] = producer(&daemon, 100 + newest);
            }
            let client = &mut clients[usize::try_from(n % 2).expect("0 or 1")];
            send(client, "the key", &n.to_string());
            client.flush().expect("told");
            assert_eq!(stored(client), 1, "record {n}");
            sent.store(n + 1, Ordering::Release);
            while reshaped.load(Ordering::Acquire) < (n + 1) / EVERY && !admin.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let acknowledged: String = (0..RESHAPES * EVERY).map(|n| format!("{n}\n")).collect();
    assert_eq!(daemon.ok(&["consume", TOPIC, "--quiet"], b""), acknowledged);
}

#[test]
fn a_producer_of_the_first_day_lives_through_fifty_splits_and_merges_and_each_record_is_read_once_and_in_order() {
    const RESHAPES: u64 = 50;
    const EVERY: u64 = 200;
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &["--shards", "2"]) else { return };
    daemon.ok(&["topic", "create", TOPIC], b"");
    let mut first_day = producer(&daemon, 1);
    let (sent, reshaped) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut acknowledged = 0;
    std::thread::scope(|scope| {
        let _ended = Ended(&sent);
        let admin = scope.spawn(|| reshape(&daemon, "k0", RESHAPES, EVERY, &sent, &reshaped));
        for n in 0..RESHAPES * EVERY {
            send(&mut first_day, &format!("k{}", n % 64), &format!("{} {n}", n % 64));
            // Some are under way all the time.
            first_day.poll();
            acknowledged += stored(&mut first_day);
            sent.store(n + 1, Ordering::Release);
            while reshaped.load(Ordering::Acquire) < (n + 1) / EVERY && !admin.is_finished() {
                first_day.poll();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    first_day.flush().expect("all are told");
    acknowledged += stored(&mut first_day);
    assert_eq!(acknowledged, RESHAPES * EVERY);

    let mut of_keys: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in daemon.ok(&["consume", TOPIC, "--quiet"], b"").lines() {
        let (key, n) = line.split_once(' ').expect("key and number");
        of_keys.entry(key.parse().expect("a number")).or_default().push(n.parse().expect("a number"));
    }
    let all = |key: u64| (0..RESHAPES * EVERY).filter(|n| n % 64 == key).collect::<Vec<u64>>();
    assert_eq!(of_keys, (0..64).map(|key| (key, all(key))).collect());
}
