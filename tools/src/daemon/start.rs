//! From settings to a running node, and to its end.
//!
//! ```text
//! probe the host ─ take the port ─ recover and start the shards ─ serve HTTP ─ say so ─ wait for a request to stop ─ drain
//!                                                                                              /ready 503, goodbye to clients,
//!                                                                                     what was taken is answered, a checkpoint
//! ```

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, getrlimit, setrlimit};
use sealog_engine::api::Replies;
use sealog_engine::io::node::{Node, NodeConfig, NodeFacts, Serve, ShardContext, StartError};
use sealog_net::server::{HandoverPort, Server, ServerSettings, handover, shared_socket};
use sealog_net::session::{Handshake, NodeIdentity, SessionLimits};
use serde::Serialize;

use super::config::Settings;
use super::fitness::{Absent, Finding, State, Unfit, look};
use super::health::{Facts, Health, Life};
use super::http;
use super::metrics::Shards;
use super::signals::StopRequests;
use super::supervisor::{self, Watchdog};
use crate::exit::{Exit, Failure, Outcome};
use crate::log::{self, DroppedLines};
use crate::output::Format;

/// A node in this process.
pub(crate) struct Running {
    node: Node,
    pub(crate) health: Arc<Health>,
    /// Where clients reach it.
    pub(crate) listen: SocketAddr,
}

/// What of the process around it a node needs.
#[derive(Default)]
pub(crate) struct Surroundings {
    /// Where its HTTP port is.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) dropped_lines: DroppedLines,
}

/// How long a port that is in use is asked for again, and how often.
const PORT_PATIENCE: Duration = Duration::from_secs(1);
const PORT_AGAIN: Duration = Duration::from_millis(10);

/// What is printed once it is ready.
#[derive(Serialize)]
#[serde(transparent)]
struct Ready<'a>(&'a Facts);

/// Runs a daemon until it is asked to stop.
pub(crate) fn run(settings: &Settings, format: Format) -> Outcome {
    let log = log::start(&settings.log);
    let stop = StopRequests::listen()?;
    raise_file_limit();
    let bound = http::bind(settings.http)
        .with_context(|| format!("cannot listen on {} for HTTP (node.http)", settings.http))?;
    let surroundings = Surroundings { http: Some(bound.address), dropped_lines: log.dropped() };
    let running = start(settings, surroundings)?;
    stop.started();
    let http = http::serve(bound, running.health.clone())?;
    let watchdog = Watchdog::feed(running.health.shards.0.clone())?;
    format.print(&Ready(&running.health.facts))?;
    supervisor::ready(Ready(&running.health.facts).to_string().trim_end());
    tracing::info!(listen = %running.listen, data_dir = %settings.data_dir.display(), "ready");
    stop.wait();
    tracing::info!("asked to stop: draining");
    running.health.set(Life::Stopping);
    supervisor::stopping();
    let limit = DrainLimit::begin(settings.drain_timeout)?;
    running.stop();
    limit.kept();
    tracing::info!("drained");
    drop((watchdog, http, log));
    Ok(Exit::Done)
}

/// Ends the process if a drain takes longer than it may.
struct DrainLimit {
    kept: Sender<()>,
    thread: JoinHandle<()>,
}

impl DrainLimit {
    fn begin(limit: Duration) -> io::Result<Self> {
        let (kept, is_kept) = channel();
        let thread = thread::Builder::new().name("drain-limit".to_owned()).spawn(move || {
            if is_kept.recv_timeout(limit).is_err() {
                eprintln!(
                    "sealog: not drained within node.drain_timeout ({limit:?}), ended: what was acknowledged is stored, \
                     what was not answered is unknown to its client"
                );
                std::process::exit(Exit::Failed as i32);
            }
        })?;
        Ok(Self { kept, thread })
    }

    fn kept(self) {
        // Refused only by a thread that is about to end the process.
        _ = self.kept.send(());
        _ = self.thread.join();
    }
}

/// Lets this process have as many files and sockets as the host allows: the usual soft limit of 1,024 is a thousand connections. Not
/// reaching more is no error; a connection too many is then turned away.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Starts a node; it serves when this returns.
///
/// # Errors
/// The host is unfit, the port is taken, or the data directory is not to be used.
pub(crate) fn start(settings: &Settings, surroundings: Surroundings) -> Result<Running, Failure> {
    let dir = &settings.data_dir;
    let shards = settings.engine.shards;
    must_be_fit(settings)?;
    let port = SharedPort::take(settings.listen)
        .with_context(|| format!("cannot listen on {} for clients (node.listen)", settings.listen))?;
    let config = NodeConfig {
        data_dir: dir.clone(),
        engine: settings.engine.clone(),
        sync: settings.sync,
        cpus: (!settings.cpus.is_empty()).then(|| settings.cpus.clone()),
        wake_latency_us: settings.wake_latency_us,
        record: None,
    };
    let node = Node::start(&config, &serve_on(port.address, shards)).map_err(failure)?;
    let facts = facts(node.facts(), dir, port.address, surroundings.http, shards);
    let health = Arc::new(Health::new(facts, Shards(node.metrics().to_vec()), surroundings.dropped_lines));
    health.set(Life::Ready);
    Ok(Running { node, health, listen: port.address })
}

/// Looks at the host as `sealog doctor` does.
fn must_be_fit(settings: &Settings) -> Result<(), Failure> {
    let fitness = look(settings, Absent::Make);
    for Finding { subject, state, found, remedy } in &fitness.findings {
        if *state == State::Warning {
            tracing::warn!(subject, found, remedy, "this host could be better");
        }
    }
    if fitness.is_fit() { Ok(()) } else { Err(Failure::new(Exit::Unfit, Unfit(fitness))) }
}

impl Running {
    /// Refuses new requests, answers what was taken, and ends.
    pub(crate) fn stop(self) {
        self.node.stop();
    }
}

/// What each shard runs to serve its connections.
fn serve_on(listen: SocketAddr, shards: u16) -> Serve {
    let ports: Vec<Option<HandoverPort>> = handover(shards).into_iter().map(Some).collect();
    let ports = Mutex::new(ports);
    Arc::new(move |context: ShardContext| -> io::Result<Rc<dyn Replies>> {
        let port = ports.lock().expect("no shard panics with it")[usize::from(context.shard.0)].take();
        let identity = NodeIdentity { cluster: context.cluster, node: context.node, shards: context.shards };
        let handshake = Handshake { identity, limits: SessionLimits::from(&context.config) };
        let settings = ServerSettings::new(listen, context.shard, handshake);
        Server::start(settings, port.filter(|_| context.shards > 1), context.service)
    })
}

/// A port that all shards can listen on and nobody else: held, never listened on, by a socket of its own until they do.
struct SharedPort {
    _held: OwnedFd,
    address: SocketAddr,
}

impl SharedPort {
    fn take(wanted: SocketAddr) -> io::Result<Self> {
        // Without SO_REUSEPORT first: else two daemons of one user would share a port without noticing.
        let alone = bind_alone(wanted)?;
        let address = alone.local_addr()?;
        drop(alone);
        Ok(Self { _held: shared_socket(address)?, address })
    }
}

/// Binds an address that nobody else may have. The listener of a node that was killed outlives its process for some milliseconds: the
/// kernel gives back what a ring holds in the background.
fn bind_alone(wanted: SocketAddr) -> io::Result<TcpListener> {
    let until = Instant::now() + PORT_PATIENCE;
    loop {
        match TcpListener::bind(wanted) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(PORT_AGAIN);
            }
            bound => return bound,
        }
    }
}

fn facts(node: &NodeFacts, dir: &Path, listen: SocketAddr, http: Option<SocketAddr>, shards: u16) -> Facts {
    let absolute = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    Facts {
        version: env!("CARGO_PKG_VERSION"),
        commit: sealog_bench::COMMIT,
        pid: std::process::id(),
        listen: listen.to_string(),
        http: http.map(|http| http.to_string()),
        data_dir: absolute.display().to_string(),
        shards,
        cpus: node.cpus.clone(),
        sync: node.calibration.chosen.to_string(),
        cluster: format!("{:032x}", node.cluster.0),
        node: node.node.to_string(),
        start: node.life.0,
    }
}

fn failure(error: StartError) -> Failure {
    let exit = match &error {
        StartError::Config(_) | StartError::Recover(_) | StartError::TooFewCores { .. } => Exit::Configuration,
        StartError::Directory { .. }
        | StartError::Lock(_)
        | StartError::Calibrate(_)
        | StartError::Cores(_)
        | StartError::WakeLatency(_)
        | StartError::Executor { .. }
        | StartError::Shard { .. } => Exit::Failed,
    };
    Failure::new(exit, error)
}

impl fmt::Display for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { listen, http, data_dir, shards, sync, .. } = self.0;
        let http = http.as_ref().map_or_else(String::new, |http| format!(", http {http}"));
        let plural = if *shards == 1 { "" } else { "s" };
        writeln!(f, "ready: clients {listen}{http}, data {data_dir}, {shards} shard{plural}, sync {sync}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_a_shard_listens_on_is_shared_with_other_shards_and_nobody_else() {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let port = SharedPort::take(free).expect("a free port");
        let shards = [0, 1].map(|_| shared_socket(port.address).expect("the same port again"));
        for shard in &shards {
            rustix::net::listen(shard, 1).expect("it listens");
        }
        let error = SharedPort::take(port.address).err().expect("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
