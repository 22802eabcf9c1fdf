//! `docs/configuration.md`, and the settings as a TOML file: both from the table of keys.

use std::fmt::Write as _;

use super::keys::{KEYS, Key, Kind};
use super::{Origin, Settings};

/// The settings as a TOML file, by section. With `origins`, each line says where its value stands.
pub(crate) fn as_toml(settings: &Settings, origins: bool) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        let (of, name) = key.name.split_once('.').expect("a key is section.key");
        if of != section {
            let separator = if section.is_empty() { "" } else { "\n" };
            _ = writeln!(text, "{separator}[{of}]");
            section = of;
        }
        let line = format!("{name} = {}", literal(key, settings));
        if origins {
            let origin = settings.origin(key.name).map_or_else(|| "default".to_owned(), Origin::to_string);
            _ = writeln!(text, "{line:<40} # {origin}");
        } else {
            _ = writeln!(text, "{line}");
        }
    }
    text
}

/// A value as TOML.
fn literal(key: &Key, settings: &Settings) -> toml::Value {
    let value = (key.get)(settings);
    match key.kind {
        Kind::Number | Kind::NumberOrAuto => value.parse().map_or(toml::Value::String(value), toml::Value::Integer),
        Kind::Path
        | Kind::Address
        | Kind::Size
        | Kind::Time
        | Kind::TimeOrOff
        | Kind::Cores
        | Kind::Choice(_)
        | Kind::Filter => toml::Value::String(value),
    }
}

/// The whole of `docs/configuration.md`.
#[cfg(test)]
fn document() -> String {
    let defaults = Settings::default();
    let mut text = INTRODUCTION.to_owned();
    let mut section = "";
    for key in KEYS {
        let (of, _) = key.name.split_once('.').expect("a key is section.key");
        if of != section {
            _ = write!(text, "\n## {of}\n\n| key | flag, variable | value | default | |\n|---|---|---|---|---|\n");
            section = of;
        }
        let Key { name, flag, variable, kind, help, .. } = key;
        let value = kind.placeholder().replace('|', "\\|");
        let default = (key.get)(&defaults);
        _ = writeln!(text, "| `{name}` | `--{flag}` `{variable}` | {value} | `{default}` | {help} |");
    }
    _ = write!(text, "\n## All defaults, as a file\n\n```toml\n{}```\n", as_toml(&defaults, false));
    text
}

#[cfg(test)]
const INTRODUCTION: &str = "\
# Configuration

Made from `tools/src/daemon/config/keys.rs`; `SEALOG_DOCS=write cargo test -p sealog document` writes it again.

A setting may stand in four places; the later wins:

```text
default  <  TOML file (--config FILE, SEALOG_CONFIG)  <  variable (SEALOG_SECTION_KEY)  <  command line (--set section.key=value, then the flag)
```

A key, a `SEALOG_` variable or a flag that does not exist is refused, and the one that was probably meant is named: a setting with a slip
in it never goes unnoticed. `sealog config check` judges the settings without starting anything, and `sealog config show --origin` prints
what a node would run with, and where each value stands; both take the same flags and variables as `sealog serve`, and end with 78 if
something is wrong.

Values: sizes in bytes, or with `KiB`, `MiB`, `GiB` (powers of 1024; `MB` is refused, for it means two things). Times always with their
unit: `us`, `ms`, `s`, `m`, `h`, `d`. Addresses are numbers (`0.0.0.0:7400`, `[::]:7400`), not names.

Other variables: `SEALOG_ADDR` is where commands find the node.
";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_document_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
        if std::env::var_os("SEALOG_DOCS").is_some_and(|v| v == "write") {
            std::fs::write(&path, document()).expect("written");
        }
        let written = std::fs::read_to_string(&path).expect("docs/configuration.md");
        assert!(
            written == document(),
            "docs/configuration.md is not what keys.rs says; it tells how to write it again"
        );
    }

    #[test]
    fn what_is_shown_is_a_file_that_gives_the_same_settings() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("sealog.toml");
        let mut settings = Settings::default();
        for assignment in ["node.data_dir=/a \"b\"", "node.cpus=1,0", "journal.files=3", "segment.age=90s"] {
            settings.apply_assignment(assignment).expect("a good value");
        }
        for origins in [false, true] {
            let shown = as_toml(&settings, origins);
            std::fs::write(&file, &shown).expect("written");
            let mut again = Settings::default();
            again.apply_file(&file).expect("a good file");
            assert_eq!(as_toml(&again, false), as_toml(&settings, false));
        }
        let shown = as_toml(&settings, true);
        assert!(shown.contains("files = 3") && shown.contains("# --set"), "{shown}");
        assert!(
            shown.lines().any(|line| line.starts_with("size = \"128MiB\"") && line.ends_with("# default")),
            "{shown}"
        );
    }
}
