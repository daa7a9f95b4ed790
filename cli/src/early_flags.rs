//! The flags that say which broker a command asks, in front of the command. They belong behind it, and are moved there.

use std::ffi::OsString;

use clap::Command;

use super::error::CliError;

const WITH_VALUE: [&str; 4] = ["url", "context", "key", "key-file"];
const SWITCHES: [&str; 2] = ["insecure", "json"];

/// How many arguments in front of the command are such flags and their values.
fn len(args: &[OsString]) -> usize {
    let mut len = 0;
    while let Some((name, value)) = args.get(1 + len).and_then(split) {
        len += match name {
            _ if WITH_VALUE.contains(&name) => 2 - usize::from(value.is_some()),
            _ if SWITCHES.contains(&name) => 1,
            _ => break,
        };
    }
    len
}

/// The name of a flag, and the value that is written with it.
fn split(arg: &OsString) -> Option<(&str, Option<&str>)> {
    let flag = arg.to_str()?.strip_prefix("--")?;
    Some(
        flag.split_once('=')
            .map_or((flag, None), |(name, value)| (name, Some(value))),
    )
}

/// Moves such flags behind the command. One that a flag behind the command overrides is left out: the nearer one wins.
/// Returns how many arguments have moved.
///
/// # Errors
/// [`CliError::Usage`] when no command follows.
pub fn move_behind_command(args: &mut Vec<OsString>) -> Result<usize, CliError> {
    let len = len(args);
    if len > 0 && args.len() < len + 2 {
        let line = "'mcp-broker' requires a subcommand but one was not provided; see mcp-broker --help";
        return Err(CliError::Usage(line.to_owned()));
    }
    let mut before = args.drain(1..=len).collect::<Vec<_>>().into_iter();
    let mut moved = Vec::new();
    while let Some(flag) = before.next() {
        let value = match split(&flag) {
            Some((name, None)) if WITH_VALUE.contains(&name) => before.next(),
            _ => None,
        };
        let behind = args.iter().skip(2).take_while(|arg| *arg != "--");
        if !behind
            .filter_map(question_of)
            .any(|question| question_of(&flag) == Some(question))
        {
            moved.push(flag);
            moved.extend(value);
        }
    }
    let len = moved.len();
    args.splice(2.min(args.len())..2.min(args.len()), moved);
    Ok(len)
}

/// What a flag decides. Two flags say which broker, two say with which key.
fn question_of(arg: &OsString) -> Option<&str> {
    Some(match split(arg)?.0 {
        "context" => "url",
        "key-file" => "key",
        name => name,
    })
}

/// Checks that the command has the flags that were moved.
///
/// # Errors
/// [`CliError::Usage`] with one that it does not have.
pub fn check(program: &Command, args: &[OsString], moved: usize) -> Result<(), CliError> {
    let Some(command) = args.get(1).and_then(|name| program.find_subcommand(name)) else {
        return Ok(());
    };
    let mut names = args.iter().skip(2).take(moved).filter_map(|arg| Some(split(arg)?.0));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_move_behind_the_command_unless_a_nearer_one_decides() {
        let cases = [
            ("--url=http://a sessions", "sessions --url=http://a", 1),
            (
                "--url http://a --json sessions --wide",
                "sessions --url http://a --json --wide",
                3,
            ),
            (
                "--url http://a project delete acme --context prod",
                "project delete acme --context prod",
                0,
            ),
            (
                "--key k --json sessions --key-file f",
                "sessions --json --key-file f",
                1,
            ),
            ("--json tail -- --json", "tail --json -- --json", 1),
            ("sessions --url http://a", "sessions --url http://a", 0),
        ];
        for (before, after, moved) in cases {
            let mut args: Vec<OsString> = format!("mcp-broker {before}").split(' ').map(Into::into).collect();
            assert_eq!(move_behind_command(&mut args).unwrap(), moved, "{before}");
            let words: Vec<_> = args.iter().skip(1).map(|arg| arg.to_str().unwrap()).collect();
            assert_eq!(words.join(" "), after);
        }
        let mut alone = ["mcp-broker", "--url", "http://a"].map(Into::into).to_vec();
        assert!(matches!(move_behind_command(&mut alone), Err(CliError::Usage(_))));
        assert_eq!(move_behind_command(&mut vec!["mcp-broker".into()]).unwrap(), 0);
    }
}
