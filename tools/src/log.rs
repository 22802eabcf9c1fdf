//! What the process writes down of itself, on standard error.
//!
//! ```text
//! line ──> bounded queue ──> thread `log` ──> standard error      a full queue drops the line and counts it
//! ```
//! **Invariant**: a shard that logs never waits for whoever reads the log. A pipe that nobody reads costs lines, and says how many.

use std::fmt;
use std::io;
use std::str::FromStr;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that may wait to be written.
const LINES_WAITING: usize = 8_192;
/// Which lines a command writes that was not asked for others.
const COMMAND_FILTER: &str = "warn";
/// The variable that asks for others.
const VARIABLE: &str = "SEALOG_LOG";

/// What a daemon logs, and how.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// As `EnvFilter` takes it.
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
}

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Text }
    }
}

impl FromStr for LogFormat {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// The log. Dropped, it writes what waits and ends; within two seconds, whoever reads.
pub(crate) struct Log {
    _writer: WorkerGuard,
    dropped: ErrorCounter,
}

impl Log {
    /// Lines that were dropped since the start.
    pub(crate) fn dropped(&self) -> DroppedLines {
        DroppedLines(Some(self.dropped.clone()))
    }
}

/// Counts lines that were dropped because they were not taken fast enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct DroppedLines(Option<ErrorCounter>);

impl DroppedLines {
    /// Lines since the start.
    pub(crate) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |counter| u64::try_from(counter.dropped_lines()).unwrap_or(u64::MAX))
    }
}

/// Begins the log of a command: as `SEALOG_LOG` asks (`warn`, `info`, `sealog_net=debug`), warnings without it.
pub(crate) fn start_for_command() -> Log {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(COMMAND_FILTER));
    install(filter, LogFormat::Text)
}

/// Begins the log of a daemon.
pub(crate) fn start(settings: &Settings) -> Log {
    install(EnvFilter::new(&settings.filter), settings.format)
}

fn install(filter: EnvFilter, format: LogFormat) -> Log {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_WAITING).thread_name("log");
    let (writer, guard) = builder.finish(io::stderr());
    let dropped = writer.error_counter();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Log { _writer: guard, dropped }
}
