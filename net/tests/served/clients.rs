//! Clients of every kind get what they ask for.

use std::ops::ControlFlow;
use std::time::Duration;

use ::glommio::{LocalExecutorBuilder, Placement};
use sealog_engine::api::error::Outcome;
use sealog_engine::api::response::{RangeDescription, RangeRolled};
use sealog_engine::types::{Offset, RangeId, ShardId};
use sealog_net::client::blocking::{Admin, Consumer, Ended, OpenError, Producer, RequestError};
use sealog_net::client::core::consumer::{ConsumerSettings, Delivery};
use sealog_net::client::core::producer::{ProducerSettings, Record};
use sealog_net::client::core::{Cursor, consumer};
use sealog_net::client::glommio as on_glommio;
use sealog_net::server::handover;
use sealog_net::wire::frame::VERSION;
use sealog_net::wire::{Hello, Welcome};

use super::hostile::{connect, next_frame};
use super::node;

const PATIENCE: Duration = Duration::from_secs(10);

fn read_all(address: &str, start: consumer::Start) -> (Vec<String>, Cursor) {
    let mut settings = ConsumerSettings::new("topic", 2);
    settings.start = start;
    let mut consumer = Consumer::new(&[address.to_owned()], settings, PATIENCE);
    let mut seen = vec![];
    let ended = consumer.run(None, &mut |delivery| {
        match delivery {
            Delivery::Record { record, .. } => seen.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap()),
            Delivery::Gap { gap, .. } => panic!("{gap:?}"),
        }
        ControlFlow::Continue(())
    });
    assert_eq!(ended.unwrap(), Ended::Done);
    seen.sort_by_key(|v| v.trim_end_matches('.').parse::<u32>().unwrap());
    (seen, consumer.cursor().unwrap())
}

fn send(producer: &mut Producer, values: &[String]) {
    for value in values {
        let record = Record { key: Some(&value.as_bytes()[..1]), value: Some(value.as_bytes()), ..Record::default() };
        producer.send(&record).unwrap();
    }
    producer.flush().unwrap();
}

#[test]
fn what_a_blocking_producer_sends_a_blocking_consumer_reads_from_its_cursor_on() {
    let address = node::start().to_string();
    let mut producer = Producer::open(std::slice::from_ref(&address), ProducerSettings::new("topic", 1)).unwrap();
    let first: Vec<String> = (0..5_000).map(|i| i.to_string()).collect();
    send(&mut producer, &first);
    let done = producer.take_done();
    assert_eq!(done.iter().map(|d| d.count).sum::<u32>(), 5_000);
    assert!(done.iter().all(|d| d.outcome == Outcome::Stored));
    let (seen, cursor) = read_all(&address, consumer::Start::Earliest);
    assert_eq!(seen, first);
    let second: Vec<String> = (5_000..5_100).map(|i| i.to_string()).collect();
    send(&mut producer, &second);
    assert_eq!(read_all(&address, consumer::Start::Cursor(cursor)).0, second);
}

#[test]
fn a_batch_that_is_longer_than_any_single_read_arrives() {
    let address = node::start().to_string();
    let mut producer = Producer::open(std::slice::from_ref(&address), ProducerSettings::new("topic", 1)).unwrap();
    // Long ones, then enough short ones, each in a read of its own, for the long buffer to be given back, then a long one again.
    let dots = |i: usize| ".".repeat(if (3..40).contains(&i) { 3 } else { 1_000_000 });
    let values: Vec<String> = (0..42).map(|i| format!("{i}{}", dots(i))).collect();
    for value in &values {
        send(&mut producer, std::slice::from_ref(value));
    }
    assert_eq!(read_all(&address, consumer::Start::Earliest).0, values);
}

#[test]
fn topics_routes_and_bounds_are_answered() {
    let address = node::start().to_string();
    let mut admin = Admin::connect(&[address], PATIENCE).unwrap();
    assert_eq!(admin.welcome().shard, ShardId(0));
    admin.ping().unwrap();
    assert_eq!(admin.create_topic("new", 8).unwrap().ranges, 8);
    assert_eq!(admin.list_topics().unwrap()[0].name, "topic");
    assert_eq!(admin.routes("topic").unwrap().1.len(), 2);
    assert_eq!(admin.bounds(RangeId(1)).unwrap().1.0, 0);
    let described = RangeDescription { start: Offset(0), end: Offset(0), segments: 1 };
    assert_eq!(admin.describe(RangeId(1)).unwrap(), described);
    assert_eq!(admin.roll(RangeId(1)).unwrap(), RangeRolled { end: Offset(0), segments: None });
    assert_eq!(admin.open_producer(None).unwrap().0.0, 1);
    assert!(matches!(admin.routes("none"), Err(RequestError::Refused(r)) if r.code == 1));
}

#[test]
fn a_range_that_says_it_is_sealed_is_not_asked_again() {
    let mut admin = Admin::connect(&[node::start().to_string()], PATIENCE).unwrap();
    assert!(matches!(admin.roll(node::SEALED), Err(RequestError::Refused(r)) if r.code == 7));
    assert!(admin.roll(node::SEALED).is_ok(), "this node has another answer the second time");
}

#[test]
fn a_node_that_is_not_there_or_a_topic_that_is_not_is_told() {
    let nowhere = ["127.0.0.1:1".to_owned()];
    let patience = Duration::from_millis(100);
    assert!(matches!(Admin::connect(&nowhere, patience), Err(RequestError::Unreachable(_))));
    let mut settings = ProducerSettings::new("topic", 1);
    settings.timeout_ms = 100;
    assert!(matches!(Producer::open(&nowhere, settings), Err(OpenError::Unreachable(_))));
    let here = [node::start().to_string()];
    assert!(matches!(Producer::open(&here, ProducerSettings::new("none", 1)), Err(OpenError::Failed(_))));
}

#[test]
fn a_glommio_producer_keeps_its_bound_under_way_and_hears_of_every_record() {
    let address = node::start();
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20).make().unwrap();
    let (stored, read) = executor.run(async move {
        let mut settings = ProducerSettings::new("topic", 1);
        settings.one_record_a_batch = true;
        settings.records_in_flight = 64;
        let mut producer = on_glommio::Producer::open(address, settings).await.unwrap();
        let (mut sent, mut stored) = (0u64, 0u64);
        let (value, mut told) = ([7u8; 1024], vec![false; 20_000]);
        while stored < 20_000 {
            let now = producer.now();
            while sent < 20_000 && producer.in_flight() < 64 {
                let key = sent.to_le_bytes();
                let record = Record { key: Some(&key), value: Some(&value), ..Record::default() };
                assert_eq!(producer.send(now, &record), Ok(sent));
                sent += 1;
            }
            producer.turn(now);
            producer.wait(None).await;
            producer.done(&mut |done, _| {
                assert_eq!((done.count, done.outcome), (1, Outcome::Stored));
                assert!(!std::mem::replace(&mut told[usize::try_from(done.first).unwrap()], true), "told twice");
                stored += u64::from(done.count);
            });
        }
        let mut consumer = on_glommio::Consumer::new(address, ConsumerSettings::new("topic", 3));
        let mut read = 0;
        while !consumer.is_done() {
            consumer.wait(None).await;
            let _ = consumer.deliver(&mut |_| {
                read += 1;
                ControlFlow::Continue(())
            });
        }
        (stored, read)
    });
    assert_eq!((stored, read), (20_000, 20_000));
}

#[test]
fn a_connection_lives_on_the_shard_that_it_wants() {
    let mut ports = handover(2);
    let second = ports.pop();
    let first = ports.pop();
    let address = node::start_shard(0, 2, first, |_| ());
    node::start_shard(1, 2, second, |_| ());
    for shard in [1, 0, 1] {
        let mut stream = connect(address);
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            features: 0,
            cluster: None,
            shard: Some(ShardId(shard)),
            client: "test".into(),
            authentication: vec![],
        };
        let mut bytes = vec![];
        hello.append(&mut bytes, 9);
        sealog_net::wire::hello::append_ping(&mut bytes, 10);
        std::io::Write::write_all(&mut stream, &bytes).unwrap();
        let welcome = next_frame(&mut stream, |frame| Welcome::read(frame).unwrap());
        assert_eq!(welcome.shard, ShardId(shard));
        assert_eq!(next_frame(&mut stream, |frame| frame.correlation), 10, "what came behind the hello is kept");
    }
}
