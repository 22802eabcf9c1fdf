//! The one table of settings: what each is called in the file, in the environment and on the command line, what its value is, and
//! what it does. Help texts, `config show` and `docs/configuration.md` are made from it; nothing else lists settings.

use std::time::Duration;

use sealog_engine::io::calibrate::SyncSetting;

use super::Settings;
use super::values::{parse_cores, parse_size, parse_time, show_cores, show_size, show_time};

/// One setting.
pub(crate) struct Key {
    /// In a TOML file, and in `--set`: `section.key`.
    pub(crate) name: &'static str,
    /// The environment variable.
    pub(crate) variable: &'static str,
    /// The flag, without its dashes.
    pub(crate) flag: &'static str,
    pub(crate) kind: Kind,
    /// One sentence or two.
    pub(crate) help: &'static str,
    /// Takes a value. `None`: it is not of this kind.
    pub(super) set: fn(&mut Settings, &str) -> Option<()>,
    /// The value, as it can be written.
    pub(super) get: fn(&Settings) -> String,
}

impl Key {
    /// The value, as it can be written.
    pub(crate) fn value(&self, settings: &Settings) -> String {
        (self.get)(settings)
    }
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Path,
    Address,
    Size,
    Time,
    TimeOrOff,
    Number,
    NumberOrAuto,
    Cores,
    /// One of these.
    Choice(&'static [&'static str]),
    Filter,
}

impl Kind {
    /// What is expected, for a sentence that begins with "not".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Path => "a path".to_owned(),
            Self::Address => "an address and port, such as 127.0.0.1:7400 or [::1]:7400".to_owned(),
            Self::Size => "a size: write bytes, or KiB, MiB or GiB, such as 128MiB".to_owned(),
            Self::Time => "a time: write us, ms, s, m, h or d, such as 500ms or 10s".to_owned(),
            Self::TimeOrOff => "a time, such as 0us or 20us, or off".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::NumberOrAuto => "a number, or auto".to_owned(),
            Self::Cores => "a list of cores, such as 0,1 or 0-3, or auto".to_owned(),
            Self::Choice(names) => format!("one of {}", names.join(", ")),
            Self::Filter => "a filter of log lines, such as info or warn,sealog_net=debug".to_owned(),
        }
    }

    /// What stands for the value in a help text.
    pub(crate) fn placeholder(self) -> String {
        match self {
            Self::Path => "DIR".to_owned(),
            Self::Address => "ADDRESS:PORT".to_owned(),
            Self::Size => "SIZE".to_owned(),
            Self::Time => "TIME".to_owned(),
            Self::TimeOrOff => "TIME|off".to_owned(),
            Self::Number => "N".to_owned(),
            Self::NumberOrAuto => "N|auto".to_owned(),
            Self::Cores => "LIST|auto".to_owned(),
            Self::Choice(names) => names.join("|"),
            Self::Filter => "FILTER".to_owned(),
        }
    }
}

/// Takes a parsed value if there is one.
fn put<T>(target: &mut T, value: Option<T>) -> Option<()> {
    *target = value?;
    Some(())
}

/// One shard a core that this process may use.
fn auto_shards() -> Option<u16> {
    std::thread::available_parallelism().ok()?.get().try_into().ok()
}

/// Whole microseconds, or none.
fn parse_wake_latency(value: &str) -> Option<Option<u32>> {
    if value == "off" {
        return Some(None);
    }
    u32::try_from(parse_time(value)?.as_micros()).ok().map(Some)
}

/// All settings, by section.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: "node.data_dir",
        variable: "SEALOG_NODE_DATA_DIR",
        flag: "data-dir",
        kind: Kind::Path,
        help: "Where everything is kept; made if it does not exist. It must be on a disk with direct I/O.",
        set: |s, v| put(&mut s.data_dir, (!v.is_empty()).then(|| v.into())),
        get: |s| s.data_dir.display().to_string(),
    },
    Key {
        name: "node.listen",
        variable: "SEALOG_NODE_LISTEN",
        flag: "listen",
        kind: Kind::Address,
        help: "Where clients connect; port 0 takes a free one.",
        set: |s, v| put(&mut s.listen, v.parse().ok()),
        get: |s| s.listen.to_string(),
    },
    Key {
        name: "node.http",
        variable: "SEALOG_NODE_HTTP",
        flag: "http",
        kind: Kind::Address,
        help: "Where /health, /ready, /metrics and /status are; port 0 takes a free one.",
        set: |s, v| put(&mut s.http, v.parse().ok()),
        get: |s| s.http.to_string(),
    },
    Key {
        name: "node.shards",
        variable: "SEALOG_NODE_SHARDS",
        flag: "shards",
        kind: Kind::NumberOrAuto,
        help: "Shards, one a core; auto takes all cores that this process may use. May be another number at each start.",
        set: |s, v| put(&mut s.engine.shards, if v == "auto" { auto_shards() } else { v.parse().ok() }),
        get: |s| s.engine.shards.to_string(),
    },
    Key {
        name: "node.cpus",
        variable: "SEALOG_NODE_CPUS",
        flag: "cpus",
        kind: Kind::Cores,
        help: "Cores of the shards, in their order; auto takes the first that this process may use.",
        set: |s, v| put(&mut s.cpus, parse_cores(v)),
        get: |s| show_cores(&s.cpus),
    },
    Key {
        name: "node.wake_latency",
        variable: "SEALOG_NODE_WAKE_LATENCY",
        flag: "wake-latency",
        kind: Kind::TimeOrOff,
        help: "How long a sleeping core of this machine may take to wake while the node runs (PM QoS); 0us lets none sleep.",
        set: |s, v| put(&mut s.wake_latency_us, parse_wake_latency(v)),
        get: |s| s.wake_latency_us.map_or_else(|| "off".to_owned(), |us| format!("{us}us")),
    },
    Key {
        name: "node.memory",
        variable: "SEALOG_NODE_MEMORY",
        flag: "memory",
        kind: Kind::Size,
        help: "Memory of each shard for data that is not yet in a segment. Above half of it producers are refused for a moment.",
        set: |s, v| put(&mut s.engine.memory_bytes, parse_size(v)),
        get: |s| show_size(s.engine.memory_bytes),
    },
    Key {
        name: "node.connection_bytes",
        variable: "SEALOG_NODE_CONNECTION_BYTES",
        flag: "connection-bytes",
        kind: Kind::Size,
        help: "Bytes of requests that one connection may have unanswered; at so many it is not read until one is answered.",
        set: |s, v| put(&mut s.engine.connection_bytes_max, parse_size(v)),
        get: |s| show_size(s.engine.connection_bytes_max),
    },
    Key {
        name: "node.drain_timeout",
        variable: "SEALOG_NODE_DRAIN_TIMEOUT",
        flag: "drain-timeout",
        kind: Kind::Time,
        help: "How long a stop may take. What is not answered by then is unknown to its client, and nothing acknowledged is lost.",
        set: |s, v| put(&mut s.drain_timeout, parse_time(v)),
        get: |s| show_time(s.drain_timeout),
    },
    Key {
        name: "journal.size",
        variable: "SEALOG_JOURNAL_SIZE",
        flag: "journal-size",
        kind: Kind::Size,
        help: "Bytes of one journal file; whole blocks of 4KiB, at least 1MiB. Written with zeros once, and used again for ever.",
        set: |s, v| put(&mut s.engine.journal_file_bytes, parse_size(v)),
        get: |s| show_size(s.engine.journal_file_bytes),
    },
    Key {
        name: "journal.files",
        variable: "SEALOG_JOURNAL_FILES",
        flag: "journal-files",
        kind: Kind::Number,
        help: "Files in the journal of each shard; at least 2.",
        set: |s, v| put(&mut s.engine.journal_files, v.parse().ok()),
        get: |s| s.engine.journal_files.to_string(),
    },
    Key {
        name: "journal.sync",
        variable: "SEALOG_JOURNAL_SYNC",
        flag: "sync",
        kind: Kind::Choice(&["auto", "linked", "thread", "async-dsync"]),
        help: "How journal groups are made durable; auto measures at each start (a third of a second) and takes the lower p99.",
        set: |s, v| put(&mut s.sync, v.parse().ok()),
        get: |s| match s.sync {
            SyncSetting::Auto => "auto".to_owned(),
            SyncSetting::Way(way) => way.to_string(),
        },
    },
    Key {
        name: "journal.idle_marker",
        variable: "SEALOG_JOURNAL_IDLE_MARKER",
        flag: "journal-idle-marker",
        kind: Kind::Time,
        help: "Time without a request after which an empty group is written, so that the last real one is no longer the last.",
        set: |s, v| put(&mut s.engine.idle_marker_us, parse_time(v).and_then(|time| time.as_micros().try_into().ok())),
        get: |s| show_time(Duration::from_micros(s.engine.idle_marker_us)),
    },
    Key {
        name: "segment.size",
        variable: "SEALOG_SEGMENT_SIZE",
        flag: "segment-size",
        kind: Kind::Size,
        help: "Bytes after which a segment rolls; whole blocks of 4KiB, at least 256KiB.",
        set: |s, v| put(&mut s.engine.segment_bytes, parse_size(v)),
        get: |s| show_size(s.engine.segment_bytes),
    },
    Key {
        name: "segment.age",
        variable: "SEALOG_SEGMENT_AGE",
        flag: "segment-age",
        kind: Kind::Time,
        help: "Age after which a segment that holds records rolls.",
        set: |s, v| put(&mut s.engine.segment_age_ms, parse_time(v).and_then(|time| time.as_millis().try_into().ok())),
        get: |s| show_time(Duration::from_millis(s.engine.segment_age_ms)),
    },
    Key {
        name: "batch.max",
        variable: "SEALOG_BATCH_MAX",
        flag: "max-batch",
        kind: Kind::Size,
        help: "Bytes of the largest batch taken; at most an eighth of a journal file, a segment, and 16MiB.",
        set: |s, v| put(&mut s.engine.batch_bytes_max, parse_size(v).and_then(|bytes| bytes.try_into().ok())),
        get: |s| show_size(s.engine.batch_bytes_max.into()),
    },
    Key {
        name: "metadata.size",
        variable: "SEALOG_METADATA_SIZE",
        flag: "metadata-size",
        kind: Kind::Size,
        help: "Bytes of one file of the metadata's journal (there are two); whole blocks of 4KiB, at least 1MiB.",
        set: |s, v| put(&mut s.engine.metadata_file_bytes, parse_size(v)),
        get: |s| show_size(s.engine.metadata_file_bytes),
    },
    Key {
        name: "log.filter",
        variable: "SEALOG_LOG",
        flag: "log",
        kind: Kind::Filter,
        help: "Which lines are logged, on standard error. The variable holds for every command; without it they log warnings.",
        set: |s, v| put(&mut s.log.filter, tracing_subscriber::EnvFilter::try_new(v).ok().map(|_| v.to_owned())),
        get: |s| s.log.filter.clone(),
    },
    Key {
        name: "log.format",
        variable: "SEALOG_LOG_FORMAT",
        flag: "log-format",
        kind: Kind::Choice(&["text", "json"]),
        help: "How they are written: for people, or one JSON object a line.",
        set: |s, v| put(&mut s.log.format, v.parse().ok()),
        get: |s| s.log.format.to_string(),
    },
];

/// The key of a name that was written, and how much it looks like one.
///
/// A name counts by itself and by its last part: `data_dir` is meant to be `node.data_dir`.
pub(super) fn nearest(written: &str, name: impl Fn(&Key) -> &'static str) -> Option<&'static str> {
    const LIKE: f64 = 0.5;
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let likeness = |name: &str| {
        let whole = strsim::normalized_damerau_levenshtein(name, written);
        whole.max(0.9 * strsim::normalized_damerau_levenshtein(&last(name), &last(written)))
    };
    let names = KEYS.iter().map(name).map(|name| (likeness(name), name));
    let (like, name) = names.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (like >= LIKE).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_variable_and_flag_is_there_once() {
        for name in [|key: &Key| key.name, |key: &Key| key.variable, |key: &Key| key.flag] {
            assert_eq!(KEYS.iter().map(name).collect::<BTreeSet<_>>().len(), KEYS.len());
        }
    }

    #[test]
    fn a_variable_is_named_as_its_key() {
        for key in KEYS.iter().filter(|key| key.name != "log.filter") {
            assert_eq!(key.variable, format!("SEALOG_{}", key.name.replace('.', "_").to_ascii_uppercase()));
        }
    }

    #[test]
    fn each_default_is_a_value_of_its_kind() {
        for key in KEYS {
            let mut settings = Settings::default();
            let value = (key.get)(&settings);
            assert_eq!((key.set)(&mut settings, &value), Some(()), "{} = {value}", key.name);
            assert_eq!((key.get)(&settings), value, "{}", key.name);
            if let Kind::Choice(names) = key.kind {
                assert!(names.contains(&value.as_str()), "{}", key.name);
                for name in names {
                    assert_eq!((key.set)(&mut settings, name), Some(()), "{} = {name}", key.name);
                }
            }
        }
    }

    #[test]
    fn the_nearest_key_is_meant() {
        for (written, meant) in [
            ("journal.siez", Some("journal.size")),
            ("segment.sise", Some("segment.size")),
            ("data_dir", Some("node.data_dir")),
            ("node.max", Some("batch.max")),
            ("jurnal.files", Some("journal.files")),
            ("node.listen_address", Some("node.listen")),
            ("colour", None),
        ] {
            assert_eq!(nearest(written, |key| key.name), meant, "{written}");
        }
    }
}
