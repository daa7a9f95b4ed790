//! `serve`: starts the broker; each setting is a flag.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::call::Call;
use super::error::CliError;
use crate::broker::Serving;
use common::config::{CONFIG_ENV, Flag, SETTINGS, Setting, Shape, Sources, unused_variables};
use common::exit;
use common::telemetry;

/// Adds a flag for each setting.
pub fn augment(command: Command) -> Command {
    command
        .about("Start the broker on one address and serve until SIGTERM or Ctrl-C")
        .long_about(ABOUT)
        .args(setting_args())
        .after_help(format!(
            "These are the settings that most people use. mcp-broker serve --help shows all {}.",
            SETTINGS.len()
        ))
        .after_long_help(EXIT_CODES)
}

/// The settings that most people use: `-h` shows them alone.
const COMMON: [&str; 12] = [
    "host",
    "port",
    "allowed_hosts",
    "allow_anonymous",
    "enable_auth",
    "admin_key",
    "storage",
    "data_dir",
    "redis_url",
    "tools",
    "log_level",
    "log_format",
];

/// The flags of all settings, and the one that names the file.
pub fn setting_args() -> impl Iterator<Item = Arg> {
    SETTINGS.iter().map(setting_arg).chain([config_arg()])
}

/// What the command line says of the settings: the file, and the flags.
pub fn given_settings(matches: &mut ArgMatches) -> (Option<OsString>, Vec<Flag>) {
    (matches.remove_one::<OsString>("config"), flags(matches))
}

/// Reads the configuration, and runs a broker until it stops.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn run(call: Call<'_>) -> Result<ExitCode, CliError> {
    let Call {
        mut matches,
        env,
        broker,
        ..
    } = call;
    let (file, flags) = given_settings(&mut matches);
    let sources = Sources {
        defaults: Vec::new(),
        file,
        flags,
        env: env.to_vec(),
    };
    let (config, values) = sources.load().map_err(|error| CliError::Usage(error.to_string()))?;
    close_memory();
    telemetry::init(&config);
    let unused = unused_variables(&sources.env);
    config
        .warnings()
        .iter()
        .chain(&unused)
        .for_each(|warning| tracing::warn!("{warning}"));
    let serving = Serving {
        sources: Some(sources),
        is_announced: true,
        ..Serving::new(config.clone(), values)
    };
    Ok(broker.serve(serving).unwrap_or_else(|error| {
        telemetry::print_status(&config, "ERROR", &error.to_string());
        ExitCode::from(exit::FAILED)
    }))
}

/// Lets no other process of the same user, as the programs of backends are, read the environment and the memory of this one,
/// which have keys. The superuser still may.
fn close_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Whether errors before the configuration is known are printed as JSON: a flag or variable sets `log_format`.
pub fn wants_json_errors(args: &[OsString], env: &[(OsString, OsString)]) -> bool {
    const FLAG: &str = "--log-format";
    let args: Vec<_> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let assigned = args.iter().find_map(|arg| arg.strip_prefix(FLAG)?.strip_prefix('='));
    let beside = args
        .iter()
        .position(|arg| *arg == FLAG)
        .and_then(|at| args.get(at + 1).copied());
    let variable = env.iter().find(|(name, _)| name == "MCP_BROKER_LOG_FORMAT");
    let variable = variable.and_then(|(_, value)| value.to_str());
    args.contains(&"serve") && assigned.or(beside).or(variable) == Some("json")
}

const ABOUT: &str = "\
Start the broker on one address and serve until SIGTERM or Ctrl-C.

Every setting is a flag, an environment variable and a key of the file that --config names.
A flag beats the environment, the environment beats the file, the file beats the default.
The key in the file is the flag with underscores: queue_capacity for --queue-capacity.";

/// The exit codes of `serve`, for its help.
pub const EXIT_CODES: &str = "\
Exit codes: 0 stopped as asked, 1 failed, 2 wrong command line or configuration, 70 the broker gave up.";

fn config_arg() -> Arg {
    let help = "File with settings, in TOML (.toml) or YAML (.yaml, .yml)";
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(ValueParser::os_string())
        .display_order(0)
        .help(help)
        .long_help(format!("{help}\n[default: none] [env: {CONFIG_ENV}]"))
}

/// Values stay raw here: `config` parses flags, variables and files alike.
fn setting_arg(setting: &'static Setting) -> Arg {
    let default = setting.shown_default();
    let [summary, meaning] = [setting.summary(), setting.text()].map(|text| text.replace('`', ""));
    let facts = format!(
        "[default: {default}] [env: {}]\n[allowed: {}]",
        setting.env(),
        (setting.allowed)()
    );
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_parser(ValueParser::os_string())
        .allow_negative_numbers(true)
        .help_heading(setting.section)
        .hide_short_help(!COMMON.contains(&setting.key))
        .help(format!("{summary} [default: {default}]"))
        .long_help(format!("{}\n{facts}", wrapped(&meaning)));
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
