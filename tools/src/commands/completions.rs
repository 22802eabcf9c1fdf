//! `sealog completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;
use crate::exit::{Exit, Outcome};

/// Print the completions of a shell.
#[derive(Debug, Args)]
#[command(after_help = "For bash: sealog completions bash > /etc/bash_completion.d/sealog")]
pub(crate) struct Completions {
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "sealog", &mut text);
        // Generated in memory first: a pipe that is closed early is then an ordinary error.
        std::io::Write::write_all(&mut std::io::stdout().lock(), &text)?;
        Ok(Exit::Done)
    }
}
