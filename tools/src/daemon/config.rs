//! Settings of a daemon. One table of keys, the same in the file, in the environment and in `--set`.
//!
//! ```text
//! defaults  <  TOML file  <  SEALOG_SECTION_KEY  <  --set section.key=value  <  the flag of its own
//! ```
//! A key that is not in the table is refused wherever it stands, and says what it may have meant to be.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use sealog_engine::api::EngineConfig;
use sealog_engine::api::config::ConfigError;
use sealog_engine::io::calibrate::SyncSetting;
use thiserror::Error;

/// Everything that a daemon is told.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) sync: SyncSetting,
    /// Cores for the shards, in their order; empty: the first ones that are allowed.
    pub(crate) cpus: Vec<usize>,
    pub(crate) engine: EngineConfig,
}

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File(PathBuf),
    Environment(String),
    Flag,
}

/// A setting cannot be taken.
#[derive(Debug, Error)]
pub(crate) enum SettingError {
    #[error("{origin}: there is no setting `{key}`{}", nearest.map_or_else(String::new, |n| format!("; did you mean `{n}`?")))]
    Unknown { origin: Origin, key: String, nearest: Option<&'static str> },
    #[error("{origin}: `{value}` is no {expected} for `{key}`")]
    Value { origin: Origin, key: &'static str, value: String, expected: &'static str },
    #[error("`{0}` is no setting: write section.key=value")]
    Shape(String),
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{path}: {error}")]
    Toml { path: PathBuf, error: Box<toml::de::Error> },
    #[error(transparent)]
    Engine(#[from] ConfigError),
}

/// One setting: its key, what a value must be, and what it changes. `false`: the value is not that.
struct Setting {
    key: &'static str,
    expected: &'static str,
    apply: fn(&mut Settings, &str) -> bool,
}

/// Takes a parsed value if there is one.
fn put<T>(target: &mut T, value: Option<T>) -> bool {
    value.map(|value| *target = value).is_some()
}

/// `SIZE` of a size, such as 4096, 64KiB, 128MiB.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    scaled(text, &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)])
}

/// Milliseconds of a time, such as 500ms, 10s, 5m, 1h.
pub(crate) fn parse_time_ms(text: &str) -> Option<u64> {
    scaled(text, &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)])
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    if let Ok(plain) = text.parse() {
        return Some(plain);
    }
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(scale)
}

fn cpus(text: &str) -> Option<Vec<usize>> {
    text.split(',').map(|cpu| cpu.trim().parse().ok()).collect()
}

const SIZE: &str = "size (4096, 64KiB, 128MiB)";
const TIME: &str = "time (500ms, 10s, 1h)";
const NUMBER: &str = "number";

/// All settings, by key.
const SETTINGS: &[Setting] = &[
    Setting { key: "node.data_dir", expected: "path", apply: |s, v| put(&mut s.data_dir, Some(v.into())) },
    Setting { key: "node.listen", expected: "address:port", apply: |s, v| put(&mut s.listen, v.parse().ok()) },
    Setting { key: "node.http", expected: "address:port", apply: |s, v| put(&mut s.http, v.parse().ok()) },
    Setting {
        key: "node.shards",
        expected: "number, or `auto`",
        apply: |s, v| put(&mut s.engine.shards, if v == "auto" { auto_shards() } else { v.parse().ok() }),
    },
    Setting { key: "node.cpus", expected: "list of cores (0,1)", apply: |s, v| put(&mut s.cpus, cpus(v)) },
    Setting { key: "node.memory", expected: SIZE, apply: |s, v| put(&mut s.engine.memory_bytes, parse_size(v)) },
    Setting {
        key: "node.connection_bytes",
        expected: SIZE,
        apply: |s, v| put(&mut s.engine.connection_bytes_max, parse_size(v)),
    },
    Setting { key: "journal.size", expected: SIZE, apply: |s, v| put(&mut s.engine.journal_file_bytes, parse_size(v)) },
    Setting { key: "journal.files", expected: NUMBER, apply: |s, v| put(&mut s.engine.journal_files, v.parse().ok()) },
    Setting {
        key: "journal.sync",
        expected: "way to sync (auto, linked, thread, dsync)",
        apply: |s, v| put(&mut s.sync, v.parse().ok()),
    },
    Setting { key: "segment.size", expected: SIZE, apply: |s, v| put(&mut s.engine.segment_bytes, parse_size(v)) },
    Setting { key: "segment.age", expected: TIME, apply: |s, v| put(&mut s.engine.segment_age_ms, parse_time_ms(v)) },
    Setting {
        key: "batch.max",
        expected: SIZE,
        apply: |s, v| put(&mut s.engine.batch_bytes_max, parse_size(v).and_then(|bytes| bytes.try_into().ok())),
    },
    Setting {
        key: "metadata.size",
        expected: SIZE,
        apply: |s, v| put(&mut s.engine.metadata_file_bytes, parse_size(v)),
    },
];

/// One shard a core that this process may use.
fn auto_shards() -> Option<u16> {
    std::thread::available_parallelism().ok()?.get().try_into().ok()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("sealog-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 7400)),
            http: SocketAddr::from(([127, 0, 0, 1], 7401)),
            sync: SyncSetting::Auto,
            cpus: Vec::new(),
            engine: EngineConfig::default(),
        }
    }
}

impl Settings {
    /// Changes one setting.
    ///
    /// # Errors
    /// There is none of this key, or it cannot have this value.
    pub(crate) fn apply(&mut self, key: &str, value: &str, origin: &Origin) -> Result<(), SettingError> {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            let nearest = nearest(key);
            return Err(SettingError::Unknown { origin: origin.clone(), key: key.to_owned(), nearest });
        };
        if (setting.apply)(self, value) {
            return Ok(());
        }
        let (key, expected) = (setting.key, setting.expected);
        Err(SettingError::Value { origin: origin.clone(), key, value: value.to_owned(), expected })
    }

    /// Changes the setting of a `section.key=value`.
    ///
    /// # Errors
    /// As [`apply`](Self::apply), or the text has another shape.
    pub(crate) fn apply_assignment(&mut self, text: &str) -> Result<(), SettingError> {
        let (key, value) = text.split_once('=').ok_or_else(|| SettingError::Shape(text.to_owned()))?;
        self.apply(key.trim(), value.trim(), &Origin::Flag)
    }

    /// Takes the settings of a TOML file.
    ///
    /// # Errors
    /// It cannot be read or is no TOML, or a setting in it cannot be taken.
    pub(crate) fn apply_file(&mut self, path: &std::path::Path) -> Result<(), SettingError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| SettingError::Read { path: path.to_owned(), error })?;
        let table: toml::Table =
            text.parse().map_err(|error| SettingError::Toml { path: path.to_owned(), error: Box::new(error) })?;
        let origin = Origin::File(path.to_owned());
        for (section, settings) in table {
            let toml::Value::Table(settings) = settings else {
                return Err(SettingError::Unknown { origin, key: section, nearest: None });
            };
            for (key, value) in settings {
                self.apply(&format!("{section}.{key}"), &plain(&value), &origin)?;
            }
        }
        Ok(())
    }

    /// Takes the settings of environment variables `SEALOG_SECTION_KEY`. `others` are variables with a meaning of their own.
    ///
    /// # Errors
    /// A variable that begins with `SEALOG_` names no setting, or has a value that cannot be taken.
    pub(crate) fn apply_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
        others: &[&str],
    ) -> Result<(), SettingError> {
        for (name, value) in variables.filter(|(name, _)| name.starts_with("SEALOG_") && !others.contains(&&**name)) {
            let wanted = name["SEALOG_".len()..].to_ascii_lowercase();
            let setting = SETTINGS.iter().find(|setting| setting.key.replace('.', "_") == wanted);
            let key = setting.map_or(wanted.as_str(), |setting| setting.key);
            self.apply(key, &value, &Origin::Environment(name.clone()))?;
        }
        Ok(())
    }

    /// Checks what can be checked without a host.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        Ok(self.engine.check()?)
    }
}

/// A TOML value as it would stand behind `--set`.
fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(truth) => truth.to_string(),
        toml::Value::Datetime(time) => time.to_string(),
        // No setting takes one, so whatever stands here is refused.
        toml::Value::Table(_) => "a table".to_owned(),
    }
}

/// The key that shares its last part, or the longest beginning, with what was written.
fn nearest(key: &str) -> Option<&'static str> {
    let last = key.rsplit(['.', '_']).next().unwrap_or(key);
    let common = |a: &str| a.bytes().zip(key.bytes()).take_while(|(a, b)| a == b).count();
    let by_last = SETTINGS.iter().find(|setting| setting.key.rsplit('.').next() == Some(last));
    let by_beginning = SETTINGS.iter().max_by_key(|setting| common(setting.key)).filter(|s| common(s.key) >= 3);
    by_beginning.or(by_last).map(|setting| setting.key)
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("on the command line"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_sources_win() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("sealog.toml");
        std::fs::write(&file, "[journal]\nsize = \"4MiB\"\nfiles = 3\n[node]\ncpus = [1, 0]\n").expect("written");
        let mut settings = Settings::default();
        settings.apply_file(&file).expect("a good file");
        let variables = [("SEALOG_JOURNAL_SIZE", "8MiB"), ("SEALOG_ADDR", "x"), ("HOME", "y")];
        let variables = variables.map(|(n, v)| (n.to_owned(), v.to_owned()));
        settings.apply_environment(variables.into_iter(), &["SEALOG_ADDR"]).expect("good variables");
        assert_eq!(settings.engine.journal_file_bytes, 8 << 20);
        settings.apply_assignment("journal.size=16MiB").expect("a good flag");
        assert_eq!(settings.engine.journal_file_bytes, 16 << 20);
        assert_eq!((settings.engine.journal_files, settings.cpus), (3, vec![1, 0]));
    }

    #[test]
    fn an_unknown_key_is_refused_wherever_it_stands() {
        let mut settings = Settings::default();
        let error = settings.apply_assignment("journal.siez=1").expect_err("unknown").to_string();
        assert_eq!(error, "on the command line: there is no setting `journal.siez`; did you mean `journal.size`?");
        let variable = [("SEALOG_JURNAL".to_owned(), "1".to_owned())];
        let error = settings.apply_environment(variable.into_iter(), &[]).expect_err("unknown").to_string();
        assert!(error.starts_with("SEALOG_JURNAL: there is no setting `jurnal`"), "{error}");
    }

    #[test]
    fn a_value_that_is_none_is_refused_with_what_it_should_be() {
        let mut settings = Settings::default();
        let error = settings.apply_assignment("segment.age=1x").expect_err("no time").to_string();
        assert_eq!(error, "on the command line: `1x` is no time (500ms, 10s, 1h) for `segment.age`");
        assert!(matches!(settings.apply_assignment("segment.age"), Err(SettingError::Shape(_))));
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(["4096", "64KiB", "128 MiB", "5B"].map(parse_size), [4096, 64 << 10, 128 << 20, 5].map(Some));
        assert_eq!(
            ["500ms", "10s", "5m", "1h", "7"].map(parse_time_ms),
            [500, 10_000, 300_000, 3_600_000, 7].map(Some)
        );
        assert_eq!([parse_size("1TB"), parse_size("-1"), parse_size("18446744073709551615KiB")], [None; 3]);
    }
}
