//! What an entry is to say: the arguments that `config` and `setup` share.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::{Arg, ArgMatches};

use crate::{
    access::{BrokerUrl, EnvVars, Place, context_flag, place},
    agent_clients::{AgentClient, CLIENTS},
    error::CliError,
};
use common::config::{API_KEY_ENV, URL_ENV};

/// The name of this program.
pub const PROGRAM: &str = "mcp-broker";
/// The name of an entry.
pub const NAME_DEFAULT: &str = "broker";
/// Characters of a name: clients put it before the names of tools, which they shorten.
const NAME_LEN_MAX: usize = 32;
const URL_DEFAULT: &str = "http://127.0.0.1:8000";

/// What an entry is to say.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub client: &'static AgentClient,
    /// The name of the entry.
    pub name: String,
    /// This program, as the client starts it.
    pub program: String,
    pub connection: Connection,
}

/// How the client reaches a broker.
#[derive(Debug, Clone)]
pub enum Connection {
    /// It starts the front of the broker of the user.
    Local {
        /// The broker, if it is not the default one.
        instance: Option<String>,
    },
    /// It calls a shared broker.
    Http {
        /// The URL of MCP over HTTP.
        url: String,
        /// The variable that holds the key, if the broker asks for one.
        key_env: Option<String>,
    },
}

impl Wanted {
    /// The variable that holds the key.
    pub fn key_env(&self) -> Option<&str> {
        match &self.connection {
            Connection::Http { key_env, .. } => key_env.as_deref(),
            Connection::Local { .. } => None,
        }
    }

    /// Whether the file of the client can refer to a variable.
    pub fn has_variables(&self) -> bool {
        !matches!(self.client.word, "copilot" | "zed" | "claude-desktop")
    }

    /// Why no entry of this client can say this.
    pub fn impossible(&self) -> Option<String> {
        (self.key_env().is_some() && !self.has_variables()).then(|| {
            format!(
                "the file of {} cannot refer to a variable: leave --key-env out, and let it start `mcp-broker connect \
                 --url URL`, which reads the key from {API_KEY_ENV}",
                self.client.label
            )
        })
    }
}

/// The arguments: client, name, and which broker.
pub fn args() -> [Arg; 6] {
    let url =
        format!("Address of a shared broker; without it the entry is for the broker of this user\n[env: {URL_ENV}]");
    let key_env = format!(
        "The shared broker asks for keys: the client reads its key from this variable, or asks for it once\n\
         [without a value: {API_KEY_ENV}]"
    );
    [
        Arg::new("client")
            .value_name("CLIENT")
            .required(true)
            .value_parser(PossibleValuesParser::new(
                CLIENTS
                    .iter()
                    .map(|client| PossibleValue::new(client.word).aliases(client.other_names())),
            ))
            .help("The client whose file gets the entry"),
        Arg::new("url")
            .long("url")
            .value_name("URL")
            .value_parser(ValueParser::os_string())
            .help(url),
        context_flag(),
        Arg::new("name")
            .long("name")
            .value_name("NAME")
            .default_value(NAME_DEFAULT)
            .value_parser(read_name)
            .help("Name of the entry; clients show the tools of the broker under it"),
        Arg::new("key-env")
            .long("key-env")
            .value_name("VARIABLE")
            .num_args(0..=1)
            .default_missing_value(API_KEY_ENV)
            .value_parser(read_variable)
            .help(key_env),
        Arg::new("instance")
            .long("instance")
            .value_name("NAME")
            .conflicts_with_all(["url", "key-env"])
            .value_parser(read_instance)
            .help("Another broker of this user: each name is a broker of its own\n[default: default]"),
    ]
}

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

fn read_instance(text: &str) -> Result<String, String> {
    common::user_broker::Instance::parse(text)?;
    Ok(text.to_owned())
}

/// A variable of the environment that is not empty.
pub fn variable(env: &EnvVars, name: &str) -> Option<OsString> {
    let found = env.iter().find(|(key, value)| key == name && !value.is_empty());
    found.map(|(_, value)| value.clone())
}

/// Reads the arguments. A URL, from the flag or the environment, or a key asks for a shared broker. A file of a project is
/// used on several machines: it gets no path of this one where a name does.
///
/// # Errors
/// [`CliError::Usage`] when the URL cannot be used.
pub fn read(matches: &ArgMatches, env: &EnvVars, is_for_project: bool) -> Result<Wanted, CliError> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let client = text("client").and_then(|word| AgentClient::of_word(&word));
    let client = client.ok_or_else(|| CliError::Usage("the client is missing".to_owned()))?;
    let (key_env, instance) = (text("key-env"), text("instance"));
    let no_variables: &EnvVars = &[];
    let env_of_place = if instance.is_some() { no_variables } else { env };
    // An entry is for the broker that its own words name, not for the one that a person uses at the moment.
    let place = place(matches, env_of_place, false).map_err(CliError::Usage)?;
    let url = match place {
        Place::Url(url, source) => Some(BrokerUrl::parse(&url, source)),
        Place::Context(context) => Some(BrokerUrl::parse(&context.url, "the context")),
        Place::Default => key_env.as_ref().map(|_| BrokerUrl::parse(URL_DEFAULT, "default")),
    };
    let connection = match url.transpose().map_err(CliError::Usage)? {
        Some(url) => Connection::Http {
            url: format!("{}/mcp", url.text),
            key_env,
        },
        None => Connection::Local { instance },
    };
    Ok(Wanted {
        client,
        name: text("name").unwrap_or_else(|| NAME_DEFAULT.to_owned()),
        program: program(client.has_windows && !is_for_project, env),
        connection,
    })
}

/// This program, as a client starts it: by its name where a shell finds it under that name, else by its path. A client
/// that a desktop starts does not have the path of a shell, so it gets the place where the shell finds the program.
fn program(needs_path: bool, env: &EnvVars) -> String {
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(PROGRAM));
    match found_as_name(&own, variable(env, "PATH").as_deref()) {
        Some(_) if !needs_path => PROGRAM.to_owned(),
        found => found.unwrap_or(own).to_string_lossy().into_owned(),
    }
}

/// Where a shell finds this program under its name.
fn found_as_name(own: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let mut candidates = std::env::split_paths(path?).map(|folder| folder.join(PROGRAM));
    let first = candidates.find(|candidate| candidate.is_absolute() && candidate.is_file())?;
    let is_same = first.canonicalize().ok()? == own.canonicalize().ok()?;
    is_same.then_some(first)
}
