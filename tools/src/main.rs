//! `sealog`: the daemon, its clients for the command line, and the load test, in one binary.

mod commands;
mod daemon;
mod exit;
mod output;

use std::process::ExitCode;

use clap::Parser;

use commands::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log();
    match cli.run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.tell();
            failure.exit.into()
        }
    }
}

/// Logs go to standard error, as `SEALOG_LOG` asks (`warn`, `info`, `sealog_net=debug`); warnings without it.
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SEALOG_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
