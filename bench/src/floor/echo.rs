//! The round trip over loopback between this load test's own client and a bare glommio server: what the network and the two programs
//! cost before any of them does anything.

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};

use crate::load::poller::{Poller, Socket};

/// Bytes of the frames that go each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EchoSizes {
    pub request_bytes: usize,
    pub reply_bytes: usize,
}

/// Measures round trips, one at a time, for so long; each in nanoseconds, in the order in which they were made.
///
/// # Errors
/// No socket, or no executor.
///
/// # Panics
/// If a size is 0.
pub fn round_trips(sizes: EchoSizes, cpu: Option<usize>, duration: Duration) -> io::Result<Vec<u64>> {
    assert!(sizes.request_bytes > 0 && sizes.reply_bytes > 0, "an echo has bytes");
    let (address, server) = serve(sizes, cpu)?;
    let mut socket = Socket::connect(address)?;
    let mut poller = Poller::new()?;
    poller.add(&socket, 0)?;
    let mut request = Vec::with_capacity(sizes.request_bytes);
    let mut space = vec![0; sizes.reply_bytes];
    let mut times_ns = Vec::with_capacity(1 << 20);
    let until = Instant::now() + duration;
    loop {
        let begun = Instant::now();
        if begun >= until {
            break;
        }
        request.resize(sizes.request_bytes, 7);
        socket.send(&mut request)?;
        let mut received = 0;
        while received < sizes.reply_bytes {
            _ = poller.wait(None)?.count();
            socket.send(&mut request)?;
            received += socket.receive(&mut space)?;
        }
        times_ns.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    drop(socket);
    server.join().expect("the echo server does not panic")?;
    Ok(times_ns)
}

/// Starts a server for one connection; it ends when that is closed.
fn serve(sizes: EchoSizes, cpu: Option<usize>) -> io::Result<(SocketAddr, JoinHandle<io::Result<()>>)> {
    let (tell, told) = std::sync::mpsc::channel();
    let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
    let server = std::thread::Builder::new().name("echo".to_owned()).spawn(move || {
        let executor = LocalExecutorBuilder::new(placement).io_memory(1 << 20).make().map_err(io::Error::from)?;
        executor.run(async move {
            let listener = TcpListener::bind("127.0.0.1:0").map_err(io::Error::from)?;
            _ = tell.send(listener.local_addr().map_err(io::Error::from)?);
            let stream = listener.accept().await.map_err(io::Error::from)?;
            echo(stream, sizes).await
        })
    })?;
    match told.recv() {
        Ok(address) => Ok((address, server)),
        // The thread has ended without an address: its error says why.
        Err(_) => match server.join().expect("the echo server does not panic") {
            Err(error) => Err(error),
            Ok(()) => Err(io::ErrorKind::AddrNotAvailable.into()),
        },
    }
}

/// One reply for each whole request.
async fn echo(mut stream: TcpStream, sizes: EchoSizes) -> io::Result<()> {
    stream.set_nodelay(true).map_err(io::Error::from)?;
    let mut space = vec![0; 64 * 1024];
    let reply = vec![9; sizes.reply_bytes];
    let mut received = 0;
    loop {
        match stream.read(&mut space).await? {
            0 => return Ok(()),
            bytes => received += bytes,
        }
        while received >= sizes.request_bytes {
            received -= sizes.request_bytes;
            stream.write_all(&reply).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Runs an executor, which this host may not allow: then says so.
    #[test]
    fn every_round_trip_is_timed() {
        let sizes = EchoSizes { request_bytes: 100_000, reply_bytes: 40 };
        match round_trips(sizes, None, Duration::from_millis(50)) {
            Ok(times_ns) => assert!(!times_ns.is_empty() && times_ns.iter().all(|ns| *ns > 1_000), "{times_ns:?}"),
            Err(error) => writeln!(io::stderr(), "SKIPPED: no executor here: {error}").expect("standard error"),
        }
    }
}
