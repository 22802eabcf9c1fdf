//! What the node under load says of itself: facts and counters.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

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

/// The counters of each shard.
pub(super) fn shards(status: &Value) -> impl Iterator<Item = &Value> {
    status["counters"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

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
