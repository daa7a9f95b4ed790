//! Resources: what a client can read of the broker without a tool.

use std::sync::Arc;

use actors::{
    model::{Scope, SessionId},
    project::{Lookup, SessionQuery},
    registry::DiscoverQuery,
    session::Member,
};
use serde_json::{Value, json};

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::{subscriptions::INBOX, tools::ToolCaller};
use crate::verbs::{backends, protocols, sessions};

/// The URI of the inbox of a session; completion suggests `session_id`.
pub const SESSION_INBOX_TEMPLATE: &str = "broker://sessions/{session_id}/inbox";
/// The URI of a protocol; completion suggests `name` and `version`.
pub const PROTOCOL_TEMPLATE: &str = "broker://protocols/{name}/{version}";
/// The URI of the backends of the project. A project without backends has none of these resources.
pub const BACKENDS: &str = "broker://backends";
/// The URIs of a backend and of its log; completion suggests `name`.
pub const BACKEND_TEMPLATE: &str = "broker://backends/{name}";
pub const BACKEND_LOG_TEMPLATE: &str = "broker://backends/{name}/log";
const SESSIONS: &str = "broker://sessions";
const PROTOCOLS: &str = "broker://protocols";
/// Entries on one page of a list resource. The URI of the next page is that of the list with [`CURSOR`] and
/// `next_cursor`.
const LIST_LEN_MAX: usize = 1000;
const CURSOR: &str = "?cursor=";

/// What a URI shows of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendPart {
    Itself,
    /// Its last lines, which need the scope `admin`.
    Log,
}

/// The result of `resources/list`, for a project with backends or without.
pub fn list(has_backends: bool) -> Value {
    let entry = |uri: &str, name: &str, title: &str, description: &str| json!({"uri": uri, "name": name, "title": title, "description": description, "mimeType": "application/json"});
    let entries = [
        entry(
            SESSIONS,
            "sessions",
            "Sessions",
            "The sessions of the project and their presence, page by page: the next has ?cursor= and next_cursor in its \
             URI.",
        ),
        entry(
            PROTOCOLS,
            "protocols",
            "Protocols",
            "The registered protocols, page by page: the next has ?cursor= and next_cursor in its URI.",
        ),
        entry(
            BACKENDS,
            "backends",
            "Backends",
            "The MCP servers behind the gateway with their states. Subscribe to get a notification when one changes.",
        ),
        // Last, because a caller without a session cannot read it, and clients that try one resource take the first.
        entry(
            INBOX,
            "inbox",
            "Your inbox",
            "How many messages wait for this connection's session. Subscribe to get a notification of new ones.",
        ),
    ]
    .into_iter()
    .filter(|entry| has_backends || entry["uri"] != BACKENDS);
    #[cfg(feature = "conformance-fixtures")]
    let entries = entries.chain(fixtures::resources::list());
    entries.collect()
}

/// The result of `resources/templates/list`, for a project with backends or without.
pub fn templates(has_backends: bool) -> Value {
    let entry = |template: &str, name: &str, title: &str, description: &str| {
        json!({
            "uriTemplate": template, "name": name, "title": title, "description": description,
            "mimeType": "application/json",
        })
    };
    let entries = [
        entry(
            SESSION_INBOX_TEMPLATE,
            "session-inbox",
            "Inbox of a session",
            "How many messages wait for a session.",
        ),
        entry(
            PROTOCOL_TEMPLATE,
            "protocol",
            "Protocol",
            "One protocol with its JSON Schema.",
        ),
        entry(
            BACKEND_TEMPLATE,
            "backend",
            "Backend",
            "One MCP server behind the gateway. Subscribe to get a notification of its states.",
        ),
        entry(
            BACKEND_LOG_TEMPLATE,
            "backend-log",
            "Log of a backend",
            "The last lines on its stderr; needs the scope admin.",
        ),
    ]
    .into_iter()
    .filter(|entry| {
        let template = entry["uriTemplate"].as_str();
        has_backends || !template.is_some_and(|template| template.starts_with(BACKENDS))
    });
    #[cfg(feature = "conformance-fixtures")]
    let entries = entries.chain(fixtures::resources::templates());
    entries.collect()
}

/// Whether the resource exists, for this caller and as known at this replica.
pub fn exists(caller: &ToolCaller, uri: &str) -> bool {
    find(caller, uri).is_some()
}

/// The content of a resource, as `resources/read` shows it; `None` if it does not exist at any replica.
pub fn read(caller: &ToolCaller, uri: &str) -> Lookup<Option<Value>> {
    let (project, caller, uri) = (caller.project().clone(), caller.clone(), uri.to_owned());
    project.look_up_optional(move || find(&caller, &uri))
}

fn find(caller: &ToolCaller, uri: &str) -> Option<Value> {
    #[cfg(feature = "conformance-fixtures")]
    if let Some(content) = fixtures::resources::read(uri) {
        return Some(content);
    }
    let content = content(caller, uri)?;
    let text = String::from_utf8(content).ok()?;
    Some(json!({"uri": uri, "mimeType": "application/json", "text": text}))
}

fn content(caller: &ToolCaller, uri: &str) -> Option<Vec<u8>> {
    let (list, cursor) = match uri.split_once(CURSOR) {
        Some((list, cursor)) => (list, Some(cursor)),
        None => (uri, None),
    };
    match list {
        INBOX if cursor.is_none() => caller
            .session
            .as_ref()
            .map(|member| inbox_json(caller, member).to_string().into()),
        SESSIONS => {
            let after = match cursor {
                Some(cursor) => Some(SessionId::parse(cursor)?),
                None => None,
            };
            let query = SessionQuery {
                status: None,
                protocol: None,
                feature: None,
                text: None,
                limit: LIST_LEN_MAX,
                after,
            };
            let page = caller.project().list_sessions(&query);
            Some(sessions::known_page(caller.project(), &page, false))
        }
        PROTOCOLS => {
            let query = DiscoverQuery {
                limit: Some(LIST_LEN_MAX),
                cursor: cursor.map(str::to_owned),
                ..DiscoverQuery::default()
            };
            let page = caller.project().discover_protocols(&query).ok()?;
            Some(protocols::page(caller.project(), &page, false))
        }
        BACKENDS if cursor.is_none() && backends::any(caller.project()) => {
            serde_json::to_vec(&backends::list(caller.project(), caller.may_administer())).ok()
        }
        _ => read_one(caller, uri).map(|value| value.to_string().into()),
    }
}

/// The backend whose resource this URI is, and what it shows.
pub fn backend_of(uri: &str) -> Option<(&str, BackendPart)> {
    let name = uri.strip_prefix(BACKENDS)?.strip_prefix('/')?;
    Some(match name.strip_suffix("/log") {
        Some(name) => (name, BackendPart::Log),
        None => (name, BackendPart::Itself),
    })
}

/// The scope that a caller needs to read a resource, whether or not it exists.
pub fn required_scope(uri: &str) -> Scope {
    match backend_of(uri) {
        Some((_, BackendPart::Log)) => Scope::Admin,
        _ => Scope::Observer,
    }
}

fn read_backend(caller: &ToolCaller, name: &str, part: BackendPart) -> Option<Value> {
    let project = caller.project();
    let shown = match part {
        BackendPart::Itself => {
            let backend = backends::find(project, name).ok()?;
            serde_json::to_value(backends::backend_view(&backend, caller.may_administer()))
        }
        BackendPart::Log => serde_json::to_value(backends::log(project, name, 0).ok()?),
    };
    shown.ok()
}

fn read_one(caller: &ToolCaller, uri: &str) -> Option<Value> {
    if let Some((name, part)) = backend_of(uri) {
        return read_backend(caller, name, part);
    }
    if let Some(rest) = uri.strip_prefix("broker://protocols/") {
        let (name, version) = rest.split_once('/')?;
        let protocol = caller.project().protocol(name, version).ok()?;
        return serde_json::to_value(protocols::protocol_view(caller.project(), &protocol.record, true)).ok();
    }
    let member = caller.known_session(inbox_session_id(uri)?)?;
    Some(inbox_json(caller, &member))
}

/// The caller's session whose inbox this URI names.
pub fn session_of_inbox(caller: &ToolCaller, uri: &str) -> Option<Arc<Member>> {
    match inbox_session_id(uri) {
        Some(id) => caller.known_session(id),
        None => caller.session.clone().filter(|_| uri == INBOX),
    }
}

/// The session whose inbox this URI names.
pub fn inbox_session_id(uri: &str) -> Option<SessionId> {
    SessionId::parse(uri.strip_prefix("broker://sessions/")?.strip_suffix("/inbox")?)
}

fn inbox_json(caller: &ToolCaller, member: &Member) -> Value {
    json!({
        "session_id": member.record.id,
        "name": member.record.name,
        "status": caller.project().status(member).as_str(),
        "waiting": member.shared.waiting(),
    })
}
