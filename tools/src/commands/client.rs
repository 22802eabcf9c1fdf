//! What all commands that talk to a node share: where it is, how long to wait, and how a refusal ends the process.

use std::time::Duration;

use clap::Args;
use sealog_engine::api::error::{Refusal, Retry};
use sealog_net::client::blocking::{Admin, OpenError, RequestError};
use sealog_net::wire::Refused;

use crate::daemon::config::{parse_size, parse_time};
use crate::exit::{Exit, Failure};

/// Where the node is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Client {
    /// Addresses of nodes, tried in turn.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "SEALOG_ADDR",
        value_delimiter = ',',
        default_value = "127.0.0.1:7400"
    )]
    pub(crate) addr: Vec<String>,
    /// How long a request may take, such as 500ms or 10s.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) timeout: Duration,
}

/// A time of the command line.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "write 500ms, 10s, 5m or 1h".to_owned())
}

/// A size of the command line.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "write bytes, or KiB, MiB or GiB, such as 1024 or 16KiB".to_owned())
}

impl Client {
    /// A connection for requests.
    pub(crate) fn admin(&self) -> Result<Admin, Failure> {
        Ok(Admin::connect(&self.addr, self.timeout)?)
    }

    /// The timeout as the library wants it.
    pub(crate) fn timeout_ms(&self) -> u32 {
        u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX)
    }
}

/// How a request that failed ends the process.
pub(crate) fn exit_of(error: &RequestError) -> Exit {
    match error {
        RequestError::Unreachable(_) | RequestError::Broken(_) | RequestError::TimedOut(_) => Exit::TryAgain,
        // The time was over before the node's own delay was.
        RequestError::Refused(Refused { retry: Retry::AfterDelay { .. }, .. }) => Exit::TryAgain,
        RequestError::Refused(Refused { refusal: Some(Refusal::DeadlinePassed), .. }) => Exit::TryAgain,
        RequestError::Refused(_) | RequestError::Bye(_) | RequestError::Confused => Exit::Failed,
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::new(exit_of(&error), error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let exit = match &error {
            OpenError::Unreachable(_) | OpenError::TimedOut => Exit::TryAgain,
            OpenError::Failed(_) => Exit::Failed,
        };
        Self::new(exit, error)
    }
}
