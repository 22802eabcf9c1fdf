use proptest::prelude::*;

use super::*;
use crate::api::response::GapCause;
use crate::format::checksum::Digest;
use crate::metadata::{Change, SealReason};
use crate::replica::message::{Fence, RollCause, SealedSegment, SegmentOpen, Span};
use crate::types::{Epoch, NodeId, Offset, ProcessLife, ProducerEpoch, ProducerId, RangeId, SegmentId, TopicId};

const LOG: LogStart =
    LogStart { generation: Generation(0xa1a2_a3a4_a5a6_a7a8), sequence: 9, position: 0x1_2000, previous: 0xb1b2 };

fn opening(segment: u64, base: Option<u64>, epoch: u64, predecessor: Option<u64>) -> SegmentOpen {
    SegmentOpen {
        segment: SegmentId(segment),
        base: base.map(Offset),
        epoch: Epoch(epoch),
        seed: 0x0102_0304_0506_0708,
        predecessor: predecessor.map(SegmentId),
        primary: NodeId(1),
        life: ProcessLife(3),
        replicas: 1,
        quorum: 1,
        batch_bytes_max: 1 << 20,
        retention_ms: 60_000,
    }
}

/// One change of each kind, each of which is taken after those before it.
fn changes() -> Vec<Change> {
    let range = RangeId(2);
    let hole = Span { from: Offset(4), to: Offset(6), records_at_most: 2, cause: GapCause::Interrupted };
    let sealed = |segment, base, end, epoch, holes: &[Span]| SealedSegment {
        segment: SegmentId(segment),
        base: Offset(base),
        end: Offset(end),
        digest: Digest(0x00ff_00ff_00ff_00ff_00ff_00ff_00ff_00ff),
        holes: holes.to_vec(),
        epoch: Epoch(epoch),
    };
    vec![
        Change::NodeStarted { node: NodeId(1), life: ProcessLife(3), shards: 4 },
        Change::RetentionTick { ms: 60_000 },
        Change::CreateTopic {
            name: "orders".to_owned(),
            keyspace_version: 1,
            batch_bytes_max: 1 << 20,
            ranges: 2,
            homes: vec![NodeId(1)],
            auto_split: None,
        },
        Change::Open { range, open: opening(1, Some(0), 1, None) },
        Change::BeginSeal { range, segment: SegmentId(1), epoch: Epoch(2), reason: SealReason::Restart },
        Change::Sealed {
            range,
            sealed: sealed(1, 0, 10, 2, &[hole]),
            goes_on: false,
            open: Some(opening(2, Some(10), 2, Some(1))),
        },
        Change::Prepare { range, after: SegmentId(2), open: opening(3, None, 2, Some(2)) },
        Change::Rolled { range, sealed: sealed(2, 10, 30, 2, &[]), successor: SegmentId(3), cause: RollCause::Asked },
        Change::Prepare { range, after: SegmentId(3), open: opening(4, None, 2, Some(3)) },
        Change::BeginSeal { range, segment: SegmentId(3), epoch: Epoch(3), reason: SealReason::Asked },
        Change::ProducerBlock { node: NodeId(1), first: ProducerId(1), count: 1024 },
        Change::ProducerEpoch { producer: ProducerId(7), epoch: ProducerEpoch(2) },
    ]
}

fn state() -> State {
    let mut state = State::default();
    for change in changes() {
        state.apply(&change).unwrap_or_else(|rejected| panic!("{change:?}: {rejected}"));
    }
    state
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Golden lines are added, never edited: what was once written must always be read so.
#[test]
fn a_change_of_version_1_is_these_bytes() {
    let found: Vec<String> = changes().iter().map(|change| hex(&change.encode())).collect();
    let golden: Vec<&str> = include_str!("../golden/changes-1.hex").lines().collect();
    assert_eq!(found, golden);
    for change in changes() {
        assert_eq!(Change::decode(&change.encode()), Ok(change));
    }
}

#[test]
fn a_snapshot_of_version_1_is_these_bytes() {
    let golden: String = include_str!("../golden/snapshot-1.hex").lines().collect();
    assert_eq!(hex(&encode(&state(), &LOG)), golden);
}

/// What version 2 brought.
fn changes_of_version_2() -> Vec<Change> {
    vec![Change::DeleteTopic { topic: TopicId(1) }, Change::RangeGone { range: RangeId(1) }]
}

/// A topic was deleted, and one of its two ranges is still to be told.
fn state_with_deleted() -> State {
    let mut state = state();
    for change in changes_of_version_2() {
        state.apply(&change).unwrap_or_else(|rejected| panic!("{change:?}: {rejected}"));
    }
    state
}

#[test]
fn a_change_of_version_2_is_these_bytes() {
    let found: Vec<String> = changes_of_version_2().iter().map(|change| hex(&change.encode())).collect();
    let golden: Vec<&str> = include_str!("../golden/changes-2.hex").lines().collect();
    assert_eq!(found, golden);
    for change in changes_of_version_2() {
        let mut bytes = change.encode();
        assert_eq!(Change::decode(&bytes), Ok(change));
        bytes[0] = 1;
        assert!(matches!(Change::decode(&bytes), Err(DecodeError::Malformed { .. })), "no build wrote it in version 1");
    }
}

/// What version 3 brought: the range of the second topic splits, its halves merge, and a third topic splits by itself.
fn changes_of_version_3() -> Vec<Change> {
    let sealed = |segment, end, epoch| SealedSegment {
        segment: SegmentId(segment),
        base: Offset(0),
        end: Offset(end),
        digest: Digest(0x77),
        holes: Vec::new(),
        epoch: Epoch(epoch),
    };
    let fences = vec![Fence { producer: ProducerId(7), epoch: ProducerEpoch(2), seen_ms: 60_000 }];
    vec![
        Change::Split {
            range: RangeId(3),
            sealed: sealed(5, 10, 2),
            fences: fences.clone(),
            opens: vec![opening(6, Some(0), 1, None), opening(7, Some(0), 1, None)],
        },
        Change::Merge {
            parents: [(RangeId(4), sealed(6, 20, 2)), (RangeId(5), sealed(7, 0, 2))],
            fences,
            open: Some(opening(8, Some(0), 1, None)),
        },
        Change::CreateTopic {
            name: "payments".to_owned(),
            keyspace_version: 1,
            batch_bytes_max: 1 << 20,
            ranges: 2,
            homes: vec![NodeId(1)],
            auto_split: Some(16),
        },
        Change::Rolled {
            range: RangeId(7),
            sealed: sealed(9, 30, 1),
            successor: SegmentId(10),
            cause: RollCause::Full,
        },
        Change::Rolled { range: RangeId(8), sealed: sealed(11, 5, 1), successor: SegmentId(12), cause: RollCause::Age },
    ]
}

/// What stands before each of those.
fn state_with_fences() -> State {
    let mut state = state();
    let begin = |range, segment, reason| Change::BeginSeal {
        range: RangeId(range),
        segment: SegmentId(segment),
        epoch: Epoch(2),
        reason,
    };
    let [split, merge, create, full, aged] = <[Change; 5]>::try_from(changes_of_version_3()).unwrap();
    let open = |range, segment| Change::Open { range: RangeId(range), open: opening(segment, Some(0), 1, None) };
    let prepare = |range, after, segment| Change::Prepare {
        range: RangeId(range),
        after: SegmentId(after),
        open: opening(segment, None, 1, Some(after)),
    };
    let changes = [
        Change::CreateTopic {
            name: "refunds".to_owned(),
            keyspace_version: 1,
            batch_bytes_max: 1 << 20,
            ranges: 1,
            homes: vec![NodeId(1)],
            auto_split: None,
        },
        open(3, 5),
        begin(3, 5, SealReason::Split),
        split,
        begin(4, 6, SealReason::Merge),
        begin(5, 7, SealReason::Merge),
        merge,
        create,
        open(7, 9),
        prepare(7, 9, 10),
        full,
        open(8, 11),
        prepare(8, 11, 12),
        aged,
    ];
    for change in changes {
        state.apply(&change).unwrap_or_else(|rejected| panic!("{change:?}: {rejected}"));
    }
    state
}

#[test]
fn a_change_of_version_3_is_these_bytes() {
    let found: Vec<String> = changes_of_version_3().iter().map(|change| hex(&change.encode())).collect();
    let golden: Vec<&str> = include_str!("../golden/changes-3.hex").lines().collect();
    assert_eq!(found, golden);
    for change in changes_of_version_3() {
        let mut bytes = change.encode();
        assert_eq!(Change::decode(&bytes), Ok(change));
        bytes[0] = 2;
        assert!(matches!(Change::decode(&bytes), Err(DecodeError::Malformed { .. })), "no build wrote it in version 2");
    }
}

/// What version 4 brought: of a sealed segment more cannot be read.
fn changes_of_version_4() -> Vec<Change> {
    let hole =
        |from, to| Span { from: Offset(from), to: Offset(to), records_at_most: to - from, cause: GapCause::Unreadable };
    vec![Change::Holes { range: RangeId(2), segment: SegmentId(1), holes: vec![hole(5, 8), hole(9, 10)] }]
}

#[test]
fn a_change_of_version_4_is_these_bytes() {
    let found: Vec<String> = changes_of_version_4().iter().map(|change| hex(&change.encode())).collect();
    let golden: Vec<&str> = include_str!("../golden/changes-4.hex").lines().collect();
    assert_eq!(found, golden);
    for change in changes_of_version_4() {
        let mut bytes = change.encode();
        assert_eq!(Change::decode(&bytes), Ok(change));
        bytes[0] = 3;
        assert!(matches!(Change::decode(&bytes), Err(DecodeError::Malformed { .. })), "no build wrote it in version 3");
    }
}

#[test]
fn a_snapshot_of_version_3_is_these_bytes() {
    let golden: String = include_str!("../golden/snapshot-3.hex").lines().collect();
    let bytes = encode(&state_with_fences(), &LOG);
    assert_eq!(hex(&bytes), golden);
    assert_eq!(decode(&bytes), Ok(Snapshot { state: state_with_fences(), log: LOG }));
}

#[test]
fn a_topic_whose_ranges_leave_a_key_to_nobody_is_not_read() {
    let mut state = state_with_fences();
    state.ranges.get_mut(&RangeId(6)).unwrap().span = state.ranges[&RangeId(4)].span;
    assert!(matches!(decode(&encode(&state, &LOG)), Err(SnapshotError::State(_))));
}

#[test]
fn a_snapshot_of_version_2_is_these_bytes() {
    let golden: String = include_str!("../golden/snapshot-2.hex").lines().collect();
    let bytes = encode(&state_with_deleted(), &LOG);
    assert_eq!(hex(&bytes), golden);
    assert_eq!(decode(&bytes), Ok(Snapshot { state: state_with_deleted(), log: LOG }));
}

#[test]
fn a_directory_of_which_nothing_is_to_be_told_any_more_is_of_version_1_again() {
    let mut state = state_with_deleted();
    assert_eq!(encode(&state, &LOG)[8], 2);
    state.apply(&Change::RangeGone { range: RangeId(2) }).unwrap();
    let bytes = encode(&state, &LOG);
    assert_eq!((bytes[8], decode(&bytes)), (1, Ok(Snapshot { state, log: LOG })));
}

#[test]
fn a_snapshot_is_read_back_whatever_pads_it() {
    let mut bytes = encode(&state(), &LOG);
    bytes.resize(bytes.len() + 4096, 0);
    assert_eq!(decode(&bytes), Ok(Snapshot { state: state(), log: LOG }));
}

#[test]
fn a_newer_snapshot_or_change_is_told_from_damage() {
    let mut bytes = encode(&state(), &LOG);
    bytes[8] = 4;
    assert!(matches!(decode(&bytes), Err(SnapshotError::Header { .. })), "a flipped version is damage");
    let sum = checksum(0, &bytes[..CHECKED]);
    bytes[CHECKED..SNAPSHOT_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    let newer = Newer { what: "metadata snapshot", found: 4, supported: 3 };
    assert_eq!(decode(&bytes), Err(SnapshotError::Newer(newer)));
    let newer = Newer { what: "metadata change", found: 5, supported: 4 };
    assert_eq!(Change::decode(&[5, 77]), Err(DecodeError::Newer(newer)));
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_snapshot_is_noticed() {
    let bytes = encode(&state(), &LOG);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(decode(&damaged).is_err(), "byte {at}");
        assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn a_state_that_contradicts_itself_is_not_read() {
    let mut state = state();
    state.next.segment = SegmentId(4);
    assert!(matches!(decode(&encode(&state, &LOG)), Err(SnapshotError::State(_))));
}

proptest! {
    #[test]
    fn random_bytes_are_refused_without_panic(version in 1u8..=4, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut change = vec![version];
        change.extend(&bytes);
        if let Ok(decoded) = Change::decode(&change) {
            prop_assert_eq!(decoded.encode(), change);
        }
        let mut reader = Reader::new(&bytes);
        let _ = State::get(&mut reader, u32::from(version));
    }
}

#[test]
fn a_snapshot_between_the_seals_of_a_rolled_tail_is_read_again() {
    let mut state = state();
    let sealed = SealedSegment {
        segment: SegmentId(3),
        base: Offset(30),
        end: Offset(40),
        digest: Digest(7),
        holes: Vec::new(),
        epoch: Epoch(3),
    };
    state.apply(&Change::Sealed { range: RangeId(2), sealed, goes_on: true, open: None }).unwrap();
    let open = state.range(RangeId(2)).and_then(|range| range.chain.open()).unwrap();
    assert_eq!((open.segment, open.epoch), (SegmentId(4), Epoch(2)), "opened before the round, and still to be sealed");
    assert_eq!(decode(&encode(&state, &LOG)), Ok(Snapshot { state, log: LOG }));
}
