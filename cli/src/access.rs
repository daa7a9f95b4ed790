//! Finds the broker to call and the key to use, from flags and environment.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::net::IpAddr;

use clap::{Arg, Args};
use ureq::http::Uri;

use super::contexts::{Context, Contexts, OWN};
use common::config::{self, API_KEY_ENV, CONTEXT_ENV, URL_ENV};
use common::user_broker::{Instance, Living, LocalPaths};

/// The broker's own admin key, which an operator on the same machine has in the environment.
const ADMIN_KEY_ENV: &str = "MCP_BROKER_ADMIN_KEY";

pub const URL_DEFAULT: &str = "http://127.0.0.1:8000";

/// The source of [`URL_DEFAULT`].
const DEFAULT: &str = "default";

/// The source of what a context has.
const CONTEXT: &str = "the context";

/// The headings of flags that many commands have.
pub const HEADING: &str = "Broker";
pub const OUTPUT: &str = "Output";

const KEY_ADVICE: &str = "\
Prefer the variable or --key-file:
other users of this machine see the flags of a process";

// The flags of every command that calls a broker and prints its answer. A doc comment would be the help of the command.
#[derive(Debug, Clone, Args)]
pub struct AskingFlags {
    #[command(flatten)]
    pub broker: BrokerFlags,
    /// Print the answer of the broker as JSON; a list has one object per line.
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub json: bool,
}

impl AskingFlags {
    /// The first of these flags that is given.
    pub fn first_given(&self) -> Option<&'static str> {
        let BrokerFlags {
            url,
            context,
            key,
            key_file,
            insecure,
        } = &self.broker;
        let given = [
            ("url", url.is_some()),
            ("context", context.is_some()),
            ("key", key.is_some()),
            ("key-file", key_file.is_some()),
            ("insecure", *insecure),
            ("json", self.json),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}

// The flags that say which broker and which key.
#[derive(Clone, Default, Args)]
pub struct BrokerFlags {
    #[arg(long, value_name = "URL", global = true, help_heading = HEADING,
        help = url_help(&format!("the running broker of this user, else {URL_DEFAULT}")))]
    pub url: Option<OsString>,
    #[arg(long, value_name = "NAME", global = true, help_heading = HEADING, conflicts_with = "url", help = context_help())]
    pub context: Option<String>,
    #[arg(long, value_name = "KEY", global = true, help_heading = HEADING, help = key_help())]
    key: Option<OsString>,
    /// File that holds the API key and nothing else.
    #[arg(long, value_name = "FILE", global = true, help_heading = HEADING, conflicts_with = "key")]
    key_file: Option<OsString>,
    /// Send the key over http:// to another machine: the network can read it.
    #[arg(long, global = true, help_heading = HEADING)]
    insecure: bool,
}

fn url_help(default: &str) -> String {
    format!("Address of the broker\n[default: {default}] [env: {URL_ENV}]")
}

/// Gives `--url` another help, which says which broker is asked without it.
pub fn with_default(default: &str) -> impl Fn(Arg) -> Arg {
    with_url_help(url_help(default))
}

/// Gives `--url` another help.
pub fn with_url_help(help: String) -> impl Fn(Arg) -> Arg {
    move |flag| {
        if flag.get_id() == "url" {
            flag.help(help.clone())
        } else {
            flag
        }
    }
}

/// The help of `--context`.
pub fn context_help() -> String {
    format!(
        "The broker of this context, with its key file and project; local is the broker of this user\n\
         [default: the one of mcp-broker context use] [env: {CONTEXT_ENV}]"
    )
}

fn key_help() -> String {
    format!("API key. {KEY_ADVICE}\n[env: {API_KEY_ENV}, else {ADMIN_KEY_ENV}]")
}

/// Without the key.
impl fmt::Debug for BrokerFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerFlags")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl BrokerFlags {
    /// Whether a flag, the environment or, where commands use it, the current context names a broker.
    ///
    /// # Errors
    /// One line for the user: the contexts cannot be read, or there is no such context.
    pub fn name_broker(&self, env: &EnvVars, uses_current: bool) -> Result<bool, String> {
        let place = place(self.url.as_deref(), self.context.as_deref(), env, uses_current);
        place.map(|place| !matches!(place, Place::Default))
    }
}

/// Where the address of a broker comes from.
pub enum Place {
    Url(String, &'static str),
    Context(Context),
    /// Nothing names a broker.
    Default,
}

impl Place {
    /// The address, unless nothing names a broker.
    ///
    /// # Errors
    /// One line for the user.
    pub fn url(&self) -> Result<Option<BrokerUrl>, String> {
        match self {
            Self::Url(url, source) => BrokerUrl::parse(url, source).map(Some),
            Self::Context(context) => BrokerUrl::parse(&context.url, CONTEXT).map(Some),
            Self::Default => Ok(None),
        }
    }
}

/// Finds the broker that a command is for: by the flags `--url` and `--context`, by the environment, or else by the current
/// context.
///
/// # Errors
/// Those of [`BrokerFlags::name_broker`].
pub fn place(url: Option<&OsStr>, context: Option<&str>, env: &EnvVars, uses_current: bool) -> Result<Place, String> {
    let of_name = |contexts: &Contexts, name: &str| {
        if name == OWN {
            return Ok(Place::Default);
        }
        contexts.find(name).cloned().map(Place::Context)
    };
    if let Some(url) = url {
        return Ok(Place::Url(url.to_string_lossy().into_owned(), "--url"));
    }
    if let Some(name) = context {
        return of_name(&Contexts::read()?, name);
    }
    if let Some(url) = variable(env, URL_ENV) {
        return Ok(Place::Url(url.to_string_lossy().into_owned(), URL_ENV));
    }
    if let Some(name) = variable(env, CONTEXT_ENV) {
        return of_name(&Contexts::read()?, &name.to_string_lossy());
    }
    if !uses_current {
        return Ok(Place::Default);
    }
    let contexts = Contexts::read()?;
    match &contexts.current {
        Some(name) => of_name(&contexts, name),
        None => Ok(Place::Default),
    }
}

/// The address of a broker, and the key for it.
#[derive(Debug, Clone)]
pub struct BrokerAccess {
    pub url: BrokerUrl,
    pub key: Option<ClientKey>,
    /// The project that requests name.
    pub project: Option<String>,
}

/// The environment; an empty value counts as unset.
pub type EnvVars = [(OsString, OsString)];

impl BrokerAccess {
    /// Reads the access from flags and environment. Flags win over the environment.
    ///
    /// # Errors
    /// One line for the user: the URL or key is unusable, or the key would be sent in clear text to another machine.
    pub fn read(flags: &BrokerFlags, env: &EnvVars) -> Result<Self, String> {
        let place = place(flags.url.as_deref(), flags.context.as_deref(), env, true)?;
        let url = place
            .url()?
            .map_or_else(|| BrokerUrl::parse(URL_DEFAULT, DEFAULT), Ok)?;
        let context = match place {
            Place::Context(context) => context,
            Place::Url(..) | Place::Default => Context::default(),
        };
        let is_given = flags.key.is_some() || flags.key_file.is_some();
        let key = match &context.key_file {
            Some(file) if !is_given => Some(read_key_file(file.as_os_str(), CONTEXT)?),
            _ => read_key(flags, env)?,
        };
        let insecure = context.insecure || flags.insecure;
        if key.is_some() && url.is_cleartext_remote && !insecure {
            return Err(format!(
                "url = {} ({}) is not allowed with a key: the network could read it; \
                 allowed: https://, a loopback address, or --insecure to send it anyway",
                config::quoted_value("", &url.text),
                url.source
            ));
        }
        Ok(Self {
            url,
            key,
            project: context.project,
        })
    }

    /// The access to a broker without a key.
    pub fn without_key(url: BrokerUrl) -> Self {
        Self {
            url,
            key: None,
            project: None,
        }
    }

    /// This access, or where neither a flag nor the environment names a broker, that to the broker of this user if one
    /// runs. It starts none.
    ///
    /// # Errors
    /// One line for the user: the broker of this user does not serve HTTP at this moment.
    pub fn or_broker_of_user(self) -> Result<Self, String> {
        if self.url.source != DEFAULT {
            return Ok(self);
        }
        // No broker of this user can run in a folder that it cannot use.
        let Ok(paths) = LocalPaths::look_up(&Instance::default()) else {
            return Ok(self);
        };
        let http = match Living::of(&paths) {
            Ok(Living::Yes(info)) => info.http,
            Ok(Living::Changing) => None,
            Ok(Living::No) => return Ok(self),
            Err(error) => {
                return Err(format!(
                    "{} cannot be used: {error}; {OTHER}",
                    paths.life_lock.display()
                ));
            }
        };
        let http =
            http.ok_or_else(|| format!("the broker of this user is starting or stopping; try again, or {OTHER}"))?;
        // The address is one of this machine: the network cannot read the key.
        let url = BrokerUrl::parse(&http, "broker.json")?;
        Ok(Self { url, ..self })
    }
}

const OTHER: &str = "name a broker with --url";

/// The value of a variable, unless it is empty.
pub fn variable<'a>(env: &'a EnvVars, name: &str) -> Option<&'a OsStr> {
    let found = env
        .iter()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.as_os_str());
    found.filter(|value| !value.is_empty())
}

fn read_key(flags: &BrokerFlags, env: &EnvVars) -> Result<Option<ClientKey>, String> {
    if let Some(text) = &flags.key {
        return ClientKey::parse(text, "--key").map(Some);
    }
    if let Some(path) = &flags.key_file {
        return read_key_file(path, "--key-file").map(Some);
    }
    let named = [API_KEY_ENV, ADMIN_KEY_ENV]
        .into_iter()
        .find_map(|name| Some((name, variable(env, name)?)));
    named.map(|(name, text)| ClientKey::parse(text, name)).transpose()
}

fn read_key_file(path: &OsStr, source: &'static str) -> Result<ClientKey, String> {
    let text = read_file(path).map_err(|error| {
        let path = config::quoted_value("", &path.to_string_lossy());
        format!("key_file = {path} ({source}) cannot be used: {error}; allowed: a file that holds one key")
    })?;
    ClientKey::parse(OsStr::new(&text), source)
}

const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Reads as much of a file as a key may have; an endless file (`/dev/zero`) ends here too.
fn read_file(path: &OsStr) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(KEY_FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An API key and where it was given. `Debug` hides it.
#[derive(Clone)]
pub struct ClientKey {
    text: String,
    pub source: &'static str,
}

impl ClientKey {
    fn parse(text: &OsStr, source: &'static str) -> Result<Self, String> {
        let text = text.to_str().unwrap_or("\u{0}").trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let key = if ["--key-file", CONTEXT].contains(&source) {
                "key_file"
            } else {
                "key"
            };
            return Err(format!(
                "{key} = (hidden) ({source}) is not allowed; allowed: one key, as it was shown"
            ));
        }
        let text = text.to_owned();
        Ok(Self { text, source })
    }

    /// The key in clear text, for the request header only.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Removes the key from a text: a broker may quote what it received.
    pub fn redact(&self, text: &str) -> String {
        text.replace(&self.text, "(hidden)")
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The base URL of a broker's API. A path stays: the broker may be behind a proxy with other services.
#[derive(Debug, Clone)]
pub struct BrokerUrl {
    pub text: String,
    pub is_https: bool,
    /// The URL is plain HTTP to another machine.
    is_cleartext_remote: bool,
    source: &'static str,
}

const URL_ALLOWED: &str = "http://HOST:PORT or https://HOST:PORT, without user, query or fragment; http:// may be left \
                           out for this machine";

/// What a broker serves below its address, as it prints them itself.
const ENDPOINTS: [&str; 5] = ["/mcp", "/ws", "/dashboard", "/desk", "/health"];

impl BrokerUrl {
    /// Parses the address that `source` (a flag or a variable) gives. The addresses that a broker prints of itself are
    /// understood: that of an endpoint, and one without a scheme on this machine.
    ///
    /// # Errors
    /// One line for the user.
    pub fn parse(text: &str, source: &'static str) -> Result<Self, String> {
        Self::read(text.trim(), source).ok_or_else(|| {
            // The text before an @ may be a password.
            let shown = config::quoted_value(if text.contains('@') { URL_ENV } else { "" }, text);
            format!("url = {shown} ({source}) is not allowed; allowed: {URL_ALLOWED}")
        })
    }

    fn read(text: &str, source: &'static str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let is_https = match scheme {
            "https" | "wss" => true,
            "http" | "ws" | "" => false,
            _ => return None,
        };
        let uri: Uri = format!("http://{rest}").parse().ok()?;
        let authority = uri.authority()?;
        let host = authority.host();
        let has_good_port = authority.as_str() == host || authority.port_u16().is_some();
        let is_plain = !rest.contains(['#', '?', '@']);
        let is_complete = !scheme.is_empty() || is_loopback(host);
        let path = uri.path().trim_end_matches('/');
        let path = ENDPOINTS.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
        let scheme = if is_https { "https" } else { "http" };
        (is_complete && has_good_port && is_plain && !host.is_empty()).then(|| Self {
            text: format!("{scheme}://{authority}{}", path.trim_end_matches('/')),
            is_https,
            is_cleartext_remote: !is_https && !is_loopback(host),
            source,
        })
    }

    /// Whether neither a flag nor the environment names it.
    pub fn is_default(&self) -> bool {
        self.source == DEFAULT
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<BrokerUrl, String> {
        BrokerUrl::parse(text, "--url")
    }

    #[test]
    fn a_url_keeps_its_path_and_loses_its_last_slash() {
        for (text, kept) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            (" http://127.0.0.1:8000/ ", "http://127.0.0.1:8000"),
            ("https://ops.example.com/broker/", "https://ops.example.com/broker"),
            ("http://[::1]:9000", "http://[::1]:9000"),
            ("localhost:8000", "http://localhost:8000"),
            ("127.0.0.1:8000/mcp", "http://127.0.0.1:8000"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("localhost", "http://localhost"),
            ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000"),
            ("ws://127.0.0.1:8000/ws", "http://127.0.0.1:8000"),
            ("wss://ops.example.com/broker/ws", "https://ops.example.com/broker"),
            ("http://127.0.0.1:8000/dashboard/", "http://127.0.0.1:8000"),
            ("https://ops.example.com/mcp/mcp", "https://ops.example.com/mcp"),
        ] {
            assert_eq!(url(text).unwrap().text, kept);
        }
    }

    #[test]
    fn an_invalid_broker_url_is_refused() {
        for text in [
            "",
            "broker.example.com:8000",
            "10.0.0.1:8000",
            "ftp://a",
            "//localhost",
            "http://",
            "http://a:",
            "http://a:99999",
            "http://a/?b=c",
            "http://a/#b",
            "http://a b",
        ] {
            let line = url(text).unwrap_err();
            assert_eq!(
                line,
                format!("url = {text:?} (--url) is not allowed; allowed: {URL_ALLOWED}")
            );
        }
        for text in ["http://127.0.0.1:80@evil.example", "localhost:80@evil.example"] {
            let line = url(text).unwrap_err();
            assert!(line.starts_with("url = (hidden) (--url)"), "{line}");
        }
    }

    #[test]
    fn only_plain_http_to_another_machine_counts_as_clear_text() {
        for text in [
            "http://127.0.0.1",
            "http://127.8.9.1:80",
            "http://localhost:80",
            "http://LocalHost",
            "http://[::1]",
            "http://[::ffff:127.0.0.1]",
            "https://ops.example.com",
        ] {
            assert!(!url(text).unwrap().is_cleartext_remote, "{text}");
        }
        for text in [
            "http://ops.example.com",
            "http://10.0.0.1",
            "http://localhost.example.com",
            "http://127.0.0.1.example.com",
            "http://0.0.0.0:8000",
            "http://[::ffff:10.0.0.1]",
        ] {
            assert!(url(text).unwrap().is_cleartext_remote, "{text}");
        }
    }

    #[test]
    fn a_key_is_hidden_in_debug_output_and_errors() {
        let key = ClientKey::parse(OsStr::new(" admin_k_secret\n"), "--key").unwrap();
        assert_eq!((format!("{key:?}").as_str(), key.expose()), ("***", "admin_k_secret"));
        assert_eq!(key.redact("no key admin_k_secret here"), "no key (hidden) here");
        for bad in ["", " \n", "two keys", "a\u{1b}", "ä"] {
            let line = ClientKey::parse(OsStr::new(bad), "--key").unwrap_err();
            assert_eq!(
                line,
                "key = (hidden) (--key) is not allowed; allowed: one key, as it was shown"
            );
        }
    }
}
