//! The settings as flags: made from the table of keys, so that each flag is documented where its key is.

use std::path::PathBuf;

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::Settings;
use super::keys::{KEYS, Key};

const CONFIG: &str = "config";
const SET: &str = "set";

/// What a command line says of settings, not yet judged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// TOML file of settings.
    pub(crate) file: Option<PathBuf>,
    /// `section.key=value`, in their order.
    pub(crate) assignments: Vec<String>,
    /// Flags of their own, by their name without dashes.
    pub(crate) flags: Vec<(&'static str, String)>,
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let value = |key: &Key| Some((key.flag, matches.get_one::<String>(key.name)?.clone()));
        Ok(Self {
            file: matches.get_one::<PathBuf>(CONFIG).cloned(),
            assignments: matches.get_many::<String>(SET).into_iter().flatten().cloned().collect(),
            flags: KEYS.iter().filter_map(value).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .env("SEALOG_CONFIG")
            .value_parser(value_parser!(PathBuf))
            .help("TOML file of settings");
        let set = Arg::new(SET)
            .long(SET)
            .value_name("SECTION.KEY=VALUE")
            .action(ArgAction::Append)
            .help("Any setting, such as segment.age=10m; may be given more than once");
        let defaults = Settings::default();
        let flags = KEYS.iter().map(|key| flag(key, &defaults));
        command.next_help_heading("Settings").arg(config).args(flags).arg(set).next_help_heading(None::<&str>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(key: &Key, defaults: &Settings) -> Arg {
    let help = format!("{} [default: {}]", key.help, (key.get)(defaults));
    Arg::new(key.name).long(key.flag).value_name(key.kind.placeholder()).help(help)
}
