//! A connection that asks more than is answered is not read any more until something is, and nobody else notices.

use std::cell::RefCell;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::{ControlRequest, ReplyTo, Request, ShardRequest};
use sealog_engine::api::response::{Response, TopicView};
use sealog_engine::types::{Offset, ProducerEpoch, ProducerId, RangeId, TopicId};
use sealog_net::client::blocking::Admin;
use sealog_net::server::ServerSettings;
use sealog_net::wire::Kind;
use sealog_net::wire::client::append_request;
use sealog_net::wire::frame::Frame;
use sealog_net::wire::hello::append_ping;

use super::hostile::{greeted, next_frame, pings};
use super::node;

/// Requests that the greedy connection makes; behind them comes a ping.
const ASKED: u64 = 20;
const PING: u64 = 1_000;

/// An engine that answers requests about ranges only when it is told to.
struct Holding {
    replies: Rc<dyn Replies>,
    held: RefCell<Vec<ReplyTo>>,
}

impl ShardService for Holding {
    fn request(&self, to: ReplyTo, _deadline_ms: u32, request: Request<'_>) {
        match request {
            Request::Shard(_) => self.held.borrow_mut().push(to),
            // So many topics as requests are held.
            Request::Control(ControlRequest::ListTopics) => {
                let (topic, name) = (TopicId(1), String::new());
                let view =
                    TopicView { topic, name, ranges: 1, keyspace_version: 1, batch_bytes_max: 1, auto_split: None };
                self.replies.reply(to, Response::Topics(vec![view; self.held.borrow().len()]));
            }
            // Lets the oldest go.
            Request::Control(_) => {
                let answer = Response::Bounds { start: Offset(0), end: Offset(0) };
                self.replies.reply(self.held.borrow_mut().remove(0), answer);
                self.replies.reply(to, Response::Producer { producer: ProducerId(1), epoch: ProducerEpoch(1) });
            }
        }
    }

    fn flush(&self) {
        self.replies.flush();
    }

    fn disconnected(&self, _connection: u32) {}
}

fn start(change: impl FnOnce(&mut ServerSettings) + Send + 'static) -> SocketAddr {
    node::start_service((0, 1), None, change, |replies| Rc::new(Holding { replies, held: RefCell::default() }))
}

/// A connection that has asked all at once.
fn greedy(address: SocketAddr) -> TcpStream {
    let mut stream = greeted(address);
    let mut bytes = vec![];
    for correlation in 0..ASKED {
        append_request(&mut bytes, correlation, 0, &ShardRequest::Bounds { range: RangeId(1) });
    }
    append_ping(&mut bytes, PING);
    stream.write_all(&bytes).unwrap();
    stream
}

/// Whatever of `ASKED` has been taken is held, and never more than `most`; released one by one, all are answered.
fn holds_at_most(address: SocketAddr, most: u64) {
    let mut greedy = greedy(address);
    let mut bystander = greeted(address);
    let mut admin = Admin::connect(&[address.to_string()], Duration::from_secs(20)).unwrap();
    let held = |admin: &mut Admin| admin.list_topics().unwrap().len() as u64;
    while held(&mut admin) < most {
        pings(&mut bystander);
    }
    let mut ponged = false;
    for answered in 0..ASKED {
        let left = ASKED - answered;
        // Rounds in which more would be taken if it were read.
        (0..5).for_each(|_| pings(&mut bystander));
        while held(&mut admin) < most.min(left) {
            pings(&mut bystander);
        }
        assert_eq!(held(&mut admin), most.min(left), "{answered} were answered");
        admin.open_producer(None).unwrap();
        let is_pong = |frame: &Frame<'_>| (frame.kind, frame.correlation) == (Kind::Pong.number(), PING);
        let answer =
            |stream: &mut TcpStream| next_frame(stream, |frame| (is_pong(frame), frame.kind, frame.correlation));
        let mut heard = answer(&mut greedy);
        if heard.0 {
            // Behind the last request: it is answered as soon as that is read.
            ponged = true;
            heard = answer(&mut greedy);
        }
        assert_eq!((heard.1, heard.2), (Kind::BoundsAre.number(), answered));
        assert!(!ponged || left <= most, "the ping was read with {left} before it unanswered");
    }
    assert!(ponged);
}

#[test]
fn a_connection_with_too_many_unanswered_requests_is_read_on_when_one_is_answered() {
    holds_at_most(start(|settings| settings.requests_max = 8), 8);
}

#[test]
fn a_connection_with_too_many_unanswered_bytes_is_read_on_when_one_is_answered() {
    let mut bytes = vec![];
    append_request(&mut bytes, 0, 0, &ShardRequest::Bounds { range: RangeId(1) });
    let bytes_max = 5 * bytes.len() as u64;
    holds_at_most(start(move |settings| settings.handshake.limits.connection_bytes_max = bytes_max), 5);
}
