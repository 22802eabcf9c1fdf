//! Whoever sends nonsense, or nothing, or does not read, loses its own connection, and nobody else notices.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sealog_net::client::blocking::Admin;
use sealog_net::client::core::Random;
use sealog_net::wire::frame::{Frame, FrameHeader, VERSION};
use sealog_net::wire::hello::append_ping;
use sealog_net::wire::{Bye, ByeReason, Decoded, Hello, Kind, decode};
use zerocopy::{FromBytes, IntoBytes};

use super::node;

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Reads exactly one frame.
pub(crate) fn next_frame<T>(stream: &mut TcpStream, read: impl FnOnce(&Frame<'_>) -> T) -> T {
    let mut bytes = vec![0; 32];
    stream.read_exact(&mut bytes).unwrap();
    if let Ok(Decoded::Partial { needed }) = decode(&bytes, 1 << 20) {
        bytes.resize(needed, 0);
        stream.read_exact(&mut bytes[32..]).unwrap();
    }
    let Ok(Decoded::Frame { frame, .. }) = decode(&bytes, 1 << 20) else { panic!("not a frame: {bytes:02x?}") };
    read(&frame)
}

fn bye(stream: &mut TcpStream) -> u16 {
    let reason = next_frame(stream, |frame| Bye::read(frame).unwrap().reason);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection is closed behind the bye");
    reason
}

pub(crate) fn greeted(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(&hello(VERSION)).unwrap();
    next_frame(&mut stream, |frame| assert_eq!(frame.kind, Kind::Welcome.number()));
    stream
}

fn hello(version: u8) -> Vec<u8> {
    let mut bytes = vec![];
    let hello = Hello {
        version_min: version,
        version_max: version,
        features: 0,
        cluster: None,
        shard: None,
        client: "test".into(),
        authentication: vec![],
    };
    hello.append(&mut bytes, 0);
    bytes
}

/// A ping's header that verifies and claims a length.
fn claims(length: u32) -> Vec<u8> {
    let mut bytes = vec![];
    append_ping(&mut bytes, 1);
    let mut header = FrameHeader::read_from_bytes(&bytes).unwrap();
    header.length = length.into();
    header.header_checksum = sealog_engine::format::checksum(0, &header.as_bytes()[..28]).into();
    header.as_bytes().to_vec()
}

pub(crate) fn pings(stream: &mut TcpStream) {
    let mut bytes = vec![];
    append_ping(&mut bytes, 77);
    stream.write_all(&bytes).unwrap();
    next_frame(stream, |frame| assert_eq!((frame.kind, frame.correlation), (Kind::Pong.number(), 77)));
}

#[test]
fn nonsense_ends_its_own_connection_with_the_reason() {
    let address = node::start();
    let mut bystander = greeted(address);
    let mut random = Random::new(3);
    let noise: Vec<u8> = (0..4096).map(|_| u8::try_from(random.next_u64() % 256).unwrap()).collect();
    let bad = ByeReason::BadFrame.number();
    for bytes in [noise, claims(u32::MAX), claims(0x7fff_ffff), claims(8), claims(80 << 10)] {
        let mut before_hello = connect(address);
        before_hello.write_all(&bytes).unwrap();
        assert_eq!(bye(&mut before_hello), bad);
    }
    for bytes in [vec![0xff; 4096], claims(u32::MAX), claims(0x7fff_ffff), claims((1 << 20) + (64 << 10) + 1)] {
        let mut stream = greeted(address);
        stream.write_all(&bytes).unwrap();
        assert_eq!(bye(&mut stream), bad);
        pings(&mut bystander);
    }
    let mut stream = greeted(address);
    stream.write_all(&hello(VERSION)).unwrap();
    assert_eq!(bye(&mut stream), ByeReason::HelloExpected.number());
    let mut stream = connect(address);
    stream.write_all(&hello(9)).unwrap();
    assert_eq!(bye(&mut stream), ByeReason::NoCommonVersion.number());
    pings(&mut bystander);
}

#[test]
fn a_thousand_connections_that_claim_the_largest_lengths_cost_no_memory() {
    let address = node::start();
    let mut bystander = greeted(address);
    let before = resident_bytes();
    let streams: Vec<TcpStream> = (0..1_000)
        .map(|i| {
            let mut stream = connect(address);
            stream.write_all(&claims(if i % 2 == 0 { u32::MAX } else { 0x7fff_ffff })).unwrap();
            stream
        })
        .collect();
    for mut stream in streams {
        assert_eq!(bye(&mut stream), ByeReason::BadFrame.number());
    }
    pings(&mut bystander);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

/// Bytes of memory that this process holds.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_claimed_length_that_is_allowed_is_given_memory_only_as_its_bytes_come() {
    let address = node::start();
    let before = resident_bytes();
    let streams: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = greeted(address);
            stream.write_all(&claims(1 << 20)).unwrap();
            stream
        })
        .collect();
    let mut bystander = greeted(address);
    pings(&mut bystander);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more for {} connections", streams.len());
}

#[test]
fn a_connection_that_says_nothing_is_ended() {
    let address = node::start_shard(0, 1, None, |s| s.hello_timeout = Duration::from_millis(50));
    let mut silent = connect(address);
    assert_eq!(bye(&mut silent), ByeReason::HelloTimeout.number());
    let mut half = connect(address);
    half.write_all(&hello(VERSION)[..40]).unwrap();
    assert_eq!(bye(&mut half), ByeReason::HelloTimeout.number());
}

#[test]
fn one_connection_too_many_is_told_so_and_a_free_place_is_used_again() {
    let address = node::start_shard(0, 1, None, |s| s.connections_max = 2);
    let mut first = greeted(address);
    let second = greeted(address);
    let mut third = connect(address);
    assert_eq!(bye(&mut third), ByeReason::TooManyConnections.number());
    pings(&mut first);
    drop(second);
    let mut admitted = false;
    for _ in 0..200 {
        let mut again = connect(address);
        again.write_all(&hello(VERSION)).unwrap();
        admitted = next_frame(&mut again, |frame| frame.kind == Kind::Welcome.number());
        if admitted {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(admitted);
}

#[test]
fn who_does_not_read_its_answers_is_not_read_any_more_and_then_closed() {
    let address = node::start_shard(0, 1, None, |s| {
        s.outbound_bytes_pause = 64 << 10;
        s.write_timeout = Duration::from_millis(300);
    });
    let mut bystander = greeted(address);
    let mut deaf = greeted(address);
    deaf.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut flood = vec![];
    for i in 0..10_000 {
        append_ping(&mut flood, i);
    }
    let before = resident_bytes();
    // The sockets' buffers fill first, in both directions; then nothing is taken, until the connection is closed.
    let mut written = 0u64;
    while deaf.write_all(&flood).is_ok() {
        written += flood.len() as u64;
        assert!(written < 1 << 30, "it is still read");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    pings(&mut bystander);
}

#[test]
fn a_request_that_makes_no_sense_is_refused_and_the_connection_goes_on() {
    let address = node::start();
    let mut stream = greeted(address);
    let mut bytes = vec![];
    let head = sealog_net::wire::Head::request(Kind::Fetch, 5, 0);
    sealog_net::wire::frame::append(&mut bytes, head, b"too short", &[]);
    stream.write_all(&bytes).unwrap();
    next_frame(&mut stream, |frame| assert_eq!((frame.kind, frame.correlation), (Kind::Refused.number(), 5)));
    pings(&mut stream);
    Admin::connect(&[address.to_string()], Duration::from_secs(10)).unwrap().ping().unwrap();
}

#[test]
fn a_server_that_stops_says_so_and_gives_its_port_back() {
    let (address, thread) = node::start_for(Duration::from_millis(200));
    let mut stream = greeted(address);
    pings(&mut stream);
    assert_eq!(bye(&mut stream), ByeReason::Stopping.number());
    drop(stream);
    thread.join().unwrap();
    assert!(TcpStream::connect(address).is_err());
}
