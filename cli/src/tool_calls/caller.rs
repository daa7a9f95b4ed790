//! A connection to a broker for calls of tools: one frame a line, over the socket of a broker of this user or over
//! WebSocket.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::access::{BrokerAccess, BrokerFlags, EnvVars};
use crate::connect::RemoteDial;
use crate::error::CliError;
use crate::mcp_client::{CallError, CallResult, INVALID_PARAMS, hello};
use crate::usage_errors::refused;
use common::config::{API_KEY_ENV, nearest_name, one_line};
use common::user_broker::{
    AttachError, Instance, LineClient, LocalPaths, RequestError, StartPolicy, attach, hello::Hello,
};

/// Longest wait for the answer to a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for an answer that comes at once.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Most pages of the list of tools.
const PAGES_MAX: usize = 100;
/// Which broker is called.
#[derive(Debug, Clone)]
pub enum Target {
    /// The broker of this user if it runs, else the one at the address of the default.
    OfUser(BrokerAccess),
    /// A broker of this user, or one for development.
    Instance(Instance),
    /// A broker at an address.
    Url(BrokerAccess),
}

impl Target {
    /// The broker that the flags name; without one that of the user.
    ///
    /// # Errors
    /// [`CliError::Usage`] with one line for the user.
    pub fn of(flags: &BrokerFlags, env: &EnvVars) -> Result<Self, CliError> {
        let access = BrokerAccess::read(flags, env).map_err(refused)?;
        Ok(if access.url.is_default() {
            Self::OfUser(access)
        } else {
            Self::Url(access)
        })
    }

    /// Says that it does not run, and what to do.
    pub fn not_running(&self) -> CliError {
        CliError::NotRunning(match self {
            Self::OfUser(access) => format!(
                "your broker does not run, and {} cannot be reached; {} starts it, --url names another",
                access.url.text,
                Instance::default().command_line("start")
            ),
            Self::Instance(instance) => {
                format!("{instance} does not run; {} starts it", instance.command_line("start"))
            }
            Self::Url(access) => format!("{} has closed the connection", access.url.text),
        })
    }

    /// The instance whose state folder has the history of a prompt.
    pub fn instance(&self) -> Instance {
        match self {
            Self::Instance(instance) => instance.clone(),
            Self::OfUser(_) | Self::Url(_) => Instance::default(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfUser(_) => Instance::default().fmt(formatter),
            Self::Instance(instance) => instance.fmt(formatter),
            Self::Url(access) => formatter.write_str(&access.url.text),
        }
    }
}

/// A connection to a broker.
pub struct Caller {
    client: LineClient,
    /// What the broker says of itself, as names and values.
    pub about: Vec<(&'static str, String)>,
    tools: Vec<Tool>,
}

/// A tool as the broker lists it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub input_schema: Value,
}

/// The answer of a tool.
#[derive(Debug)]
pub struct Answer {
    pub is_error: bool,
    /// The object of the result, or its content if it has no object. Numbers keep their digits.
    pub value: Box<RawValue>,
}

/// Adds what the list for agents leaves out: the broker's own tools can be called by name, with all of their arguments.
fn with_unlisted(mut listed: Vec<Tool>) -> Vec<Tool> {
    let own: Vec<Tool> = serde_json::from_value(front::own_tools()).unwrap_or_default();
    for tool in own {
        match listed.iter_mut().find(|known| known.name == tool.name) {
            Some(known) => *known = tool,
            None => listed.push(tool),
        }
    }
    listed
}

impl Caller {
    /// Connects to a broker that runs.
    ///
    /// # Errors
    /// [`CliError::NotRunning`], or why it cannot be used.
    pub fn connect(target: &Target) -> Result<Self, CliError> {
        let mut caller = match target {
            Target::Instance(instance) => Self::over_socket(instance)?.ok_or_else(|| target.not_running())?,
            Target::Url(access) => Self::over_websocket(access)?,
            Target::OfUser(access) => match Self::over_socket(&Instance::default())? {
                Some(caller) => caller,
                None => Self::over_websocket(access).map_err(|_| target.not_running())?,
            },
        };
        caller.tools = caller
            .list_tools()
            .map_err(|error| caller.failure("tools/list", &error))?;
        Ok(caller)
    }

    /// `None` if the broker does not run.
    fn over_socket(instance: &Instance) -> Result<Option<Self>, CliError> {
        let paths = LocalPaths::look_up(instance)?;
        let hello = Hello::of_this_process("command");
        let attached = match attach(&paths, &hello, StartPolicy::NoStart, Instant::now() + HELLO_TIMEOUT) {
            Err(AttachError::NotRunning { .. }) => return Ok(None),
            result => result?,
        };
        let broker = attached.hello;
        let version = format!(
            "{}, process {}, since {}",
            broker.version, broker.pid, broker.started_at
        );
        Ok(Some(Self {
            client: LineClient::new(attached.stream),
            about: vec![
                ("version", version),
                ("http", broker.http.unwrap_or_else(|| "none".to_owned())),
            ],
            tools: Vec::new(),
        }))
    }

    fn over_websocket(access: &BrokerAccess) -> Result<Self, CliError> {
        let dial = RemoteDial { access: access.clone() };
        let url = &access.url.text;
        let stream = dial.open().map_err(|error| {
            CliError::Failed(one_line(&match error {
                CallError::KeyNeeded => {
                    format!("authentication_failed: {url} asks for a key; set {API_KEY_ENV} or use --key-file")
                }
                error => format!("{url}: {error}; is it running? see --url"),
            }))
        })?;
        let mut client = LineClient::new(stream);
        let introduced = client.request("initialize", &hello(), HELLO_TIMEOUT);
        let introduced = introduced.and_then(|result| {
            client.notify("notifications/initialized")?;
            Ok(result)
        });
        let introduced = introduced.map_err(|error| CliError::Failed(one_line(&format!("{url}: {error}"))))?;
        let version = introduced["serverInfo"]["version"].as_str().unwrap_or("unknown");
        Ok(Self {
            client,
            about: vec![("version", version.to_owned())],
            tools: Vec::new(),
        })
    }

    fn list_tools(&mut self) -> Result<Vec<Tool>, RequestError> {
        let mut tools = Vec::new();
        let mut params = json!({});
        for _ in 0..PAGES_MAX {
            let mut page = self.client.request("tools/list", &params, LIST_TIMEOUT)?;
            let listed: Vec<Tool> = serde_json::from_value(page["tools"].take()).map_err(std::io::Error::from)?;
            tools.extend(listed);
            match page["nextCursor"].take() {
                Value::Null => break,
                cursor => params = json!({ "cursor": cursor }),
            }
        }
        Ok(with_unlisted(tools))
    }

    /// The tools that the broker lists, and its own that the list for agents leaves out.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The listed tool of a name.
    ///
    /// # Errors
    /// The broker lists no such tool; the text names the nearest one.
    pub fn tool(&self, name: &str) -> Result<&Tool, String> {
        let tool = self.tools.iter().find(|tool| tool.name == name);
        tool.ok_or_else(|| self.no_tool(name))
    }

    /// The schema of the arguments of a tool; null for one that is not listed.
    pub fn schema_of(&self, name: &str) -> &Value {
        let tool = self.tools.iter().find(|tool| tool.name == name);
        tool.map_or(&Value::Null, |tool| &tool.input_schema)
    }

    fn no_tool(&self, name: &str) -> String {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        let near = nearest_name(name, &names);
        let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        format!("the broker has no tool {name:?}{hint}")
    }

    /// Calls a tool, listed or not.
    ///
    /// # Errors
    /// The broker refuses the request, or does not answer it.
    pub fn call(
        &mut self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
    ) -> Result<Answer, RequestError> {
        let params = json!({"name": tool, "arguments": arguments});
        let result = self.client.request_text("tools/call", &params, timeout)?;
        let result: CallResult = serde_json::from_str(result.get()).map_err(std::io::Error::from)?;
        let value = result.structured_content.or(result.content).unwrap_or_default();
        Ok(Answer {
            is_error: result.is_error,
            value,
        })
    }

    /// What a request without a result means for the user.
    pub fn failure(&self, what: &str, error: &RequestError) -> CliError {
        let line = match error {
            RequestError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                format!("{what}: the broker did not answer in time; --timeout allows more")
            }
            RequestError::Io(error) => {
                format!(
                    "{what}: the broker closed the connection, and the call may have been carried out or not ({error})"
                )
            }
            RequestError::Refused { code, message }
                if *code == INVALID_PARAMS && message.starts_with("Unknown tool") =>
            {
                return CliError::Usage(one_line(&self.no_tool(what)));
            }
            RequestError::Refused { .. } => format!("{what}: {error}"),
        };
        CliError::Failed(one_line(&line))
    }
}
