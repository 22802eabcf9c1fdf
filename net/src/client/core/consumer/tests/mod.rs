//! The consumer against logs in memory, over connections that break.

#![allow(clippy::wildcard_enum_match_arm)]

mod deleted;
mod lineage;
mod node;

use std::ops::ControlFlow;

use sealog_engine::api::error::Refusal;
use sealog_engine::api::response::GapCause;
use sealog_engine::types::time::MILLISECOND_NS;
use sealog_engine::types::{ClusterId, KeySpan, Now, Offset, RangeId, TopicId};

use self::node::{Node, welcome};
use super::{Consumer, ConsumerSettings, Delivery, End, Event, Start};
use crate::client::core::{Client, Cursor, CursorEntry, CursorError, LinkId, Links};
use crate::wire::{Decoded, decode};

/// A consumer and the node that it reads from.
struct Pair {
    consumer: Consumer,
    node: Node,
    now: Now,
    to_client: Vec<u8>,
}

impl Pair {
    fn new(node: Node, change: impl FnOnce(&mut ConsumerSettings)) -> Self {
        let mut settings = ConsumerSettings::new("topic", 1);
        change(&mut settings);
        let now = Now { monotonic_ns: MILLISECOND_NS, wall_ms: 0 };
        Self { consumer: Consumer::new(settings), node, now, to_client: vec![] }
    }

    fn connect(&mut self) {
        while let Some((link, _)) = self.consumer.links().wanted(self.now) {
            self.consumer.opened(link);
            self.consumer.links().outbound(link).clear();
            self.to_client.clear();
            welcome().append(&mut self.to_client, 0);
            self.give();
        }
    }

    /// The consumer takes the first frame that has come.
    fn give(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.to_client);
        let Ok(Decoded::Frame { frame, length }) = decode(&bytes, u32::MAX) else { return false };
        self.consumer.received(self.now, Links::FIRST, &frame).expect("an answer");
        self.to_client = bytes[length..].to_vec();
        true
    }

    /// One exchange: requests go, answers come.
    fn exchange(&mut self) {
        self.connect();
        self.consumer.tick(self.now);
        let requests = std::mem::take(self.consumer.links().outbound(Links::FIRST));
        self.node.answer(&requests, &mut self.to_client);
        while self.give() {}
    }

    fn cut(&mut self, link: LinkId) {
        self.to_client.clear();
        self.consumer.closed(self.now, link);
    }

    fn after_ms(&mut self, ms: u64) {
        self.now.monotonic_ns += ms * MILLISECOND_NS;
    }

    /// What is delivered in so many exchanges, as text: a record's value, or `gap FROM..TO`.
    fn read(&mut self, exchanges: u32) -> Vec<String> {
        let mut seen = vec![];
        for _ in 0..exchanges {
            self.exchange();
            let flow = self.consumer.deliver(self.now, &mut |delivery| {
                seen.push(text(delivery));
                ControlFlow::Continue(())
            });
            assert!(flow.is_continue());
            self.after_ms(1);
        }
        seen
    }

    fn read_one(&mut self) -> Option<String> {
        let mut seen = None;
        let _ = self.consumer.deliver(self.now, &mut |delivery| {
            seen = Some(text(delivery));
            ControlFlow::Break(())
        });
        seen
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.consumer.poll_event()).collect()
    }
}

fn text(delivery: Delivery<'_>) -> String {
    match delivery {
        Delivery::Record { record, .. } => String::from_utf8(record.value.expect("a value").to_vec()).expect("text"),
        Delivery::Gap { gap, .. } => format!("gap {}..{}", gap.from.0, gap.to.0),
    }
}

fn halves() -> (KeySpan, KeySpan) {
    KeySpan::ALL.halves().unwrap()
}

/// Two ranges; range 1 has a batch of two records and one of one, range 2 one record.
fn two_ranges() -> Node {
    let (low, high) = halves();
    let mut node = Node::default();
    node.add_range(1, low);
    node.add_range(2, high);
    node.append(1, &["a", "b"]);
    node.append(1, &["c"]);
    node.append(2, &["x"]);
    node
}

#[test]
fn everything_up_to_the_end_seen_at_the_start_is_read_and_no_more() {
    let mut pair = Pair::new(two_ranges(), |_| ());
    pair.exchange();
    pair.exchange();
    assert_eq!(pair.events(), [Event::Ready]);
    pair.node.append(1, &["later"]);
    pair.node.append(2, &["later"]);
    assert_eq!(pair.read(4), ["a", "b", "c", "x"]);
    assert!(pair.consumer.is_done());
}

#[test]
fn an_empty_topic_is_done_at_once() {
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    let mut pair = Pair::new(node, |_| ());
    assert_eq!(pair.read(2), [""; 0]);
    assert!(pair.consumer.is_done());
}

#[test]
fn latest_follows_only_what_comes() {
    let mut pair = Pair::new(two_ranges(), |s| (s.start, s.end) = (Start::Latest, End::Never));
    assert_eq!(pair.read(3), [""; 0]);
    pair.node.append(2, &["new"]);
    assert_eq!(pair.read(2), ["new"]);
    assert!(!pair.consumer.is_done());
}

#[test]
fn from_a_time_each_range_is_read_from_its_first_record_that_is_not_earlier() {
    let mut node = Node::default();
    node.add_range(1, halves().0);
    node.add_range(2, halves().1);
    for (value, at_ms) in [("a", 10), ("b", 10), ("c", 20), ("d", 15), ("e", 30)] {
        node.append_at(1, &[(value, value)], at_ms);
    }
    node.append_at(2, &[("x", "x"), ("y", "y")], 14);
    let mut pair = Pair::new(node.clone(), |s| s.start = Start::Time(15));
    assert_eq!(pair.read(4), ["c", "d", "e"]);
    assert!(pair.consumer.is_done());
    let mut later = Pair::new(node, |s| (s.start, s.end) = (Start::Time(25), End::Never));
    assert_eq!(later.read(3), ["e"]);
    later.node.append_at(2, &[("z", "z")], 24);
    assert_eq!(later.read(2), [""; 0], "the range had none that was late enough");
    later.node.append_at(2, &[("zz", "zz")], 25);
    later.node.append_at(2, &[("zzz", "zzz")], 1);
    assert_eq!(later.read(3), ["zz", "zzz"]);
}

#[test]
fn a_cursor_taken_between_two_records_goes_on_between_them() {
    let mut pair = Pair::new(two_ranges(), |_| ());
    for _ in 0..3 {
        pair.exchange();
    }
    assert_eq!(pair.read_one().as_deref(), Some("a"));
    let cursor = Cursor::parse(&pair.consumer.cursor().unwrap().to_string()).unwrap();
    assert_eq!(pair.read_one().as_deref(), Some("b"));
    let mut later = Pair::new(two_ranges(), |s| s.start = Start::Cursor(cursor));
    assert_eq!(later.read(4), ["b", "c", "x"]);
}

#[test]
fn gaps_are_told_between_the_records_around_them() {
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    node.append(1, &["a"]);
    node.add_gap(1, 10, GapCause::Interrupted);
    node.append(1, &["b"]);
    let mut pair = Pair::new(node, |_| ());
    assert_eq!(pair.read(3), ["a", "gap 1..11", "b"]);
    assert!(pair.consumer.is_done());
}

#[test]
fn a_part_of_a_range_is_given_only_its_own_records() {
    let (low, high) = halves();
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    let values: Vec<String> = (0..20).map(|i| i.to_string()).collect();
    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
    node.append(1, &texts);
    let read = |span_next: Offset, other_next: Offset| {
        let entry = |span, next| CursorEntry { span, range: RangeId(1), next };
        let entries = vec![entry(low, span_next), entry(high, other_next)];
        let cursor = Cursor::new(ClusterId(1), TopicId(1), entries).unwrap();
        let mut pair = Pair::new(node.clone(), |s| s.start = Start::Cursor(cursor));
        pair.read(3)
    };
    let (lower, upper) = (read(Offset(0), Offset(20)), read(Offset(20), Offset(0)));
    assert!(!lower.is_empty() && !upper.is_empty());
    let mut all = [lower, upper].concat();
    all.sort_by_key(|v| v.parse::<u32>().unwrap());
    assert_eq!(all, values);
}

#[test]
fn a_cursor_of_another_topic_is_refused() {
    let entries = vec![CursorEntry { span: KeySpan::ALL, range: RangeId(1), next: Offset(0) }];
    let foreign = Cursor::new(ClusterId(1), TopicId(9), entries).unwrap();
    let mut pair = Pair::new(two_ranges(), |s| s.start = Start::Cursor(foreign));
    assert_eq!(pair.read(3), [""; 0]);
    let error = CursorError::Foreign { cluster: ClusterId(1), topic: TopicId(9) };
    assert_eq!(pair.events(), [Event::BadCursor(error)]);
    assert_eq!(pair.consumer.cursor(), None);
}

#[test]
fn expired_data_stops_the_range_until_it_is_told_to_go_on() {
    let mut node = two_ranges();
    node.trim(1, 2);
    let entries = vec![(halves().0, 1), (halves().1, 2)].into_iter().map(|(span, id)| (span, RangeId(id)));
    let entries = entries.map(|(span, range)| CursorEntry { span, range, next: Offset(0) }).collect();
    let cursor = Cursor::new(ClusterId(1), TopicId(1), entries).unwrap();
    let mut pair = Pair::new(node, |s| s.start = Start::Cursor(cursor));
    assert_eq!(pair.read(3), ["x"]);
    let expired = Event::Expired { range: RangeId(1), next: Offset(0), resume: Offset(2) };
    assert_eq!(pair.events(), [Event::Ready, expired]);
    pair.consumer.go_on(pair.now, RangeId(1), Offset(2));
    assert_eq!(pair.read(2), ["c"]);
    assert!(pair.consumer.is_done());
}

#[test]
fn what_does_not_verify_is_fetched_again_and_then_reported() {
    let mut pair = Pair::new(two_ranges(), |_| ());
    pair.node.damage = 1;
    let mut seen = pair.read(4);
    seen.sort();
    assert_eq!(seen, ["a", "b", "c", "x"]);
    let mut pair = Pair::new(two_ranges(), |_| ());
    pair.node.damage = 100;
    assert_eq!(pair.read(6), ["a", "b"], "only the last batch is bad");
    let damaged = |range, next| Event::Damaged { range: RangeId(range), next: Offset(next) };
    assert_eq!(pair.events(), [Event::Ready, damaged(1, 2), damaged(2, 0)]);
}

#[test]
fn a_refused_fetch_is_made_again_or_reported() {
    let mut pair = Pair::new(two_ranges(), |_| ());
    pair.exchange();
    pair.exchange();
    let advices = [Refusal::Overloaded { delay_ms: 3 }, Refusal::NotPrimary { route: None }];
    pair.node.refusals.extend(advices);
    let mut seen = pair.read(60);
    seen.sort();
    assert_eq!(seen, ["a", "b", "c", "x"]);
    let mut pair = Pair::new(two_ranges(), |_| ());
    pair.exchange();
    pair.exchange();
    pair.node.refusals.push(Refusal::Unreadable { from: Offset(0) });
    assert_eq!(pair.read(10).len(), 1);
    assert!(matches!(pair.events()[..], [Event::Ready, Event::RangeFailed { next: Offset(0), .. }]));
}

#[test]
fn after_a_cut_reading_goes_on_where_it_was() {
    let mut pair = Pair::new(two_ranges(), |s| s.end = End::Never);
    assert_eq!(pair.read(3).len(), 4);
    pair.cut(Links::FIRST);
    pair.node.append(1, &["d"]);
    pair.after_ms(50);
    assert_eq!(pair.read(2), ["d"]);
}

#[test]
fn a_node_that_says_nothing_is_given_up() {
    let mut pair = Pair::new(two_ranges(), |s| s.end = End::Never);
    pair.read(3);
    pair.node.silent = true;
    pair.exchange();
    assert_eq!(pair.consumer.links().condemned(), None);
    pair.after_ms(12_000);
    pair.exchange();
    assert_eq!(pair.consumer.links().condemned(), Some(Links::FIRST));
}

#[test]
fn a_gap_is_not_told_twice() {
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    node.add_gap(1, 10, GapCause::Unreadable);
    node.append(1, &["b"]);
    let mut pair = Pair::new(node, |_| ());
    for _ in 0..3 {
        pair.exchange();
    }
    assert_eq!(pair.read_one().as_deref(), Some("gap 0..10"));
    assert_eq!(pair.read_one().as_deref(), Some("b"));
    assert_eq!(pair.read_one(), None);
}
