//! What a client is shown: everything, the broker's own tools, or one backend.

use actors::{gateway::BackendShared, model::BackendName, project::ProjectHandle};
use std::sync::Arc;

/// The path segment of the broker's own tools.
const BROKER: &str = "broker";

/// What a client is shown. It is chosen by the path at which the client connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// The broker's own tools, and those of all backends with the name of the backend before theirs: `/mcp`.
    #[default]
    All,
    /// The broker's own tools: `/mcp/broker`.
    Broker,
    /// One backend under its own names: `/mcp/NAME`.
    Backend(BackendName),
}

impl Exposure {
    /// What the last segment of a path names. `None` if the project has no such backend.
    pub fn of_segment(segment: &str, project: &ProjectHandle) -> Option<Self> {
        if segment == BROKER {
            return Some(Self::Broker);
        }
        let offered = project.gateway()?.shared().offered();
        let backend = offered.backend(segment)?;
        Some(Self::Backend(backend.name.clone()))
    }

    /// Whether the broker's own tools, prompts and resources are shown.
    pub fn has_own(&self) -> bool {
        !matches!(self, Self::Backend(_))
    }

    /// Whether backends are shown.
    pub fn has_backends(&self) -> bool {
        !matches!(self, Self::Broker)
    }

    /// The one backend that is shown, if it is one.
    pub fn only_backend(&self, project: &ProjectHandle) -> Option<Arc<BackendShared>> {
        match self {
            Self::Backend(name) => project.gateway()?.shared().offered().backend(name.as_str()).cloned(),
            Self::All | Self::Broker => None,
        }
    }
}
