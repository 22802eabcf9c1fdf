//! Every message of the protocol: what is understood is said again, and must be understood as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::api::request::Request;
use sealog_engine::api::response::Response;
use sealog_fuzz::{bounded, fair, repair_frames};
use sealog_net::session::{self, Answer, Inbound, SessionLimits};
use sealog_net::wire::frame::Frame;
use sealog_net::wire::{Decoded, Hello, Kind, Refused, client, control, decode};

const LIMITS: SessionLimits =
    SessionLimits { batch_bytes_max: 1 << 20, fetch_bytes_max: 1 << 22, connection_bytes_max: 1 << 26 };

fuzz_target!(|bytes: &[u8]| {
    read_all(bytes);
    let mut bytes = bytes.to_vec();
    repair_frames(&mut bytes);
    read_all(&bytes);
});

fn read_all(mut bytes: &[u8]) {
    while let Ok(Decoded::Frame { frame, length }) = decode(bytes, u32::MAX) {
        assert!((32..=bytes.len()).contains(&length));
        as_request(&frame);
        as_answer(&frame);
        as_hello(&frame);
        bytes = &bytes[length..];
    }
}

fn only(bytes: &[u8]) -> Frame<'_> {
    match decode(bytes, u32::MAX) {
        Ok(Decoded::Frame { frame, length }) if length == bytes.len() => frame,
        other => panic!("not one frame: {other:?}"),
    }
}

fn as_request(frame: &Frame<'_>) {
    let Ok(Inbound::Request(request)) = bounded(fair(frame.bytes), || session::read(frame, &LIMITS)) else { return };
    let mut again = Vec::new();
    match &request {
        Request::Shard(request) => client::append_request(&mut again, frame.correlation, frame.deadline_ms, request),
        Request::Control(request) => control::append_request(&mut again, frame.correlation, frame.deadline_ms, request),
    }
    let again = only(&again);
    assert_eq!((again.kind, again.correlation, again.deadline_ms), (frame.kind, frame.correlation, frame.deadline_ms));
    assert_eq!(session::read(&again, &LIMITS), Ok(Inbound::Request(request)));
}

fn as_answer(frame: &Frame<'_>) {
    let memory = fair(frame.bytes) + fair(frame.struct_part);
    let Ok(answer) = bounded(memory, || Answer::read(frame)) else { return };
    let mut again = Vec::new();
    let response = match &answer {
        Answer::Pong => return,
        Answer::Welcome(welcome) => {
            welcome.append(&mut again, frame.correlation);
            assert_eq!(Answer::read(&only(&again)), Ok(answer));
            return;
        }
        Answer::Bye(bye) => {
            bye.append(&mut again);
            assert_eq!(Answer::read(&only(&again)), Ok(answer));
            return;
        }
        // Outcome, advice and text are the node's own: an unknown code has nothing else.
        Answer::Refused(Refused { refusal: None, .. }) => return,
        Answer::Refused(Refused { refusal: Some(refusal), code, .. }) => {
            session::append(&mut again, frame.correlation, &Response::Refused(refusal.clone()));
            let read = Refused::read(&only(&again)).expect("it was just said");
            assert_eq!((read.refusal.as_ref(), read.code), (Some(refusal), *code));
            return;
        }
        Answer::Stored(stored) => Response::Stored(*stored),
        Answer::Fetched(view) => Response::Fetched(view.to_fetched()),
        Answer::Bounds { start, end } => Response::Bounds { start: *start, end: *end },
        Answer::Settled(settled) => Response::Settled(settled.clone()),
        Answer::Rolled(rolled) => Response::Rolled(*rolled),
        Answer::Described(described) => Response::Described(*described),
        Answer::Topic(topic) => Response::Topic(topic.clone()),
        Answer::TopicDeleted(topic) => Response::TopicDeleted { topic: *topic },
        Answer::Topics(topics) => Response::Topics(topics.clone()),
        Answer::Routes { topic, routes } => Response::Routes { topic: topic.clone(), routes: routes.clone() },
        Answer::Lineage { ranges, more } => Response::Lineage { ranges: ranges.clone(), more: *more },
        Answer::Producer { producer, epoch } => Response::Producer { producer: *producer, epoch: *epoch },
    };
    session::append(&mut again, frame.correlation, &response);
    assert_eq!(Answer::read(&only(&again)), Ok(answer));
}

fn as_hello(frame: &Frame<'_>) {
    if frame.kind != Kind::Hello.number() {
        return;
    }
    let Ok(hello) = bounded(fair(frame.struct_part), || Hello::read(frame)) else { return };
    let mut again = Vec::new();
    hello.append(&mut again, frame.correlation);
    assert_eq!(Hello::read(&only(&again)), Ok(hello));
}
