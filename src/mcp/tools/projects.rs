use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actors::model::{BrokerError, KeyId, NewProject, ProjectConfig, ProjectId, ProtocolName, Scope};
use serde::Serialize;
use serde_json::{Value, json};

use super::{ADDS, Arguments, Caller, LOOKS, Pending, Run, SETS, TAKES, Tool, count, cursor, text, words};
use crate::{
    admin::{Administration, GRACE_MAX, ProjectFilter},
    auth::Identity,
    mcp::reply::Answer,
};

const CONFIG_LEN_MAX: usize = 4096;

fn project_id() -> Value {
    text("Lower-case letters, digits and '-'; 63 characters at most.")
}

fn config() -> Value {
    let limit = |description: &str| json!({"type": ["integer", "null"], "minimum": 1, "description": description});
    json!({
        "type": "object",
        "description": "Opt-ins and limits.",
        "properties": {
            "allow_cross_project": {
                "type": "boolean", "default": false,
                "description": "Messages to and from other projects, where a permission says so.",
            },
            "discoverable": {"type": "boolean", "default": false, "description": "Others see that it exists."},
            "max_sessions": limit("Sessions it may have."),
            "max_protocols": limit("Protocols it may have."),
            "queue_capacity": limit("Messages that may wait for one session."),
            "rate_limit": count("Requests per minute of all its callers together; 0 is no limit."),
        },
    })
}

fn project() -> Value {
    json!({
        "type": "object",
        "properties": {
            "project_id": text(""), "name": text(""), "description": {"type": ["string", "null"]},
            "tags": words(""), "active": {"type": "boolean"}, "created_at": text(""), "config": {"type": "object"},
        },
        "required": ["project_id", "name", "tags", "active", "created_at"],
    })
}

fn permission() -> Value {
    json!({
        "type": "object",
        "properties": {
            "target_project_id": text(""), "allowed_protocols": words(""),
            "message_rate_limit": count(""), "granted_at": text(""),
        },
        "required": ["target_project_id", "allowed_protocols", "message_rate_limit", "granted_at"],
    })
}

fn api_keys() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"key_id": text(""), "api_key": text("")},
            "required": ["key_id", "api_key"],
        },
    })
}

/// A call of the administration, as a tool.
fn administers<T: Serialize>(
    caller: Caller,
    call: impl AsyncFnOnce(&Administration, &Arc<Identity>) -> Result<T, BrokerError> + 'static,
) -> Pending {
    Pending::page(async move {
        let home = &caller.home;
        let result = call(&home.service.admin, &home.identity).await?;
        answer(&result)
    })
}

fn answer(result: &impl Serialize) -> Result<Answer, BrokerError> {
    // Plain objects: there is nothing that could fail.
    let value = serde_json::to_value(result).map_err(|_| BrokerError::unavailable())?;
    Ok(value.into())
}

fn parse_id(arguments: &mut Arguments<'_>, name: &str) -> Result<Option<ProjectId>, BrokerError> {
    let text = arguments.text(name)?;
    let parsed = text.map(|text| ProjectId::parse(&text)).transpose();
    parsed.map_err(|error| renamed(error, name))
}

/// The same mistake, of the argument that it is in.
fn renamed(error: BrokerError, name: &str) -> BrokerError {
    match error {
        BrokerError::InvalidArgument { reason, .. } => BrokerError::invalid(name, reason),
        other => other,
    }
}

fn required_id(arguments: &mut Arguments<'_>, name: &str) -> Result<ProjectId, BrokerError> {
    parse_id(arguments, name)?.ok_or_else(|| BrokerError::invalid(name, "required"))
}

pub const CREATE_PROJECT: Tool = Tool {
    name: "create_project",
    title: "Create a project",
    description: "Make a project of its own, with its own sessions, protocols and keys. The result has its first key, \
                  which administers it and is shown this one time.",
    hints: ADDS,
    needs: Scope::Operator,
    input: || {
        let properties = json!({
            "project_id": project_id(), "name": text("For people."), "description": text("For people."),
            "tags": words("To be found by."),
            "config": config(),
        });
        (properties, &["project_id", "name"])
    },
    output: || {
        let properties = json!({"project": project(), "api_keys": api_keys()});
        (properties, &["project", "api_keys"])
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Later(|caller, mut arguments| {
        let wanted = NewProject {
            id: required_id(&mut arguments, "project_id")?,
            name: arguments.required_text("name")?.into_owned(),
            description: arguments.text("description")?.map(std::borrow::Cow::into_owned),
            tags: arguments.optional("tags")?.unwrap_or_default(),
            config: arguments
                .object::<ProjectConfig>("config", CONFIG_LEN_MAX)?
                .unwrap_or_default(),
        };
        arguments.finish()?;
        Ok(administers(caller, async move |admin, by| {
            admin.create(by, wanted).await
        }))
    }),
};

pub const LIST_PROJECTS: Tool = Tool {
    name: "list_projects",
    title: "List projects",
    description: "Your own project, and those that want to be found.",
    hints: LOOKS,
    needs: Scope::Observer,
    input: || {
        let properties = json!({
            "include_inactive": {"type": "boolean", "description": "Deleted ones too."},
            "tags": words("All of these."),
            "cursor": cursor(),
        });
        (properties, &[])
    },
    output: || {
        (
            json!({"projects": {"type": "array", "items": project()}, "next_cursor": text("")}),
            &["projects"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Later(|caller, mut arguments| {
        let include_inactive = arguments.optional::<bool>("include_inactive")?.unwrap_or(false);
        let tags = arguments.optional::<BTreeSet<String>>("tags")?.unwrap_or_default();
        let after = parse_id(&mut arguments, "cursor")?;
        arguments.finish()?;
        let filter = ProjectFilter {
            include_inactive,
            tags,
            after,
        };
        Ok(administers(caller, async move |admin, by| Ok(admin.list(by, &filter))))
    }),
};

pub const GET_PROJECT_INFO: Tool = Tool {
    name: "get_project_info",
    title: "Project",
    description: "What a project holds, and to which others it may send.",
    hints: LOOKS,
    needs: Scope::Observer,
    input: || (json!({"project_id": text("Default: your own.")}), &[]),
    output: || {
        let counts = json!({
            "type": "object",
            "properties": {
                "sessions": count(""), "active_sessions": count(""), "protocols": count(""),
                "dead_letters": count(""), "keys": count(""),
            },
        });
        let properties = json!({
            "project": project(), "counts": counts, "permissions": {"type": "array", "items": permission()},
            "more_permissions": {"type": "boolean"},
        });
        (properties, &["project"])
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Later(|caller, mut arguments| {
        let id = parse_id(&mut arguments, "project_id")?;
        arguments.finish()?;
        Ok(administers(caller, async move |admin, by| {
            admin.show(by, id.as_ref()).await
        }))
    }),
};

pub const ROTATE_PROJECT_KEYS: Tool = Tool {
    name: "rotate_project_keys",
    title: "Rotate keys",
    description: "Put a new key in the place of one, or of all of a project. The old ones stop being good at once, or \
                  after a grace period. Connections that came in with them are closed then.",
    hints: TAKES,
    needs: Scope::Admin,
    input: || {
        let properties = json!({
            "project_id": text("Default: your own."),
            "key_id": text("Only this key."),
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
            "properties": {"key_id": text(""), "at": text("")},
            "required": ["key_id", "at"],
        });
        let properties = json!({"api_keys": api_keys(), "revoked": {"type": "array", "items": revoked}});
        (properties, &["api_keys", "revoked"])
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Later(|caller, mut arguments| {
        let id = parse_id(&mut arguments, "project_id")?.unwrap_or_else(|| caller.project.id().clone());
        let key = arguments.text("key_id")?.map(|text| KeyId::parse(&text)).transpose()?;
        let most = usize::try_from(GRACE_MAX.as_secs()).unwrap_or(usize::MAX);
        let grace = arguments.bounded("grace_period_seconds", 0, 0, most)?;
        arguments.finish()?;
        let grace = Duration::from_secs(grace as u64);
        Ok(administers(caller, async move |admin, by| {
            admin.rotate(by, &id, key, grace).await
        }))
    }),
};

pub const GRANT_PROJECT_ACCESS: Tool = Tool {
    name: "grant_project_access",
    title: "Let this project send to another",
    description: "Let the sessions of your project send messages to another (recipient name@project). Both projects \
                  must allow messages between projects.",
    hints: SETS,
    needs: Scope::Admin,
    input: || {
        let properties = json!({
            "target_project_id": text("The project that may be sent to."),
            "allowed_protocols": words("Names of protocols; empty: all."),
            "message_rate_limit": count("Messages per minute; 0 is no limit."),
        });
        (properties, &["target_project_id"])
    },
    output: || {
        let warnings = words("");
        (
            json!({"permission": permission(), "warnings": warnings}),
            &["permission", "warnings"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Later(|caller, mut arguments| {
        let target = required_id(&mut arguments, "target_project_id")?;
        let protocols = arguments
            .optional::<BTreeSet<ProtocolName>>("allowed_protocols")?
            .unwrap_or_default();
        let rate = arguments.optional::<u32>("message_rate_limit")?.unwrap_or(0);
        arguments.finish()?;
        let id = caller.project.id().clone();
        Ok(administers(caller, async move |admin, by| {
            admin.grant(by, &id, target, protocols, rate).await
        }))
    }),
};

pub const REVOKE_PROJECT_ACCESS: Tool = Tool {
    name: "revoke_project_access",
    title: "Take a permission back",
    description: "The sessions of your project may send to that other project no more.",
    hints: SETS,
    needs: Scope::Admin,
    input: || {
        (
            json!({"target_project_id": text("The other project.")}),
            &["target_project_id"],
        )
    },
    output: || {
        let revoked = json!({"type": "boolean"});
        (json!({"revoked": revoked}), &["revoked"])
    },
    acts_as_session: false,
    exclusive: false,
    run: Run::Later(|caller, mut arguments| {
        let target = required_id(&mut arguments, "target_project_id")?;
        arguments.finish()?;
        let id = caller.project.id().clone();
        Ok(administers(caller, async move |admin, by| {
            admin.revoke_grant(by, &id, &target).await
        }))
    }),
};
