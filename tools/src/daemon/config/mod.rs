//! Settings of a daemon. One table of keys (`keys`), the same in the file, in the environment and on the command line.
//!
//! ```text
//! defaults  <  TOML file  <  SEALOG_SECTION_KEY  <  --set section.key=value  <  the flag of its own
//! ```
//! A key that is not in the table is refused wherever it stands, and says what it may have meant to be. Each value remembers where it
//! came from, so that a complaint about it names the place to mend.

mod arguments;
mod document;
mod file;
mod keys;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sealog_engine::api::EngineConfig;
use sealog_engine::api::config::ConfigError;
use sealog_engine::io::calibrate::SyncSetting;
use thiserror::Error;

pub(crate) use arguments::Given;
pub(crate) use document::as_toml;
pub(crate) use keys::{KEYS, Key};
pub(crate) use values::{parse_size, parse_time};

use keys::nearest;

use crate::log;

/// Variables that begin like one of a setting, and are none.
const OTHER_VARIABLES: [&str; 2] = ["SEALOG_ADDR", "SEALOG_CONFIG"];

/// Everything that a daemon is told.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) sync: SyncSetting,
    /// Cores for the shards, in their order; empty: the first ones that are allowed.
    pub(crate) cpus: Vec<usize>,
    /// The longest time in which a sleeping core may wake, in microseconds; `None` leaves the machine as it is.
    pub(crate) wake_latency_us: Option<u32>,
    /// How long a stop may take.
    pub(crate) drain_timeout: Duration,
    pub(crate) log: log::Settings,
    pub(crate) engine: EngineConfig,
    /// Where each value stands that is not the default, by key.
    origins: BTreeMap<&'static str, Origin>,
}

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Lines from 1.
    File {
        path: PathBuf,
        line: usize,
    },
    Variable(String),
    Assignment,
    Flag(&'static str),
}

/// A setting cannot be taken.
#[derive(Debug, Error)]
pub(crate) enum SettingError {
    #[error("{origin}: there is no setting `{written}`{}", nearest.map_or_else(String::new, |n| format!("; did you mean `{n}`?")))]
    Unknown { origin: Origin, written: String, nearest: Option<&'static str> },
    #[error("{origin}: `{value}` cannot be `{key}`: it is not {expected}")]
    Value { origin: Origin, key: &'static str, value: String, expected: String },
    #[error("--set: `{0}` is no setting: write section.key=value")]
    Shape(String),
    #[error("the value of {0} is not UTF-8")]
    NotText(String),
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Toml { path: PathBuf, error: Box<toml::de::Error> },
    #[error("{}{error}", told(.origin.as_ref()))]
    Engine { origin: Option<Origin>, error: ConfigError },
    #[error("{}node.cpus names {found} cores, and node.shards is {shards}: each shard needs one of its own", told(.origin.as_ref()))]
    TooFewCores { origin: Option<Origin>, found: usize, shards: u16 },
    #[error("{}node.cpus names core {core} twice: each shard needs one of its own", told(.origin.as_ref()))]
    CoreTwice { origin: Option<Origin>, core: usize },
    #[error("{}node.listen and node.http are both {address}: give each a port of its own", told(.origin.as_ref()))]
    SamePort { origin: Option<Origin>, address: SocketAddr },
}

/// The place of a value, before what is wrong with it; nothing for a default.
fn told(origin: Option<&Origin>) -> String {
    origin.map_or_else(String::new, |origin| format!("{origin}: "))
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("sealog-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 7400)),
            http: SocketAddr::from(([127, 0, 0, 1], 7401)),
            sync: SyncSetting::Auto,
            cpus: Vec::new(),
            wake_latency_us: None,
            drain_timeout: Duration::from_secs(30),
            log: log::Settings::default(),
            engine: EngineConfig::default(),
            origins: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// All sources, the weakest first.
    ///
    /// # Errors
    /// A source cannot be read, a setting cannot be taken, or they cannot work together.
    pub(crate) fn load(given: &Given) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        if let Some(path) = &given.file {
            settings.apply_file(path)?;
        }
        settings.apply_environment(std::env::vars_os())?;
        for assignment in &given.assignments {
            settings.apply_assignment(assignment)?;
        }
        for (flag, value) in &given.flags {
            let key = KEYS.iter().find(|key| key.flag == *flag).expect("flags are made from the keys");
            settings.put(key, value, &Origin::Flag(key.flag))?;
        }
        settings.check()?;
        Ok(settings)
    }

    /// Changes one setting.
    ///
    /// # Errors
    /// There is none of this key, or it cannot have this value.
    fn apply(&mut self, name: &str, value: &str, origin: &Origin) -> Result<(), SettingError> {
        match KEYS.iter().find(|key| key.name == name) {
            Some(key) => self.put(key, value, origin),
            None => Err(SettingError::Unknown {
                origin: origin.clone(),
                written: name.to_owned(),
                nearest: nearest(name, |key| key.name),
            }),
        }
    }

    fn put(&mut self, key: &Key, value: &str, origin: &Origin) -> Result<(), SettingError> {
        if (key.set)(self, value).is_none() {
            let (origin, value) = (origin.clone(), value.to_owned());
            return Err(SettingError::Value { origin, key: key.name, value, expected: key.kind.expected() });
        }
        self.origins.insert(key.name, origin.clone());
        Ok(())
    }

    /// Changes the setting of a `section.key=value`.
    ///
    /// # Errors
    /// As for all sources, or the text has another shape.
    pub(crate) fn apply_assignment(&mut self, text: &str) -> Result<(), SettingError> {
        let (key, value) = text.split_once('=').ok_or_else(|| SettingError::Shape(text.to_owned()))?;
        self.apply(key.trim(), value.trim(), &Origin::Assignment)
    }

    /// Takes the settings of environment variables.
    ///
    /// # Errors
    /// A variable that begins with `SEALOG_` names no setting, or has a value that cannot be taken.
    fn apply_environment(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<(), SettingError> {
        for (name, value) in variables {
            let Ok(name) = name.into_string() else { continue };
            if !name.starts_with("SEALOG_") || OTHER_VARIABLES.contains(&name.as_str()) {
                continue;
            }
            let Ok(value) = value.into_string() else { return Err(SettingError::NotText(name)) };
            let origin = Origin::Variable(name.clone());
            match KEYS.iter().find(|key| key.variable == name) {
                Some(key) => self.put(key, &value, &origin)?,
                None => {
                    let nearest = nearest(&name, |key| key.variable);
                    return Err(SettingError::Unknown { origin, written: name, nearest });
                }
            }
        }
        Ok(())
    }

    /// Where a key's value stands; `None` for the default.
    pub(crate) fn origin(&self, key: &str) -> Option<&Origin> {
        self.origins.get(key)
    }

    /// Checks what can be checked without a host.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        let origin = |key: &str| self.origin(key).cloned();
        self.engine.check().map_err(|error| SettingError::Engine { origin: origin(error.key()), error })?;
        let (found, shards) = (self.cpus.len(), self.engine.shards);
        if found > 0 && found < usize::from(shards) {
            return Err(SettingError::TooFewCores { origin: origin("node.cpus"), found, shards });
        }
        if let Some((_, core)) = self.cpus.iter().enumerate().find(|(at, core)| self.cpus[..*at].contains(core)) {
            return Err(SettingError::CoreTwice { origin: origin("node.cpus"), core: *core });
        }
        if self.listen == self.http && self.listen.port() != 0 {
            let origin = origin("node.http").or_else(|| origin("node.listen"));
            return Err(SettingError::SamePort { origin, address: self.listen });
        }
        Ok(())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Assignment => f.write_str("--set"),
            Self::Flag(flag) => write!(f, "--{flag}"),
        }
    }
}

#[cfg(test)]
mod tests;
