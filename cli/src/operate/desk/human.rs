//! The person in whose name a command answers.

use clap::Args;
use serde::Deserialize;

use crate::client::{ApiRequest, Client, ClientError};

/// The name where the environment names no user.
const NAME_DEFAULT: &str = "human";

/// The person whom flags and environment name: the flags of all subcommands.
#[derive(Debug, Args)]
pub struct HumanFlags {
    #[arg(
        long = "human",
        value_name = "NAME",
        global = true,
        help = "Person who answers\n[default: the person of the key, else the name of the user]"
    )]
    name: Option<String>,
    #[arg(
        long = "role",
        value_name = "ROLE",
        global = true,
        value_delimiter = ',',
        help = "Role of that person, to \
        which questions may be addressed; may be repeated.\nA key has roles of its own"
    )]
    roles: Vec<String>,
}

/// The person of the key, if there is a key and it has one.
///
/// # Errors
/// The broker cannot be asked whose key it is.
pub fn person_of_key(client: &Client) -> Result<Option<String>, ClientError> {
    #[derive(Deserialize)]
    struct Me {
        human: Option<String>,
    }
    if client.access.key.is_none() {
        return Ok(None);
    }
    client.get("/api/v1/me").map(|Me { human }| human)
}

impl HumanFlags {
    /// The name to send. None where the key names the person.
    ///
    /// # Errors
    /// The broker cannot be asked whose key it is.
    pub fn name(&self, client: &Client) -> Result<Option<String>, ClientError> {
        if self.name.is_some() {
            return Ok(self.name.clone());
        }
        Ok(person_of_key(client)?.is_none().then(user_name))
    }

    /// The request in the name of the person.
    ///
    /// # Errors
    /// As [`Self::name`].
    pub fn sign(&self, client: &Client, mut ask: ApiRequest) -> Result<ApiRequest, ClientError> {
        if let Some(name) = self.name(client)? {
            ask = ask.with_header("x-human", name);
        }
        if !self.roles.is_empty() {
            ask = ask.with_header("x-human-roles", self.roles.join(","));
        }
        Ok(ask)
    }

    /// The roles that flags name, separated by commas; None without one.
    pub fn roles(&self) -> Option<String> {
        (!self.roles.is_empty()).then(|| self.roles.join(","))
    }
}

/// The name of the user of this process, as its environment says.
pub fn user_name() -> String {
    let named = ["USER", "LOGNAME", "USERNAME"].map(std::env::var);
    let mut named = named.into_iter().flatten().filter(|name| !name.is_empty());
    named.next().unwrap_or_else(|| NAME_DEFAULT.to_owned())
}
