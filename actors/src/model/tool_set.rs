//! How many of the broker's own tools a caller is listed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The tools that a caller is listed, from the fewest to all. A tool can be called by its name whether it is listed or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolSet {
    /// To join, send, receive, acknowledge and ask.
    Core,
    /// What an agent needs, with the common arguments.
    #[default]
    Agent,
    /// Every tool that the caller may call, with every argument and the schema of its result.
    Full,
}

impl ToolSet {
    /// All of them, from the fewest tools to all.
    pub const ALL: [Self; 3] = [Self::Core, Self::Agent, Self::Full];

    /// The word of the setting.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Agent => "agent",
            Self::Full => "full",
        }
    }

    /// What a word of the setting means.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.as_str() == word)
    }
}
