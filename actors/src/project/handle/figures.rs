//! The present figures of a project for operators, read in one pass over its directory.

use super::ProjectHandle;
use crate::{
    clock::now,
    desk::Presence,
    gateway::BackendState,
    metrics::{ActorKind, Labelled, MessageCounts},
    model::{BrokerError, SessionStatus, Urgency},
    session::Member,
    storage::Usage,
};

/// Mailboxes of the actors of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxFigures {
    /// Commands in all of them.
    pub sum: usize,
    /// Commands in the fullest one.
    pub max: usize,
}

impl MailboxFigures {
    /// Adds a mailbox.
    pub fn add(&mut self, len: usize) {
        self.sum += len;
        self.max = self.max.max(len);
    }
}

/// The present figures of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectFigures {
    /// Sessions by state.
    pub active: usize,
    pub stale: usize,
    pub disconnected: usize,
    /// Sessions with a live connection at this replica.
    pub connected: usize,
    /// Messages that wait for all sessions, and for the one with the most.
    pub waiting: usize,
    pub longest: usize,
    /// Sessions for which as many messages wait as give a warning.
    pub over_warning: usize,
    pub protocols: usize,
    /// Lenses between versions of protocols.
    pub lenses: usize,
    /// Open questions to people by [`Urgency::ALL`], as this replica knows them.
    pub questions: [usize; Urgency::ALL.len()],
    /// Open questions while no person is present at a console of any replica.
    pub questions_unseen: usize,
    /// Backends of the gateway, those of them that take calls or start with the first one, and those that have failed.
    pub backends: usize,
    pub backends_ready: usize,
    pub backends_failed: usize,
    /// People with a console at this replica by [`Presence::ALL`].
    pub humans: [usize; Presence::ALL.len()],
    /// Mailboxes by [`ActorKind::index`](Labelled::index).
    pub mailboxes: [MailboxFigures; ActorKind::LEN],
}

impl ProjectHandle {
    /// The present figures. Costs less than a microsecond for each session.
    pub fn figures(&self) -> ProjectFigures {
        let parts = &self.0;
        let (now, presence) = (now(), parts.settings.presence);
        let desk = parts.questions.shared();
        let warning_len = self.limits().queue_warning_len;
        let mut figures = ProjectFigures {
            protocols: parts.catalog.len(),
            lenses: parts.catalog.lenses_len(),
            questions: Urgency::ALL.map(|urgency| desk.open_len(urgency)),
            humans: Presence::ALL.map(|presence| desk.own_humans(presence, now)),
            ..ProjectFigures::default()
        };
        let open = figures.questions.iter().sum();
        if open > 0 && desk.summary(now).humans(Presence::Present) == 0 {
            figures.questions_unseen = open;
        }
        if let Some(gateway) = &parts.gateway {
            let offered = gateway.shared().offered();
            figures.backends = offered.backends.len();
            for backend in &offered.backends {
                match backend.view().state {
                    BackendState::Ready | BackendState::Replacing | BackendState::Idle => figures.backends_ready += 1,
                    BackendState::Failed => figures.backends_failed += 1,
                    _ => {}
                }
            }
        }
        for (kind, len) in [
            (ActorKind::Project, parts.project.metrics().mailbox_len()),
            (ActorKind::Registry, parts.registry.metrics().mailbox_len()),
            (ActorKind::Router, parts.router.metrics().mailbox_len()),
            (ActorKind::Desk, parts.desk.metrics().mailbox_len()),
        ] {
            figures.mailboxes[kind.index()].add(len);
        }
        parts.directory.for_each(|member: &Member| {
            if !member.is_shown() {
                return;
            }
            match member.status(presence, now) {
                SessionStatus::Active => figures.active += 1,
                SessionStatus::Stale => figures.stale += 1,
                SessionStatus::Disconnected => figures.disconnected += 1,
            }
            figures.connected += usize::from(member.shared.is_connected());
            let waiting = member.shared.waiting();
            figures.waiting += waiting;
            figures.longest = figures.longest.max(waiting);
            figures.over_warning += usize::from(waiting >= warning_len);
            figures.mailboxes[ActorKind::Session.index()].add(member.address.metrics().mailbox_len());
        });
        figures
    }

    /// What became of its messages, counted since the start of the process.
    pub fn counts(&self) -> MessageCounts {
        self.0.counters.counts()
    }

    /// What the store keeps of the project, and how many dead letters.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn usage(&self) -> Result<(Usage, usize), BrokerError> {
        let usage = self.0.store.usage().await?;
        Ok((usage, self.0.store.dead_letter_count().await?))
    }
}
