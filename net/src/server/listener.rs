//! A shard's listening socket. All shards listen on the same address; the kernel spreads connections over them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_lite::future::or;
use glommio::net::{TcpListener, TcpStream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use sealog_engine::api::port::{Replies, ShardService};
use sealog_engine::api::request::ReplyTo;
use sealog_engine::api::response::Response;

use super::connection::{self, Arrival};
use super::handover::HandoverPort;
use super::replies::Connections;
use super::{ServerSettings, Shared, receive};

/// Wait after an accept that failed: out of descriptors, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: i32 = 1_024;

/// One shard's server. Made and used on the shard's executor.
pub struct Server {
    shared: Rc<Shared>,
    listener: TcpListener,
    address: SocketAddr,
    /// Waits for the server to be stopped.
    serving: RefCell<Option<Waker>>,
}

impl Server {
    /// Listens. Connections are accepted once it [`serve`](Self::serve)s. `handover` is this shard's port, if there are other shards.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn bind(settings: ServerSettings, handover: Option<HandoverPort>) -> io::Result<Rc<Self>> {
        let listener = listen(settings.listen)?;
        let address = listener.local_addr().map_err(io::Error::from)?;
        let replies = Rc::new(Connections::default());
        let (buffer, stopping) = (receive::shared_buffer(), Cell::new(false));
        let shared = Rc::new(Shared { settings, replies, buffer, handover, stopping });
        Ok(Rc::new(Self { shared, listener, address, serving: RefCell::new(None) }))
    }

    /// Listens, and serves on this executor for as long as that runs. Gives where the engine's answers go.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn start(
        settings: ServerSettings,
        handover: Option<HandoverPort>,
        service: Rc<dyn ShardService>,
    ) -> io::Result<Rc<dyn Replies>> {
        let server = Self::bind(settings, handover)?;
        glommio::spawn_local(server.clone().serve(service)).detach();
        Ok(server)
    }

    /// The address that it listens on, with the port that was given.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where the engine's answers go.
    #[must_use]
    pub fn replies(&self) -> Rc<dyn Replies> {
        self.shared.replies.clone()
    }

    /// Connections that are accepted, greeted or not.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.replies.accepted()
    }

    /// Accepts connections and serves them with `service`, until [`stop`](Self::stop). The address is given back when the server is
    /// dropped.
    pub async fn serve(self: Rc<Self>, service: Rc<dyn ShardService>) {
        if self.shared.handover.is_some() {
            let (shared, service) = (self.shared.clone(), service.clone());
            glommio::spawn_local(async move {
                while let Some(port) = &shared.handover
                    && let Some(handed) = port.take().await
                {
                    let (stream, rest, correlation) = handed.into_stream();
                    start(&shared, &service, stream, Arrival::Handed { rest, correlation });
                }
            })
            .detach();
        }
        loop {
            let accepted = or(async { Some(self.listener.accept().await) }, async {
                self.stopped().await;
                None
            });
            match accepted.await {
                None => break,
                Some(Ok(stream)) => start(&self.shared, &service, stream, Arrival::Accepted),
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    glommio::timer::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    async fn stopped(&self) {
        poll_fn(|cx| {
            if self.shared.stopping.get() {
                return Poll::Ready(());
            }
            *self.serving.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Says goodbye to every connection and takes no more.
    pub fn stop(&self) {
        self.shared.stopping.set(true);
        if let Some(waker) = self.serving.borrow_mut().take() {
            waker.wake();
        }
        let bye = connection::stopping_bye();
        for connection in self.shared.replies.all() {
            connection.dismiss(&bye);
        }
    }
}

/// A node that ends what it runs ends its servers with it.
impl Replies for Server {
    fn reply(&self, to: ReplyTo, response: Response) {
        self.shared.replies.reply(to, response);
    }

    fn flush(&self) {
        self.shared.replies.flush();
    }

    fn close(&self) {
        self.stop();
    }

    fn is_closed(&self) -> bool {
        self.shared.stopping.get() && self.connections() == 0
    }
}

/// A socket bound to an address that others of this user may bind too: each shard listens on one. SO_REUSEADDR, which glommio's own leaves out, is for the next process: the kernel
/// remembers for a minute each connection that this side closed first, and one that may not be shared would keep it from the port.
///
/// # Errors
/// The address cannot be had.
pub fn shared_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = shared_socket(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    // SAFETY: it is a listening socket, and nobody else has it.
    Ok(unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) })
}

fn start(shared: &Rc<Shared>, service: &Rc<dyn ShardService>, stream: TcpStream, arrival: Arrival) {
    let counted = shared.replies.count(shared.settings.connections_max);
    let (shared, service) = (shared.clone(), service.clone());
    glommio::spawn_local(async move {
        match counted {
            Some(counted) => {
                connection::run(&shared, &service, stream, arrival).await;
                drop(counted);
            }
            None => connection::turn_away(&shared, stream).await,
        }
    })
    .detach();
}
