//! The clients that run hooks, and how their inputs and answers differ.

use clap::ValueEnum;

/// A client that runs hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HookClient {
    Claude,
    Codex,
    Gemini,
    Copilot,
    Cursor,
}

impl HookClient {
    /// The members of the input that may name the conversation; the first that is there does.
    pub fn conversation_members(self) -> &'static [&'static str] {
        match self {
            Self::Claude | Self::Gemini => &["session_id"],
            Self::Codex => &["thread_id", "thread-id", "session_id"],
            Self::Copilot => &["sessionId", "session_id"],
            Self::Cursor => &["conversation_id", "session_id"],
        }
    }

    /// Whether the front of this client learns the conversation by itself. The agents of other clients have to name it.
    pub fn tells_its_conversation(self) -> bool {
        matches!(self, Self::Claude | Self::Codex)
    }

    /// Whether the input of a turn's end does not say that a hook has continued the turn before.
    pub fn lacks_guard(self) -> bool {
        matches!(self, Self::Copilot | Self::Cursor)
    }
}
