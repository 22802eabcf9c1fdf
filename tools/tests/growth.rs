//! A topic grown from one range to 256 and merged back to one, on a real daemon, while one producer writes to it that was opened before:
//! what is read afterwards is what was sent, key by key and in order, from the beginning and from a cursor of before.

mod daemon;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use daemon::{Daemon, folder};
use sealog_bench::load::disturb::{deepest_buddies, widest};
use sealog_engine::api::error::Outcome;
use sealog_engine::types::KeySpan;
use sealog_net::client::blocking::{Admin, Consumer, Ended, Producer};
use sealog_net::client::core::consumer::{ConsumerSettings, Delivery, Flow, Start};
use sealog_net::client::core::producer::Record;
use sealog_net::client::core::{Cursor, ProducerSettings};

const TOPIC: &str = "growing";
const RANGES: usize = 256;
/// Enough that each of the ranges has some.
const KEYS: u64 = 1_024;
/// Records that are sent at once, and the pause behind them: far below what the daemon takes.
const BURST: u64 = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// Records that are sent at least between two splits or merges.
const BETWEEN: u64 = 2 * BURST;
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of each key a hash of its values, in order, and how many they are.
#[derive(Default)]
struct Content(BTreeMap<Vec<u8>, (DefaultHasher, u64)>);

impl Content {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let (hasher, records) = self.0.entry(key.to_owned()).or_default();
        hasher.write_usize(value.len());
        hasher.write(value);
        *records += 1;
    }

    fn records(&self) -> u64 {
        self.0.values().map(|(_, records)| records).sum()
    }

    fn hashes(&self) -> BTreeMap<&[u8], (u64, u64)> {
        self.0.iter().map(|(key, (hasher, records))| (key.as_slice(), (hasher.finish(), *records))).collect()
    }
}

/// Sends until it is told to stop; every record is stored.
fn produce(addresses: &[String], number: &AtomicU64, stop: &AtomicBool) -> Content {
    let mut producer = Producer::open(addresses, ProducerSettings::new(TOPIC, 1)).expect("a producer");
    let (mut sent, mut stored) = (Content::default(), 0);
    let mut count = |producer: &mut Producer| {
        for done in producer.take_done() {
            assert_eq!(done.outcome, Outcome::Stored, "{done:?}");
            stored += u64::from(done.count);
        }
    };
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            let number = number.fetch_add(1, Ordering::Relaxed);
            // Multiplied so that neighbours in time are none in the order of the keys.
            let (key, value) = (format!("key {}", number * 7_919 % KEYS), format!("record {number}"));
            let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() };
            producer.send(&record).expect("it is taken");
            sent.add(key.as_bytes(), value.as_bytes());
        }
        producer.poll();
        count(&mut producer);
        std::thread::sleep(PAUSE);
    }
    producer.flush().expect("every record is told");
    count(&mut producer);
    assert_eq!(stored, number.load(Ordering::Relaxed), "nothing is left untold");
    sent
}

/// Everything from somewhere to the end, and the cursor there.
fn read(addresses: &[String], start: Start) -> (Content, Cursor) {
    let settings = ConsumerSettings { start, ..ConsumerSettings::new(TOPIC, 2) };
    let mut consumer = Consumer::new(addresses, settings, PATIENCE);
    let mut content = Content::default();
    let ended = consumer.run(None, &mut |delivery| {
        match delivery {
            Delivery::Record { record, .. } => {
                content.add(record.key.key().expect("a key"), record.value.expect("a value"));
            }
            Delivery::Gap { gap, .. } => panic!("{gap:?}"),
        }
        Flow::Continue(())
    });
    assert_eq!(ended.expect("it reads"), Ended::Done);
    (content, consumer.cursor().expect("what has been read has begun"))
}

/// Splits until there are so many ranges, then merges until there is one again; waits for the load between any two acts.
fn grow_and_shrink(admin: &mut Admin, wait: &mut dyn FnMut()) {
    let mut ranges = 1;
    while ranges < RANGES {
        let (_, routes) = admin.routes(TOPIC).expect("routes");
        assert_eq!(routes.len(), ranges);
        let halves = admin.split(TOPIC, widest(&routes).expect("ranges")).expect("it is split");
        assert_eq!(halves.len(), 2);
        ranges += 1;
        wait();
    }
    while ranges > 1 {
        let (_, routes) = admin.routes(TOPIC).expect("routes");
        assert_eq!(routes.len(), ranges);
        admin.merge(TOPIC, deepest_buddies(&routes).expect("buddies")).expect("they are merged");
        ranges -= 1;
        wait();
    }
    let (_, routes) = admin.routes(TOPIC).expect("routes");
    let spans: Vec<KeySpan> = routes.iter().map(|route| route.span).collect();
    assert_eq!(spans, [KeySpan::ALL]);
}

#[test]
fn a_topic_grown_to_256_ranges_and_merged_back_under_load_reads_back_whole_and_in_order_also_from_a_cursor_of_before() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &["--shards", "2"]) else { return };
    let addresses = [daemon.listen.clone()];
    let mut admin = Admin::connect(&addresses, PATIENCE).expect("a connection");
    admin.create_topic(TOPIC, 1).expect("a topic");
    let (nothing, before) = read(&addresses, Start::Earliest);
    assert_eq!(nothing.records(), 0);
    let (number, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sent = std::thread::scope(|scope| {
        let load = scope.spawn(|| produce(&addresses, &number, &stop));
        let mut wait = || {
            let until = number.load(Ordering::Relaxed) + BETWEEN;
            while number.load(Ordering::Relaxed) < until {
                assert!(!load.is_finished(), "the load has failed");
                std::thread::sleep(PAUSE / 4);
            }
        };
        // Also where it fails, or the load would never end.
        let grown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| grow_and_shrink(&mut admin, &mut wait)));
        stop.store(true, Ordering::Relaxed);
        let sent = load.join().expect("the load");
        grown.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent
    });
    let lineage = admin.lineage(TOPIC).expect("a lineage");
    assert_eq!(lineage.len(), 1 + 2 * (RANGES - 1) + (RANGES - 1), "two of each split, one of each merge");
    assert!(sent.records() > 7 * KEYS, "{} records", sent.records());
    for (from, start) in [("the beginning", Start::Earliest), ("a cursor of before", Start::Cursor(before))] {
        let (content, _) = read(&addresses, start);
        assert_eq!(content.records(), sent.records(), "from {from}");
        assert!(content.hashes() == sent.hashes(), "from {from}: other values of a key, or in another order");
    }
}
