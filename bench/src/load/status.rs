//! What the node under load says of itself: facts, counters, and when it last rolled a segment or made a checkpoint.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::samples::Span;

/// How often the counters are looked at for rolls and checkpoints. Each counter tells of its last event only; two of a kind
/// within this time show as one that was not seen.
const LOOK: Duration = Duration::from_millis(150);
/// Longest answer that is taken.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Where the status comes from: a node in this process, or its HTTP port.
pub type StatusSource = Arc<dyn Fn() -> Option<Value> + Send + Sync>;

/// The status of a daemon, from its HTTP port.
#[must_use]
pub fn over_http(address: SocketAddr) -> StatusSource {
    Arc::new(move || serde_json::from_str(&get(address, "/status").ok()?).ok())
}

/// The body of a page.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        Some(_) | None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A counter summed over all shards; 0 if the status has none.
#[must_use]
pub fn sum(status: &Value, counter: &str) -> u64 {
    shards(status).filter_map(|shard| shard[counter].as_u64()).sum()
}

fn shards(status: &Value) -> impl Iterator<Item = &Value> {
    status["counters"].as_array().into_iter().flatten()
}

/// Rolls and checkpoints of a node over some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    pub rolls: u64,
    pub checkpoints: u64,
    /// Those whose time was seen, on the wall clock in ms: begin and end.
    pub seen_ms: Vec<(u64, u64)>,
}

/// Looks at a node's counters again and again, on a thread of its own.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Events>,
}

impl Watch {
    /// Begins to look.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(source: StatusSource) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
            let first = source().unwrap_or_default();
            let mut events = Events::default();
            let mut last = first.clone();
            loop {
                let over = stopped.load(Ordering::Acquire);
                if let Some(status) = source() {
                    events.compare(&last, &status);
                    last = status;
                }
                if over {
                    break;
                }
                std::thread::sleep(LOOK);
            }
            events.rolls = sum(&last, "rolls").saturating_sub(sum(&first, "rolls"));
            events.checkpoints = sum(&last, "checkpoints").saturating_sub(sum(&first, "checkpoints"));
            events
        })?;
        Ok(Self { stop, thread })
    }

    /// Looks once more, and gives what was seen.
    ///
    /// # Panics
    /// If the thread did.
    #[must_use]
    pub fn finish(self) -> Events {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the watch does not panic")
    }
}

impl Events {
    /// Notes what has happened between two looks.
    fn compare(&mut self, before: &Value, after: &Value) {
        for (old, new) in shards(before).zip(shards(after)) {
            let at = |shard: &Value, name: &str| shard[name].as_u64().unwrap_or(0);
            let roll_ms = at(new, "last_roll_wall_ms");
            if roll_ms != at(old, "last_roll_wall_ms") {
                self.seen_ms.push((roll_ms, roll_ms));
            }
            let (begin, end) = ("last_checkpoint_begin_wall_ms", "last_checkpoint_end_wall_ms");
            if at(new, end) != at(old, end) {
                self.seen_ms.push((at(new, begin), at(new, end)));
            }
        }
    }

    /// The events on the clock of a load whose start was at `wall_start_ms`.
    #[must_use]
    pub fn spans(&self, wall_start_ms: u64) -> Vec<Span> {
        let ns = |wall_ms: u64| wall_ms.saturating_sub(wall_start_ms) * 1_000_000;
        self.seen_ms.iter().map(|(begin, end)| Span { begin_ns: ns(*begin), end_ns: ns(*end) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    fn status(rolls: u64, roll_ms: u64, checkpoint_ms: (u64, u64)) -> Value {
        json!({"counters": [{
            "rolls": rolls, "last_roll_wall_ms": roll_ms, "checkpoints": 1,
            "last_checkpoint_begin_wall_ms": checkpoint_ms.0, "last_checkpoint_end_wall_ms": checkpoint_ms.1,
        }]})
    }

    #[test]
    fn an_event_is_seen_when_its_time_changes() {
        let mut events = Events::default();
        events.compare(&status(0, 0, (0, 0)), &status(1, 5_000, (0, 0)));
        events.compare(&status(1, 5_000, (0, 0)), &status(1, 5_000, (0, 0)));
        events.compare(&status(1, 5_000, (0, 0)), &status(3, 7_000, (6_000, 6_050)));
        assert_eq!(events.seen_ms, [(5_000, 5_000), (7_000, 7_000), (6_000, 6_050)]);
        assert_eq!(events.spans(5_000)[2], Span { begin_ns: 1_000_000_000, end_ns: 1_050_000_000 });
    }

    #[test]
    fn a_counter_is_summed_over_shards() {
        let two = json!({"counters": [{"groups": 3}, {"groups": 4}]});
        assert_eq!((sum(&two, "groups"), sum(&two, "none"), sum(&Value::Null, "groups")), (7, 0, 0));
    }

    #[test]
    fn a_page_is_its_body_and_only_with_status_200() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"pid\": 1}", "HTTP/1.1 503 No\r\n\r\n{}"] {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut request = [0; 1024];
                let read = stream.read(&mut request).expect("a request");
                assert!(request[..read].starts_with(b"GET /status HTTP/1.0\r\n"));
                stream.write_all(answer.as_bytes()).expect("answered");
            }
        });
        let source = over_http(address);
        assert_eq!(source(), Some(json!({"pid": 1})));
        assert_eq!(source(), None);
        server.join().expect("the server");
    }
}
