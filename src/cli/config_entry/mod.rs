//! `config CLIENT`: prints how an MCP client connects to a broker. It calls no broker and writes no file.

mod entries;

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    access::{BrokerUrl, EnvVars},
    agent_clients::{AgentClient, CLIENTS, FileFormat},
    error::CliError,
    output::{EXIT_CODES, print},
};
use crate::config::{API_KEY_ENV, URL_ENV};
use entries::{Wanted, command_line, entry_text, key_advice, places};

const NAME_DEFAULT: &str = "broker";
/// Characters of a name: clients put it before the names of tools, which they shorten.
const NAME_LEN_MAX: usize = 32;
const URL_DEFAULT: &str = "http://127.0.0.1:8000";

/// The command with its help.
pub fn command() -> Command {
    let url = format!("Address of the broker\n[default: {URL_DEFAULT}] [env: {URL_ENV}]");
    let key_env = format!(
        "The broker asks for keys: the client reads its key from this variable, or asks for it once\n\
         [without a value: {API_KEY_ENV}]"
    );
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("config")
        .about("Print how an MCP client connects to the broker: its entry, and where to put it")
        .long_about(ABOUT)
        .arg(
            Arg::new("client")
                .value_name("CLIENT")
                .required(true)
                .value_parser(PossibleValuesParser::new(CLIENTS.iter().map(|client| client.word)))
                .help("The client"),
        )
        .arg(Arg::new("url").long("url").value_name("URL").help(url))
        .arg(
            Arg::new("name")
                .long("name")
                .value_name("NAME")
                .default_value(NAME_DEFAULT)
                .value_parser(read_name)
                .help("Name of the entry; clients show the tools of the broker under it"),
        )
        .arg(
            Arg::new("key-env")
                .long("key-env")
                .value_name("VARIABLE")
                .num_args(0..=1)
                .default_missing_value(API_KEY_ENV)
                .value_parser(read_variable)
                .help(key_env),
        )
        .arg(switch(
            "json",
            "Print the text for the client's file alone, for a client whose file is JSON",
        ))
        .arg(
            switch(
                "toml",
                "Print the text for the client's file alone, for a client whose file is TOML",
            )
            .conflicts_with("json"),
        )
        .after_help(EXIT_CODES)
}

const ABOUT: &str = "\
Print how an MCP client connects to the broker: its entry, and where to put it.

It calls no broker and changes no file. A key is never part of the entry: with --key-env the entry
refers to an environment variable, or the client asks for the key.";

fn read_name(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=NAME_LEN_MAX).contains(&text.len()) && text.chars().all(is_good) {
        Ok(text.to_owned())
    } else {
        Err(format!("1 to {NAME_LEN_MAX} letters, digits, - and _"))
    }
}

fn read_variable(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    if !text.is_empty() && text.len() <= 128 && !is_number && text.chars().all(is_good) {
        Ok(text.to_owned())
    } else {
        Err("the name of an environment variable".to_owned())
    }
}

/// What to print.
#[derive(Debug)]
pub struct ConfigEntry {
    wanted: Wanted,
    /// Print the text for the file and nothing else.
    is_bare: bool,
}

/// Reads the arguments.
///
/// # Errors
/// [`CliError::Usage`] when the URL cannot be used, or the client's file has the other format.
pub fn read(matches: &ArgMatches, before: &ArgMatches, env: &EnvVars) -> Result<ConfigEntry, CliError> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let variable = env.iter().find(|(name, value)| name == URL_ENV && !value.is_empty());
    let url_before = before
        .get_one::<OsString>("url")
        .map(|url| url.to_string_lossy().into_owned());
    let url = match (text("url").or(url_before), variable) {
        (Some(url), _) => BrokerUrl::parse(&url, "--url"),
        (None, Some((_, url))) => BrokerUrl::parse(&url.to_string_lossy(), URL_ENV),
        (None, None) => BrokerUrl::parse(URL_DEFAULT, "default"),
    };
    let client = text("client").and_then(|word| AgentClient::of_word(&word));
    let client = client.ok_or_else(|| CliError::Usage("the client is missing".to_owned()))?;
    let format = match (matches.get_flag("json"), matches.get_flag("toml")) {
        (true, _) => Some((FileFormat::Json, "--toml")),
        (_, true) => Some((FileFormat::Toml, "--json")),
        _ => None,
    };
    if let Some((_, other)) = format.filter(|(format, _)| *format != client.format) {
        return Err(CliError::Usage(format!(
            "the file of {} has another format: use {other}",
            client.label
        )));
    }
    Ok(ConfigEntry {
        wanted: Wanted {
            client,
            name: text("name").unwrap_or_else(|| NAME_DEFAULT.to_owned()),
            url: format!("{}/mcp", url.map_err(CliError::Usage)?.text),
            key_env: text("key-env"),
        },
        is_bare: format.is_some(),
    })
}

/// Prints the entry.
///
/// # Errors
/// [`CliError::Failed`] when stdout cannot be written.
pub fn run(entry: &ConfigEntry) -> Result<(), CliError> {
    let wanted = &entry.wanted;
    let text = entry_text(wanted);
    if entry.is_bare {
        return print(&text);
    }
    let label = wanted.client.label;
    let first = match command_line(wanted) {
        Some(command) => format!("Run this, and {label} connects:\n\n  {command}\n\nOr put"),
        None => "Put".to_owned(),
    };
    let (places, advice) = (places(wanted.client), key_advice(wanted));
    print(&format!("{first} this into {places}:\n\n{text}\n{advice}"))
}
