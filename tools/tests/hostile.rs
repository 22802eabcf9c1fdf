//! Bytes that no client of ours sends: each costs its own connection and nobody else anything.

mod daemon;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use daemon::{Daemon, folder};
use rustix::process::{Resource, getrlimit, setrlimit};
use sealog_bench::load::arrivals::Random;
use sealog_engine::format::checksum::checksum;
use sealog_net::wire::Hello;

const CONNECTIONS: usize = 1_000;
/// Memory that a thousand hostile connections may cost all together.
const MEMORY_MOST: u64 = 64 << 20;

/// A header whose checksum holds, of a frame that claims to have so many bytes.
fn header(length: u32) -> Vec<u8> {
    let mut hello = Vec::new();
    Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        cluster: None,
        shard: None,
        client: "hostile".to_owned(),
        authentication: vec![],
    }
    .append(&mut hello, 1);
    resized(&hello, length)
}

/// The frame with another length, and a header checksum that holds.
fn resized(frame: &[u8], length: u32) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..4].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(0, &frame[..28]);
    frame[28..32].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// A connection that has been welcomed.
fn greeted(daemon: &Daemon) -> TcpStream {
    let mut stream = connect(daemon);
    let length = u32::try_from(header(0).len()).expect("a small frame");
    stream.write_all(&header(length)).expect("said hello");
    let mut welcome = [0; 32];
    stream.read_exact(&mut welcome).expect("welcomed");
    let left = u32::from_le_bytes(welcome[..4].try_into().expect("4 bytes")) as usize - 32;
    stream.read_exact(&mut vec![0; left]).expect("the rest of the welcome");
    stream
}

fn connect(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(&daemon.listen).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

/// Whether the node has closed the connection, whatever it said before.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut said = Vec::new();
    match stream.take(1 << 20).read_to_end(&mut said) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_thousand_absurd_lengths_close_their_connections_cost_no_memory_and_disturb_nobody() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    daemon.ok(&["produce", "t"], b"before\n");
    let before = daemon.memory();
    let mut most = before;
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).expect("this process may have the files that it may have");
    let mut streams = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let length = if number % 2 == 0 { 0xffff_ffff } else { 0x7fff_ffff };
        // Half of them before the hello, half behind it.
        let mut stream = if number % 4 < 2 { connect(&daemon) } else { greeted(&daemon) };
        stream.write_all(&header(length)).expect("sent");
        streams.push(stream);
        if number % 100 == 99 {
            most = most.max(daemon.memory());
            assert_eq!(daemon.ok(&["consume", "t", "--max", "1"], b""), "before\n");
        }
    }
    daemon.ok(&["produce", "t"], b"meanwhile\n");
    for (number, stream) in streams.iter_mut().enumerate() {
        assert!(is_closed(stream), "connection {number} is still open");
    }
    most = most.max(daemon.memory());
    assert!(most - before < MEMORY_MOST, "memory grew from {before} to {most} bytes");
    assert_eq!(daemon.ok(&["consume", "t"], b""), "before\nmeanwhile\n");
}

#[test]
fn a_frame_that_is_cut_short_and_random_bytes_cost_their_own_connection_only() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    daemon.ok(&["topic", "create", "t"], b"");
    let mut random = Random::new(1);
    for round in 0..200 {
        let mut stream = if round % 2 == 0 { connect(&daemon) } else { greeted(&daemon) };
        let noise: Vec<u8> = (0..64).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        if stream.write_all(&noise).is_ok() {
            assert!(is_closed(&mut stream), "round {round}");
        }
        // The beginning of a frame, and then nothing more: an end, not an error.
        let mut cut = greeted(&daemon);
        cut.write_all(&header(4_096)[..20]).expect("sent");
        cut.shutdown(std::net::Shutdown::Write).expect("closed");
        assert!(is_closed(&mut cut), "round {round}");
    }
    daemon.ok(&["produce", "t"], b"still here\n");
    assert_eq!(daemon.ok(&["consume", "t"], b""), "still here\n");
}
