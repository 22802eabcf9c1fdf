//! `sealog serve`: the daemon.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::daemon::config::{SettingError, Settings};
use crate::daemon::start;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Variables that are no settings of a daemon.
const OTHER_VARIABLES: &[&str] = &["SEALOG_ADDR", "SEALOG_LOG", "SEALOG_COMMIT", "SEALOG_CONFIG"];

/// Run a node until it is asked to stop.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// TOML file of settings.
    #[arg(long, value_name = "FILE", env = "SEALOG_CONFIG")]
    config: Option<PathBuf>,
    /// Where everything is kept; made if it does not exist.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address for clients; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Address for /health, /ready, /metrics and /status; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Shards, one a core, or `auto`.
    #[arg(long, value_name = "N")]
    shards: Option<String>,
    /// Cores for the shards, in their order, such as 0,1.
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// How journal groups are made durable.
    #[arg(long, value_name = "auto|linked|thread|dsync")]
    sync: Option<String>,
    /// Bytes of one journal file, such as 128MiB.
    #[arg(long, value_name = "SIZE")]
    journal_size: Option<String>,
    /// Bytes after which a segment rolls.
    #[arg(long, value_name = "SIZE")]
    segment_size: Option<String>,
    /// Bytes of memory for data that is not yet in a segment, for each shard.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Bytes of the largest batch.
    #[arg(long, value_name = "SIZE")]
    max_batch: Option<String>,
    /// Any setting, such as segment.age=10m; may be given more than once.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    assignments: Vec<String>,
    /// How the ready line is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Serve {
    pub(super) fn run(&self) -> Outcome {
        let settings = self.settings().map_err(|error| Failure::new(Exit::Configuration, error))?;
        start::run(&settings, self.format)
    }

    /// All sources, the weakest first.
    fn settings(&self) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        if let Some(path) = &self.config {
            settings.apply_file(path)?;
        }
        settings.apply_environment(std::env::vars(), OTHER_VARIABLES)?;
        for assignment in &self.assignments {
            settings.apply_assignment(assignment)?;
        }
        let flags = [
            ("node.shards", &self.shards),
            ("node.cpus", &self.cpus),
            ("journal.sync", &self.sync),
            ("journal.size", &self.journal_size),
            ("segment.size", &self.segment_size),
            ("node.memory", &self.memory),
            ("batch.max", &self.max_batch),
        ];
        for (key, value) in flags {
            if let Some(value) = value {
                settings.apply(key, value, &crate::daemon::config::Origin::Flag)?;
            }
        }
        if let Some(dir) = &self.data_dir {
            settings.data_dir.clone_from(dir);
        }
        settings.listen = self.listen.unwrap_or(settings.listen);
        settings.http = self.http.unwrap_or(settings.http);
        settings.check()?;
        Ok(settings)
    }
}
