//! `completions`: prints the completions of a shell.

use clap::builder::EnumValueParser;
use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;

use super::error::CliError;
use super::output::{EXIT_CODES, print};

const ABOUT: &str = "\
Print the completions of a shell for all commands and flags.

  bash        mcp-broker completions bash >~/.local/share/bash-completion/completions/mcp-broker
  zsh         mcp-broker completions zsh >\"${fpath[1]}/_mcp-broker\"
  fish        mcp-broker completions fish >~/.config/fish/completions/mcp-broker.fish
  powershell  mcp-broker completions powershell >>$PROFILE

The packages install those of bash, zsh and fish.";

/// The command with its help.
pub fn command() -> Command {
    Command::new("completions")
        .about("Print the completions of a shell")
        .long_about(ABOUT)
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(EnumValueParser::<Shell>::new())
                .help("The shell"),
        )
        .after_help(EXIT_CODES)
}

/// The shell that the arguments name.
pub fn read(matches: &ArgMatches) -> Shell {
    matches.get_one("shell").copied().unwrap_or(Shell::Bash)
}

/// Prints the completions of these commands.
///
/// # Errors
/// [`CliError::Failed`] when stdout cannot be written.
pub fn run(shell: Shell, mut commands: Command) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut commands, "mcp-broker", &mut script);
    print(&String::from_utf8_lossy(&script))
}
