//! One frame of every kind, byte for byte as it lies in `tests/golden/KIND.vVERSION.bin`. A file is added for a new kind or
//! version and never edited: what differs from it is an incompatible change. `SEALOG_GOLDEN=add` writes the files that are missing.

use std::fmt::Write as _;
use std::path::PathBuf;

use sealog_engine::api::error::Refusal;
use sealog_engine::api::request::{ControlRequest, ShardRequest};
use sealog_engine::api::response::{
    Fetched, Gap, GapCause, ProducerSettled, RangeDescription, RangeLineage, RangeRolled, Response, Route, Stored,
    TopicView,
};
use sealog_engine::types::{
    ClusterId, Epoch, KeySpan, NodeId, Offset, ProducerEpoch, ProducerId, RangeId, Run, SegmentId, Sequence, ShardId,
    TopicId,
};
use sealog_net::session;
use sealog_net::wire::frame::VERSION;
use sealog_net::wire::hello::{append_ping, append_pong};
use sealog_net::wire::{Bye, ByeReason, Decoded, Hello, Kind, Welcome, client, control, decode};

fn route() -> Route {
    let span = KeySpan::divide(4).expect("a power of two")[2];
    Route { range: RangeId(0x1112), span, epoch: Epoch(0x2122), node: NodeId(0x3132), shard: ShardId(0x4142) }
}

fn topic() -> TopicView {
    TopicView {
        topic: TopicId(5),
        name: "orders".into(),
        ranges: 4,
        keyspace_version: 1,
        batch_bytes_max: 1 << 20,
        auto_split: None,
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0x0102_0304_0506_0708,
        cluster: ClusterId(0x1011_1213_1415_1617_1819_1a1b_1c1d_1e1f),
        node: NodeId(3),
        shards: 8,
        shard: ShardId(7),
        frame_bytes_max: (1 << 20) + (64 << 10),
        batch_bytes_max: 1 << 20,
        fetch_bytes_max: 4 << 20,
        connection_bytes_max: 64 << 20,
    }
}

fn session_frame(kind: Kind, out: &mut Vec<u8>) {
    match kind {
        Kind::Hello => Hello {
            version_min: 1,
            version_max: 3,
            features: 9,
            cluster: Some(ClusterId(0x55)),
            shard: Some(ShardId(2)),
            client: "golden".into(),
            authentication: b"secret".to_vec(),
        }
        .append(out, 1),
        Kind::Welcome => welcome().append(out, 1),
        Kind::Ping => append_ping(out, 2),
        Kind::Pong => append_pong(out, 2),
        Kind::Bye => Bye::new(ByeReason::SlowReader, "answers were not read").append(out),
        other => panic!("{other:?} is no session frame"),
    }
}

fn response(kind: Kind) -> Option<Response> {
    let last = Some((ProducerEpoch(4), Run(1), Sequence(99)));
    Some(match kind {
        Kind::Refused => Response::Refused(Refusal::Sealed { successors: vec![route()], last }),
        Kind::Stored => Response::Stored(Stored { records: 17, repeat: true }),
        Kind::Fetched => Response::Fetched(Fetched {
            entries: b"entries as on disk".to_vec(),
            next: Offset(200),
            end: Offset(300),
            gaps: vec![Gap { from: Offset(110), to: Offset(120), records_at_most: 10, cause: GapCause::Interrupted }],
            successors: Some(vec![route()]),
        }),
        Kind::BoundsAre => Response::Bounds { start: Offset(5), end: Offset(50) },
        Kind::Settled => Response::Settled(ProducerSettled { producer: ProducerId(12), last, doubtful: true }),
        Kind::Rolled => {
            let segments = Some((SegmentId(0x5152), SegmentId(0x6162)));
            Response::Rolled(RangeRolled { end: Offset(300), segments })
        }
        Kind::Described => {
            Response::Described(RangeDescription { start: Offset(5), end: Offset(50), segments: 0x7172 })
        }
        Kind::Topic => Response::Topic(topic()),
        Kind::Topics => Response::Topics(vec![topic(), TopicView { topic: TopicId(6), name: "b".into(), ..topic() }]),
        Kind::RoutesAre => Response::Routes { topic: topic(), routes: vec![route()] },
        Kind::Producer => Response::Producer { producer: ProducerId(12), epoch: ProducerEpoch(4) },
        Kind::Lineage => Response::Lineage {
            ranges: vec![RangeLineage {
                route: route(),
                parents: vec![RangeId(0x0102)],
                successors: vec![RangeId(0x2221), RangeId(0x2222)],
            }],
            more: true,
        },
        Kind::TopicDeleted => Response::TopicDeleted { topic: TopicId(5) },
        _ => return None,
    })
}

fn request_frame(kind: Kind, out: &mut Vec<u8>) {
    let (range, epoch) = (RangeId(0x1112), Epoch(0x2122));
    let shard = match kind {
        Kind::Produce => ShardRequest::Produce { range, epoch, batch: b"a batch" },
        Kind::Fetch => ShardRequest::Fetch { range, offset: Offset(100), bytes_max: 1 << 20, wait_ms: 500 },
        Kind::Bounds => ShardRequest::Bounds { range },
        Kind::Since => ShardRequest::Since { range, timestamp_ms: 1_700_000_000_000 },
        Kind::Settle => ShardRequest::Settle { range, producer: ProducerId(12) },
        Kind::Roll => ShardRequest::Roll { range },
        Kind::Describe => ShardRequest::Describe { range },
        _ => {
            let control = match kind {
                Kind::CreateTopic => ControlRequest::CreateTopic { name: "orders".into(), ranges: 4, auto_split: None },
                Kind::DeleteTopic => ControlRequest::DeleteTopic { name: "orders".into(), topic: Some(TopicId(5)) },
                Kind::SplitRange => ControlRequest::SplitRange { topic: "orders".into(), range },
                Kind::MergeRanges => {
                    ControlRequest::MergeRanges { topic: "orders".into(), ranges: [range, RangeId(0x1113)] }
                }
                Kind::ListRanges => ControlRequest::Lineage { topic: "orders".into(), after: range },
                Kind::ListTopics => ControlRequest::ListTopics,
                Kind::Routes => ControlRequest::Routes { topic: "orders".into() },
                Kind::OpenProducer => {
                    ControlRequest::OpenProducer { replaces: Some((ProducerId(12), ProducerEpoch(3))) }
                }
                other => return session_frame(other, out),
            };
            return control::append_request(out, 0x0a0b_0c0d, 9_000, &control);
        }
    };
    client::append_request(out, 0x0a0b_0c0d, 9_000, &shard);
}

fn frame(kind: Kind) -> Vec<u8> {
    let mut out = vec![];
    match response(kind) {
        Some(response) => session::append(&mut out, 0x0a0b_0c0d, &response),
        None => request_frame(kind, &mut out),
    }
    out
}

#[test]
fn every_kind_of_frame_lies_on_the_wire_as_its_golden_file_says() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let add = std::env::var_os("SEALOG_GOLDEN").is_some_and(|v| v == "add");
    let mut wrong = String::new();
    for kind in Kind::ALL {
        let bytes = frame(*kind);
        let Ok(Decoded::Frame { frame, length }) = decode(&bytes, 1 << 20) else { panic!("{kind:?} does not decode") };
        assert_eq!((frame.kind, length), (kind.number(), bytes.len()));
        let path = folder.join(format!("{kind:?}.v{VERSION}.bin"));
        if add && !path.exists() {
            std::fs::write(&path, &bytes).expect("a golden file can be written");
        }
        if std::fs::read(&path).ok().as_ref() != Some(&bytes) {
            let _ = writeln!(wrong, "{}: now {bytes:02x?}", path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
