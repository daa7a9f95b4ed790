//! Sessions as the log names them: by id, by the mark of a broadcast, and by the name that they had.

use std::{collections::HashMap, sync::Arc};

use super::ProjectHandle;
use crate::{
    model::{AcceptedMessage, LoggedRecipients, SessionId, SessionMark},
    session::Member,
};

/// A sender or a recipient. A recipient of a broadcast that has ended is not known any longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    pub id: Option<SessionId>,
    /// Its name; None for a session without one.
    pub name: Option<String>,
}

/// Some sessions of a project, as the log names them.
#[derive(Default)]
pub struct SessionSet {
    by_mark: HashMap<SessionMark, SessionId>,
    ids: std::collections::HashSet<SessionId>,
}

impl SessionSet {
    /// These sessions.
    pub(super) fn of<'a>(members: impl IntoIterator<Item = &'a Arc<Member>>) -> Self {
        let mut set = Self::default();
        for member in members {
            let id = member.record.id;
            set.ids.insert(id);
            set.by_mark.insert(SessionMark::of(id), id);
        }
        set
    }

    /// Whether this session is one of them.
    pub fn contains(&self, session: SessionId) -> bool {
        self.ids.contains(&session)
    }

    /// The session of a mark.
    pub(super) fn find(&self, mark: SessionMark) -> Option<SessionId> {
        self.by_mark.get(&mark).copied()
    }

    /// Whether one of them sent or got the message.
    pub fn sent_or_got(&self, accepted: &AcceptedMessage) -> bool {
        self.ids.contains(&accepted.sender)
            || match &accepted.recipients {
                LoggedRecipients::One(session) => self.ids.contains(session),
                LoggedRecipients::Many(marks) => marks.iter().any(|mark| self.by_mark.contains_key(mark)),
            }
    }
}

/// The names of senders that may have ended, or that are of another project.
#[derive(Default)]
pub(super) struct Names(HashMap<SessionId, Option<String>>);

impl Names {
    /// Remembers the name of a sender.
    pub(super) fn note_sender(&mut self, accepted: &AcceptedMessage) {
        let name = || accepted.parse_head().and_then(|head| head.sender_name);
        self.0.entry(accepted.sender).or_insert_with(name);
    }

    /// A session with its name: as it is now, or as it was when it sent.
    pub(super) fn party(&self, project: &ProjectHandle, id: SessionId) -> Party {
        let member = project.session(id);
        let name = member.and_then(|member| member.record.name.as_ref().map(ToString::to_string));
        Party {
            id: Some(id),
            name: name.or_else(|| self.0.get(&id).cloned().flatten()),
        }
    }
}
