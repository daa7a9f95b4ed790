//! Calls tools of a local broker over its socket.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cli::error::CliError;
use crate::front;
use crate::local::{
    AttachError, Instance, LineClient, LocalPaths, RequestError, StartPolicy, attach,
    hello::{Hello, HelloResult},
};

/// Longest wait for the answer to a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for an answer that comes at once.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Most pages of the list of tools.
const PAGES_MAX: usize = 100;

/// A connection to a broker.
pub struct Caller {
    client: LineClient,
    /// What the broker says of itself.
    pub broker: HelloResult,
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
    /// The object of the result, or its content if it has no object.
    pub value: Value,
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
    pub fn connect(instance: &Instance) -> Result<Self, CliError> {
        let paths = LocalPaths::look_up(instance)?;
        let hello = Hello::of_this_process("command");
        let attached = match attach(&paths, &hello, StartPolicy::NoStart, Instant::now() + HELLO_TIMEOUT) {
            Err(AttachError::NotRunning { .. }) => return Err(not_running(instance)),
            result => result?,
        };
        let mut caller = Self {
            client: LineClient::new(attached.stream),
            broker: attached.hello,
            tools: Vec::new(),
        };
        caller.tools = caller.list_tools().map_err(|error| failed("tools/list", &error))?;
        Ok(caller)
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

    /// The tools of the broker.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tool of a name.
    ///
    /// # Errors
    /// The broker has no such tool; the text names the nearest one.
    pub fn tool(&self, name: &str) -> Result<&Tool, String> {
        self.tools.iter().find(|tool| tool.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
            let near = crate::config::nearest_name(name, &names);
            let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            format!("the broker has no tool {name:?}{hint}")
        })
    }

    /// Calls a tool.
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
        let mut result = self.client.request("tools/call", &params, timeout)?;
        let object = result["structuredContent"].take();
        Ok(Answer {
            is_error: result["isError"] == true,
            value: if object.is_null() {
                result["content"].take()
            } else {
                object
            },
        })
    }
}

/// Says how to start the broker.
pub fn not_running(instance: &Instance) -> CliError {
    CliError::NotRunning(format!(
        "{instance} does not run; {} starts it",
        instance.command_line("start")
    ))
}

/// The line for a request without a result.
pub fn failed(what: &str, error: &RequestError) -> CliError {
    let line = match error {
        RequestError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            format!("{what}: the broker did not answer in time; --timeout allows more")
        }
        RequestError::Io(error) => {
            format!("{what}: the broker closed the connection, and it may be done or not ({error})")
        }
        RequestError::Refused { .. } => format!("{what}: {error}"),
    };
    CliError::Failed(crate::config::one_line(&line))
}
