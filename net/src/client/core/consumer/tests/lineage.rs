//! Reading through splits and merges: ancestors first, halves waiting for each other, every record once, whatever interrupts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;
use sealog_engine::api::error::Refusal;
use sealog_engine::types::{ClusterId, KeyHash, KeySpan, Offset, RangeId, TopicId};

use super::node::Node;
use super::{Event, Pair, halves, text};
use crate::client::core::consumer::{End, Start};
use crate::client::core::{Client, Cursor, CursorEntry, Failure, Links, Random};

fn cursor_at_the_first_range() -> Cursor {
    let entries = vec![CursorEntry { span: KeySpan::ALL, range: RangeId(1), next: Offset(0) }];
    Cursor::new(ClusterId(1), TopicId(1), entries).unwrap()
}

/// A key of each half.
fn keys() -> (String, String) {
    let in_span = |span: KeySpan| (0..).map(|i| format!("k{i}")).find(|k| span.contains(KeyHash::of(k.as_bytes())));
    (in_span(halves().0).unwrap(), in_span(halves().1).unwrap())
}

#[test]
fn children_are_read_behind_their_parents_end() {
    let (low, high) = keys();
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    node.append_keyed(1, &[(&low, "parent")]);
    node.add_range(2, halves().0);
    node.add_range(3, halves().1);
    node.append_keyed(2, &[(&low, "low child")]);
    node.append_keyed(3, &[(&high, "high child")]);
    node.seal(1, &[2, 3]);
    let mut pair = Pair::new(node, |s| s.start = Start::Cursor(cursor_at_the_first_range()));
    assert_eq!(pair.read(4), ["parent", "low child", "high child"]);
    assert!(pair.consumer.is_done());
    assert_eq!(pair.consumer.cursor().unwrap().entries().len(), 2);
}

#[test]
fn a_range_that_is_split_before_reading_begins_is_read_from_its_own_beginning() {
    let (low, high) = keys();
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    node.append_keyed(1, &[(&low, "parent")]);
    // Its shard does not know it yet: newer routes are asked for meanwhile.
    node.bounds_refusals = vec![Refusal::UnknownRange];
    let mut pair = Pair::new(node, |s| s.end = End::Never);
    assert_eq!(pair.read(2), [""; 0]);
    pair.node.add_range(2, halves().0);
    pair.node.add_range(3, halves().1);
    pair.node.append_keyed(3, &[(&high, "child")]);
    pair.node.seal(1, &[2, 3]);
    pair.after_ms(100);
    assert_eq!(pair.read(5), ["parent", "child"]);
}

#[test]
fn whoever_reads_to_the_end_stops_there_though_its_range_was_split_or_merged_meanwhile() {
    let (low, high) = keys();
    let mut node = Node::default();
    node.add_range(1, halves().0);
    node.add_range(2, halves().1);
    node.append_keyed(1, &[(&low, "a")]);
    node.append_keyed(2, &[(&high, "b")]);
    let mut pair = Pair::new(node, |s| s.end = End::Committed);
    pair.exchange();
    // Its bounds are known; the fetches are answered by ranges that are sealed.
    pair.node.add_range(3, KeySpan::ALL);
    pair.node.append_keyed(3, &[(&low, "merged")]);
    pair.node.seal(1, &[3]);
    pair.node.seal(2, &[3]);
    assert_eq!(pair.read(4), ["a", "b"]);
    assert!(pair.consumer.is_done());
    let cursor = pair.consumer.cursor().unwrap();
    let mut later = Pair::new(pair.node.clone(), |s| s.start = Start::Cursor(cursor));
    assert_eq!(later.read(4), ["merged"], "the cursor goes on behind it");
}

#[test]
fn at_a_merge_the_half_that_is_done_waits_for_the_other() {
    let (low, high) = keys();
    let mut node = Node::default();
    node.add_range(1, halves().0);
    node.add_range(2, halves().1);
    node.append_keyed(1, &[(&low, "a")]);
    node.append_keyed(2, &[(&high, "b")]);
    let mut pair = Pair::new(node, |s| s.end = End::Never);
    assert_eq!(pair.read(3), ["a", "b"]);
    pair.node.add_range(3, KeySpan::ALL);
    pair.node.append_keyed(3, &[(&low, "merged")]);
    pair.node.seal(1, &[3]);
    assert_eq!(pair.read(3), [""; 0], "the other half is not at its end");
    let cursor = pair.consumer.cursor().unwrap();
    pair.node.append_keyed(2, &[(&high, "c")]);
    pair.node.seal(2, &[3]);
    assert_eq!(pair.read(3), ["c", "merged"]);
    let mut later = Pair::new(pair.node.clone(), |s| s.start = Start::Cursor(cursor));
    assert_eq!(later.read(5), ["c", "merged"], "a cursor taken while one half waited goes on the same way");
}

#[test]
fn a_time_that_a_parent_did_not_reach_is_looked_for_in_its_children() {
    let (low, high) = keys();
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    node.append_at(1, &[(&low, "parent")], 5);
    let mut pair = Pair::new(node, |s| (s.start, s.end) = (Start::Time(10), End::Never));
    assert_eq!(pair.read(3), [""; 0]);
    pair.node.add_range(2, halves().0);
    pair.node.add_range(3, halves().1);
    pair.node.seal(1, &[2, 3]);
    pair.node.append_at(2, &[(&low, "early")], 9);
    pair.node.append_at(3, &[(&high, "early")], 9);
    assert_eq!(pair.read(4), [""; 0]);
    pair.node.append_at(2, &[(&low, "late")], 10);
    assert_eq!(pair.read(3), ["late"]);
    pair.node.add_range(4, KeySpan::ALL);
    pair.node.seal(2, &[4]);
    pair.node.seal(3, &[4]);
    pair.node.append_at(4, &[(&low, "of a half that has begun")], 8);
    assert_eq!(pair.read(5), ["of a half that has begun"]);
}

#[test]
fn a_sealed_end_whose_successors_are_not_known_yet_is_asked_for_again() {
    let (low, _) = keys();
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    node.append_keyed(1, &[(&low, "a")]);
    node.seal(1, &[]);
    node.add_range(2, KeySpan::ALL);
    node.append_keyed(2, &[(&low, "b")]);
    let mut pair = Pair::new(node, |s| s.start = Start::Cursor(cursor_at_the_first_range()));
    assert_eq!(pair.read(20), ["a"]);
    let mut sealed = Node::default();
    std::mem::swap(&mut sealed, &mut pair.node);
    sealed.seal(1, &[2]);
    pair.node = sealed;
    assert_eq!(pair.read(100), ["b"]);
}

/// A range of three records, that was split, its children with one record each, and those merged again.
fn split_and_merged() -> Node {
    let (low, high) = keys();
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    for (value, at_ms) in [("a", 1), ("b", 2), ("c", 3)] {
        node.append_at(1, &[(&low, value)], at_ms);
    }
    node.add_range(2, halves().0);
    node.add_range(3, halves().1);
    node.seal(1, &[2, 3]);
    node.append_at(2, &[(&low, "d")], 4);
    node.append_at(3, &[(&high, "e")], 5);
    node.add_range(4, KeySpan::ALL);
    node.seal(2, &[4]);
    node.seal(3, &[4]);
    node.append_at(4, &[(&low, "f")], 6);
    node
}

#[test]
fn the_earliest_record_lies_in_the_ranges_that_the_topic_was_created_with() {
    for lineage_max in 0..5 {
        let mut node = split_and_merged();
        node.lineage_max = lineage_max;
        let mut pair = Pair::new(node, |_| ());
        assert_eq!(pair.read(20), ["a", "b", "c", "d", "e", "f"]);
        assert!(pair.consumer.is_done());
        let pages: &[u64] = [&[0][..], &[0, 1, 2, 3], &[0, 2], &[0, 3], &[0]][lineage_max];
        assert_eq!(pair.node.pages, pages, "pages of {lineage_max}");
    }
}

#[test]
fn what_is_split_and_merged_between_the_routes_and_the_bounds_is_read_from_its_earliest_record() {
    for end in [End::Committed, End::Never] {
        let (low, high) = keys();
        let mut node = Node::default();
        node.add_range(1, KeySpan::ALL);
        node.append_keyed(1, &[(&low, "a"), (&high, "b")]);
        node.lineage_max = 1;
        let mut pair = Pair::new(node, |s| s.end = end);
        // Routes have come, and nothing else.
        pair.exchange();
        pair.node.add_range(2, halves().0);
        pair.node.add_range(3, halves().1);
        pair.node.seal(1, &[2, 3]);
        pair.node.append_keyed(2, &[(&low, "c")]);
        // The first page and the bounds.
        pair.exchange();
        pair.node.add_range(4, KeySpan::ALL);
        pair.node.seal(2, &[4]);
        pair.node.seal(3, &[4]);
        pair.node.append_keyed(4, &[(&high, "d")]);
        let seen = pair.read(20);
        match end {
            End::Committed => assert_eq!(seen, ["a", "b"], "what came behind the end is none of it"),
            End::Never => assert_eq!(seen, ["a", "b", "c", "d"]),
        }
        assert_eq!(pair.consumer.is_done(), end == End::Committed);
    }
}

#[test]
fn a_refused_or_lost_question_before_reading_begins_is_asked_again_from_where_it_was() {
    let mut node = split_and_merged();
    node.lineage_max = 2;
    node.lineage_refusals = vec![Refusal::Stopping, Refusal::Overloaded { delay_ms: 5 }];
    let mut pair = Pair::new(node, |_| ());
    for _ in 0..40 {
        pair.exchange();
        pair.after_ms(20);
        if pair.node.pages == [0] {
            break;
        }
    }
    // The second page is asked for over a connection that is cut.
    pair.cut(Links::FIRST);
    pair.after_ms(200);
    assert_eq!(pair.read(30), ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(pair.node.pages.first(), Some(&0));
    assert!(pair.node.pages[1..].iter().all(|after| *after == 2), "{:?}", pair.node.pages);
}

#[test]
fn a_lineage_that_is_none_of_the_topic_is_not_believed() {
    let (low, _) = keys();
    let mut pair = Pair::new(split_and_merged(), |_| ());
    pair.exchange();
    // Another topic has the name now.
    let mut other = Node::default();
    other.add_range(9, KeySpan::ALL);
    other.append_keyed(9, &[(&low, "of another topic")]);
    other.deleted = Some(Some(TopicId(2)));
    pair.node = other;
    assert_eq!(pair.read(20), [""; 0]);
    let replaced = Failure::Replaced { was: TopicId(1), now: TopicId(2) };
    assert_eq!(pair.events(), [Event::Failed(replaced)]);
}

#[test]
fn a_time_is_looked_for_in_the_oldest_ranges_and_then_in_each_that_took_their_place() {
    let mut pair = Pair::new(split_and_merged(), |s| s.start = Start::Time(5));
    assert_eq!(pair.read(20), ["e", "f"]);
    assert!(pair.consumer.is_done());
    let mut first: BTreeMap<u64, u64> = BTreeMap::new();
    for (range, offset) in &pair.node.fetched {
        first.entry(*range).or_insert(*offset);
    }
    assert_eq!(first, BTreeMap::from([(1, 1), (2, 0), (3, 0), (4, 0)]), "range 1 from the middle of what is earlier");

    let mut node = split_and_merged();
    for (value, at_ms) in [("g", 7), ("h", 8), ("i", 9)] {
        node.append_at(4, &[(&keys().0, value)], at_ms);
    }
    node.add_range(5, KeySpan::ALL);
    node.seal(4, &[5]);
    node.append_at(5, &[(&keys().0, "j")], 10);
    for refusals in [vec![], vec![Refusal::Overloaded { delay_ms: 3 }, Refusal::NotPrimary { route: None }]] {
        let mut pair = Pair::new(node.clone(), |s| (s.start, s.end) = (Start::Time(9), End::Never));
        pair.exchange();
        pair.exchange();
        pair.exchange();
        pair.node.since_refusals = refusals;
        assert_eq!(pair.read(100), ["i", "j"]);
        let of_4 = pair.node.fetched.iter().find(|(range, _)| *range == 4);
        assert_eq!(of_4, Some(&(4, 1)), "read from where the time is, not from its beginning");
    }
}

#[test]
fn a_node_that_says_nothing_while_a_time_is_looked_for_is_given_up_and_asked_again() {
    let mut pair = Pair::new(split_and_merged(), |s| (s.start, s.end) = (Start::Time(6), End::Never));
    pair.node.since_silent = true;
    for _ in 0..40 {
        pair.exchange();
        let _ = pair.consumer.deliver(pair.now, &mut |_| ControlFlow::Continue(()));
        pair.after_ms(1);
    }
    assert_eq!(pair.consumer.links().condemned(), None);
    pair.after_ms(12_000);
    pair.exchange();
    assert_eq!(pair.consumer.links().condemned(), Some(Links::FIRST));
    pair.cut(Links::FIRST);
    pair.node.since_silent = false;
    pair.after_ms(200);
    assert_eq!(pair.read(20), ["f"]);
}

/// A topic with a history: appends, splits and merges at random, from range 1 on. The records of step `i` are of time `i`.
fn history(random: &mut Random) -> (Node, Vec<(u64, KeyHash, String)>) {
    let mut node = Node::default();
    node.add_range(1, KeySpan::ALL);
    let (mut next_range, mut records) = (2, vec![]);
    for i in 0..120 {
        let active = node.active();
        let pick = |random: &mut Random, n: usize| usize::try_from(random.next_u64() % n as u64).unwrap();
        let (id, span) = active[pick(random, active.len())];
        match random.next_u64() % 10 {
            0 => {
                if let Some((low, high)) = span.halves() {
                    node.add_range(next_range, low);
                    node.add_range(next_range + 1, high);
                    node.seal(id, &[next_range, next_range + 1]);
                    next_range += 2;
                }
            }
            1 => {
                let buddy = span.buddy().and_then(|b| active.iter().find(|(_, s)| *s == b));
                if let Some((other, buddy)) = buddy {
                    let first = span.first().min(buddy.first());
                    node.add_range(next_range, KeySpan::new(first, span.depth() - 1).unwrap());
                    node.seal(id, &[next_range]);
                    node.seal(*other, &[next_range]);
                    next_range += 1;
                }
            }
            _ => {
                let mut batch = vec![];
                for j in 0..=random.next_u64() % 3 {
                    let key = format!("key-{}", random.next_u64() % 16);
                    if span.contains(KeyHash::of(key.as_bytes())) {
                        batch.push((key, format!("{i}.{j}")));
                    }
                }
                if !batch.is_empty() {
                    let texts: Vec<(&str, &str)> = batch.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                    node.append_at(id, &texts, i);
                    records.extend(batch.iter().map(|(k, v)| (i, KeyHash::of(k.as_bytes()), v.clone())));
                }
            }
        }
    }
    (node, records)
}

fn by_key(records: impl IntoIterator<Item = (KeyHash, String)>) -> BTreeMap<KeyHash, Vec<String>> {
    let mut keys: BTreeMap<KeyHash, Vec<String>> = BTreeMap::new();
    for (hash, value) in records {
        keys.entry(hash).or_default().push(value);
    }
    keys
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn through_any_history_each_record_is_read_once_in_its_keys_order_across_cuts_and_restarts(seed: u64) {
        let mut random = Random::new(seed);
        let (mut node, mut written) = history(&mut random);
        node.pieces_max = 2;
        node.lineage_max = usize::try_from(random.next_u64() % 4).unwrap();
        let start = match random.next_u64() % 3 {
            0 => Start::Cursor(cursor_at_the_first_range()),
            1 => Start::Earliest,
            _ => Start::Time(random.next_u64() % 140),
        };
        if let Start::Time(from_ms) = start {
            written.retain(|(at_ms, ..)| *at_ms >= from_ms);
        }
        // A cursor knows no time: what follows in ranges where it was not met yet is all read.
        let restarts = !matches!(start, Start::Time(_));
        let mut seen = vec![];
        let mut pair = Pair::new(node.clone(), |s| s.start = start);
        for _ in 0..5_000 {
            pair.exchange();
            let stop_at = seen.len() + usize::try_from(random.next_u64() % 6).unwrap();
            let _ = pair.consumer.deliver(pair.now, &mut |delivery| {
                if let super::Delivery::Record { record, .. } = delivery {
                    seen.push((record.key.hash(), text(delivery)));
                }
                if seen.len() > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            pair.after_ms(1);
            if pair.consumer.is_done() {
                break;
            }
            match random.next_u64() % 100 {
                0..5 if pair.consumer.links().is_up(Links::FIRST) => pair.cut(Links::FIRST),
                5..10 if restarts => {
                    if let Some(cursor) = pair.consumer.cursor() {
                        let cursor = Cursor::parse(&cursor.to_string()).unwrap();
                        pair = Pair::new(node.clone(), |s| s.start = Start::Cursor(cursor));
                    }
                }
                10..15 => pair.node.refusals = vec![Refusal::Overloaded { delay_ms: 1 }],
                15 => pair.node.since_refusals = vec![Refusal::NotPrimary { route: None }],
                16 => pair.node.bounds_refusals = vec![Refusal::Overloaded { delay_ms: 1 }],
                17 => pair.node.lineage_refusals = vec![Refusal::Overloaded { delay_ms: 1 }],
                _ => {}
            }
        }
        prop_assert!(pair.consumer.is_done());
        prop_assert_eq!(by_key(seen), by_key(written.into_iter().map(|(_, hash, value)| (hash, value))));
    }
}
