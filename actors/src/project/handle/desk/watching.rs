//! Who is at the desk, what they are told, and yaps.

use std::sync::Arc;

use crate::{
    desk::{ConsoleChange, ConsoleGuard, DeskFeed, DeskSummary, Human, NewYap, YapAccepted},
    model::{BrokerError, ConsoleId, SessionName, ShownYap},
    project::ProjectHandle,
    session::Member,
};

impl ProjectHandle {
    /// Shows a remark of an agent to the people who watch. Its place in the order is decided 200 ms later (`YAP_DELAY`).
    ///
    /// # Errors
    /// `invalid_argument`; `queue_full`; `unavailable`.
    pub async fn yap(&self, sender: &Arc<Member>, yap: NewYap) -> Result<YapAccepted, BrokerError> {
        let _ = (sender, yap);
        Err(BrokerError::unavailable())
    }

    /// The yaps behind this number, the oldest first; without a number the last ones. At most `limit`.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn yaps(&self, after: Option<u64>, limit: usize) -> Result<Vec<Arc<ShownYap>>, BrokerError> {
        let _ = (after, limit);
        Err(BrokerError::unavailable())
    }

    /// The consoles of all replicas, and the number of open questions.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn desk(&self) -> Result<Arc<DeskSummary>, BrokerError> {
        Err(BrokerError::unavailable())
    }

    /// Connects a console of this person. Questions are offered to it until the guard is dropped.
    ///
    /// # Errors
    /// `forbidden` when the project has its maximum of consoles; `invalid_argument` when the name belongs to an agent;
    /// `unavailable`.
    pub async fn attach_console(&self, human: Human) -> Result<ConsoleGuard, BrokerError> {
        let _ = human;
        Err(BrokerError::unavailable())
    }

    /// Changes a console that is connected to this replica. With `human`, only one of this person.
    ///
    /// # Errors
    /// `invalid_argument` for a console that is not here, or is another person's.
    pub fn change_console(
        &self,
        console: ConsoleId,
        human: Option<&SessionName>,
        change: ConsoleChange,
    ) -> Result<(), BrokerError> {
        let _ = (console, human, change);
        Err(BrokerError::unavailable())
    }

    /// Watches the desk without being offered questions. Lists that are read after this call miss nothing.
    ///
    /// # Errors
    /// `unavailable` when the project has ended.
    pub fn watch_desk(&self) -> Result<DeskFeed, BrokerError> {
        Err(BrokerError::unavailable())
    }
}
