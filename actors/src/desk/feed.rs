//! The events of consoles and watchers: questions, yaps, and who is at the desk.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use utoipa::ToSchema;

use crate::model::{ConsoleId, Question, SessionName, ShownYap};

/// Events that a reader may be behind. A slower one gets [`DeskEvent::Missed`].
pub const FEED_LEN_MAX: usize = 512;

/// What changes about a console. None: unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleChange {
    /// It takes no new questions.
    pub is_paused: Option<bool>,
    /// The person says that they are away. Questions that they have not opened go to others.
    pub is_away: Option<bool>,
    /// The person has done something now.
    pub is_active: bool,
    /// The console has not answered yet, and may never: others are offered questions first.
    pub is_unproven: Option<bool>,
}

/// A change that readers of the desk receive.
#[derive(Clone, Debug, PartialEq)]
pub enum DeskEvent {
    /// The record of a question after a change. A reader shows it only to people who may read it.
    Question(Arc<Question>),
    /// A yap, in the order that all readers share.
    Yap(Arc<ShownYap>),
    /// The consoles or the number of open questions have changed.
    Desk(Arc<DeskSummary>),
    /// The reader was too slow for so many events: it reads the lists again.
    Missed(u64),
}

words! {
    /// Whether a person is at a console.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
    #[schema(rename_all = "lowercase")]
    pub enum Presence {
        /// The person did something in the last 5 minutes.
        Present = "present",
        /// The console is connected.
        Idle = "idle",
        /// The person chose it.
        Away = "away",
    }
}

/// A console as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleView {
    pub id: ConsoleId,
    pub human: SessionName,
    pub roles: Vec<String>,
    pub presence: Presence,
    /// It takes no new questions.
    pub is_paused: bool,
    /// Questions that are offered to it or claimed by it.
    pub open: usize,
}

/// The desk at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeskSummary {
    /// The consoles of all replicas, by id.
    pub consoles: Vec<ConsoleView>,
    /// Open questions that no console has.
    pub waiting: usize,
    /// Open questions that are offered to a console.
    pub offered: usize,
    /// Open questions that a person has opened.
    pub claimed: usize,
    /// Open questions that are urgent.
    pub high: usize,
    /// When the oldest open question was asked, in milliseconds since the Unix epoch.
    pub oldest_asked_ms: Option<u64>,
}

impl DeskSummary {
    /// People with a console that has this presence, and none with a better one.
    pub fn humans(&self, presence: Presence) -> usize {
        let mut best: std::collections::BTreeMap<&str, Presence> = std::collections::BTreeMap::new();
        for console in &self.consoles {
            let known = best.entry(console.human.as_str()).or_insert(console.presence);
            *known = (*known).min(console.presence);
        }
        best.values().filter(|best| **best == presence).count()
    }
}

/// The changes of the desk from the moment it was made. It holds at most [`FEED_LEN_MAX`] events, however slow its reader is.
#[derive(Debug)]
pub struct DeskFeed {
    events: broadcast::Receiver<DeskEvent>,
}

impl DeskFeed {
    pub(super) const fn new(events: broadcast::Receiver<DeskEvent>) -> Self {
        Self { events }
    }

    /// The next change; None when the project has ended. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<DeskEvent> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => Some(DeskEvent::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}
