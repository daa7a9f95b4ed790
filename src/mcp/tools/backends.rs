//! The tools `list_backends` and `restart_backend`, which a project with backends offers.

use actors::{
    gateway::BackendCommand,
    model::{BrokerError, Scope},
    project::Lookup,
};
use serde_json::{Value, json};

use super::{
    schema::{integer_schema, string_schema},
    tool::{DESTRUCTIVE, READ_ONLY, Run, Tool, ToolCaller},
};
use crate::{
    mcp::reply::ToolResult,
    verbs::{arguments::Arguments, backends},
};

fn backend_properties() -> Value {
    json!({
        "name": string_schema(""), "state": string_schema(""), "since": string_schema(""), "reason": string_schema(""),
        "retry_after_ms": integer_schema(""), "era": string_schema(""), "server": string_schema(""),
        "tools": integer_schema(""), "calls": integer_schema(""), "failures": integer_schema(""),
    })
}

const BACKEND_REQUIRED: &[&str] = &["name", "state", "since"];

/// `list_backends`.
pub const LIST_BACKENDS: Tool = Tool {
    name: "list_backends",
    title: "List backends",
    description: "The MCP servers behind the gateway and their states.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || (json!({"name": string_schema("Only this one.")}), &[]),
    output: || {
        let backend = json!({"type": "object", "properties": backend_properties(), "required": BACKEND_REQUIRED});
        (json!({"backends": {"type": "array", "items": backend}}), &["backends"])
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Sync(list_backends),
};

fn list_backends(caller: &ToolCaller, mut arguments: Arguments<'_>) -> Result<Lookup<ToolResult>, BrokerError> {
    let name = arguments.text("name")?;
    arguments.finish()?;
    let found = match &name {
        Some(name) => vec![backends::summary(&caller.project, name)?],
        None => backends::summaries(&caller.project),
    };
    Ok(Lookup::Ready(Ok(json!({"backends": found}).into())))
}

/// `restart_backend`.
pub const RESTART_BACKEND: Tool = Tool {
    name: "restart_backend",
    title: "Restart a backend",
    description: "End an MCP server behind the gateway and start it again. Its open calls fail.",
    hints: DESTRUCTIVE,
    required_scope: Scope::Admin,
    input: || (json!({"name": string_schema("From list_backends.")}), &["name"]),
    output: || (backend_properties(), BACKEND_REQUIRED),
    acts_as_session: false,
    exclusive: false,
    run: Run::Sync(restart_backend),
};

fn restart_backend(caller: &ToolCaller, mut arguments: Arguments<'_>) -> Result<Lookup<ToolResult>, BrokerError> {
    let name = arguments.required_text("name")?;
    arguments.finish()?;
    let context = &caller.context;
    let command = BackendCommand::Restart;
    context
        .service
        .admin
        .command_backend(&context.identity, &name, command, || {
            backends::command(&caller.project, &name, command)
        })?;
    Ok(Lookup::Ready(Ok(backends::summary(&caller.project, &name)?.into())))
}
