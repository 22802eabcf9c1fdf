//! HTTP for people and scrapers, on one ordinary thread: it reads what the shards have published and never meets them.
//!
//! ```text
//! GET /health    200, or 503 and why: a supervisor restarts or replaces the node
//! GET /ready     200, or 503 while it stops: a balancer sends nobody. Before it is ready nobody answers
//! GET /metrics   Prometheus text
//! GET /status    everything as JSON
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::oneshot;

use super::health::Health;
use super::metrics;

/// A running server. Dropped, it ends at once.
#[derive(Debug)]
pub(crate) struct Http {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A socket that is bound, so that the address is known before anything is served.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// Binds; port 0 finds a free one.
///
/// # Errors
/// The address cannot be had.
pub(crate) fn bind(address: SocketAddr) -> io::Result<Bound> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok(Bound { listener, address })
}

/// Serves until the answer is dropped.
///
/// # Errors
/// No thread can be had.
pub(crate) fn serve(bound: Bound, health: Arc<Health>) -> io::Result<Http> {
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let serving = async move {
                let listener = tokio::net::TcpListener::from_std(bound.listener)?;
                axum::serve(listener, router(health)).await
            };
            tokio::select! {
                ended = serving => if let Err(error) = ended { tracing::error!(%error, "http ended") },
                _ = stopped => {}
            }
        });
    })?;
    Ok(Http { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Http {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn router(health: Arc<Health>) -> Router {
    Router::new()
        .route("/health", get(async |State(h): State<Arc<Health>>| answer(h.is_healthy())))
        .route("/ready", get(async |State(h): State<Arc<Health>>| answer(h.is_ready())))
        .route("/metrics", get(async |State(h): State<Arc<Health>>| prometheus(&h)))
        .route("/status", get(async |State(h): State<Arc<Health>>| json(&h.status())))
        .with_state(health)
}

fn answer(state: Result<(), &'static str>) -> Response {
    match state {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

fn json(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response()
}

fn prometheus(health: &Health) -> Response {
    let mut text = String::new();
    let registry = metrics::registry(health.shards.clone(), health.dropped_lines.clone());
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
