//! What can be asked on the command line, one command a file.

mod bench;
mod client;
mod columns;
mod completions;
mod config;
mod consume;
mod demo;
mod doctor;
mod json_record;
mod man;
mod produce;
mod range;
mod segment;
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
    Doctor(doctor::Doctor),
    Topic(topic::Topic),
    Range(range::Range),
    Produce(produce::Produce),
    Consume(consume::Consume),
    Segment(segment::Segment),
    Demo(demo::Demo),
    Bench(bench::Bench),
    Completions(completions::Completions),
    Man(man::Man),
    Version(version::Version),
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        // A daemon begins its own, as its settings ask.
        let _log = (!matches!(self.command, Command::Serve(_))).then(log::start_for_command);
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Config(config) => config.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Topic(topic) => topic.run(),
            Command::Range(range) => range.run(),
            Command::Produce(produce) => produce.run(),
            Command::Consume(consume) => consume.run(),
            Command::Segment(segment) => segment.run(),
            Command::Demo(demo) => demo.run(),
            Command::Bench(bench) => bench.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
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
