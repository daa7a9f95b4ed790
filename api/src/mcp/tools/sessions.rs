//! The tools by which a caller registers, keeps and leaves its session, and lists others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    rc::Rc,
    sync::Arc,
};

use actors::{
    clock::rfc3339_text,
    model::{
        ALIASES_LEN_MAX, BrokerError, Capabilities, HUMAN_KIND, MIN_INTERVAL_MAX, ProtocolName, Scope, SessionName,
        WakeFor, WakePreference,
    },
    project::{ProjectHandle, Registered, Registration, SessionQuery},
    session::Member,
};
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    schema::{cursor_schema, integer_schema, limit_schema, string_schema, strings_schema},
    tool::{Called, IDEMPOTENT, PendingCall, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    mcp::{
        client::PeerKind,
        context::PeerContext,
        prompts::quoted,
        reply::{ReplyTo, ToolResult},
    },
    verbs::{
        arguments::{Arguments, VersionArgument},
        sessions::{self, PAGE_LEN, PAGE_LEN_MAX},
    },
};

const METADATA_LEN_MAX: usize = 16 * 1024;
/// Bytes of a list of aliases as JSON: 128 characters of four bytes each, or six where they are escaped.
const ALIASES_BYTES_MAX: usize = ALIASES_LEN_MAX * 1024;
const CAPABILITIES_LEN_MAX: usize = 64 * 1024;
/// Bytes of what a session says about wakes.
const WAKE_LEN_MAX: usize = 1024;
/// Versions of one protocol that a session can declare: each is compared with every requirement.
const VERSIONS_LEN_MAX: usize = 100;

/// `register_session`.
pub const REGISTER_SESSION: Tool = Tool {
    name: "register_session",
    title: "Register session",
    description: "Join under a name, your durable address. Registering it again resumes its session and inbox, receive them over.",
    hints: IDEMPOTENT,
    required_scope: Scope::Member,
    input: || {
        let versions = json!({"type": "array", "items": {"type": "string"}});
        let capabilities = json!({
            "type": "object",
            "description": "What you speak: {supported_protocols: {name: [versions]}, supported_features: []}. No protocols: any.",
            "properties": {
                "supported_protocols": {
                    "type": "object", "additionalProperties": versions,
                    "description": "Versions by name.",
                },
                "supported_features": strings_schema("Others find you by them."),
            },
        });
        let properties = json!({
            "name": string_schema("Unique in the project; no '@'."),
            "aliases": strings_schema("Other names, 8 at most."),
            "capabilities": capabilities,
            "metadata": {"type": "object", "description": "Shown to others."},
            "wake": wake_schema(),
        });
        (properties, &[])
    },
    output: || {
        let properties = json!({
            "session_id": string_schema(""),
            "project_id": string_schema(""),
            "name": {"type": ["string", "null"]},
            "status": {"enum": ["active", "stale", "disconnected"]},
            "resumed": {"type": "boolean"},
            "was_active": {"type": "boolean"},
            "last_seen_seconds": {"type": "number"},
            "queue_size": integer_schema(""),
            "next": string_schema(""),
            "heartbeat_interval_seconds": {"type": "number"},
            "stale_after_seconds": {"type": "number"},
            "disconnect_after_seconds": {"type": "number"},
        });
        (
            properties,
            &[
                "session_id",
                "project_id",
                "name",
                "status",
                "resumed",
                "was_active",
                "queue_size",
            ],
        )
    },
    acts_as_session: false,
    exclusive: true,
    run: register_session,
};

fn wake_schema() -> Value {
    json!({
        "type": "object",
        "description": "Which messages may wake you.",
        "properties": {
            "for": {"enum": WakeFor::NAMES},
            "quiet": string_schema("Hours of the urgent alone: 22:00-07:00+02:00."),
            "min_interval_seconds": integer_schema(""),
        },
    })
}

fn parse_aliases(texts: Vec<String>) -> Result<Vec<SessionName>, BrokerError> {
    if texts.len() > ALIASES_LEN_MAX {
        return Err(BrokerError::invalid("aliases", format!("at most {ALIASES_LEN_MAX}")));
    }
    let parse = |text: &String| SessionName::parse_as("aliases", text);
    texts.iter().map(parse).collect()
}

fn register_session(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let name = arguments
        .text("name")?
        .map(|name| SessionName::parse(&name))
        .transpose()?;
    let aliases = arguments.optional_within::<Vec<String>>("aliases", ALIASES_BYTES_MAX)?;
    let aliases = aliases.map(parse_aliases).transpose()?;
    let capabilities = arguments.optional_object::<DeclaredCapabilities>("capabilities", CAPABILITIES_LEN_MAX)?;
    let metadata = arguments.optional_object::<Map<String, Value>>("metadata", METADATA_LEN_MAX)?;
    if metadata
        .as_ref()
        .is_some_and(|metadata| metadata.get("kind") == Some(&json!(HUMAN_KIND)))
    {
        let reason = "human is the kind of people, who come by a console and not as an agent";
        return Err(BrokerError::invalid("metadata.kind", reason));
    }
    let wake = arguments.optional_object::<WakePreference>("wake", WAKE_LEN_MAX)?;
    if wake.is_some_and(|wake| wake.min_interval_seconds > MIN_INTERVAL_MAX) {
        let text = format!("0 to {MIN_INTERVAL_MAX}");
        return Err(BrokerError::invalid("wake.min_interval_seconds", text));
    }
    arguments.finish()?;
    let many = |declared: &DeclaredCapabilities| {
        let protocols = declared.supported_protocols.values();
        protocols.map(BTreeSet::len).any(|len| len > VERSIONS_LEN_MAX)
    };
    if capabilities.as_ref().is_some_and(many) {
        let text = format!("at most {VERSIONS_LEN_MAX} versions of one protocol");
        return Err(BrokerError::invalid("capabilities", text));
    }
    let context = Rc::clone(&caller.context);
    // A connection that was taken over has no session, although it still knows its former one.
    let has_session = caller.session.as_ref().filter(|_| !context.outbox.is_taken_over());
    let current = has_session.map(|member| member.record.id);
    let registration = Registration {
        name,
        aliases,
        capabilities: capabilities.map(Capabilities::from),
        metadata,
        wake,
        owner: context.identity.owner().clone(),
        current,
        connection: context.connection(),
        is_absent: false,
        only_sends: false,
    };
    let registered = Rc::clone(&context);
    let mut call = PendingCall::new(async move {
        // Withdrawn before the registration: a take-over by a later registration must not be lost.
        context.outbox.clear_taken_over();
        let done = context.project.register(registration).await?;
        let member = Arc::clone(&done.member);
        if current != Some(member.record.id) {
            context.log_joined(&member, done.resumed);
        }
        context.binding.set_member(Arc::clone(&member));
        context.project.refresh_waiting(&[member]).await;
        Ok(registration_result(&context, &done).into())
    });
    // Messages are pushed after the answer, because the client does not know its session id before.
    call.after_answer = Some(Box::pin(async move {
        if let Some(member) = registered.binding.member() {
            registered.bind_session(member);
        }
    }));
    Ok(call.into())
}

/// The capabilities that a caller may declare. Unlike the stored form, it refuses unknown members, which are mistakes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeclaredCapabilities {
    supported_protocols: BTreeMap<ProtocolName, BTreeSet<VersionArgument>>,
    supported_features: BTreeSet<String>,
}

impl From<DeclaredCapabilities> for Capabilities {
    fn from(declared: DeclaredCapabilities) -> Self {
        let DeclaredCapabilities {
            supported_protocols,
            supported_features,
        } = declared;
        let plain = |versions: BTreeSet<VersionArgument>| {
            versions.into_iter().map(|VersionArgument(version)| version).collect()
        };
        let supported_protocols = supported_protocols
            .into_iter()
            .map(|(name, versions)| (name, plain(versions)))
            .collect();
        Self {
            supported_protocols,
            supported_features,
        }
    }
}

fn registration_result(context: &PeerContext, done: &Registered) -> Value {
    let project = &context.project;
    let settings = project.settings();
    let Registered { member, .. } = done;
    let mut next = match context.kind {
        PeerKind::Stateless => "Pass this session_id with every call.",
        PeerKind::Connection | PeerKind::HttpSession => {
            "This connection acts as this session. On another one pass this session_id."
        }
    }
    .to_owned();
    if let Some(former) = &done.former_name {
        let _ = write!(next, " {} reaches you as well.", quoted(former.as_str()));
    }
    let mut answer = json!({
        "next": next,
        "session_id": member.record.holder_id(),
        "project_id": project.id(),
        "name": member.record.name,
        "status": project.status(member).as_str(),
        "resumed": done.resumed,
        "was_active": done.was_active,
        "queue_size": member.shared.waiting(),
        "heartbeat_interval_seconds": settings.heartbeat_interval.as_secs_f64(),
        "stale_after_seconds": settings.presence.stale_after.as_secs_f64(),
        "disconnect_after_seconds": settings.presence.disconnect_after.as_secs_f64(),
    });
    if let Some(silence) = done.silence {
        answer["last_seen_seconds"] = json!(silence.as_secs_f64());
    }
    answer
}

/// `heartbeat`.
pub const HEARTBEAT: Tool = Tool {
    name: "heartbeat",
    title: "Heartbeat",
    description: "Keeps your session active, as any other call does.",
    hints: IDEMPOTENT,
    required_scope: Scope::Member,
    input: || (json!({}), &[]),
    output: || {
        let properties = json!({
            "status": {"enum": ["active", "stale", "disconnected"]},
            "last_heartbeat": string_schema(""),
            "queue_size": integer_schema(""),
        });
        (properties, &["status", "last_heartbeat", "queue_size"])
    },
    acts_as_session: true,
    exclusive: false,
    run: heartbeat,
};

fn heartbeat(caller: &ToolCaller, arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    arguments.finish()?;
    let member = caller.session()?;
    member.touch(caller.project().settings().presence, actors::clock::now());
    let Some(refreshing) = caller.project().refresh_waiting_if_unknown(member) else {
        return Ok(Called::Answered(alive(caller.project(), member)));
    };
    let (project, member) = (caller.project().clone(), Arc::clone(member));
    let answer = refreshing.map(move |()| Ok(Called::Answered(alive(&project, &member))));
    Ok(Called::Waits(answer.boxed_local()))
}

/// Idle agents ask for this often, so it is written by hand; nothing in it needs escapes.
fn alive(project: &ProjectHandle, member: &Member) -> ToolResult {
    let answer = format!(
        r#"{{"status":"{}","last_heartbeat":"{}","queue_size":{}}}"#,
        project.status(member).as_str(),
        rfc3339_text(member.shared.last_seen_unix_ms()),
        member.shared.waiting(),
    );
    ToolResult::from(answer.into_bytes())
}

/// `disconnect_session`.
pub const DISCONNECT_SESSION: Tool = Tool {
    name: "disconnect_session",
    title: "Leave",
    description: "Leave. Name and inbox are kept for the next register_session.",
    hints: IDEMPOTENT,
    required_scope: Scope::Member,
    input: || (json!({}), &[]),
    output: || {
        let properties = json!({
            "status": {"enum": ["active", "stale", "disconnected"]},
            "queue_size": integer_schema(""),
        });
        (properties, &["status", "queue_size"])
    },
    acts_as_session: false,
    exclusive: true,
    run: |caller, arguments, _| {
        arguments.finish()?;
        let member = Arc::clone(caller.session()?);
        Ok(Called::later(caller, async move |caller| {
            let mut queue_size = caller.project().disconnect(&member).await?;
            if caller.project().refresh_waiting(&[Arc::clone(&member)]).await {
                queue_size = member.shared.waiting();
            }
            caller.context.binding.leave(&member);
            caller.context.apply_subscriptions();
            Ok(json!({"status": "disconnected", "queue_size": queue_size}).into())
        }))
    },
};

/// `list_sessions`.
pub const LIST_SESSIONS: Tool = Tool {
    name: "list_sessions",
    title: "List sessions",
    description: "Who is here, oldest first.",
    hints: READ_ONLY,
    required_scope: Scope::Observer,
    input: || {
        let properties = json!({
            "status": {"enum": ["active", "stale", "disconnected", "all"], "description": "Default active."},
            "protocol": string_schema("Only sessions that speak it."),
            "feature": string_schema("Only sessions that have it."),
            "include_capabilities": {"type": "boolean", "description": "Show what they declared."},
            "limit": limit_schema(PAGE_LEN, PAGE_LEN_MAX),
            "cursor": cursor_schema(),
        });
        (properties, &[])
    },
    output: || {
        let session = json!({
            "type": "object",
            "properties": {
                "session_id": string_schema(""), "name": {"type": ["string", "null"]}, "aliases": strings_schema(""), "project_id": {"type": "string"},
                "status": {"enum": ["active", "stale", "disconnected"]},
                "connection_time": {"type": "string"}, "last_heartbeat": {"type": "string"},
                "queue_size": {"type": "integer"}, "activity": {"enum": ["unknown", "idle", "busy"]},
                "wakes_by": {"type": ["array", "null"]}, "capabilities": {"type": "object"},
                "metadata": {"type": "object"},
                "kind": {"const": "human"}, "presence": {"enum": ["present", "idle", "away"]}, "open": {"type": "integer"},
            },
            "required": ["session_id", "name", "project_id", "status", "connection_time", "last_heartbeat", "queue_size"],
        });
        (
            json!({"sessions": {"type": "array", "items": session}, "next_cursor": string_schema("")}),
            &["sessions"],
        )
    },
    acts_as_session: false,
    exclusive: false,
    run: list_sessions,
};

fn list_sessions(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let status = sessions::parse_status(arguments.text("status")?.as_deref())?;
    let after = arguments.text("cursor")?;
    let after = after.map(|text| sessions::parse_cursor(&text)).transpose()?;
    let query = SessionQuery {
        status,
        protocol: arguments
            .text("protocol")?
            .map(|name| ProtocolName::parse(&name))
            .transpose()?,
        feature: arguments.text("feature")?.map(std::borrow::Cow::into_owned),
        text: None,
        limit: arguments.bounded("limit", PAGE_LEN, 1, PAGE_LEN_MAX)?,
        after,
    };
    let with_capabilities = arguments.optional::<bool>("include_capabilities")?.unwrap_or(false);
    arguments.finish()?;
    Ok(Called::page(caller, async move |caller| {
        let page = sessions::list(caller.project(), &query, with_capabilities).await;
        Ok(ToolResult::from(page))
    }))
}
