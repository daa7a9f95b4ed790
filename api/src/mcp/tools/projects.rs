//! The tools that administer projects. Each calls the administration, which checks permissions and writes the audit
//! log.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actors::model::{BrokerError, KeyId, NewProject, ProjectConfig, ProjectId, ProtocolName, Scope};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    schema::{cursor_schema, integer_schema, string_schema, strings_schema},
    tool::{ADDITIVE, Called, DESTRUCTIVE, IDEMPOTENT, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    auth::Identity,
    mcp::reply::ToolResult,
    verbs::administration::{Administration, GRACE_MAX, ProjectFilter},
    verbs::arguments::Arguments,
};

const CONFIG_LEN_MAX: usize = 4096;

fn project_id_schema() -> Value {
    string_schema("Lower-case letters, digits and '-'; 63 characters at most.")
}

fn config_schema() -> Value {
    let limit = |description: &str| json!({"type": ["integer", "null"], "minimum": 1, "description": description});
    json!({
        "type": "object",
        "description": "Opt-ins and limits.",
        "properties": {
            "allow_cross_project": {
                "type": "boolean", "default": false,
                "description": "Messages to and from other projects, where a permission allows them.",
            },
            "discoverable": {"type": "boolean", "default": false, "description": "Others see that it exists."},
            "max_sessions": limit("Sessions it may have."),
            "max_protocols": limit("Protocols it may have."),
            "queue_capacity": limit("Messages that may wait for one session."),
            "rate_limit": integer_schema("Requests per minute of all its callers together; 0 is no limit."),
        },
    })
}

fn project_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "project_id": string_schema(""), "name": string_schema(""), "description": {"type": ["string", "null"]},
            "tags": strings_schema(""), "active": {"type": "boolean"}, "created_at": string_schema(""), "config": {"type": "object"},
        },
        "required": ["project_id", "name", "tags", "active", "created_at"],
    })
}

fn permission_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "target_project_id": string_schema(""), "allowed_protocols": strings_schema(""),
            "message_rate_limit": integer_schema(""), "granted_at": string_schema(""),
        },
        "required": ["target_project_id", "allowed_protocols", "message_rate_limit", "granted_at"],
    })
}

fn api_keys_schema() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"key_id": string_schema(""), "api_key": string_schema("")},
            "required": ["key_id", "api_key"],
        },
    })
}

/// A tool that calls the administration.
fn admin_call<T: Serialize>(
    caller: &ToolCaller,
    call: impl AsyncFnOnce(&Administration, &Arc<Identity>) -> Result<T, BrokerError> + 'static,
) -> Called {
    Called::page(caller, async move |caller| {
        let context = &caller.context;
        let result = call(&context.service.admin, &context.identity).await?;
        to_tool_result(&result)
    })
}

fn to_tool_result(result: &impl Serialize) -> Result<ToolResult, BrokerError> {
    // Plain objects always serialize.
    let value = serde_json::to_value(result).map_err(|_| BrokerError::unavailable())?;
    Ok(value.into())
}

fn parse_id(arguments: &mut Arguments<'_>, name: &str) -> Result<Option<ProjectId>, BrokerError> {
    let text = arguments.text(name)?;
    let parsed = text.map(|text| ProjectId::parse(&text)).transpose();
    parsed.map_err(|error| with_field(error, name))
}

/// Replaces the name of the argument in an error.
fn with_field(error: BrokerError, name: &str) -> BrokerError {
    match error {
        BrokerError::InvalidArgument { reason, .. } => BrokerError::invalid(name, reason),
        other => other,
    }
}

fn parse_required_id(arguments: &mut Arguments<'_>, name: &str) -> Result<ProjectId, BrokerError> {
    parse_id(arguments, name)?.ok_or_else(|| BrokerError::invalid(name, "required"))
}

/// `create_project`.
pub const CREATE_PROJECT: Tool = Tool {
    name: "create_project",
    title: "Create a project",
    description: "Make a project of its own, with its own sessions, protocols and keys. The result has its first key, \
                  which administers it and is shown this one time.",
    hints: ADDITIVE,
    required_scope: Scope::Operator,
    input: || {
        let properties = json!({
            "project_id": project_id_schema(), "name": string_schema("For people."), "description": string_schema("For people."),
            "tags": strings_schema("To be found by."),
            "config": config_schema(),
        });
        (properties, &["project_id", "name"])
    },
    output: || {
        let properties = json!({"project": project_schema(), "api_keys": api_keys_schema()});
        (properties, &["project", "api_keys"])
    },
    acts_as_session: false,
    exclusive: false,
    run: |caller, mut arguments, _| {
        let wanted = NewProject {
            id: parse_required_id(&mut arguments, "project_id")?,
            name: arguments.required_text("name")?.into_owned(),
            description: arguments.text("description")?.map(std::borrow::Cow::into_owned),
            tags: arguments.optional("tags")?.unwrap_or_default(),
            config: arguments
                .optional_object::<ProjectConfig>("config", CONFIG_LEN_MAX)?
                .unwrap_or_default(),
        };
        arguments.finish()?;
        Ok(admin_call(caller, async move |admin, by| {
            admin.create(by, wanted).await
        }))
    },
};

/// `list_projects`.
pub const LIST_PROJECTS: Tool = Tool {
    name: "list_projects",
    title: "List projects",
    description: "Your own project, and those that want to be found.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || {
        let properties = json!({
            "include_inactive": {"type": "boolean", "description": "Deleted ones too."},
            "tags": strings_schema("All of these."),
            "cursor": cursor_schema(),
        });
        (properties, &[])
    },
    output: || {
        (
            json!({"projects": {"type": "array", "items": project_schema()}, "next_cursor": string_schema("")}),
            &["projects"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: |caller, mut arguments, _| {
        let include_inactive = arguments.optional::<bool>("include_inactive")?.unwrap_or(false);
        let tags = arguments.optional::<BTreeSet<String>>("tags")?.unwrap_or_default();
        let after = parse_id(&mut arguments, "cursor")?;
        arguments.finish()?;
        let filter = ProjectFilter {
            include_inactive,
            tags,
            text: None,
            after,
        };
        Ok(admin_call(caller, async move |admin, by| Ok(admin.list(by, &filter))))
    },
};

/// `get_project_info`.
pub const GET_PROJECT_INFO: Tool = Tool {
    name: "get_project_info",
    title: "Project",
    description: "What a project holds, and to which others it may send.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || (json!({"project_id": string_schema("Default: your own.")}), &[]),
    output: || {
        let counts = json!({
            "type": "object",
            "properties": {
                "sessions": integer_schema(""), "active_sessions": integer_schema(""), "protocols": integer_schema(""),
                "dead_letters": integer_schema(""), "keys": integer_schema(""),
            },
        });
        let properties = json!({
            "project": project_schema(), "counts": counts, "permissions": {"type": "array", "items": permission_schema()},
            "more_permissions": {"type": "boolean"},
        });
        (properties, &["project"])
    },
    acts_as_session: false,
    exclusive: false,
    run: |caller, mut arguments, _| {
        let id = parse_id(&mut arguments, "project_id")?;
        arguments.finish()?;
        Ok(admin_call(caller, async move |admin, by| {
            admin.show(by, id.as_ref()).await
        }))
    },
};

/// `rotate_project_keys`.
pub const ROTATE_PROJECT_KEYS: Tool = Tool {
    name: "rotate_project_keys",
    title: "Rotate keys",
    description: "Put a new key in the place of one, or of all of a project. The old ones stop being good at once, or \
                  after a grace period. Connections that came in with them are closed then.",
    hints: DESTRUCTIVE,
    required_scope: Scope::Admin,
    input: || {
        let properties = json!({
            "project_id": string_schema("Default: your own."),
            "key_id": string_schema("Only this key."),
            "grace_period_seconds": {
                "type": "integer", "minimum": 0, "maximum": GRACE_MAX.as_secs(), "default": 0,
                "description": "How long the old ones stay good.",
            },
        });
        (properties, &[])
    },
    output: || {
        let revoked = json!({
            "type": "object",
            "properties": {"key_id": string_schema(""), "at": string_schema("")},
            "required": ["key_id", "at"],
        });
        let properties = json!({"api_keys": api_keys_schema(), "revoked": {"type": "array", "items": revoked}});
        (properties, &["api_keys", "revoked"])
    },
    acts_as_session: false,
    exclusive: false,
    run: |caller, mut arguments, _| {
        let id = parse_id(&mut arguments, "project_id")?.unwrap_or_else(|| caller.project().id().clone());
        let key = arguments.text("key_id")?.map(|text| KeyId::parse(&text)).transpose()?;
        let most = usize::try_from(GRACE_MAX.as_secs()).unwrap_or(usize::MAX);
        let grace = arguments.bounded("grace_period_seconds", 0, 0, most)?;
        arguments.finish()?;
        let grace = Duration::from_secs(grace as u64);
        Ok(admin_call(caller, async move |admin, by| {
            admin.rotate(by, &id, key, grace).await
        }))
    },
};

/// `grant_project_access`.
pub const GRANT_PROJECT_ACCESS: Tool = Tool {
    name: "grant_project_access",
    title: "Let this project send to another",
    description: "Let the sessions of your project send messages to another (recipient name@project). Both projects \
                  must allow messages between projects.",
    hints: IDEMPOTENT,
    required_scope: Scope::Admin,
    input: || {
        let properties = json!({
            "target_project_id": string_schema("The project that may be sent to."),
            "allowed_protocols": strings_schema("Names of protocols; empty: all."),
            "message_rate_limit": integer_schema("Messages per minute; 0 is no limit."),
        });
        (properties, &["target_project_id"])
    },
    output: || {
        let warnings = strings_schema("");
        (
            json!({"permission": permission_schema(), "warnings": warnings}),
            &["permission", "warnings"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: |caller, mut arguments, _| {
        let target = parse_required_id(&mut arguments, "target_project_id")?;
        let protocols = arguments
            .optional::<BTreeSet<ProtocolName>>("allowed_protocols")?
            .unwrap_or_default();
        let rate = arguments.optional::<u32>("message_rate_limit")?.unwrap_or(0);
        arguments.finish()?;
        let id = caller.project().id().clone();
        Ok(admin_call(caller, async move |admin, by| {
            admin.grant(by, &id, target, protocols, rate).await
        }))
    },
};

/// `revoke_project_access`.
pub const REVOKE_PROJECT_ACCESS: Tool = Tool {
    name: "revoke_project_access",
    title: "Take a permission back",
    description: "The sessions of your project may no longer send to that other project.",
    hints: IDEMPOTENT,
    required_scope: Scope::Admin,
    input: || {
        (
            json!({"target_project_id": string_schema("The other project.")}),
            &["target_project_id"],
        )
    },
    output: || {
        let revoked = json!({"type": "boolean"});
        (json!({"revoked": revoked}), &["revoked"])
    },
    acts_as_session: false,
    exclusive: false,
    run: |caller, mut arguments, _| {
        let target = parse_required_id(&mut arguments, "target_project_id")?;
        arguments.finish()?;
        let id = caller.project().id().clone();
        Ok(admin_call(caller, async move |admin, by| {
            admin.revoke_grant(by, &id, &target).await
        }))
    },
};
