//! What a client is shown: everything, the broker's own tools, or backends.

use actors::{gateway::Offered, model::BackendName, project::ProjectHandle};

/// The path segment of the broker's own tools.
const BROKER: &str = "broker";

/// What a client is shown. It is chosen by the way in which the client connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// The broker's own tools, and those of all backends with the name of the backend before theirs: `/mcp`.
    #[default]
    All,
    /// The broker's own tools: `/mcp/broker`.
    Broker,
    /// One backend under its own names: `/mcp/NAME`.
    Backend(BackendName),
    /// All backends without the broker's own tools: `mcp-broker gateway run`.
    Backends,
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
        matches!(self, Self::All | Self::Broker)
    }

    /// Whether backends are shown.
    pub fn has_backends(&self) -> bool {
        !matches!(self, Self::Broker)
    }

    /// The backend that this is the door of.
    pub fn backend(&self) -> Option<&BackendName> {
        match self {
            Self::Backend(name) => Some(name),
            Self::All | Self::Broker | Self::Backends => None,
        }
    }

    /// The position of the only backend that is shown, beyond all positions if that is no longer there. `None` where the
    /// names of tools say which backend has them.
    pub fn only_backend(&self, offered: &Offered) -> Option<usize> {
        match self {
            Self::Backend(name) => {
                let at = offered.backends.iter().position(|backend| backend.name == *name);
                Some(at.unwrap_or(usize::MAX))
            }
            Self::Backends => offered.routes.single(),
            Self::All | Self::Broker => None,
        }
    }
}
