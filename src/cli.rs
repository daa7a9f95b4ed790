//! The command line: which words it takes, and what becomes of them.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::config::{self, CONFIG_ENV, Config, Flag, SETTINGS, Setting, Shape};
use crate::{exit, startup, telemetry};

/// Does what the command line asks, and says how the process ends.
pub fn run(args: impl IntoIterator<Item = OsString>, env: impl IntoIterator<Item = (OsString, OsString)>) -> ExitCode {
    match parse(args, env) {
        Ok(Action::Serve(config)) => {
            telemetry::init(&config);
            config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
            startup::serve(*config)
        }
        Err(Stop::Help(help)) => {
            // Whoever closed the pipe has read enough.
            let _ = help.print();
            ExitCode::from(u8::try_from(help.exit_code()).unwrap_or(exit::USAGE))
        }
        Err(Stop::Usage(line)) => {
            let _ = writeln!(std::io::stderr(), "error: {line}");
            ExitCode::from(exit::USAGE)
        }
    }
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Action {
    Serve(Box<Config>),
}

/// Why nothing is to be done.
#[derive(Debug)]
pub enum Stop {
    /// Help or version were asked for, or no command was given.
    Help(clap::Error),
    /// A mistake, told in one line.
    Usage(String),
}

/// Reads a command line, whose first word is the name of the program, with the environment around it.
///
/// # Errors
///
/// [`Stop`] when there is nothing to do but to print something.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Action, Stop> {
    let mut matches = command().try_get_matches_from(args).map_err(stop)?;
    match matches.remove_subcommand() {
        Some((name, mut matches)) if name == "serve" => {
            let file = matches.remove_one::<OsString>("config");
            let config =
                config::load(file, flags(&mut matches), env).map_err(|error| Stop::Usage(error.to_string()))?;
            Ok(Action::Serve(Box::new(config)))
        }
        _ => Err(Stop::Usage("no command; allowed: serve".to_owned())),
    }
}

/// Every command, flag and help text.
pub fn command() -> Command {
    let serve = Command::new("serve")
        .about("Start the broker on one address and serve until SIGTERM or Ctrl-C")
        .long_about(SERVE_ABOUT)
        .arg(config_arg())
        .args(SETTINGS.iter().map(setting_arg))
        .after_help(EXIT_CODES);
    Command::new("mcp-broker")
        .about("A message broker for AI agents that speak MCP")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve)
        .after_help(EXIT_CODES)
}

const SERVE_ABOUT: &str = "\
Start the broker on one address and serve until SIGTERM or Ctrl-C.

Every setting is a flag, an environment variable and a key of the file that --config names.
A flag beats the environment, the environment beats the file, the file beats the default.
The key in the file is the flag with underscores: queue_capacity for --queue-capacity.";

const EXIT_CODES: &str = "\
Exit codes: 0 stopped as asked, 1 failed, 2 wrong command line or configuration, 70 the broker gave up.";

fn config_arg() -> Arg {
    let help =
        format!("File with settings, in TOML (.toml) or YAML (.yaml, .yml)\n[default: none] [env: {CONFIG_ENV}]");
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(ValueParser::os_string())
        .help(help)
}

/// The value stays raw here: flag, variable and file share one parser and one message, in `config`.
fn setting_arg(setting: &'static Setting) -> Arg {
    let default = if setting.default.is_empty() {
        "none"
    } else {
        setting.default
    };
    let meaning = setting.text().replace('`', "");
    let facts = format!(
        "[default: {default}] [env: {}]\n[allowed: {}]",
        setting.env(),
        (setting.allowed)()
    );
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_parser(ValueParser::os_string())
        .allow_negative_numbers(true)
        .help(format!("{}\n{facts}", wrapped(&meaning)));
    match setting.shape {
        Shape::One(name) => arg.value_name(name),
        Shape::Switch => arg.value_name("BOOL").num_args(0..=1).default_missing_value("true"),
        Shape::Many(name) => arg.value_name(name).action(ArgAction::Append),
    }
}

const HELP_LINE_LEN_MAX: usize = 96;

fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut len = 0;
    for word in text.split(' ') {
        let fits = len + 1 + word.len() <= HELP_LINE_LEN_MAX;
        if len > 0 {
            lines.push(if fits { ' ' } else { '\n' });
        }
        len = if len > 0 && fits {
            len + 1 + word.len()
        } else {
            word.len()
        };
        lines.push_str(word);
    }
    lines
}

fn flags(matches: &mut ArgMatches) -> Vec<Flag> {
    let flag = |setting: &Setting| {
        let values: Vec<OsString> = matches.remove_many(setting.key)?.collect();
        Some((setting.key, values.join(",".as_ref())))
    };
    SETTINGS.iter().filter_map(flag).collect()
}

/// Clap explains over several lines with the usage below; a mistake here is one line, like every other.
fn stop(error: clap::Error) -> Stop {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Stop::Help(error)
        }
        ErrorKind::UnknownArgument => Stop::Usage(unknown_argument(&text(ContextKind::InvalidArg).unwrap_or_default())),
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            Stop::Usage(config::one_line(&format!(
                "command {name:?} is not known; allowed: serve, help"
            )))
        }
        _ => Stop::Usage(config::one_line(&in_short(&error))),
    }
}

/// Clap's own words without the usage below them, and what the flag takes if one is concerned.
fn in_short(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let message = rendered.split("\n\n").next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let flag = |setting: &&Setting| message.contains(&format!("'--{} ", setting.flag()));
    match SETTINGS.iter().find(flag) {
        Some(setting) => format!("{message}; allowed: {}", (setting.allowed)()),
        None => message.to_owned(),
    }
}

fn unknown_argument(name: &str) -> String {
    let mut keys: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    keys.push("config");
    let flag = |key: &str| format!("--{}", key.replace('_', "-"));
    let nearest = name
        .strip_prefix("--")
        .and_then(|name| config::nearest(name, &keys))
        .map(flag);
    let hint = match nearest {
        Some(flag) if flag == name => "; it belongs behind the command serve".to_owned(),
        Some(flag) => format!("; did you mean {flag}?"),
        None => String::new(),
    };
    let allowed = keys.iter().map(|key| flag(key)).collect::<Vec<_>>().join(", ");
    config::one_line(&format!("{name:?} is not known here{hint}; allowed: {allowed}"))
}
