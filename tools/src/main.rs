//! `sealog`: the daemon, its clients for the command line, and the load test, in one binary.

mod commands;
mod daemon;
mod exit;
mod log;
mod output;

use std::process::ExitCode;

use clap::Parser;

use commands::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.tell();
            failure.exit.into()
        }
    }
}
