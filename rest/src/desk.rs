//! The desk: the people who answer, and the remarks of agents to them.

use actors::desk::Presence;
use answer::answer;
use utoipa::ToSchema;

use super::words::{Id, Time};

/// The desk.
#[answer(lenient)]
pub struct Desk {
    pub humans: Vec<HumanAtDesk>,
    pub consoles: Vec<Console>,
    /// Open questions that no console has.
    pub waiting: usize,
    /// Open questions that are offered to a console.
    pub offered: usize,
    /// Open questions that a person has opened.
    pub claimed: usize,
    /// Open questions that are urgent.
    pub high: usize,
    pub oldest_asked_at: Option<Time>,
    /// In the first event of a stream of a console: its id.
    #[absent]
    pub console: Option<String>,
    /// In the stream of a console: the messages that wait for its person.
    #[absent]
    pub inbox: Option<Inbox>,
}

/// The messages that wait for a person.
#[answer(lenient)]
#[derive(Copy)]
pub struct Inbox {
    #[schema(value_type = usize)]
    pub waiting: u64,
    /// Counts the changes of this connection.
    pub changes: u64,
}

/// A person with a console.
#[answer(lenient)]
pub struct HumanAtDesk {
    pub human: String,
    #[schema(value_type = Presence)]
    pub presence: String,
    /// Questions that are offered to its consoles or claimed by them.
    pub open: usize,
    pub consoles: usize,
}

/// A console.
#[answer(lenient)]
pub struct Console {
    pub console: String,
    pub human: String,
    pub roles: Vec<String>,
    #[schema(value_type = Presence)]
    pub presence: String,
    /// Questions that are offered to it or claimed by it.
    pub open: usize,
    /// It takes no new questions.
    pub paused: bool,
}

/// A remark of an agent.
#[answer(lenient)]
pub struct Yap {
    /// Counts the yaps of the project, without gaps.
    #[schema(value_type = usize)]
    pub seq: u64,
    pub yap_id: Id,
    pub sender_id: Id,
    pub sender_name: Option<String>,
    pub message: String,
    #[schema(value_type = Option<YapMode>)]
    pub mode: Option<String>,
    pub category: Option<String>,
    pub task_context: Option<String>,
    pub at: Time,
    /// It came after a yap with a later time was shown.
    pub late: bool,
    /// Further yaps over the rate of the sender that this one replaces.
    #[schema(value_type = usize)]
    pub folded: u32,
}

impl Yap {
    /// How many yaps of the same agent it replaces, if any.
    pub fn folded(&self) -> Option<u32> {
        Some(self.folded).filter(|count| *count > 0)
    }
}

/// How much an agent says.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum YapMode {
    Concise,
    Verbose,
    Detailed,
}

/// Yaps, the oldest first.
#[answer(lenient)]
pub struct Yaps {
    pub yaps: Vec<Yap>,
}

/// A yap that was accepted.
#[answer(lenient)]
pub struct YapAccepted {
    pub yap_id: Id,
    /// Consoles that are connected now.
    pub shown_to: usize,
    pub kept: bool,
}
