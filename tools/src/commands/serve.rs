//! `sealog serve`: the daemon.

use clap::Args;

use crate::daemon::config::{Given, SettingError, Settings};
use crate::daemon::start;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Format;

/// Run a node until it is asked to stop.
///
/// Prints one line when it is ready, with the addresses that it has. SIGTERM or SIGINT lets it answer what it has taken and end; a
/// second one ends it at once.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    given: Given,
    /// How the ready line is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Serve {
    pub(super) fn run(&self) -> Outcome {
        start::run(&Settings::load(&self.given)?, self.format)
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::new(Exit::Configuration, error)
    }
}
