//! How many of the broker's own tools a caller is listed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

words! {
    /// The tools that a caller is listed, from the fewest to all. A tool can be called by its name whether it is listed or not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum ToolSet {
        /// To join, send, receive, acknowledge and ask.
        Core = "core",
        /// What an agent needs, with the common arguments.
        #[default]
        Agent = "agent",
        /// Every tool that the caller may call, with every argument and the schema of its result.
        Full = "full",
    }
}
