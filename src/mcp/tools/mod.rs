//! The tools: a table, and one file for each subject. A new tool is one entry here and one function there.

mod arguments;
mod dead_letters;
mod negotiation;
mod projects;
mod protocols;
mod receiving;
mod sending;
mod sessions;

use std::{
    cell::OnceCell,
    collections::HashMap,
    rc::Rc,
    sync::{Arc, LazyLock},
    time::Duration,
};

use actors::{
    model::{BrokerError, Scope, SessionId},
    project::ProjectHandle,
    session::Member,
};
use futures_util::future::LocalBoxFuture;
use serde_json::{Map, Value, json};

pub use arguments::{Arguments, JsonObject};
pub use protocols::{protocol_json, protocol_page};
pub use receiving::read_acknowledgement;
pub use sending::{SendReply, ToolSend};
pub use sessions::session_page;

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::{
    answer_reservation::AnswerReservation,
    context::PeerContext,
    interactive::{InteractiveCall, InteractiveResult},
    pending_receive::PendingReceive,
    reply::{ReplyTo, ToolResult},
};

/// Longest wait of a call: clients and proxies keep one alive for two minutes.
pub const WAIT_MAX: Duration = Duration::from_secs(110);

/// A tool, as `tools/list` shows it and `tools/call` runs it.
pub struct Tool {
    pub name: &'static str,
    title: &'static str,
    description: &'static str,
    hints: Hints,
    /// How much its caller must be allowed to do.
    pub required_scope: Scope,
    /// The properties and the required ones of its arguments, `session_id` left out.
    input: fn() -> (Value, &'static [&'static str]),
    /// The same of its result.
    output: fn() -> (Value, &'static [&'static str]),
    /// A caller without a session gets one before the tool runs.
    pub acts_as_session: bool,
    /// No later frame of the connection may overtake it.
    pub exclusive: bool,
    pub run: Run,
}

/// How a tool runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// It has its answer at once.
    Sync(fn(&ToolCaller, Arguments<'_>) -> Result<ToolResult, BrokerError>),
    /// It waits for somebody.
    Async(fn(ToolCaller, Arguments<'_>) -> Result<PendingCall, BrokerError>),
    /// It sends a message, together with whatever else the turn sends.
    Submit(fn(&ToolCaller, Arguments<'_>, ReplyTo) -> Result<ToolSend, BrokerError>),
    /// It talks with its caller while it runs.
    Interactive(fn(InteractiveCall) -> LocalBoxFuture<'static, InteractiveResult>),
}

/// A call under way.
pub struct PendingCall {
    pub answer: LocalBoxFuture<'static, Result<ToolResult, BrokerError>>,
    /// What is to be done when the answer has been sent.
    pub after_answer: Option<LocalBoxFuture<'static, ()>>,
    /// What it takes out of an inbox, to be given back when the caller cancels it, however late.
    pub receive: Option<PendingReceive>,
    /// It may last: whoever takes tasks gets one.
    pub may_wait: bool,
    /// Its answer has a page of a list, or one item that may be larger.
    pub has_page: bool,
    /// Ready when the call begins to wait for what may come late.
    pub wait_started: Option<LocalBoxFuture<'static, ()>>,
}

impl PendingCall {
    fn new(answer: impl Future<Output = Result<ToolResult, BrokerError>> + 'static) -> Self {
        Self {
            answer: Box::pin(answer),
            after_answer: None,
            receive: None,
            may_wait: false,
            has_page: false,
            wait_started: None,
        }
    }

    /// A call that answers with a page of a list.
    fn page(answer: impl Future<Output = Result<ToolResult, BrokerError>> + 'static) -> Self {
        Self {
            has_page: true,
            ..Self::new(answer)
        }
    }
}

/// What a tool says of itself (`ToolAnnotations`).
#[derive(Clone, Copy)]
struct Hints {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
}

const READ_ONLY: Hints = Hints {
    read_only: true,
    destructive: false,
    idempotent: true,
};
const ADDITIVE: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: false,
};
const IDEMPOTENT: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: true,
};
const DESTRUCTIVE: Hints = Hints {
    read_only: false,
    destructive: true,
    idempotent: false,
};

/// Who calls a tool.
#[derive(Clone)]
pub struct ToolCaller {
    pub project: ProjectHandle,
    pub session: Option<Arc<Member>>,
    /// The lasting connection the call came by.
    context: Rc<PeerContext>,
    /// For its answer, if that may be long.
    reservation: OnceCell<Rc<AnswerReservation>>,
}

impl ToolCaller {
    pub fn new(context: &Rc<PeerContext>) -> Self {
        Self {
            project: context.project.clone(),
            session: context.session.borrow().clone(),
            context: Rc::clone(context),
            reservation: OnceCell::new(),
        }
    }

    /// The room of the answer, of which nothing is reserved at first.
    pub fn reservation(&self) -> &Rc<AnswerReservation> {
        self.reservation.get_or_init(|| AnswerReservation::new(&self.context))
    }

    /// One of the caller's own sessions.
    pub fn session_of(&self, id: SessionId) -> Result<Arc<Member>, BrokerError> {
        self.project.own_session(id, self.context.identity.owner())
    }

    /// Whether this session is the connection's own.
    fn is_connection_session(&self, member: &Member) -> bool {
        let own = self.context.session.borrow();
        own.as_ref().is_some_and(|own| own.record.id == member.record.id)
    }

    fn session(&self) -> Result<&Arc<Member>, BrokerError> {
        let refused = || self.context.session_error.borrow().clone();
        self.session
            .as_ref()
            .ok_or_else(|| refused().unwrap_or(BrokerError::SessionRequired))
    }
}

/// All tools, in the order of `tools/list`.
pub static TOOLS: &[Tool] = &[
    sessions::REGISTER_SESSION,
    sessions::HEARTBEAT,
    sessions::DISCONNECT_SESSION,
    sessions::LIST_SESSIONS,
    protocols::REGISTER_PROTOCOL,
    protocols::DISCOVER_PROTOCOLS,
    negotiation::NEGOTIATE_CAPABILITIES,
    negotiation::COMPATIBILITY_MATRIX,
    sending::SEND_MESSAGE,
    sending::BROADCAST_MESSAGE,
    receiving::RECEIVE_MESSAGES,
    receiving::ACKNOWLEDGE_MESSAGES,
    receiving::GET_MESSAGE_STATUS,
    dead_letters::LIST_DEAD_LETTERS,
    dead_letters::REDRIVE_DEAD_LETTERS,
    projects::CREATE_PROJECT,
    projects::LIST_PROJECTS,
    projects::GET_PROJECT_INFO,
    projects::ROTATE_PROJECT_KEYS,
    projects::GRANT_PROJECT_ACCESS,
    projects::REVOKE_PROJECT_ACCESS,
];

/// Those that are of no use where there is one project.
const MULTI_PROJECT_TOOLS: [&str; 4] = [
    projects::CREATE_PROJECT.name,
    projects::LIST_PROJECTS.name,
    projects::GRANT_PROJECT_ACCESS.name,
    projects::REVOKE_PROJECT_ACCESS.name,
];

/// The tool by which a caller gets a session.
pub const REGISTER_SESSION: &str = sessions::REGISTER_SESSION.name;

pub fn find(name: &str) -> Option<&'static Tool> {
    #[cfg(feature = "conformance-fixtures")]
    if let Some(tool) = fixtures::tools::find(name) {
        return Some(tool);
    }
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Whether a tool is there in a broker of one project.
pub fn is_single_project(tool: &Tool) -> bool {
    !MULTI_PROJECT_TOOLS.contains(&tool.name)
}

/// Whether a tool takes messages out of an inbox.
pub fn receives_messages(name: &str) -> bool {
    name == receiving::RECEIVE_MESSAGES.name
}

/// A parameter that is said in a header too (`x-mcp-header`, 2026-07-28, basic/transports/streamable-http, Custom
/// Headers).
#[derive(Debug)]
pub struct MirroredParameter {
    /// Where it is in the arguments (RFC 6901).
    pub pointer: String,
    pub header: String,
}

/// The parameters of a tool that are mirrored in headers.
pub fn mirrored_parameters(tool: &str) -> &'static [MirroredParameter] {
    // As clients find them, which know of a tool what is listed.
    static MIRRORED: LazyLock<HashMap<String, Vec<MirroredParameter>>> = LazyLock::new(|| {
        let of = |tool: &Value| {
            let mut found = Vec::new();
            find_mirrored(&tool["inputSchema"]["properties"], "", &mut found);
            (tool["name"].as_str().unwrap_or_default().to_owned(), found)
        };
        let tools = list(true, Scope::Operator);
        let tools = tools.as_array().into_iter().flatten();
        tools.map(of).filter(|(_, found)| !found.is_empty()).collect()
    });
    MIRRORED.get(tool).map_or(&[], Vec::as_slice)
}

fn find_mirrored(properties: &Value, at: &str, found: &mut Vec<MirroredParameter>) {
    for (name, schema) in properties.as_object().into_iter().flatten() {
        let pointer = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        if let Some(header) = schema["x-mcp-header"].as_str() {
            let header = format!("Mcp-Param-{header}");
            found.push(MirroredParameter {
                pointer: pointer.clone(),
                header,
            });
        }
        find_mirrored(&schema["properties"], &pointer, found);
    }
}

/// The tools of `tools/list` for a caller of this scope, of a broker of many projects or of one.
pub fn list(multi_project: bool, scope: Scope) -> Value {
    let is_there = |tool: &&Tool| tool.required_scope <= scope && (multi_project || is_single_project(tool));
    let tools = TOOLS.iter().filter(is_there).map(Tool::describe);
    #[cfg(feature = "conformance-fixtures")]
    let tools = fixtures::tools::list().chain(tools);
    tools.collect()
}

impl Tool {
    /// One of the fixtures, which are not listed as the others are.
    #[cfg(feature = "conformance-fixtures")]
    pub const fn fixture(name: &'static str, run: fixtures::FixtureFn) -> Self {
        Self {
            name,
            title: "",
            description: "",
            hints: READ_ONLY,
            required_scope: Scope::Observer,
            input: || (Value::Null, &[]),
            output: || (Value::Null, &[]),
            acts_as_session: false,
            exclusive: false,
            run: Run::Interactive(run),
        }
    }

    fn describe(&self) -> Value {
        let (mut arguments, required) = (self.input)();
        arguments["session_id"] = string_schema("From register_session.");
        let Hints {
            read_only,
            destructive,
            idempotent,
        } = self.hints;
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": object_schema(arguments, required),
            "outputSchema": self.output_schema(),
            "annotations": {
                "readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": idempotent,
            },
        })
    }

    /// The result, or the error object: clients check `structuredContent` against it in both cases.
    fn output_schema(&self) -> Value {
        let (mut properties, required) = (self.output)();
        properties["unread"] = integer_schema("");
        json!({
            "type": "object",
            "properties": properties,
            "anyOf": [{"required": required}, {"required": ["code", "message"]}],
        })
    }
}

fn object_schema(properties: Value, required: &[&str]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    Value::Object(schema)
}

/// A schema and what it is for, where its name does not say that: models read every word of the list.
fn with_description(mut schema: Value, description: &str) -> Value {
    if !description.is_empty() {
        schema["description"] = json!(description);
    }
    schema
}

fn string_schema(description: &str) -> Value {
    with_description(json!({"type": "string"}), description)
}

fn integer_schema(description: &str) -> Value {
    with_description(json!({"type": "integer"}), description)
}

fn strings_schema(description: &str) -> Value {
    with_description(json!({"type": "array", "items": {"type": "string"}}), description)
}

fn limit_schema(default: usize, max: usize) -> Value {
    integer_schema(&format!("1 to {max}, default {default}."))
}

fn cursor_schema() -> Value {
    string_schema("From next_cursor.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_describes_itself_fully() {
        for tool in TOOLS {
            let described = tool.describe();
            for side in ["inputSchema", "outputSchema"] {
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
        }
    }
}
