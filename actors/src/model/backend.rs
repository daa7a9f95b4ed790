//! The description of a backend: an MCP server that the agents of a project share.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    BrokerError,
    ids::{is_label, text_id},
};

/// The name of a backend, unique in its project: `^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendName(Arc<str>);

impl BackendName {
    const LEN_MAX: usize = 32;
    /// Names that mean something else in paths and views.
    const RESERVED: [&'static str; 5] = ["broker", "mcp", "dev", "default", "all"];

    /// Parses a name.
    ///
    /// # Errors
    /// `invalid_argument` when the text does not match the grammar above, or is reserved.
    pub fn parse(text: &str) -> Result<Self, BrokerError> {
        if !is_label(text, Self::LEN_MAX) {
            let reason = "1 to 32 of a-z, 0-9 and '-', not beginning or ending with '-'";
            return Err(BrokerError::invalid("backend", reason));
        }
        if Self::RESERVED.contains(&text) {
            return Err(BrokerError::invalid("backend", "reserved: choose another name"));
        }
        Ok(Self(text.into()))
    }
}

text_id!(BackendName, parse);

/// How a backend is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum BackendAddress {
    /// A program that speaks MCP on its stdin and stdout.
    Command {
        /// The program: a path, or a name that is looked up in `PATH`.
        command: String,
        args: Vec<String>,
        /// Variables of its environment. Values may name variables and files: `${VAR}`, `${VAR:-default}`, `${file:PATH}`.
        env: BTreeMap<String, String>,
        /// Variables that are taken from the broker's environment as they are.
        pass_env: Vec<String>,
        /// The working directory; `~` is the home of the broker's user.
        cwd: Option<String>,
    },
    /// A server over Streamable HTTP, HTTP+SSE or a WebSocket.
    Url {
        /// `http://`, `https://`, `ws://` or `wss://`, with references as in `env`.
        url: String,
        /// Headers of every request, with values as in `env`.
        headers: BTreeMap<String, String>,
        /// The transport over HTTP, if it is not to be found out.
        transport: Option<HttpTransport>,
    },
}

/// How messages go to a server over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP (2025-03-26 and later).
    Streamable,
    /// HTTP+SSE (2024-11-05).
    Sse,
}

/// Without the values of variables and headers, which may be secrets.
impl fmt::Debug for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { command, args, .. } => f.debug_tuple("Command").field(command).field(args).finish(),
            Self::Url { url, .. } => f.debug_tuple("Url").field(url).finish(),
        }
    }
}

/// The generation of MCP that a backend speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendEra {
    /// 2025-11-25 and before: it begins with `initialize`.
    Legacy,
    /// 2026-07-28: each request is complete in itself.
    Modern,
}

/// When a backend is started again after it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartChoice {
    /// Always, with pauses that grow.
    #[default]
    Always,
    /// Never by itself.
    Never,
}

/// When a backend is started first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartChoice {
    /// By the first call, if it is known what the backend offers.
    #[default]
    Lazy,
    /// With the broker.
    Eager,
}

words! {
    /// Where a backend is described.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum BackendOrigin {
        /// In the configuration file.
        #[default]
        File = "file",
        /// In the storage: an administrator has added it.
        Added = "added",
    }
}

/// Which tools of a backend are offered, and what holds for single ones, by their original names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolChoice {
    /// Patterns of tools that are offered; empty for all.
    pub allow: Vec<String>,
    /// Patterns of tools that are not offered, even if `allow` names them.
    pub deny: Vec<String>,
    /// Other names for tools: from the original to the offered one.
    pub rename: BTreeMap<String, String>,
    /// Other texts for tools.
    pub overrides: BTreeMap<String, ToolOverride>,
    /// How long calls of tools may take, where that differs from the other calls of the backend.
    pub timeouts: BTreeMap<String, CallTimeouts>,
}

/// Texts that are listed in place of those of the backend. Without one, the text of the backend stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOverride {
    pub title: Option<String>,
    pub description: Option<String>,
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimeouts {
    /// Without a sign of life.
    pub silent: Duration,
    /// Altogether. Not less than [`Self::silent`].
    pub total: Duration,
}

impl ToolChoice {
    /// Whether a tool of this original name is offered.
    pub fn offers(&self, tool: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches_pattern(pattern, tool));
        (self.allow.is_empty() || any(&self.allow)) && !any(&self.deny)
    }
}

/// Whether a name matches a pattern, in which `*` matches any characters. Takes time in proportion to the product of
/// their lengths.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What the configuration says of one backend.
#[allow(clippy::struct_excessive_bools, reason = "each says something else of the backend")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    pub name: BackendName,
    pub origin: BackendOrigin,
    pub address: BackendAddress,
    /// It is not started and not listed.
    pub is_disabled: bool,
    /// It is stopped after this time without a call; `None` to keep it.
    pub stop_when_idle: Option<Duration>,
    /// Calls that run in it at the same time; further ones wait their turn.
    pub concurrency: usize,
    /// How long a call may take without a sign of life.
    pub call_timeout: Duration,
    /// How long a call may take altogether.
    pub call_timeout_max: Duration,
    /// How long the backend may take to start.
    pub start_timeout: Duration,
    /// Bytes of one message of the backend. A longer one is skipped.
    pub result_bytes_max: usize,
    pub start: StartChoice,
    pub restart: RestartChoice,
    /// Patterns of files from which the program is made. When one of them changes, the program is started again.
    pub watch: Vec<String>,
    /// A file counts as changed when it was written, even if it has the same content.
    pub watches_writes: bool,
    /// A changed program is started next to the running one, and takes its place once it is ready.
    pub hands_over: bool,
    /// The era, if it is not to be found out.
    pub era: Option<BackendEra>,
    /// Whether it may ask the callers of its calls for input. `None`: if it is modern, where that costs nothing.
    pub asks: Option<bool>,
    /// Instances of a backend that not all calls share, the main one included.
    pub instances_max: Option<usize>,
    pub sharing: Sharing,
    /// Its instructions are shown to clients.
    pub shows_instructions: bool,
    pub tools: ToolChoice,
    pub limits: ProcessLimits,
}

/// Which callers share an instance of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All callers of the project.
    Project,
    /// Those with the same key.
    Key,
    /// Those that act as the same session, or on the same connection.
    Session,
}

/// Limits of the process of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Bytes of its address space.
    pub memory_bytes: Option<u64>,
    /// Processes of its user.
    pub processes: Option<u64>,
    pub open_files: Option<u64>,
    pub cpu_seconds: Option<u64>,
}

impl BackendConfig {
    /// A backend with the defaults of all settings.
    pub fn new(name: BackendName, address: BackendAddress) -> Self {
        Self {
            name,
            origin: BackendOrigin::File,
            address,
            is_disabled: false,
            stop_when_idle: None,
            concurrency: 64,
            call_timeout: Duration::from_secs(60),
            call_timeout_max: Duration::from_secs(600),
            start_timeout: Duration::from_secs(60),
            result_bytes_max: 10 * 1024 * 1024,
            start: StartChoice::Lazy,
            restart: RestartChoice::Always,
            watch: Vec::new(),
            watches_writes: false,
            hands_over: true,
            era: None,
            asks: None,
            instances_max: None,
            sharing: Sharing::Project,
            shows_instructions: true,
            tools: ToolChoice::default(),
            limits: ProcessLimits::default(),
        }
    }

    /// Instances of a backend that not all calls share, the main one included. A single one of a legacy backend that may ask
    /// serves all callers.
    pub fn instances_max(&self) -> usize {
        self.instances_max.unwrap_or(match self.sharing {
            Sharing::Project => 4,
            Sharing::Key | Sharing::Session => 32,
        })
    }

    /// How long a call of the tool of this original name may take, or without one a call of anything else.
    pub fn call_timeouts(&self, tool: Option<&str>) -> CallTimeouts {
        let of_tool = tool.and_then(|tool| self.tools.timeouts.get(tool));
        of_tool.copied().unwrap_or(CallTimeouts {
            silent: self.call_timeout,
            total: self.call_timeout_max,
        })
    }

    /// Whether it is started with the broker in any case: people work on the files that are watched.
    pub fn starts_with_broker(&self) -> bool {
        self.start == StartChoice::Eager || !self.watch.is_empty()
    }
}

/// The backends of all projects, as the configuration has them: each list is sorted by name.
pub type BackendsConfig = BTreeMap<super::ProjectId, Vec<Arc<BackendConfig>>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_and_not_reserved() {
        for good in ["a", "github", "my-server-2", &"x".repeat(32)] {
            assert_eq!(BackendName::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a_b",
            "a b",
            "broker",
            "mcp",
            "all",
            &"x".repeat(33),
        ] {
            assert!(BackendName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn denied_tools_are_not_offered_even_if_they_are_allowed() {
        let choice = ToolChoice {
            allow: vec!["get_*".to_owned(), "*_list*_all".to_owned()],
            deny: vec!["get_secret".to_owned(), "*!*".to_owned()],
            ..ToolChoice::default()
        };
        for (tool, offered) in [
            ("get_file", true),
            ("get_", true),
            ("get_secret", false),
            ("get_x!", false),
            ("do_list_them_all", true),
            ("_list_all", true),
            ("_list", false),
            ("set_file", false),
        ] {
            assert_eq!(choice.offers(tool), offered, "{tool}");
        }
        assert!(ToolChoice::default().offers("anything"));
    }

    #[test]
    fn the_text_for_logs_shows_no_values_of_variables() {
        let address = BackendAddress::Command {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned()],
            env: BTreeMap::from([("TOKEN".to_owned(), "secret".to_owned())]),
            pass_env: Vec::new(),
            cwd: None,
        };
        assert_eq!(format!("{address:?}"), "Command(\"npx\", [\"-y\"])");
    }
}
