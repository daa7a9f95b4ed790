//! The values of settings that are one of a few words.

/// Where the broker keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageKind {
    Memory,
    Disk,
    Redis,
}

/// What replaces a Redis that cannot be reached at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisFallback {
    None,
    Memory,
}

/// By which ways `clarify` reaches people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClarifyBy {
    Desk,
    /// The desk, and the client of the agent while no person is at the desk.
    DeskThenClient,
    /// The client of the agent, and the desk as well.
    ClientThenDesk,
}

/// Who may describe a backend with a command, which is code that runs as the user of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayCommands {
    None,
    /// The configuration file.
    Configured,
    /// The configuration file, and administrators of projects.
    Admin,
}

/// Whether names of tools begin with the name of their backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayPrefix {
    Always,
    /// Not where a single backend is all that is offered.
    Auto,
    /// Only where names are ambiguous.
    Never,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `Pretty` when stderr is a terminal, else `Json`.
    Auto,
    Pretty,
    Json,
}
