//! What the user looks at.

/// The views.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Tab {
    #[default]
    Sessions,
    Messages,
    DeadLetters,
    Replicas,
    Events,
    /// The questions that wait for a person.
    Desk,
    Backends,
}

impl Tab {
    /// All views in their order.
    pub const ALL: [Self; 7] = [
        Self::Sessions,
        Self::Messages,
        Self::DeadLetters,
        Self::Replicas,
        Self::Events,
        Self::Desk,
        Self::Backends,
    ];

    /// Its title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sessions => "Sessions",
            Self::Messages => "Messages",
            Self::DeadLetters => "Dead letters",
            Self::Replicas => "Replicas",
            Self::Events => "Events",
            Self::Desk => "Desk",
            Self::Backends => "Backends",
        }
    }

    /// Its place among all.
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default()
    }
}

/// What Enter opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Session(String),
    Message(String),
}

/// What the feed asks the broker for, besides the figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    pub tab: Tab,
    pub target: Option<Target>,
    /// What the broker sorts sessions by, and whether it begins with the last.
    pub session_sort: Option<(&'static str, bool)>,
    /// The text that sessions have in their name or id, where there are more than fit.
    pub session_filter: Option<String>,
}

/// Sessions that one look brings.
pub const SESSIONS_MAX: usize = 1000;
