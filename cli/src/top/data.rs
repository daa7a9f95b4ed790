//! The answers of the broker that `top` shows. Members that are not known, and members that are missing, do no harm: the
//! broker may be older or newer.

use rest::{
    backends::Backend,
    messages::{DeadLetter, ListedMessage, MessageLife},
    questions::Question,
    sessions::Session,
    stats::Stats,
};

/// Everything that one look at the broker brings.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The time of the look, in ms since the Unix epoch.
    pub at_ms: u64,
    pub stats: Stats,
    pub sessions: Vec<Session>,
    /// The broker has more sessions than are shown.
    pub more_sessions: bool,
    /// Newest first; empty while another view is shown.
    pub messages: Vec<ListedMessage>,
    /// Oldest first; empty while another view is shown.
    pub dead_letters: Vec<DeadLetter>,
    /// The questions that wait for a person; empty while another view is shown, and where the key may not see them.
    pub questions: Vec<Question>,
    /// The backends; empty while another view is shown, and where the key may not see them.
    pub backends: Vec<Backend>,
    pub detail: Option<Detail>,
}

/// What the user has opened.
#[derive(Debug)]
pub enum Detail {
    Session(Box<Session>, Vec<ListedMessage>),
    Message(Box<MessageLife>),
    /// It is gone, or the key may not see it.
    Refused(String),
}
