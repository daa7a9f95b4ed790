//! `completions`: prints the completions of a shell.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use super::call::{Call, Run, done};
use super::error::CliError;
use super::output::{EXIT_CODES, print};

const ABOUT: &str = "\
Print the completions of a shell for all commands and flags.

  bash        mcp-broker completions bash >~/.local/share/bash-completion/completions/mcp-broker
  zsh         mcp-broker completions zsh >\"${fpath[1]}/_mcp-broker\"
  fish        mcp-broker completions fish >~/.config/fish/completions/mcp-broker.fish
  powershell  mcp-broker completions powershell >>$PROFILE

The packages install those of bash, zsh and fish.";

/// Print the completions of a shell.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Run for Completions {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut (call.all)(), "mcp-broker", &mut script);
        done(print(&String::from_utf8_lossy(&script)))
    }
}
