//! Explains a wrong command line in one line. Clap's own text has several lines and the usage.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::error::CliError;
use common::config::{self, SETTINGS, Setting};
use common::user_broker::config_file_of_user;

/// The most commands of one name that are suggested.
const ELSEWHERE_MAX: usize = 5;
/// With more values than these, a misspelled one is answered by the nearest alone.
const LISTED_MAX: usize = 5;
/// The commands that start the broker of a user, whose settings are no flags.
const STARTS: [&str; 6] = ["local", "start", "restart", "connect", "console", "dev"];
/// The commands under this word are aliases that no help shows.
const HIDDEN_GROUP: &str = "mcp ";

/// Refuses the command line with this text, from which keys are cut.
pub fn refused(line: String) -> CliError {
    CliError::Usage(redact_keys(&line))
}

/// Turns clap's error into one of ours, with what was probably meant or what is allowed.
pub fn usage_error(error: clap::Error, root: &Command, args: &[OsString]) -> CliError {
    let intended = Intended::of(root, args);
    let line = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return CliError::Help(error);
        }
        ErrorKind::UnknownArgument => unknown_argument(&context(&error, ContextKind::InvalidArg), root, &intended),
        ErrorKind::InvalidSubcommand => {
            unknown_command(&context(&error, ContextKind::InvalidSubcommand), root, &intended)
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            invalid_value(&error).unwrap_or_else(|| clap_summary(&error))
        }
        _ => clap_summary(&error),
    };
    CliError::Usage(config::one_line(&redact_keys(&line)))
}

/// The error for a command line without a command.
pub fn no_command(root: &Command) -> String {
    let help = Intended::of(root, &[]).help();
    format!(
        "no command; {}",
        config::few("", &subcommand_names(root), str::to_owned, &help)
    )
}

/// The subcommands of a command, in the order of its help.
fn subcommand_names(command: &Command) -> Vec<&str> {
    let shown = subcommands(command).filter(|command| !command.is_hide_set());
    shown.map(Command::get_name).collect()
}

/// The command that the arguments lead to.
struct Intended<'a> {
    /// The words that lead to it; empty for the program.
    words: String,
    command: &'a Command,
}

impl<'a> Intended<'a> {
    /// Unknown words are skipped: the rest still tells what was meant.
    fn of(root: &'a Command, args: &[OsString]) -> Self {
        let mut found = Self {
            words: String::new(),
            command: root,
        };
        for word in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
            if let Some(below) = subcommands(found.command).find(|below| below.get_name() == word) {
                found.words = format!("{} {word}", found.words);
                found.command = below;
            }
        }
        found
    }

    /// The command line that explains it.
    fn help(&self) -> String {
        format!("mcp-broker{} --help", self.words)
    }
}

/// The subcommands without clap's generated `help`.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help")
}

/// Every command with the words that lead to it.
fn commands<'a>(words: &str, command: &'a Command) -> Vec<(String, &'a Command)> {
    let below = subcommands(command).flat_map(|below| {
        let words = format!("{words} {}", below.get_name());
        commands(words.trim_start(), below)
    });
    std::iter::once((words.to_owned(), command)).chain(below).collect()
}

/// The flags of a command in the spelling of setting keys, which `config::nearest_name` compares.
fn keys(command: &Command) -> Vec<String> {
    let names = command.get_arguments().filter_map(|arg| arg.get_long());
    let own = names.filter(|name| !matches!(*name, "help" | "version"));
    own.map(|name| name.replace('-', "_")).collect()
}

fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// Commands of this name that are elsewhere are more probable than one of another name.
fn unknown_command(name: &str, root: &Command, intended: &Intended<'_>) -> String {
    let elsewhere = commands("", root).into_iter().filter(|(words, command)| {
        command.get_name() == name && !command.is_hide_set() && !words.starts_with(HIDDEN_GROUP)
    });
    let mut elsewhere: Vec<String> = elsewhere.map(|(words, _)| format!("mcp-broker {words}")).collect();
    let suggestion = if elsewhere.is_empty() {
        config::suggestion(
            name,
            &subcommand_names(intended.command),
            str::to_owned,
            &intended.help(),
        )
    } else {
        elsewhere.truncate(ELSEWHERE_MAX);
        format!("did you mean {}?", elsewhere.join(" or "))
    };
    format!("command {name:?} is not known; {suggestion}")
}

fn unknown_argument(name: &str, root: &Command, intended: &Intended<'_>) -> String {
    let keys = keys(intended.command);
    let hint = match name.strip_prefix("--") {
        Some(name) => hint(name, &keys, root, intended),
        None if name.starts_with('-') => text_hint(intended.command),
        None => None,
    };
    let hint = hint.unwrap_or_else(|| {
        let (keys, words): (Vec<&str>, _) = (
            keys.iter().map(String::as_str).collect(),
            subcommand_names(intended.command),
        );
        let name = name.trim_start_matches('-');
        if keys.is_empty() {
            config::few(name, &words, str::to_owned, &intended.help())
        } else {
            config::few(name, &keys, flag, &intended.help())
        }
    });
    format!("{name:?} is not known here; {hint}")
}

/// How a text that begins with `-` is given to a command that takes one.
fn text_hint(command: &Command) -> Option<String> {
    command.get_positionals().next()?;
    Some("put -- in front of a text that begins with -".to_owned())
}

/// Suggests the flag that an unknown one probably means: one of this command, or else of another command.
/// Commands of the same group, such as `project`, come first.
fn hint(name: &str, keys: &[String], root: &Command, intended: &Intended<'_>) -> Option<String> {
    if let Some(key) = nearest(name, keys) {
        return Some(format!("did you mean {}?", flag(&key)));
    }
    let group_of = |words: &str| words.trim_start().split(' ').next().unwrap_or_default().to_owned();
    let group = group_of(&intended.words);
    let setting = SETTINGS.iter().find(|setting| setting.flag() == name);
    if let (Some(setting), true) = (setting, STARTS.contains(&group.as_str())) {
        return Some(setting_hint(setting));
    }
    let owner = |(words, command)| Some((words, nearest(name, &self::keys(command))?));
    let mut below = commands("", root);
    below.sort_by_key(|(words, _)| group_of(words) != group);
    let below = below
        .into_iter()
        .filter(|(words, _)| !words.is_empty() && !words.starts_with(HIDDEN_GROUP));
    let owners: Vec<(String, String)> = below.filter_map(owner).collect();
    let is_exact = |key: &str| flag(key).strip_prefix("--") == Some(name);
    let exact = owners.iter().find(|(_, key)| is_exact(key));
    exact.or(owners.first()).map(|(words, key)| {
        if is_exact(key) {
            format!("it belongs after the command {words}")
        } else {
            format!("did you mean {} after the command {words}?", flag(key))
        }
    })
}

/// Where a setting of the broker of a user is given.
fn setting_hint(setting: &Setting) -> String {
    let file = config_file_of_user().map_or_else(String::new, |file| {
        format!(", or put {} into {}", setting.key, file.display())
    });
    format!("it is a setting: set {}{file}", setting.env())
}

fn nearest(name: &str, keys: &[String]) -> Option<String> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    config::nearest_name(name, &keys).map(ToOwned::to_owned)
}

/// A value that is not allowed, in the wording of the settings of `serve`. `None` when the value is missing.
fn invalid_value(error: &clap::Error) -> Option<String> {
    let value = context(error, ContextKind::InvalidValue);
    let allowed = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !value.is_empty() => {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            match config::nearest_name(&value, &values) {
                Some(nearest) if values.len() > LISTED_MAX => format!("did you mean {nearest}?"),
                _ => format!("allowed: {}", values.join(", ")),
            }
        }
        _ => format!("allowed: {}", std::error::Error::source(error)?),
    };
    let arg = context(error, ContextKind::InvalidArg);
    let name = arg.split(' ').next().unwrap_or_default();
    let value = config::quoted_value("", &value);
    Some(match name.strip_prefix("--") {
        Some(key) => format!("{} = {value} ({name}) is not allowed; {allowed}", key.replace('-', "_")),
        None => format!(
            "{} = {value} is not allowed; {allowed}",
            name.trim_matches(['<', '>', '[', ']'])
        ),
    })
}

/// Clap's message without the usage, with the allowed values of a setting of `serve`.
fn clap_summary(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let message = rendered.split("\n\n").next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let flag = |setting: &&Setting| message.contains(&format!("'--{} ", setting.flag()));
    match SETTINGS.iter().find(flag) {
        Some(setting) => format!("{message}; allowed: {}", (setting.allowed)()),
        None => message.to_owned(),
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Hides keys in a line: a key given in the wrong place must not reach a log.
pub fn redact_keys(line: &str) -> String {
    let is_key_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut shown = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_key_char) {
        let (before, tail) = rest.split_at(start);
        let (word, after) = tail.split_at(tail.find(|c| !is_key_char(c)).unwrap_or(tail.len()));
        shown.push_str(before);
        shown.push_str(if looks_like_key(word) { "(hidden)" } else { word });
        rest = after;
    }
    shown + rest
}

const SECRET_LEN_MIN: usize = 20;

/// Whether a word has the form `{project_id}_{key_id}_{secret}`.
fn looks_like_key(word: &str) -> bool {
    let mut parts = word.splitn(3, '_');
    let is_named = parts.next().is_some_and(|id| !id.is_empty()) && parts.next().is_some_and(|id| !id.is_empty());
    let is_secret = |text: &str| text.len() >= SECRET_LEN_MIN && text.contains(|c: char| c.is_ascii_digit());
    is_named && parts.next().is_some_and(is_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_wrong_place_is_hidden() {
        let key = format!("admin_k1abcdef_{}", "0123456789abcdef".repeat(3));
        let line = redact_keys(&format!("unexpected value '{key}' for \"--json={key}\""));
        assert_eq!(line, "unexpected value '(hidden)' for \"--json=(hidden)\"");
        for harmless in [
            "",
            "queue_capacity = \"0\"",
            "MCP_BROKER_ADMIN_KEY",
            "ä--queue-capacity ",
            "a_b_c",
            "the_long_name-of-a-file-in-a-folder",
        ] {
            assert_eq!(redact_keys(harmless), harmless);
        }
    }
}
