//! Who the client of the front is: its product, the conversation that it serves, and the name that its agent wants. Pure:
//! the environment is an argument.

use std::path::PathBuf;

use actors::model::{AUTOMATIC_NAME, SessionName, is_conversation};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use api::mcp::version::ClientInfo;
use common::user_broker::hello::Agent;

/// The product name of Claude Code, which ignores notifications of the modern era on stdio.
pub const CLAUDE_CODE: &str = "claude-code";
/// The product name of Codex, which tells its conversation in the `_meta` of calls.
pub const CODEX: &str = "codex";
/// The name of an agent whose folder has none.
const NAME_DEFAULT: &str = "agent";
/// Bytes of a name that is made from a folder. A number of the broker follows it.
const NAME_LEN_MAX: usize = 40;

/// How the agent gets its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// By its own `register_session`.
    #[default]
    ByAgent,
    /// The front registers this name.
    Given(SessionName),
    /// The front registers a name after the folder, which the broker makes unique.
    Automatic,
}

/// Who the client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    product: Option<String>,
    product_version: Option<String>,
    conversation: Option<String>,
    /// The thread of Codex that has made the last call.
    thread: Option<String>,
    /// The name of the folder in which the agent works.
    folder: Option<String>,
}

impl Identity {
    /// Reads what the environment says about the client. What the client says of itself in its first frame replaces it,
    /// because a client may have inherited the environment of another one.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>, folder: Option<PathBuf>) -> Self {
        let is_claude = variable("CLAUDECODE").is_some_and(|value| value == "1");
        let folder = variable("CLAUDE_PROJECT_DIR")
            .map(PathBuf::from)
            .filter(|_| is_claude)
            .or(folder);
        let folder = folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
        Self {
            product: is_claude.then(|| CLAUDE_CODE.to_owned()),
            product_version: None,
            thread: None,
            conversation: variable("CLAUDE_CODE_SESSION_ID").filter(|id| is_claude && is_conversation(id)),
            folder: folder.filter(|name| !name.contains(char::is_control)),
        }
    }

    /// Takes note of what the client says of itself.
    pub fn meet(&mut self, client: &ClientInfo) {
        if client.name.is_empty() {
            return;
        }
        let name = if client.name.starts_with(CODEX) {
            CODEX
        } else {
            &client.name
        };
        if !self.is_product(name) {
            // The conversation of the environment belongs to another program.
            self.conversation = None;
        }
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
        self.product = Some(plain(name));
        self.product_version = Some(plain(&client.version)).filter(|version| !version.is_empty());
    }

    /// Whether the client is this product.
    pub fn is_product(&self, name: &str) -> bool {
        self.product.as_deref() == Some(name)
    }

    /// Whether the conversation is found in the `_meta` of the first call.
    pub fn awaits_conversation(&self) -> bool {
        self.conversation.is_none() && self.is_product(CODEX)
    }

    /// Takes note of the thread in the `_meta` of a call of Codex. Returns whether the conversation is now known.
    pub fn note_call(&mut self, meta: &str) -> bool {
        #[derive(Deserialize)]
        struct Meta {
            #[serde(rename = "threadId")]
            thread_id: Option<String>,
        }
        if !self.is_product(CODEX) {
            return false;
        }
        let meta: Option<Meta> = serde_json::from_str(meta).ok();
        let Some(thread) = meta.and_then(|meta| meta.thread_id).filter(|id| is_conversation(id)) else {
            return false;
        };
        let is_first = self.conversation.is_none();
        if is_first {
            self.conversation = Some(thread.clone());
        }
        self.thread = Some(thread);
        is_first
    }

    /// The conversation that the client serves, as far as it is known.
    pub fn conversation(&self) -> Option<&str> {
        self.conversation.as_deref()
    }

    /// The thread of Codex that has made the last call.
    pub fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// What the broker gets. `wanted` is the name that it is to make unique.
    pub fn agent(&self, wanted: Option<String>) -> Agent {
        Agent {
            product: self.product.clone(),
            product_version: self.product_version.clone(),
            conversation: self.conversation.clone(),
            directory: self.folder.clone(),
            auto_name: wanted,
            ..Agent::default()
        }
    }

    /// The metadata of a session that the front registers. Others see it, and the broker finds the session of a
    /// conversation by it.
    pub fn metadata(&self, naming: &Naming) -> Map<String, Value> {
        let members = [
            ("product", &self.product),
            ("conversation", &self.conversation),
            ("directory", &self.folder),
        ];
        let given = members
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
        let automatic = (*naming == Naming::Automatic).then(|| (AUTOMATIC_NAME.to_owned(), json!(true)));
        given.chain(automatic).collect()
    }

    /// The name after the folder.
    pub fn folder_name(&self) -> SessionName {
        let folder = self.folder.as_deref().unwrap_or_default();
        let mut name = String::new();
        for c in folder.chars().filter(|c| *c != '@') {
            if name.len() + c.len_utf8() > NAME_LEN_MAX {
                break;
            }
            name.push(c);
        }
        let parsed = SessionName::parse(name.trim());
        parsed
            .or_else(|_| SessionName::parse(NAME_DEFAULT))
            .unwrap_or_else(|_| unreachable!("a valid name"))
    }

    /// A name for a broker that does not make names unique: the folder, and the beginning of the conversation.
    pub fn conversation_name(&self) -> SessionName {
        let folder = self.folder_name();
        let digits = |id: &String| {
            id.chars()
                .filter(char::is_ascii_alphanumeric)
                .take(8)
                .collect::<String>()
        };
        let Some(conversation) = self
            .conversation
            .as_ref()
            .map(digits)
            .filter(|digits| !digits.is_empty())
        else {
            return folder;
        };
        SessionName::parse(&format!("{}-{conversation}", folder.as_str())).unwrap_or(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(variables: &[(&str, &str)]) -> Identity {
        let find = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Identity::from_environment(find, Some(PathBuf::from("/home/mara/cellar")))
    }

    fn client(name: &str) -> ClientInfo {
        ClientInfo {
            name: name.to_owned(),
            version: "1.0".to_owned(),
        }
    }

    const CLAUDE: [(&str, &str); 3] = [
        ("CLAUDECODE", "1"),
        ("CLAUDE_PROJECT_DIR", "/home/mara/shop"),
        ("CLAUDE_CODE_SESSION_ID", "f5f36726-0001"),
    ];

    #[test]
    fn the_environment_of_claude_code_names_the_conversation_and_the_folder() {
        let mut identity = identity(&CLAUDE);
        identity.meet(&client("claude-code"));
        assert!(identity.is_product(CLAUDE_CODE) && !identity.awaits_conversation());
        let agent = identity.agent(Some("shop".to_owned()));
        assert_eq!(agent.conversation.as_deref(), Some("f5f36726-0001"));
        assert_eq!(
            Value::Object(identity.metadata(&Naming::ByAgent)),
            json!({"product": "claude-code", "conversation": "f5f36726-0001", "directory": "shop"})
        );
        assert_eq!(identity.conversation_name().as_str(), "shop-f5f36726");
    }

    #[test]
    fn an_inherited_conversation_belongs_to_another_program() {
        let mut identity = identity(&CLAUDE);
        identity.meet(&client("codex-mcp-client"));
        assert!(identity.awaits_conversation() && !identity.is_product(CLAUDE_CODE));
        assert!(!identity.note_call(r#"{"progressToken":1}"#));
        assert!(identity.note_call(r#"{"threadId":"t1","sessionId":"s1"}"#));
        assert!(!identity.awaits_conversation());
        assert!(!identity.note_call(r#"{"threadId":"t2"}"#), "the conversation stays");
        assert_eq!(identity.thread(), Some("t2"));
        assert_eq!(identity.agent(None).conversation.as_deref(), Some("t1"));
    }

    #[test]
    fn every_folder_gives_a_name() {
        let named = |folder: &str| {
            let identity = Identity::from_environment(|_| None, Some(PathBuf::from(folder)));
            identity.folder_name().as_str().to_owned()
        };
        assert_eq!(named("/home/mara/cellar"), "cellar");
        assert_eq!(named("/a/@work"), "work");
        for nameless in ["/", "/a/@", "/a/ ", "/a/x\ny"] {
            assert_eq!(named(nameless), "agent", "{nameless:?}");
        }
        assert!(named(&format!("/{}", "ä".repeat(100))).len() <= NAME_LEN_MAX);
    }
}
