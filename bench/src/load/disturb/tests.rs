use sealog_engine::types::{Epoch, NodeId, ShardId};

use super::*;

/// Active ranges that cut the keyspace, in order, each named by its place from 1 on; `path` is a range's halves from the whole on.
fn routes(paths: &[&str]) -> Vec<Route> {
    let span = |path: &&str| {
        path.chars().fold(KeySpan::ALL, |span, half| {
            let (lower, upper) = span.halves().expect("not that deep");
            if half == 'l' { lower } else { upper }
        })
    };
    let route = |(id, span)| Route { range: RangeId(id), span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) };
    (1..).zip(paths.iter().map(span)).map(route).collect()
}

#[test]
fn the_widest_range_is_split_and_of_several_the_first() {
    assert_eq!(widest(&routes(&[])), None);
    assert_eq!(widest(&routes(&[""])), Some(RangeId(1)));
    assert_eq!(widest(&routes(&["l", "u"])), Some(RangeId(1)));
    assert_eq!(widest(&routes(&["ll", "lu", "u"])), Some(RangeId(3)));
    assert_eq!(widest(&routes(&["lll", "llu", "lu", "ul", "uu"])), Some(RangeId(3)));
}

#[test]
fn the_narrowest_buddies_are_merged_and_of_several_the_first() {
    let pair = |a, b| Some([RangeId(a), RangeId(b)]);
    assert_eq!(deepest_buddies(&routes(&[""])), None);
    assert_eq!(deepest_buddies(&routes(&["l", "u"])), pair(1, 2));
    assert_eq!(deepest_buddies(&routes(&["ll", "lu", "u"])), pair(1, 2), "the other two are of different widths");
    assert_eq!(deepest_buddies(&routes(&["ll", "lu", "ul", "uu"])), pair(1, 2));
    assert_eq!(deepest_buddies(&routes(&["ll", "lu", "ul", "uul", "uuu"])), pair(4, 5), "the narrowest");
    let neighbours = routes(&["ll", "lul", "luu", "u"]);
    assert_eq!(deepest_buddies(&neighbours), pair(2, 3), "neighbours of one width are buddies only in one parent");
}

#[test]
fn as_many_merges_as_splits_lead_back_to_one_range() {
    let mut active = routes(&[""]);
    let (mut next, mut most) = (2, 1);
    let make = |span, next: &mut u64| {
        *next += 1;
        Route { range: RangeId(*next), span, epoch: Epoch(1), node: NodeId(1), shard: ShardId(0) }
    };
    for what in [Act::Split; 20].into_iter().chain([Act::Merge; 20]) {
        let parents = match what {
            Act::Roll => vec![],
            Act::Split => vec![widest(&active).expect("ranges")],
            Act::Merge => deepest_buddies(&active).expect("buddies").to_vec(),
        };
        let (sealed, mut left): (Vec<Route>, Vec<Route>) =
            active.into_iter().partition(|route| parents.contains(&route.range));
        let spans = match sealed[..] {
            [one] => one.span.halves().map(|(lower, upper)| vec![lower, upper]).expect("not that deep"),
            [lower, upper] => vec![
                KeySpan::new(lower.span.first(), lower.span.depth() - 1)
                    .filter(|span| span.covers(upper.span))
                    .expect("buddies"),
            ],
            _ => unreachable!("one or two parents"),
        };
        left.extend(spans.into_iter().map(|span| make(span, &mut next)));
        most = most.max(left.len());
        left.sort_by_key(|route| route.span);
        active = left;
    }
    assert_eq!((active.len(), active[0].span, most), (1, KeySpan::ALL, 21));
}
