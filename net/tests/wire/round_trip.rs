//! Whatever can be said comes out as it went in, and bytes that nobody meant are an error, never a panic.

use proptest::prelude::*;
use proptest::sample::select;
use sealog_engine::api::error::{BadBatch, Refusal};
use sealog_engine::api::request::{ControlRequest, Request, ShardRequest};
use sealog_engine::api::response::{
    Fetched, Gap, GapCause, ProducerSettled, RangeDescription, RangeLineage, RangeRolled, Response, Route, Stored,
    TopicView,
};
use sealog_engine::types::{
    ClusterId, Epoch, KeyHash, KeySpan, NodeId, Offset, ProducerEpoch, ProducerId, RangeId, Run, SegmentId, Sequence,
    ShardId, TopicId,
};
use sealog_net::session::{self, Answer, Inbound, SessionLimits};
use sealog_net::wire::frame::{self, BodyError, Frame};
use sealog_net::wire::{Bye, Decoded, Hello, Refused, Welcome, client, control, decode};

fn only_frame(bytes: &[u8]) -> Frame<'_> {
    match decode(bytes, u32::MAX) {
        Ok(Decoded::Frame { frame, length }) if length == bytes.len() => frame,
        other => panic!("not one frame: {other:?}"),
    }
}

fn limits() -> SessionLimits {
    SessionLimits { batch_bytes_max: 1 << 20, fetch_bytes_max: 1 << 22, connection_bytes_max: 1 << 26 }
}

fn span() -> impl Strategy<Value = KeySpan> {
    (any::<u64>(), 0u8..=64).prop_map(|(hash, depth)| {
        let mask = if depth == 64 { 0 } else { u64::MAX >> depth };
        KeySpan::new(KeyHash(hash & !mask), depth).expect("aligned")
    })
}

fn route() -> impl Strategy<Value = Route> {
    (any::<u64>(), span(), any::<u64>(), any::<u32>(), any::<u16>()).prop_map(|(range, span, epoch, node, shard)| {
        Route { range: RangeId(range), span, epoch: Epoch(epoch), node: NodeId(node), shard: ShardId(shard) }
    })
}

fn topic() -> impl Strategy<Value = TopicView> {
    (any::<u64>(), "[a-z.]{0,20}", any::<u32>(), any::<u8>(), any::<u32>()).prop_map(
        |(topic, name, ranges, keyspace_version, batch_bytes_max)| TopicView {
            topic: TopicId(topic),
            name,
            ranges,
            keyspace_version,
            batch_bytes_max,
            auto_split: None,
        },
    )
}

fn last() -> impl Strategy<Value = Option<(ProducerEpoch, Run, Sequence)>> {
    prop::option::of((any::<u32>(), any::<u32>(), any::<u64>()))
        .prop_map(|last| last.map(|(epoch, run, sequence)| (ProducerEpoch(epoch), Run(run), Sequence(sequence))))
}

fn bad_batch() -> impl Strategy<Value = BadBatch> {
    (any::<u32>(), any::<u32>(), any::<u8>(), any::<u8>()).prop_flat_map(|(a, b, c, d)| {
        select(vec![
            BadBatch::Short,
            BadBatch::Checksum { found: a, computed: b },
            BadBatch::Version { found: c, newest: d },
            BadBatch::Codec { found: c },
            BadBatch::Empty,
            BadBatch::Record { index: a },
            BadBatch::Key { index: b },
            BadBatch::Header,
        ])
    })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let routes = (prop::option::of(route()), prop::collection::vec(route(), 0..3), last());
    (any::<u64>(), any::<u32>(), any::<u32>(), bad_batch(), routes).prop_flat_map(
        |(n, a, b, bad, (route, successors, last))| {
            select(vec![
                Refusal::UnknownTopic,
                Refusal::TopicExists,
                Refusal::BadTopicName,
                Refusal::BadRangeCount { most: a },
                Refusal::UnknownRange,
                Refusal::NotPrimary { route },
                Refusal::Sealed { successors, last },
                Refusal::StaleEpoch { current: Epoch(n) },
                Refusal::Opening { delay_ms: a },
                Refusal::ProducerFenced { epoch: ProducerEpoch(a), run: Run(b) },
                Refusal::OutOfOrder { expected: Sequence(n) },
                Refusal::UnknownProducer,
                Refusal::TooManyProducers { delay_ms: a },
                Refusal::Overloaded { delay_ms: a },
                Refusal::DiskFull { delay_ms: a },
                Refusal::WriteFailed,
                Refusal::TooFewReplicas { delay_ms: a },
                Refusal::BatchTooLarge { most: a },
                Refusal::BadBatch(bad),
                Refusal::Doubtful,
                Refusal::Expired { resume: Offset(n) },
                Refusal::BeyondEnd { end: Offset(n) },
                Refusal::Unreadable { from: Offset(n) },
                Refusal::DeadlinePassed,
                Refusal::Stopping,
                Refusal::BadRequest,
            ])
        },
    )
}

fn gap() -> impl Strategy<Value = Gap> {
    let cause = select(vec![GapCause::Interrupted, GapCause::Unreadable, GapCause::Forced]);
    (any::<u64>(), any::<u64>(), any::<u64>(), cause).prop_map(|(from, to, records_at_most, cause)| Gap {
        from: Offset(from),
        to: Offset(to),
        records_at_most,
        cause,
    })
}

fn fetched() -> impl Strategy<Value = Fetched> {
    let lists = (prop::collection::vec(gap(), 0..4), prop::option::of(prop::collection::vec(route(), 0..3)));
    (prop::collection::vec(any::<u8>(), 0..300), any::<u64>(), any::<u64>(), lists).prop_map(
        |(entries, next, end, (gaps, successors))| Fetched {
            entries,
            next: Offset(next),
            end: Offset(end),
            gaps,
            successors,
        },
    )
}

fn lineage() -> impl Strategy<Value = RangeLineage> {
    let ids = || prop::collection::vec(any::<u64>().prop_map(RangeId), 0..3);
    (route(), ids(), ids()).prop_map(|(route, parents, successors)| RangeLineage { route, parents, successors })
}

fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        (any::<u32>(), any::<bool>()).prop_map(|(records, repeat)| Response::Stored(Stored { records, repeat })),
        fetched().prop_map(Response::Fetched),
        (any::<u64>(), any::<u64>()).prop_map(|(s, e)| Response::Bounds { start: Offset(s), end: Offset(e) }),
        (any::<u64>(), last(), any::<bool>()).prop_map(|(producer, last, doubtful)| {
            Response::Settled(ProducerSettled { producer: ProducerId(producer), last, doubtful })
        }),
        (any::<u64>(), prop::option::of((any::<u64>(), any::<u64>()))).prop_map(|(end, segments)| {
            let segments = segments.map(|(sealed, open)| (SegmentId(sealed), SegmentId(open)));
            Response::Rolled(RangeRolled { end: Offset(end), segments })
        }),
        (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(start, end, segments)| {
            Response::Described(RangeDescription { start: Offset(start), end: Offset(end), segments })
        }),
        topic().prop_map(Response::Topic),
        any::<u64>().prop_map(|topic| Response::TopicDeleted { topic: TopicId(topic) }),
        prop::collection::vec(topic(), 0..5).prop_map(Response::Topics),
        (topic(), prop::collection::vec(route(), 0..5)).prop_map(|(topic, routes)| Response::Routes { topic, routes }),
        (prop::collection::vec(lineage(), 0..5), any::<bool>())
            .prop_map(|(ranges, more)| Response::Lineage { ranges, more }),
        (any::<u64>(), any::<u32>()).prop_map(|(producer, epoch)| Response::Producer {
            producer: ProducerId(producer),
            epoch: ProducerEpoch(epoch)
        }),
        refusal().prop_map(Response::Refused),
    ]
}

fn as_response(answer: Answer<'_>) -> Response {
    match answer {
        Answer::Refused(refused) => Response::Refused(refused.refusal.expect("a code of today is known")),
        Answer::Stored(stored) => Response::Stored(stored),
        Answer::Fetched(view) => Response::Fetched(view.to_fetched()),
        Answer::Bounds { start, end } => Response::Bounds { start, end },
        Answer::Settled(settled) => Response::Settled(settled),
        Answer::Rolled(rolled) => Response::Rolled(rolled),
        Answer::Described(described) => Response::Described(described),
        Answer::Topic(topic) => Response::Topic(topic),
        Answer::TopicDeleted(topic) => Response::TopicDeleted { topic },
        Answer::Topics(topics) => Response::Topics(topics),
        Answer::Routes { topic, routes } => Response::Routes { topic, routes },
        Answer::Lineage { ranges, more } => Response::Lineage { ranges, more },
        Answer::Producer { producer, epoch } => Response::Producer { producer, epoch },
        Answer::Welcome(_) | Answer::Pong | Answer::Bye(_) => panic!("no response"),
    }
}

fn control_request() -> impl Strategy<Value = ControlRequest> {
    prop_oneof![
        ("[a-z]{0,20}", any::<u32>(), prop::option::of(1u32..))
            .prop_map(|(name, ranges, auto_split)| ControlRequest::CreateTopic { name, ranges, auto_split }),
        ("[a-z]{0,20}", prop::option::of(1u64..))
            .prop_map(|(name, topic)| ControlRequest::DeleteTopic { name, topic: topic.map(TopicId) }),
        Just(ControlRequest::ListTopics),
        ("[a-z]{0,20}", any::<u64>())
            .prop_map(|(topic, range)| ControlRequest::SplitRange { topic, range: RangeId(range) }),
        ("[a-z]{0,20}", any::<[u64; 2]>())
            .prop_map(|(topic, ranges)| ControlRequest::MergeRanges { topic, ranges: ranges.map(RangeId) }),
        ("[a-z]{0,20}", any::<u64>())
            .prop_map(|(topic, after)| ControlRequest::Lineage { topic, after: RangeId(after) }),
        "[a-z]{0,20}".prop_map(|topic| ControlRequest::Routes { topic }),
        prop::option::of((any::<u64>(), any::<u32>())).prop_map(|replaces| ControlRequest::OpenProducer {
            replaces: replaces.map(|(producer, epoch)| (ProducerId(producer), ProducerEpoch(epoch))),
        }),
    ]
}

proptest! {
    #[test]
    fn every_response_reads_back_as_it_was_said(correlation: u64, response in response()) {
        let mut out = vec![];
        session::append(&mut out, correlation, &response);
        let frame = only_frame(&out);
        prop_assert_eq!(frame.correlation, correlation);
        prop_assert_eq!(as_response(Answer::read(&frame).unwrap()), response);
    }

    #[test]
    fn a_refusal_carries_what_became_of_it_and_what_to_do(refusal in refusal()) {
        let mut out = vec![];
        session::append(&mut out, 3, &Response::Refused(refusal.clone()));
        prop_assert_eq!(Refused::read(&only_frame(&out)).unwrap(), Refused::from(refusal));
    }

    #[test]
    fn a_refusal_of_an_unknown_code_keeps_its_outcome_and_retry(refusal in refusal(), code in 1000u16..) {
        let mut out = vec![];
        session::append(&mut out, 3, &Response::Refused(refusal.clone()));
        let mut structure = only_frame(&out).struct_part.to_vec();
        structure[..2].copy_from_slice(&code.to_le_bytes());
        let mut changed = vec![];
        frame::append(&mut changed, frame::Head::answer(sealog_net::wire::Kind::Refused, 3), &structure, &[]);
        let read = Refused::read(&only_frame(&changed)).unwrap();
        prop_assert_eq!(read, Refused { code, refusal: None, ..Refused::from(refusal) });
    }

    #[test]
    fn every_shard_request_reads_back(
        correlation: u64, deadline_ms: u32, range: u64, number: u64, bytes_max in 0u32..1 << 22, wait_ms: u32,
        batch in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let range = RangeId(range);
        for request in [
            ShardRequest::Produce { range, epoch: Epoch(number), batch: &batch },
            ShardRequest::Fetch { range, offset: Offset(number), bytes_max, wait_ms },
            ShardRequest::Bounds { range },
            ShardRequest::Since { range, timestamp_ms: number },
            ShardRequest::Settle { range, producer: ProducerId(number) },
            ShardRequest::Roll { range },
            ShardRequest::Describe { range },
        ] {
            let mut out = vec![];
            client::append_request(&mut out, correlation, deadline_ms, &request);
            let frame = only_frame(&out);
            prop_assert_eq!((frame.correlation, frame.deadline_ms), (correlation, deadline_ms));
            prop_assert_eq!(session::read(&frame, &limits()), Ok(Inbound::Request(Request::Shard(request))));
        }
    }

    #[test]
    fn every_control_request_reads_back(request in control_request()) {
        let mut out = vec![];
        control::append_request(&mut out, 1, 2, &request);
        prop_assert_eq!(session::read(&only_frame(&out), &limits()), Ok(Inbound::Request(Request::Control(request))));
    }

    #[test]
    fn hello_welcome_and_bye_read_back(
        (version_min, version_max, features, cluster) in (any::<u8>(), any::<u8>(), any::<u64>(), 1u128..),
        (shard, client) in (0u16..u16::MAX, "[a-zä]{0,100}"), authentication in prop::collection::vec(any::<u8>(), 0..50),
        (node, shards, bytes) in (any::<u32>(), 1u16.., any::<u64>()), (reason, text) in (any::<u16>(), "[a-zä]{0,100}"),
    ) {
        let cluster = ClusterId(cluster);
        let hello = Hello {
            version_min, version_max, features, cluster: Some(cluster), shard: Some(ShardId(shard)), client, authentication,
        };
        for hello in [hello.clone(), Hello { cluster: None, shard: None, ..hello }] {
            let mut out = vec![];
            hello.append(&mut out, 1);
            prop_assert_eq!(Hello::read(&only_frame(&out)).unwrap(), hello);
        }
        let welcome = Welcome {
            version: version_min, features, cluster, node: NodeId(node), shards, shard: ShardId(shard), frame_bytes_max: 1,
            batch_bytes_max: 2, fetch_bytes_max: 3, connection_bytes_max: bytes,
        };
        let mut out = vec![];
        welcome.append(&mut out, 1);
        prop_assert_eq!(Answer::read(&only_frame(&out)).unwrap(), Answer::Welcome(welcome));
        let bye = Bye { reason, text };
        let mut out = vec![];
        bye.append(&mut out);
        prop_assert_eq!(Answer::read(&only_frame(&out)).unwrap(), Answer::Bye(bye));
    }

    #[test]
    fn bodies_of_arbitrary_bytes_never_panic(
        kind: u16, structure in prop::collection::vec(any::<u8>(), 0..120), bytes in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        for kind in sealog_net::wire::Kind::ALL.iter().map(|k| k.number()).chain([kind]) {
            let frame = Frame { kind, correlation: 0, deadline_ms: 0, struct_part: &structure, bytes: &bytes };
            let _ = session::read(&frame, &limits());
            let _ = Answer::read(&frame);
            let _ = Hello::read(&frame);
        }
    }

    #[test]
    fn a_flipped_bit_in_the_lists_of_a_fetch_is_seen(fetched in fetched(), bit: prop::sample::Index) {
        let mut out = vec![];
        session::append(&mut out, 3, &Response::Fetched(fetched.clone()));
        let frame = only_frame(&out);
        let lists = fetched.gaps.len() * 32 + fetched.successors.iter().flatten().count() * 32;
        prop_assume!(lists > 0);
        let mut bytes = frame.bytes.to_vec();
        let bit = bit.index(lists * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let bad = Frame { bytes: &bytes, ..frame };
        prop_assert_eq!(Answer::read(&bad), Err(BodyError::Checksum { part: "lists of gaps and routes" }));
    }
}

#[test]
fn a_fetch_is_bounded_by_the_nodes_limit() {
    let mut out = vec![];
    let request = ShardRequest::Fetch { range: RangeId(1), offset: Offset(0), bytes_max: u32::MAX, wait_ms: 0 };
    client::append_request(&mut out, 1, 0, &request);
    let bounded = ShardRequest::Fetch { range: RangeId(1), offset: Offset(0), bytes_max: 1 << 22, wait_ms: 0 };
    assert_eq!(session::read(&only_frame(&out), &limits()), Ok(Inbound::Request(Request::Shard(bounded))));
}

#[test]
fn an_unknown_kind_is_an_error_of_that_frame_alone() {
    let frame = Frame { kind: 0x7777, correlation: 1, deadline_ms: 0, struct_part: &[], bytes: &[] };
    assert_eq!(session::read(&frame, &limits()), Err(BodyError::Kind { kind: 0x7777 }));
}
