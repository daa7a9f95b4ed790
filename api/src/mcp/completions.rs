//! `completion/complete`: suggests values for an argument of a prompt or a variable of a resource template.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use actors::{
    model::{ProtocolName, SessionId},
    project::{ProjectHandle, SessionQuery},
    registry::{Catalog, DiscoverQuery, Protocol},
    session::Member,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::{
    prompts,
    resources::{BACKEND_LOG_TEMPLATE, BACKEND_TEMPLATE, PROTOCOL_TEMPLATE, SESSION_INBOX_TEMPLATE},
    rpc::{RpcError, shortened},
};
use crate::verbs::backends;
use common::json::JsonObject;

/// Values in one answer (server/utilities/completion, Completion Results).
const VALUES_LEN_MAX: usize = 100;
/// Bytes of one value. Only a protocol version can be longer; such a version is not suggested.
const VALUE_LEN_MAX: usize = 256;
/// Sessions that one call examines.
const SESSIONS_SCANNED_MAX: usize = 10_000;
/// Pages of protocols that one call examines.
const PROTOCOL_PAGES_MAX: usize = 10;

/// The params of `completion/complete`.
#[derive(Debug, Deserialize)]
pub struct CompleteParams {
    #[serde(rename = "ref")]
    reference: JsonObject<Reference>,
    argument: JsonObject<Argument>,
    context: Option<JsonObject<Context>>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Debug, Deserialize)]
struct Argument {
    name: String,
    /// The text typed so far.
    value: String,
}

/// The context of a request, since 2025-06-18.
#[derive(Debug, Deserialize)]
struct Context {
    /// The values already chosen for other arguments.
    arguments: Option<JsonObject<BTreeMap<String, String>>>,
}

/// All suggestions, best first.
#[derive(Debug, Default, PartialEq)]
struct Suggestions {
    values: Vec<String>,
    /// The call reached its bound before it had examined everything.
    is_partial: bool,
}

/// Suggests values, best first. `own` is the session of the caller's connection. An argument of free text has no suggestions.
///
/// # Errors
/// Invalid params if the prompt, the template or the argument does not exist (server/utilities/completion, Error
/// Handling).
pub fn complete(project: &ProjectHandle, own: Option<SessionId>, request: CompleteParams) -> Result<Value, RpcError> {
    let CompleteParams {
        reference: JsonObject(reference),
        argument: JsonObject(argument),
        context,
    } = request;
    let Argument { name, value: prefix } = argument;
    let found = match reference {
        #[cfg(feature = "conformance-fixtures")]
        Reference::Prompt { name: prompt } if fixtures::prompts::has_argument(&prompt, &name) => Suggestions::default(),
        Reference::Prompt { name: prompt } => {
            if prompts::find(&prompt)?.argument(&name)?.is_address {
                session_names(project, &prefix)
            } else {
                Suggestions::default()
            }
        }
        Reference::Resource { uri } => match (uri.as_str(), name.as_str()) {
            (SESSION_INBOX_TEMPLATE, "session_id") => own_session(own, &prefix),
            (PROTOCOL_TEMPLATE, "name") => protocol_names(project, &prefix),
            (PROTOCOL_TEMPLATE, "version") => {
                let chosen = context.and_then(|JsonObject(context)| context.arguments);
                let name = chosen.as_ref().and_then(|JsonObject(chosen)| chosen.get("name"));
                versions(project, name.map(String::as_str), &prefix)
            }
            (BACKEND_TEMPLATE | BACKEND_LOG_TEMPLATE, "name") => backend_names(project, &prefix),
            (SESSION_INBOX_TEMPLATE | PROTOCOL_TEMPLATE | BACKEND_TEMPLATE | BACKEND_LOG_TEMPLATE, _) => {
                let message = format!("Invalid params: {uri} has no variable {}", shortened(&name));
                return Err(RpcError::invalid_params(message));
            }
            _ => {
                let message = format!("Unknown resource template: {}", shortened(&uri));
                return Err(RpcError::invalid_params(message));
            }
        },
    };
    Ok(found.into_result())
}

impl Suggestions {
    fn new(values: impl IntoIterator<Item = String>, unfinished: bool) -> Self {
        Self {
            values: values.into_iter().collect(),
            is_partial: unfinished,
        }
    }

    /// The result of the request. `total` is absent if it is unknown.
    fn into_result(self) -> Value {
        let Self {
            mut values,
            is_partial: unfinished,
        } = self;
        let total = values.len();
        values.truncate(VALUES_LEN_MAX);
        let mut completion = json!({"hasMore": unfinished || total > values.len(), "values": values});
        if !unfinished {
            completion["total"] = json!(total);
        }
        json!({"completion": completion})
    }
}

/// Whether `text` begins with `prefix`, ignoring the case of ASCII letters.
fn has_prefix(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The matching sessions, active ones first, then by name, and whether there may be more.
fn sessions(project: &ProjectHandle, fits: impl Fn(&Member) -> bool) -> (Vec<Arc<Member>>, bool) {
    let page = project.list_sessions(&SessionQuery {
        status: None,
        protocol: None,
        feature: None,
        text: None,
        limit: SESSIONS_SCANNED_MAX,
        after: None,
    });
    let mut fitting = page.items;
    fitting.retain(|member| fits(member));
    fitting.sort_by_cached_key(|member| {
        let name = member.record.name.clone();
        (project.status(member), name.is_none(), name)
    });
    (fitting, page.more)
}

fn session_names(project: &ProjectHandle, prefix: &str) -> Suggestions {
    let name = |member: &Member| member.record.name.as_ref().map(ToString::to_string);
    let (fitting, more) = sessions(project, |member| {
        let name = member.record.name.as_ref();
        name.is_some_and(|name| has_prefix(name.as_str(), prefix))
    });
    Suggestions::new(fitting.iter().filter_map(|member| name(member)), more)
}

/// The id of the session of the caller's connection: no other id that the broker may show reads an inbox.
fn own_session(own: Option<SessionId>, prefix: &str) -> Suggestions {
    let own = own.map(|id| id.to_string());
    Suggestions::new(own.filter(|id| has_prefix(id, prefix)), false)
}

fn backend_names(project: &ProjectHandle, prefix: &str) -> Suggestions {
    let names = backends::names(project).into_iter();
    Suggestions::new(names.filter(|name| has_prefix(name, prefix)), false)
}

/// All protocols, or those of one name, and whether there may be more.
fn protocols(project: &ProjectHandle, name: Option<ProtocolName>) -> (Vec<Arc<Protocol>>, bool) {
    let mut query = DiscoverQuery {
        name,
        limit: Some(Catalog::PAGE_LEN_MAX),
        ..DiscoverQuery::default()
    };
    let mut found = Vec::new();
    for _ in 0..PROTOCOL_PAGES_MAX {
        // The limit is allowed and the cursor comes from the page before, so this cannot fail.
        let Ok(page) = project.discover_protocols(&query) else {
            break;
        };
        found.extend(page.protocols);
        if page.next_cursor.is_none() {
            return (found, false);
        }
        query.cursor = page.next_cursor;
    }
    (found, true)
}

fn protocol_names(project: &ProjectHandle, prefix: &str) -> Suggestions {
    let (all, more) = protocols(project, None);
    let names: BTreeSet<_> = all
        .iter()
        .map(|protocol| protocol.name())
        .filter(|name| has_prefix(name, prefix))
        .collect();
    Suggestions::new(names.into_iter().map(str::to_owned), more)
}

/// The versions of one protocol, or of all of them, newest first.
fn versions(project: &ProjectHandle, name: Option<&str>, prefix: &str) -> Suggestions {
    let (all, more) = match name.map(ProtocolName::parse) {
        None => protocols(project, None),
        Some(Ok(name)) => protocols(project, Some(name)),
        Some(Err(_)) => (Vec::new(), false),
    };
    let fits = |text: &str| text.len() <= VALUE_LEN_MAX && has_prefix(text, prefix);
    let newest_first: BTreeSet<_> = all
        .iter()
        .filter(|protocol| fits(&protocol.version_text))
        .map(|protocol| Reverse(&protocol.record.version))
        .collect();
    Suggestions::new(
        newest_first.into_iter().map(|Reverse(version)| version.to_string()),
        more,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(len: usize, unfinished: bool) -> Value {
        let values = (0..len).map(|at| at.to_string());
        Suggestions::new(values, unfinished).into_result()["completion"].take()
    }

    #[test]
    fn an_answer_has_at_most_a_hundred_values_and_says_how_many_exist() {
        assert_eq!(found(0, false), json!({"values": [], "total": 0, "hasMore": false}));
        assert_eq!(
            found(2, false),
            json!({"values": ["0", "1"], "total": 2, "hasMore": false})
        );
        for (len, has_more) in [(99, false), (100, false), (101, true), (1000, true)] {
            let answer = found(len, false);
            let shown = len.min(100);
            assert_eq!(answer["values"].as_array().unwrap().len(), shown);
            assert_eq!(answer["values"][shown - 1], (shown - 1).to_string());
            assert_eq!((&answer["total"], &answer["hasMore"]), (&json!(len), &json!(has_more)));
        }
        // The call stopped early: there may be more, in an unknown number.
        assert_eq!(found(1, true), json!({"values": ["0"], "hasMore": true}));
    }

    #[test]
    fn a_suggestion_begins_with_the_typed_text() {
        for (text, prefix) in [("alice", ""), ("alice", "al"), ("Alice", "aLICE"), ("Zoë", "zoë")] {
            assert!(has_prefix(text, prefix), "{text} {prefix}");
        }
        for (text, prefix) in [
            ("alice", "alicea"),
            ("alice", "li"),
            ("Zoë", "Zo\u{c3}"),
            ("", "a"),
            ("é", "e"),
        ] {
            assert!(!has_prefix(text, prefix), "{text} {prefix}");
        }
    }

    #[test]
    fn a_request_has_the_form_of_the_specification() {
        let read = |value: Value| serde_json::from_value::<CompleteParams>(value).map(drop);
        let argument = json!({"name": "to", "value": ""});
        for reference in [
            json!({"type": "ref/prompt", "name": "join", "title": "Join"}),
            json!({"type": "ref/resource", "uri": "broker://sessions"}),
        ] {
            for context in [Value::Null, json!({}), json!({"arguments": {"name": "chat"}})] {
                read(json!({"ref": reference, "argument": argument, "context": context})).unwrap();
            }
            for context in [
                json!([]),
                json!("x"),
                json!({"arguments": []}),
                json!({"arguments": {"name": 5}}),
            ] {
                assert!(read(json!({"ref": reference, "argument": argument, "context": context})).is_err());
            }
            for argument in [
                Value::Null,
                json!({}),
                json!({"name": "to"}),
                json!({"name": "to", "value": 1}),
                json!(["to", ""]),
            ] {
                assert!(read(json!({"ref": reference, "argument": argument})).is_err());
            }
        }
        for reference in [
            Value::Null,
            json!("ref/prompt"),
            json!(["ref/prompt", "join"]),
            json!({"type": "ref/prompt"}),
            json!({"type": "ref/resource", "name": "join"}),
            json!({"type": "ref/tool", "name": "x"}),
            json!({"name": "join"}),
        ] {
            assert!(read(json!({"ref": reference, "argument": argument})).is_err());
        }
    }
}
