//! Messages that are leased to many sessions of this replica as one (`scripts/posts.lua`), from the moment it hears of them
//! until they are acknowledged as one. Pure.

use std::collections::HashMap;

use actors::model::{MessageId, SessionId};

#[derive(Debug, Default)]
pub(super) struct GroupLeases(HashMap<MessageId, GroupLease>);

#[derive(Debug)]
pub(super) struct GroupLease {
    sessions: HashMap<SessionId, MemberState>,
    unwritten_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    Pending,
    Written,
    /// And somebody has been told so who asked about the inbox.
    Acknowledged,
}

/// What writing a message means.
#[derive(Debug)]
pub(super) enum WrittenEffect {
    /// It is no post, or not for this session: it is to be acknowledged.
    NotMember,
    Counted,
    /// It has been written to all.
    Complete(GroupLease),
}

impl GroupLeases {
    /// Returns how many they are.
    pub fn insert(&mut self, message: MessageId, sessions: impl Iterator<Item = SessionId>) -> u32 {
        let sessions: HashMap<_, _> = sessions.map(|session| (session, MemberState::Pending)).collect();
        let unwritten_len = sessions.len();
        self.0.insert(
            message,
            GroupLease {
                sessions,
                unwritten_len,
            },
        );
        u32::try_from(unwritten_len).unwrap_or(u32::MAX)
    }

    pub fn note_written(&mut self, session: SessionId, message: MessageId) -> WrittenEffect {
        let Some(post) = self.0.get_mut(&message) else {
            return WrittenEffect::NotMember;
        };
        match post.sessions.get_mut(&session) {
            Some(written @ MemberState::Pending) => *written = MemberState::Written,
            Some(MemberState::Written | MemberState::Acknowledged) => return WrittenEffect::Counted,
            None => return WrittenEffect::NotMember,
        }
        post.unwritten_len -= 1;
        if post.unwritten_len > 0 {
            return WrittenEffect::Counted;
        }
        self.remove(message)
            .map_or(WrittenEffect::NotMember, WrittenEffect::Complete)
    }

    pub fn remove(&mut self, message: MessageId) -> Option<GroupLease> {
        self.0.remove(&message)
    }

    /// What has been written to this session and is not acknowledged yet; once.
    pub fn take_written_of(&mut self, session: SessionId) -> Vec<MessageId> {
        let mut messages = Vec::new();
        for (message, post) in &mut self.0 {
            if let Some(written @ MemberState::Written) = post.sessions.get_mut(&session) {
                *written = MemberState::Acknowledged;
                messages.push(*message);
            }
        }
        messages
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl GroupLease {
    /// To whom it has been written, and to whom not.
    pub fn split(self) -> (Vec<SessionId>, Vec<SessionId>) {
        let (written, late): (Vec<_>, Vec<_>) = self
            .sessions
            .into_iter()
            .partition(|(_, written)| *written != MemberState::Pending);
        let sessions = |of: Vec<(SessionId, MemberState)>| of.into_iter().map(|(session, _)| session).collect();
        (sessions(written), sessions(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_lease_is_complete_when_every_member_is_written() {
        let [alice, bob, carol] = std::array::from_fn(|_| SessionId::generate());
        let ids = actors::model::MessageIds::default();
        let [first, second] = std::array::from_fn(|_| ids.next(actors::clock::now()));
        let mut posts = GroupLeases::default();
        posts.insert(first, [alice, bob].into_iter());
        posts.insert(second, [alice, bob].into_iter());
        assert!(matches!(posts.note_written(carol, first), WrittenEffect::NotMember));
        assert!(matches!(posts.note_written(alice, first), WrittenEffect::Counted));
        assert!(
            matches!(posts.note_written(alice, first), WrittenEffect::Counted),
            "twice is once"
        );
        assert_eq!(posts.take_written_of(alice), [first]);
        assert_eq!(posts.take_written_of(alice), [], "it has been told");
        assert!(posts.take_written_of(bob).is_empty());
        let WrittenEffect::Complete(post) = posts.note_written(bob, first) else {
            panic!("not written to all");
        };
        let (mut written, late) = post.split();
        written.sort_unstable();
        assert_eq!(written, [alice.min(bob), alice.max(bob)]);
        assert_eq!(late, []);
        assert!(
            matches!(posts.note_written(bob, first), WrittenEffect::NotMember),
            "it is over"
        );

        posts.note_written(bob, second);
        let given_up = posts.remove(second).unwrap();
        assert_eq!(given_up.split(), (vec![bob], vec![alice]));
        assert!(posts.is_empty() && posts.remove(second).is_none());
    }
}
