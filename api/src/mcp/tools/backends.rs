//! The tools `list_backends`, `restart_backend` and `remove_backend`, which a project with backends offers, and
//! `add_backend`.

use actors::{
    gateway::BackendCommand,
    model::{BrokerError, Scope},
};
use serde_json::{Value, json};

use super::{
    schema::{integer_schema, string_schema, strings_schema},
    tool::{ADDITIVE, Called, DESTRUCTIVE, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    mcp::reply::ReplyTo,
    verbs::{added_backends, arguments::Arguments, backends},
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
    run: list_backends,
};

fn list_backends(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let name = arguments.text("name")?;
    arguments.finish()?;
    let found = match &name {
        Some(name) => vec![backends::summary(caller.project(), name)?],
        None => backends::summaries(caller.project()),
    };
    Ok(Called::Answered(json!({"backends": found}).into()))
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
    run: restart_backend,
};

fn restart_backend(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let name = arguments.required_text("name")?;
    arguments.finish()?;
    let context = &caller.context;
    let command = BackendCommand::Restart;
    context
        .service
        .admin
        .command_backend(&context.identity, &name, command, || {
            backends::command(caller.project(), &name, command)
        })?;
    Ok(Called::Answered(backends::summary(caller.project(), &name)?.into()))
}

/// `add_backend`. Its list of arguments leaves out most keys: each is paid for in tokens.
pub const ADD_BACKEND: Tool = Tool {
    name: "add_backend",
    title: "Add a backend",
    description: "Put another MCP server behind the gateway. Further keys of docs/gateway-reference.md are arguments too.",
    hints: ADDITIVE,
    required_scope: Scope::Admin,
    input: || {
        let values = |description: &str| json!({"type": "object", "additionalProperties": {"type": "string"}, "description": description});
        let properties = json!({
            "name": string_schema("a-z, 0-9 and '-'; 32 characters at most."),
            "url": string_schema("A server, or instead:"), "command": string_schema("A program, if the broker allows it."),
            "args": strings_schema("Of the program."), "env": values("Of the program."), "headers": values("For the url."),
        });
        (properties, &["name"])
    },
    output: || (backend_properties(), BACKEND_REQUIRED),
    acts_as_session: false,
    exclusive: false,
    run: add_backend,
};

fn add_backend(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let name = arguments.required_text("name")?.into_owned();
    let table = added_backends::table_of(arguments)?;
    Ok(Called::later(caller, async move |caller| {
        let context = &caller.context;
        let (admin, added) = (&context.service.admin, name.clone());
        let change = admin.change_backends(&context.identity, "backend.add", &name, async move |project| {
            added_backends::add(project, &added, table).await
        });
        change.await?;
        let added = backends::summary(caller.project(), &name);
        Ok(added.map_err(|_| BrokerError::unavailable())?.into())
    }))
}

/// `remove_backend`.
pub const REMOVE_BACKEND: Tool = Tool {
    name: "remove_backend",
    title: "Remove a backend",
    description: "Remove an MCP server that add_backend has added.",
    hints: DESTRUCTIVE,
    required_scope: Scope::Admin,
    input: || (json!({"name": string_schema("From list_backends.")}), &["name"]),
    output: || (json!({"removed": string_schema("")}), &["removed"]),
    acts_as_session: false,
    exclusive: false,
    run: remove_backend,
};

fn remove_backend(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let name = arguments.required_text("name")?.into_owned();
    arguments.finish()?;
    Ok(Called::later(caller, async move |caller| {
        let context = &caller.context;
        let (admin, removed) = (&context.service.admin, name.clone());
        let change = admin.change_backends(&context.identity, "backend.remove", &name, async move |project| {
            added_backends::remove(project, &removed).await
        });
        change.await?;
        Ok(json!({"removed": name}).into())
    }))
}
