//! How the process ends, as scripts see it.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Exit codes. They are an interface: numbers are never given another meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    /// An objective (`--slo`) was missed.
    Missed = 3,
    /// Saturated, or no valid measurement.
    Invalid = 4,
    /// Verification failed, or a gap was met with `--fail-on-gap`.
    NotVerified = 5,
    /// This host cannot run it.
    Unfit = 69,
    /// A deadline passed, or the outcome is unknown; it may be tried again.
    TryAgain = 75,
    /// Configuration, or the format of the data.
    Configuration = 78,
    /// Interrupted.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that failed: what to tell, and how to end.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    error: anyhow::Error,
}

/// What a command gives.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// The same, with the topic that it is about.
    pub(crate) fn of_topic(error: impl Into<Self>, name: &str) -> Self {
        let Self { exit, error } = error.into();
        Self { exit, error: error.context(format!("topic {name}")) }
    }

    /// Tells it on standard error, unless it is only that nobody reads the output any more.
    pub(crate) fn tell(&self) {
        if self.exit != Exit::Done {
            eprintln!("sealog: {self}");
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            // Many errors say their cause themselves.
            if !told.ends_with(&cause) {
                let separator = if told.is_empty() { "" } else { ": " };
                told = told + separator + &cause;
            }
        }
        f.write_str(&told)
    }
}

impl From<anyhow::Error> for Failure {
    /// A closed pipe is no failure: whoever read the output has seen enough.
    fn from(error: anyhow::Error) -> Self {
        let closed = error
            .chain()
            .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe));
        Self { exit: if closed { Exit::Done } else { Exit::Failed }, error }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        anyhow::Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn each_cause_is_told_once() {
        let cause = || anyhow::Error::from(io::Error::other("no disk"));
        let told = |error: anyhow::Error| Failure::from(error).to_string();
        assert_eq!(told(cause().context("cannot write x").context("saving")), "saving: cannot write x: no disk");
        assert_eq!(told(cause().context("cannot write x: no disk")), "cannot write x: no disk");
    }

    #[test]
    fn a_closed_pipe_ends_with_0_and_any_other_error_with_1() {
        let failure = |kind| Failure::from(Err::<(), _>(io::Error::from(kind)).context("writing").unwrap_err());
        assert_eq!(failure(io::ErrorKind::BrokenPipe).exit, Exit::Done);
        assert_eq!(failure(io::ErrorKind::NotFound).exit, Exit::Failed);
    }
}
