//! The flags that say which broker a command asks, in front of the command. They belong behind it, and are moved there.

use std::ffi::OsString;

use clap::Command;

use super::error::CliError;

const WITH_VALUE: [&str; 4] = ["url", "context", "key", "key-file"];
const SWITCHES: [&str; 2] = ["insecure", "json"];

/// How many arguments in front of the command are such flags and their values.
fn len(args: &[OsString]) -> usize {
    let mut len = 0;
    while let Some(flag) = args.get(1 + len).and_then(|arg| arg.to_str()?.strip_prefix("--")) {
        let (name, has_value) = flag.split_once('=').map_or((flag, false), |(name, _)| (name, true));
        len += match name {
            _ if WITH_VALUE.contains(&name) => 2 - usize::from(has_value),
            _ if SWITCHES.contains(&name) => 1,
            _ => break,
        };
    }
    len
}

/// Moves such flags behind the command. Returns how many arguments have moved.
///
/// # Errors
/// [`CliError::Usage`] when no command follows.
pub fn move_behind_command(args: &mut [OsString]) -> Result<usize, CliError> {
    let len = len(args);
    match args.get_mut(1..=1 + len) {
        Some(args) => args.rotate_right(1),
        None if len == 0 => {}
        None => {
            let line = "'mcp-broker' requires a subcommand but one was not provided; see mcp-broker --help";
            return Err(CliError::Usage(line.to_owned()));
        }
    }
    Ok(len)
}

/// Checks that the command has the flags that were moved.
///
/// # Errors
/// [`CliError::Usage`] with one that it does not have.
pub fn check(program: &Command, args: &[OsString], moved: usize) -> Result<(), CliError> {
    let Some(command) = args.get(1).and_then(|name| program.find_subcommand(name)) else {
        return Ok(());
    };
    let flags = args
        .iter()
        .skip(2)
        .take(moved)
        .filter_map(|arg| arg.to_str()?.strip_prefix("--"));
    let mut names = flags.map(|flag| flag.split('=').next().unwrap_or_default());
    let unknown = names.find(|name| command.get_arguments().all(|arg| arg.get_long() != Some(name)));
    unknown.map_or(Ok(()), |flag| {
        let hint = match flag {
            "json" => "see mcp-broker tail --json and mcp-broker desk list --json",
            _ => "it belongs to commands that ask a broker, such as project",
        };
        let name = command.get_name();
        Err(CliError::Usage(format!("--{flag} is not known before {name}; {hint}")))
    })
}
