//! What a caller is listed: which tools, and how much of each. The setting `tools` says it.
//!
//! Models read the whole list in every conversation, and clients keep it in the context of each agent. What a list leaves
//! out works as it does where it is listed: a tool is found by its name, and an argument is read whether it is listed or not.

use actors::model::{Scope, ToolSet};
use serde_json::{Map, Value, json};

use super::{
    asking, backends, dead_letters, history, negotiation, projects, protocols, receiving, sending, sessions, tool::Tool,
};

/// A tool of the lists of `core` and `agent`.
struct Selected {
    name: &'static str,
    /// The smallest set that lists it.
    set: ToolSet,
    /// Pointers into the properties of its arguments: what the list leaves out.
    omits: &'static [&'static str],
}

const fn core(tool: &Tool, omits: &'static [&'static str]) -> Selected {
    let set = ToolSet::Core;
    Selected {
        name: tool.name,
        set,
        omits,
    }
}

const fn agent(tool: &Tool, omits: &'static [&'static str]) -> Selected {
    let set = ToolSet::Agent;
    Selected {
        name: tool.name,
        set,
        omits,
    }
}

/// The way of an agent in `core`: join, send, receive, acknowledge, ask. `agent` adds what is needed less often.
///
/// `session_id` is left out where the answer is the same for every session.
static SELECTED: &[Selected] = &[
    core(
        &sessions::REGISTER_SESSION,
        &["/aliases", "/wake", "/capabilities/properties"],
    ),
    core(&sessions::LIST_SESSIONS, &["/protocol", "/limit", "/session_id"]),
    core(
        &sending::SEND_MESSAGE,
        &[
            "/headers/properties/hops",
            "/headers/properties/report",
            "/headers/properties/reply_to",
        ],
    ),
    core(&sending::BROADCAST_MESSAGE, &["/capability_filter/properties"]),
    core(&receiving::RECEIVE_MESSAGES, &[]),
    core(&receiving::ACKNOWLEDGE_MESSAGES, &[]),
    core(
        &asking::CLARIFY,
        &[
            "/multi_select",
            "/allow_other",
            "/expires_in_seconds",
            "/on_expiry",
            "/idempotency_key",
            "/images",
            "/sensitive",
        ],
    ),
    core(&asking::GET_ANSWER, &["/reason"]),
    agent(
        &protocols::REGISTER_PROTOCOL,
        &[
            "/capabilities",
            "/metadata",
            "/session_id",
            "/direction",
            "/allow_loss",
            "/replace_lens",
            "/dry_run",
        ],
    ),
    agent(
        &protocols::DISCOVER_PROTOCOLS,
        &["/version", "/tags", "/capability", "/limit", "/cursor", "/session_id"],
    ),
    agent(
        &negotiation::NEGOTIATE_CAPABILITIES,
        &["/required_protocols/items", "/cursor"],
    ),
    agent(&receiving::GET_MESSAGE_STATUS, &["/cursor", "/session_id"]),
    agent(&history::SEARCH_MESSAGES, &["/limit"]),
    agent(&asking::YAP, &["/mode", "/task_context"]),
    // Claude Code knows its arguments: no model calls it.
    agent(
        &asking::PERMISSION_PROMPT,
        &["/tool_name", "/input", "/tool_use_id", "/session_id"],
    ),
    agent(
        &dead_letters::LIST_DEAD_LETTERS,
        &["/reason", "/limit", "/cursor", "/session_id"],
    ),
    agent(&dead_letters::REDRIVE_DEAD_LETTERS, &["/session_id"]),
    agent(&backends::LIST_BACKENDS, &["/name", "/session_id"]),
];

/// What administrators read. Agents do without: they find each other by `list_sessions`.
const READ_BY_ADMINISTRATORS: [&str; 2] = [projects::LIST_PROJECTS.name, projects::GET_PROJECT_INFO.name];

/// The entry of a tool in the list of callers of this scope; `None` if the set leaves it out.
pub fn entry(tool: &Tool, scope: Scope, set: ToolSet) -> Option<Value> {
    if set == ToolSet::Full {
        return Some(tool.describe());
    }
    let omits = match SELECTED.iter().find(|selected| selected.name == tool.name) {
        Some(selected) => (selected.set <= set).then_some(selected.omits)?,
        None if set >= ToolSet::Agent && scope >= Scope::Admin && is_administration(tool) => &[],
        None => return None,
    };
    Some(shortened(tool.describe(), omits))
}

fn is_administration(tool: &Tool) -> bool {
    tool.required_scope >= Scope::Admin || READ_BY_ADMINISTRATORS.contains(&tool.name)
}

/// The entry without what clients assume by themselves and what the list leaves out.
fn shortened(mut entry: Value, omits: &[&str]) -> Value {
    if entry.get("outputSchema").is_some() {
        entry["outputSchema"] = json!({"type": "object"});
    }
    entry["annotations"] = short_annotations(&entry["annotations"]);
    let Some(input) = entry["inputSchema"].as_object_mut() else {
        return entry;
    };
    input.remove("additionalProperties");
    let Some(properties) = input.get_mut("properties") else {
        return entry;
    };
    for (parent, name) in omits.iter().filter_map(|pointer| pointer.rsplit_once('/')) {
        if let Some(parent) = properties.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(name);
        }
    }
    let left = properties.as_object().cloned().unwrap_or_default();
    if let Some(required) = input.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name.as_str().is_some_and(|name| left.contains_key(name)));
        if required.is_empty() {
            input.remove("required");
        }
    }
    entry
}

/// The hints that say something: those of a reading tool follow from `readOnlyHint`, and a tool is neither reading nor
/// idempotent unless it declares it.
fn short_annotations(whole: &Value) -> Value {
    let says = |hint: &str| whole[hint] == json!(true);
    if says("readOnlyHint") {
        return json!({"readOnlyHint": true});
    }
    let mut short = Map::new();
    short.insert("destructiveHint".to_owned(), says("destructiveHint").into());
    if says("idempotentHint") {
        short.insert("idempotentHint".to_owned(), true.into());
    }
    Value::Object(short)
}

#[cfg(test)]
mod tests {
    use super::{super::TOOLS, *};

    #[test]
    fn every_omission_exists() {
        for selected in SELECTED {
            let tool = TOOLS.iter().find(|tool| tool.name == selected.name).unwrap();
            let properties = tool.describe()["inputSchema"]["properties"].take();
            for omitted in selected.omits {
                assert!(properties.pointer(omitted).is_some(), "{} {omitted}", selected.name);
            }
        }
    }

    #[test]
    fn a_short_entry_has_what_is_left() {
        let listed = |tool: &Tool, set| entry(tool, Scope::Member, set);
        let short = listed(&asking::PERMISSION_PROMPT, ToolSet::Agent).unwrap();
        assert_eq!(short["inputSchema"], json!({"type": "object", "properties": {}}));
        let short = listed(&receiving::RECEIVE_MESSAGES, ToolSet::Core).unwrap();
        assert_eq!(short["outputSchema"], json!({"type": "object"}));
        assert_eq!(short["annotations"], json!({"destructiveHint": true}));
        let short = listed(&sessions::LIST_SESSIONS, ToolSet::Core).unwrap();
        assert_eq!(short["annotations"], json!({"readOnlyHint": true}));
        assert_eq!(listed(&asking::YAP, ToolSet::Core), None);
        assert_eq!(listed(&sessions::HEARTBEAT, ToolSet::Agent), None);
        let whole = listed(&sessions::HEARTBEAT, ToolSet::Full);
        assert_eq!(whole, Some(sessions::HEARTBEAT.describe()));
    }

    #[test]
    fn administration_is_listed_to_administrators() {
        let listed = |scope, set| entry(&projects::GET_PROJECT_INFO, scope, set).is_some();
        assert!(listed(Scope::Admin, ToolSet::Agent) && !listed(Scope::Admin, ToolSet::Core));
        assert!(!listed(Scope::Member, ToolSet::Agent) && listed(Scope::Member, ToolSet::Full));
        assert!(entry(&projects::ROTATE_PROJECT_KEYS, Scope::Admin, ToolSet::Agent).is_some());
    }
}
