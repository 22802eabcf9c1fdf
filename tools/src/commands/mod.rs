//! What can be asked on the command line, one command a file.

mod bench;
mod client;
mod config;
mod consume;
mod demo;
mod json_record;
mod produce;
mod serve;
mod topic;
mod version;

use clap::{Parser, Subcommand};

use crate::exit::Outcome;
use crate::log;

/// A durable, ordered log store for Linux.
#[derive(Debug, Parser)]
#[command(name = "sealog", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Config(config::Config),
    Topic(topic::Topic),
    Produce(produce::Produce),
    Consume(consume::Consume),
    Demo(demo::Demo),
    Bench(bench::Bench),
    Version(version::Version),
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        // A daemon begins its own, as its settings ask.
        if !matches!(self.command, Command::Serve(_)) {
            log::start_for_command();
        }
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Config(config) => config.run(),
            Command::Topic(topic) => topic.run(),
            Command::Produce(produce) => produce.run(),
            Command::Consume(consume) => consume.run(),
            Command::Demo(demo) => demo.run(),
            Command::Bench(bench) => bench.run(),
            Command::Version(version) => version.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
