//! `completion/complete`: what could stand for an argument of a prompt or a variable of a resource's template.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use actors::{
    model::ProtocolName,
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
    resources::{PROTOCOL_TEMPLATE, SESSION_INBOX_TEMPLATE},
    rpc::{RpcError, shortened},
    tools::JsonObject,
};
use crate::auth::Identity;

/// Values of one answer (server/utilities/completion, Completion Results).
const VALUES_LEN_MAX: usize = 100;
/// Bytes of one value. Only a version can be longer, and nobody wants to be suggested such a one.
const VALUE_LEN_MAX: usize = 256;
/// Sessions that one call looks at.
const SESSIONS_SCANNED_MAX: usize = 10_000;
/// Pages of protocols that one call looks at.
const PROTOCOL_PAGES_MAX: usize = 10;

/// The params of the request.
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
    /// What has been typed so far.
    value: String,
}

/// Since 2025-06-18.
#[derive(Debug, Deserialize)]
struct Context {
    /// What has been chosen for other arguments.
    arguments: Option<JsonObject<BTreeMap<String, String>>>,
}

/// All suggestions, best first.
#[derive(Debug, Default, PartialEq)]
struct Suggestions {
    values: Vec<String>,
    /// There was more than one call looks at.
    is_partial: bool,
}

/// Suggests values, best first. An argument that can be anything has none.
///
/// # Errors
/// Invalid params for a prompt, a template or an argument that does not exist (server/utilities/completion, Error
/// Handling).
pub fn complete(identity: &Identity, request: CompleteParams) -> Result<Value, RpcError> {
    let CompleteParams {
        reference: JsonObject(reference),
        argument: JsonObject(argument),
        context,
    } = request;
    let Argument { name, value: begun } = argument;
    let project = &identity.project;
    let found = match reference {
        #[cfg(feature = "conformance-fixtures")]
        Reference::Prompt { name: prompt } if fixtures::prompts::has_argument(&prompt, &name) => Suggestions::default(),
        Reference::Prompt { name: prompt } => {
            if prompts::find(&prompt)?.argument(&name)?.is_address {
                session_names(project, &begun)
            } else {
                Suggestions::default()
            }
        }
        Reference::Resource { uri } => match (uri.as_str(), name.as_str()) {
            (SESSION_INBOX_TEMPLATE, "session_id") => session_ids(identity, &begun),
            (PROTOCOL_TEMPLATE, "name") => protocol_names(project, &begun),
            (PROTOCOL_TEMPLATE, "version") => {
                let chosen = context.and_then(|JsonObject(context)| context.arguments);
                let name = chosen.as_ref().and_then(|JsonObject(chosen)| chosen.get("name"));
                versions(project, name.map(String::as_str), &begun)
            }
            (SESSION_INBOX_TEMPLATE | PROTOCOL_TEMPLATE, _) => {
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

    /// `total` is left out when it is not known.
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

/// Whether a text goes on from what was typed; the case of ASCII letters does not matter.
fn has_prefix(text: &str, begun: &str) -> bool {
    text.get(..begun.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(begun))
}

/// The sessions that fit, those that are there before those that are away, then by name.
fn sessions(project: &ProjectHandle, fits: impl Fn(&Member) -> bool) -> (Vec<Arc<Member>>, bool) {
    let page = project.list_sessions(&SessionQuery {
        status: None,
        protocol: None,
        feature: None,
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

fn session_names(project: &ProjectHandle, begun: &str) -> Suggestions {
    let name = |member: &Member| member.record.name.as_ref().map(ToString::to_string);
    let (fitting, more) = sessions(project, |member| {
        let name = member.record.name.as_ref();
        name.is_some_and(|name| has_prefix(name.as_str(), begun))
    });
    Suggestions::new(fitting.iter().filter_map(|member| name(member)), more)
}

/// Ids of one's own sessions, found by themselves or by the names of their sessions.
fn session_ids(identity: &Identity, begun: &str) -> Suggestions {
    let (fitting, more) = sessions(&identity.project, |Member { record, .. }| {
        if record.owner != *identity.owner() {
            return false;
        }
        let named = record
            .name
            .as_ref()
            .is_some_and(|name| has_prefix(name.as_str(), begun));
        named || has_prefix(&record.id.to_string(), begun)
    });
    Suggestions::new(fitting.iter().map(|member| member.record.id.to_string()), more)
}

/// The protocols, or those of one name, and whether there are more than are looked at.
fn protocols(project: &ProjectHandle, name: Option<ProtocolName>) -> (Vec<Arc<Protocol>>, bool) {
    let mut query = DiscoverQuery {
        name,
        limit: Some(Catalog::PAGE_LEN_MAX),
        ..DiscoverQuery::default()
    };
    let mut found = Vec::new();
    for _ in 0..PROTOCOL_PAGES_MAX {
        // The limit is an allowed one and the cursor its own, so there is a page.
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

fn protocol_names(project: &ProjectHandle, begun: &str) -> Suggestions {
    let (all, more) = protocols(project, None);
    let names: BTreeSet<_> = all
        .iter()
        .map(|protocol| protocol.name())
        .filter(|name| has_prefix(name, begun))
        .collect();
    Suggestions::new(names.into_iter().map(str::to_owned), more)
}

/// The versions of a protocol, or those of all of them, the newest first.
fn versions(project: &ProjectHandle, name: Option<&str>, begun: &str) -> Suggestions {
    let (all, more) = match name.map(ProtocolName::parse) {
        None => protocols(project, None),
        Some(Ok(name)) => protocols(project, Some(name)),
        Some(Err(_)) => (Vec::new(), false),
    };
    let fits = |text: &str| text.len() <= VALUE_LEN_MAX && has_prefix(text, begun);
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
    fn an_answer_has_at_most_a_hundred_values_and_says_what_there_is() {
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
        // Not everything was looked at: there may be more, and nobody knows how many.
        assert_eq!(found(1, true), json!({"values": ["0"], "hasMore": true}));
    }

    #[test]
    fn what_was_typed_begins_what_is_suggested() {
        for (text, begun) in [("alice", ""), ("alice", "al"), ("Alice", "aLICE"), ("Zoë", "zoë")] {
            assert!(has_prefix(text, begun), "{text} {begun}");
        }
        for (text, begun) in [
            ("alice", "alicea"),
            ("alice", "li"),
            ("Zoë", "Zo\u{c3}"),
            ("", "a"),
            ("é", "e"),
        ] {
            assert!(!has_prefix(text, begun), "{text} {begun}");
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
