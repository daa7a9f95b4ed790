//! A console as its connection holds it.

use std::sync::Arc;

use super::{ConsoleChange, DeskFeed, InboxWatch, shared::DeskShared};
use crate::{
    clock::now,
    model::ConsoleId,
    session::{Member, SessionShared},
};

/// A console that is connected here. Dropping it is leaving.
pub struct ConsoleGuard {
    id: ConsoleId,
    shared: Arc<DeskShared>,
    /// None where the name of the person is an agent's.
    session: Option<Arc<SessionShared>>,
    /// The inbox of the person. None where the person has none, and once it is not watched.
    pub inbox: Option<InboxWatch>,
    /// Its events. They begin before the console was made.
    pub events: DeskFeed,
}

impl ConsoleGuard {
    /// The guard of a console that is attached. `person` is the session of its person.
    pub(crate) fn new(id: ConsoleId, shared: Arc<DeskShared>, person: Option<Arc<Member>>, events: DeskFeed) -> Self {
        Self {
            id,
            shared,
            session: person.as_ref().map(|member| Arc::clone(&member.shared)),
            inbox: person.map(InboxWatch::begin),
            events,
        }
    }

    /// Its id, which changes of questions name.
    pub const fn id(&self) -> ConsoleId {
        self.id
    }

    /// The person has done something now.
    pub fn keystroke(&self) {
        self.change(ConsoleChange {
            is_active: true,
            is_unproven: Some(false),
            ..ConsoleChange::default()
        });
    }

    /// Other consoles are offered questions first, until a person does something at this one.
    pub fn set_unproven(&self) {
        self.change(ConsoleChange {
            is_unproven: Some(true),
            ..ConsoleChange::default()
        });
    }

    /// The console takes no new questions, or does again.
    pub fn set_paused(&self, is_paused: bool) {
        self.change(ConsoleChange {
            is_paused: Some(is_paused),
            ..ConsoleChange::default()
        });
    }

    /// The person is away, or is back.
    pub fn set_away(&self, is_away: bool) {
        self.change(ConsoleChange {
            is_away: Some(is_away),
            is_active: !is_away,
            ..ConsoleChange::default()
        });
    }

    fn change(&self, change: ConsoleChange) {
        let now = now();
        if change.is_active
            && let Some(session) = &self.session
        {
            session.touch(now);
        }
        self.shared.change_console(self.id, change, now);
    }
}

impl Drop for ConsoleGuard {
    fn drop(&mut self) {
        self.shared.detach(self.id);
    }
}

impl std::fmt::Debug for ConsoleGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleGuard")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
