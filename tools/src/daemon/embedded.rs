//! A node inside this process, for the demo and the load test: the same start as a daemon's, without its signals and its HTTP port.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use sealog_bench::run::Target;
use tempfile::TempDir;

use super::config::Settings;
use super::start::{Running, Surroundings, start};
use crate::exit::Failure;

/// A folder that is removed with this.
#[derive(Debug)]
pub(crate) struct Scratch(TempDir);

/// A running node.
pub(crate) struct Embedded {
    running: Running,
    data_dir: PathBuf,
}

impl Scratch {
    /// A new folder below `dir`, or below the current one: /tmp is memory on many machines, and no disk.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn below(dir: Option<&Path>) -> Result<Self, Failure> {
        let dir = dir.unwrap_or_else(|| Path::new("."));
        let scratch = tempfile::Builder::new().prefix(".sealog-").tempdir_in(dir);
        Ok(Self(scratch.with_context(|| format!("cannot make a folder in {}", dir.display()))?))
    }
}

/// Starts a node in a folder of its own, on free ports of the loopback.
///
/// # Errors
/// The host is unfit, or the node does not start.
pub(crate) fn start_embedded(mut settings: Settings, scratch: &Scratch) -> Result<Embedded, Failure> {
    settings.data_dir = scratch.0.path().join("data");
    settings.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let data_dir = settings.data_dir.clone();
    Ok(Embedded { running: start(&settings, Surroundings::default())?, data_dir })
}

impl Embedded {
    /// The node as a load test sees it.
    pub(crate) fn target(&self) -> Target {
        let health = self.running.health.clone();
        Target {
            addresses: vec![self.running.listen.to_string()],
            status: Some(Arc::new(move || Some(health.status()))),
            data_dir: Some(self.data_dir.clone()),
        }
    }

    /// Stops it.
    pub(crate) fn stop(self) {
        self.running.stop();
    }
}
