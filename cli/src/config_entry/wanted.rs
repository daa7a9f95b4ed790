//! What an entry is to say: the arguments that `config` and `setup` share.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::{
    access::{BrokerUrl, EnvVars, URL_DEFAULT, context_help, place, variable},
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

// The arguments: client, name, and which broker. A doc comment would be the help of the command.
#[derive(Debug, Args)]
pub struct EntryFlags {
    /// The client whose file gets the entry.
    #[arg(value_name = "CLIENT", value_parser = client())]
    client: &'static AgentClient,
    #[arg(long, value_name = "URL", help = format!("Address of a shared broker; without it the entry is for the broker \
        of this user\n[env: {URL_ENV}]"))]
    url: Option<OsString>,
    #[arg(long, value_name = "NAME", conflicts_with = "url", help = context_help())]
    context: Option<String>,
    /// Name of the entry; clients show the tools of the broker under it.
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT, value_parser = read_name)]
    name: String,
    #[arg(long, value_name = "VARIABLE", num_args = 0..=1, default_missing_value = API_KEY_ENV, value_parser = read_variable,
        help = format!("The shared broker asks for keys: the client reads its key from this variable, or asks for it \
        once\n[without a value: {API_KEY_ENV}]"))]
    key_env: Option<String>,
    #[arg(long, value_name = "NAME", conflicts_with_all = ["url", "key_env"], value_parser = read_instance,
        help = "Another broker of this user: each name is a broker of its own\n[default: default]")]
    instance: Option<String>,
}

/// The parser of a client, by its word or another name.
fn client() -> impl TypedValueParser<Value = &'static AgentClient> {
    let words = CLIENTS
        .iter()
        .map(|client| PossibleValue::new(client.word).aliases(client.other_names()));
    let known = |word: String| AgentClient::of_word(&word).ok_or("the client is not known");
    PossibleValuesParser::new(words).try_map(known)
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

impl EntryFlags {
    /// What the entry is to say. A URL, from the flag or the environment, or a key asks for a shared broker. A file of a project
    /// is used on several machines: it gets no path of this one where a name does.
    ///
    /// # Errors
    /// [`CliError::Usage`] when the URL cannot be used.
    pub fn wanted(self, env: &EnvVars, is_for_project: bool) -> Result<Wanted, CliError> {
        let no_variables: &EnvVars = &[];
        let env_of_place = if self.instance.is_some() { no_variables } else { env };
        // An entry is for the broker that its own words name, not for the one that a person uses at the moment.
        let place = place(self.url.as_deref(), self.context.as_deref(), env_of_place, false);
        let url = place.and_then(|place| place.url()).map_err(CliError::Usage)?;
        let of_key = || self.key_env.as_ref().map(|_| BrokerUrl::parse(URL_DEFAULT, "default"));
        let url = url.map_or_else(|| of_key().transpose(), |url| Ok(Some(url)));
        let connection = match url.map_err(CliError::Usage)? {
            Some(url) => Connection::Http {
                url: format!("{}/mcp", url.text),
                key_env: self.key_env,
            },
            None => Connection::Local {
                instance: self.instance,
            },
        };
        Ok(Wanted {
            client: self.client,
            name: self.name,
            program: program(self.client.has_windows && !is_for_project, env),
            connection,
        })
    }
}

/// This program, as a client starts it: by its name where a shell finds it under that name, else by its path. A client
/// that a desktop starts does not have the path of a shell, so it gets the place where the shell finds the program.
fn program(needs_path: bool, env: &EnvVars) -> String {
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(PROGRAM));
    match found_as_name(&own, variable(env, "PATH")) {
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
