//! The tools: a table, and one file for each subject. A new tool is an entry in the table and a function in a file; a line
//! of `selection` lists it to agents.

mod asking;
mod backends;
mod dead_letters;
mod history;
mod negotiation;
mod projects;
mod protocols;
mod receiving;
mod schema;
mod selection;
mod sending;
mod sessions;
pub mod tool;

use std::{collections::HashMap, sync::LazyLock};

use actors::model::{Scope, ToolSet};
use serde_json::Value;

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::mirrored::{self, MirroredParameter};
pub use asking::read_input;
pub use receiving::read_acknowledgement;
pub use sending::{answer_send, send_cross_project};
pub use tool::{Called, PendingCall, Tool, ToolCaller};

/// All tools, in the order of `tools/list`.
pub static TOOLS: &[Tool] = &[
    sessions::REGISTER_SESSION,
    sessions::HEARTBEAT,
    sessions::DISCONNECT_SESSION,
    sessions::LIST_SESSIONS,
    protocols::REGISTER_PROTOCOL,
    protocols::DISCOVER_PROTOCOLS,
    protocols::TRANSFORM_MESSAGE,
    negotiation::NEGOTIATE_CAPABILITIES,
    negotiation::COMPATIBILITY_MATRIX,
    sending::SEND_MESSAGE,
    sending::BROADCAST_MESSAGE,
    receiving::RECEIVE_MESSAGES,
    receiving::ACKNOWLEDGE_MESSAGES,
    receiving::GET_MESSAGE_STATUS,
    history::GET_THREAD,
    history::SEARCH_MESSAGES,
    asking::CLARIFY,
    asking::GET_ANSWER,
    asking::CANCEL_QUESTION,
    asking::YAP,
    asking::PERMISSION_PROMPT,
    dead_letters::LIST_DEAD_LETTERS,
    dead_letters::REDRIVE_DEAD_LETTERS,
    backends::LIST_BACKENDS,
    backends::RESTART_BACKEND,
    backends::ADD_BACKEND,
    backends::REMOVE_BACKEND,
    projects::CREATE_PROJECT,
    projects::LIST_PROJECTS,
    projects::GET_PROJECT_INFO,
    projects::ROTATE_PROJECT_KEYS,
    projects::GRANT_PROJECT_ACCESS,
    projects::REVOKE_PROJECT_ACCESS,
];

/// The tools that a broker with a single project does not offer.
const MULTI_PROJECT_TOOLS: [&str; 4] = [
    projects::CREATE_PROJECT.name,
    projects::LIST_PROJECTS.name,
    projects::GRANT_PROJECT_ACCESS.name,
    projects::REVOKE_PROJECT_ACCESS.name,
];

/// The tools that a project without backends does not offer.
const BACKEND_TOOLS: [&str; 3] = [
    backends::LIST_BACKENDS.name,
    backends::RESTART_BACKEND.name,
    backends::REMOVE_BACKEND.name,
];

/// The tool that registers a session.
pub const REGISTER_SESSION: &str = sessions::REGISTER_SESSION.name;
/// The tool by which a session leaves.
pub const DISCONNECT_SESSION: &str = sessions::DISCONNECT_SESSION.name;

/// The tool of this name.
pub fn find(name: &str) -> Option<&'static Tool> {
    #[cfg(feature = "conformance-fixtures")]
    if let Some(tool) = fixtures::tools::find(name) {
        return Some(tool);
    }
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Whether this tool is offered in a broker with many projects or a single one, in a project with backends or without.
pub fn is_offered(tool: &Tool, is_multi_project: bool, has_backends: impl FnOnce() -> bool) -> bool {
    (is_multi_project || !MULTI_PROJECT_TOOLS.contains(&tool.name))
        && (!BACKEND_TOOLS.contains(&tool.name) || has_backends())
}

/// Whether a tool sends messages, whose `headers` may have an idempotency key.
pub fn takes_idempotency_key(name: &str) -> bool {
    [sending::SEND_MESSAGE.name, sending::BROADCAST_MESSAGE.name].contains(&name)
}

/// Whether a tool asks people, whose argument `idempotency_key` keeps a repeated call from asking twice.
pub fn asks_with_key(name: &str) -> bool {
    name == asking::CLARIFY.name
}

/// Whether an answer of a tool may hand over messages.
pub fn hands_over_messages(name: &str) -> bool {
    receives_messages(name) || asks(name)
}

/// Whether a tool asks people, and may ask its client as well.
pub fn asks(name: &str) -> bool {
    let asking = [
        asking::CLARIFY.name,
        asking::GET_ANSWER.name,
        asking::PERMISSION_PROMPT.name,
    ];
    asking.contains(&name)
}

/// Whether a tool receives messages.
pub fn receives_messages(name: &str) -> bool {
    name == receiving::RECEIVE_MESSAGES.name
}

/// The parameters of an own tool that clients repeat in headers.
pub fn mirrored_parameters(tool: &str) -> &'static [MirroredParameter] {
    // Found in the list of tools, as clients find them.
    static MIRRORED: LazyLock<HashMap<String, Vec<MirroredParameter>>> = LazyLock::new(|| {
        let of = |tool: &Value| {
            // The annotations of own tools are right: a test calls them.
            let found = mirrored::mirrored_parameters(&tool["inputSchema"]).unwrap_or_default();
            (tool["name"].as_str().unwrap_or_default().to_owned(), found)
        };
        let tools = list(true, true, Scope::Operator, ToolSet::Full);
        let tools = tools.as_array().into_iter().flatten();
        tools.map(of).filter(|(_, found)| !found.is_empty()).collect()
    });
    MIRRORED.get(tool).map_or(&[], Vec::as_slice)
}

/// The list of tools for a caller of this scope, in a broker with many projects or a single one, in a project with backends
/// or without.
pub fn list(is_multi_project: bool, has_backends: bool, scope: Scope, set: ToolSet) -> Value {
    let may_call = |tool: &&Tool| tool.required_scope <= scope && is_offered(tool, is_multi_project, || has_backends);
    let tools = TOOLS.iter().filter(may_call);
    let tools = tools.filter_map(|tool| selection::entry(tool, scope, set));
    #[cfg(feature = "conformance-fixtures")]
    let tools = fixtures::tools::list().chain(tools);
    tools.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_describes_itself_fully() {
        for tool in TOOLS {
            let described = tool.describe();
            let has_output = tool.name != asking::PERMISSION_PROMPT.name;
            assert_eq!(described.get("outputSchema").is_some(), has_output, "{}", tool.name);
            for side in ["inputSchema", "outputSchema"]
                .into_iter()
                .take(1 + usize::from(has_output))
            {
                let schema = &described[side];
                assert_eq!(schema["type"], "object", "{} {side}", tool.name);
                assert!(
                    actors::registry::Schema::compile(schema).is_ok(),
                    "{} {side}",
                    tool.name
                );
            }
            assert!(tool.name.len() <= 40 && tool.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(described["annotations"]["readOnlyHint"].is_boolean());
            assert!(mirrored::mirrored_parameters(&described["inputSchema"]).is_ok());
        }
    }
}
