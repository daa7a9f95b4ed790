//! Resources: what can be read of the broker without a tool.

use std::sync::Arc;

use actors::{model::SessionId, project::SessionQuery, registry::DiscoverQuery, session::Member};
use serde_json::{Value, json};

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::{
    reply::ToolResult,
    subscriptions::INBOX,
    tools::{ToolCaller, protocol_json, protocol_page, session_page},
};

/// Where the inbox of any session is; `session_id` can be completed.
pub const SESSION_INBOX_TEMPLATE: &str = "broker://sessions/{session_id}/inbox";
/// Where one protocol is; `name` and `version` can be completed.
pub const PROTOCOL_TEMPLATE: &str = "broker://protocols/{name}/{version}";
const SESSIONS: &str = "broker://sessions";
const PROTOCOLS: &str = "broker://protocols";
/// Most entries on one page of a list resource. The next page has the URI of the list with [`CURSOR`] and `next_cursor`.
const LIST_LEN_MAX: usize = 1000;
const CURSOR: &str = "?cursor=";

/// `resources/list`.
pub fn list() -> Value {
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
        // Last: a caller without a session cannot read it, and clients that try one take the first.
        entry(
            INBOX,
            "inbox",
            "Your inbox",
            "How many messages wait for this connection's session. Subscribe to be told of new ones.",
        ),
    ]
    .into_iter();
    #[cfg(feature = "conformance-fixtures")]
    let entries = entries.chain(fixtures::resources::list());
    entries.collect()
}

/// `resources/templates/list`.
pub fn templates() -> Value {
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
    ]
    .into_iter();
    #[cfg(feature = "conformance-fixtures")]
    let entries = entries.chain(fixtures::resources::templates());
    entries.collect()
}

pub fn exists(caller: &ToolCaller, uri: &str) -> bool {
    read(caller, uri).is_some()
}

/// What a resource holds, as `resources/read` shows it; None when there is none of this URI.
pub fn read(caller: &ToolCaller, uri: &str) -> Option<Value> {
    #[cfg(feature = "conformance-fixtures")]
    if let Some(content) = fixtures::resources::read(uri) {
        return Some(content);
    }
    let ToolResult(content) = content(caller, uri)?;
    let text = String::from_utf8(content).ok()?;
    Some(json!({"uri": uri, "mimeType": "application/json", "text": text}))
}

fn content(caller: &ToolCaller, uri: &str) -> Option<ToolResult> {
    let (list, cursor) = match uri.split_once(CURSOR) {
        Some((list, cursor)) => (list, Some(cursor)),
        None => (uri, None),
    };
    match list {
        INBOX if cursor.is_none() => caller.session.as_ref().map(|member| inbox_json(caller, member).into()),
        SESSIONS => {
            let after = match cursor {
                Some(cursor) => Some(SessionId::parse(cursor)?),
                None => None,
            };
            let query = SessionQuery {
                status: None,
                protocol: None,
                feature: None,
                limit: LIST_LEN_MAX,
                after,
            };
            let (text, last) = session_page(&caller.project, &caller.project.list_sessions(&query), false);
            Some(text.finish(last))
        }
        PROTOCOLS => {
            let query = DiscoverQuery {
                limit: Some(LIST_LEN_MAX),
                cursor: cursor.map(str::to_owned),
                ..DiscoverQuery::default()
            };
            let (text, next) = protocol_page(&caller.project.discover_protocols(&query).ok()?, false);
            Some(text.finish(next))
        }
        _ => read_one(caller, uri).map(ToolResult::from),
    }
}

fn read_one(caller: &ToolCaller, uri: &str) -> Option<Value> {
    if let Some(rest) = uri.strip_prefix("broker://protocols/") {
        let (name, version) = rest.split_once('/')?;
        let protocol = caller.project.protocol(name, version).ok()?;
        return Some(protocol_json(&protocol.record, true));
    }
    let member = caller.session_of(inbox_session_id(uri)?).ok()?;
    Some(inbox_json(caller, &member))
}

/// The caller's session whose inbox this URI means.
pub fn session_of_inbox(caller: &ToolCaller, uri: &str) -> Option<Arc<Member>> {
    match inbox_session_id(uri) {
        Some(id) => caller.session_of(id).ok(),
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
        "status": caller.project.status(member).as_str(),
        "waiting": member.shared.waiting(),
    })
}
