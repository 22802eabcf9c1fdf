//! `sealog config`: what a node would run with, without running one.

use std::fmt;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::daemon::config::{Given, KEYS, Key, Origin, Settings, as_toml};
use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// Judge or print the settings of a node.
#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Judge the settings: ends with 0, or with 78 and the first that is wrong.
    Check {
        #[command(flatten)]
        given: Given,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Print the settings as a TOML file.
    Show {
        #[command(flatten)]
        given: Given,
        /// Say beside each value where it stands.
        #[arg(long)]
        origin: bool,
        /// Whom to print for.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

/// The settings can be used.
#[derive(Serialize)]
struct Checked {
    good: bool,
    /// Those that are not the default.
    set: usize,
}

/// The settings as they are printed.
#[derive(Serialize)]
#[serde(transparent)]
struct Shown {
    json: Value,
    #[serde(skip)]
    toml: String,
}

impl Config {
    pub(super) fn run(&self) -> Outcome {
        match &self.action {
            Action::Check { given, format } => {
                let settings = Settings::load(given)?;
                let set = KEYS.iter().filter(|key| settings.origin(key.name).is_some()).count();
                format.print(&Checked { good: true, set })?;
            }
            Action::Show { given, origin, format } => {
                let settings = Settings::load(given)?;
                format.print(&Shown { json: as_json(&settings), toml: as_toml(&settings, *origin) })?;
            }
        }
        Ok(Exit::Done)
    }
}

/// By key: its value as it can be written, and where that stands.
fn as_json(settings: &Settings) -> Value {
    let entry = |key: &Key| {
        let origin = settings.origin(key.name).map_or_else(|| "default".to_owned(), Origin::to_string);
        (key.name.to_owned(), json!({ "value": key.value(settings), "origin": origin }))
    };
    Value::Object(KEYS.iter().map(entry).collect::<Map<_, _>>())
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the settings are good; {} of {} are not the default", self.set, KEYS.len())
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.toml)
    }
}
