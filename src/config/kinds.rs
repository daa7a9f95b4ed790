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

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `Pretty` when stderr is a terminal, else `Json`.
    Auto,
    Pretty,
    Json,
}
