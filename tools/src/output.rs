//! What commands print: text for people, JSON for programs.

use std::fmt::Display;
use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// Whom to print for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one document, or one line a record.
    Json,
}

impl Format {
    /// Prints one result on standard output.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn print<T: Display + Serialize>(self, result: &T) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self::Text => write!(out, "{result}")?,
            Self::Json => {
                serde_json::to_writer(&mut out, result)?;
                out.write_all(b"\n")?;
            }
        }
        out.flush()
    }
}
