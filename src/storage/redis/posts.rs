//! Messages that are leased to many sessions of this replica as one (`scripts/posts.lua`), from the moment it hears of them
//! until they are acknowledged as one. Pure.

use std::collections::HashMap;

use actors::model::{MessageId, SessionId};

#[derive(Debug, Default)]
pub(super) struct Posts(HashMap<MessageId, Post>);

#[derive(Debug)]
pub(super) struct Post {
    sessions: HashMap<SessionId, Written>,
    unwritten_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    No,
    Yes,
    /// And somebody has been told so who asked about the inbox.
    Told,
}

/// What writing a message means.
#[derive(Debug)]
pub(super) enum Noted {
    /// It is no post, or not for this session: it is to be acknowledged.
    Nothing,
    One,
    /// It has been written to all.
    Last(Post),
}

impl Posts {
    /// Returns how many they are.
    pub fn take(&mut self, message: MessageId, sessions: impl Iterator<Item = SessionId>) -> u32 {
        let sessions: HashMap<_, _> = sessions.map(|session| (session, Written::No)).collect();
        let unwritten_len = sessions.len();
        self.0.insert(
            message,
            Post {
                sessions,
                unwritten_len,
            },
        );
        u32::try_from(unwritten_len).unwrap_or(u32::MAX)
    }

    pub fn note(&mut self, session: SessionId, message: MessageId) -> Noted {
        let Some(post) = self.0.get_mut(&message) else {
            return Noted::Nothing;
        };
        match post.sessions.get_mut(&session) {
            Some(written @ Written::No) => *written = Written::Yes,
            Some(Written::Yes | Written::Told) => return Noted::One,
            None => return Noted::Nothing,
        }
        post.unwritten_len -= 1;
        if post.unwritten_len > 0 {
            return Noted::One;
        }
        self.end(message).map_or(Noted::Nothing, Noted::Last)
    }

    pub fn end(&mut self, message: MessageId) -> Option<Post> {
        self.0.remove(&message)
    }

    /// What has been written to this session and is not acknowledged yet; once.
    pub fn tell(&mut self, session: SessionId) -> Vec<MessageId> {
        let mut messages = Vec::new();
        for (message, post) in &mut self.0 {
            if let Some(written @ Written::Yes) = post.sessions.get_mut(&session) {
                *written = Written::Told;
                messages.push(*message);
            }
        }
        messages
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Post {
    /// To whom it has been written, and to whom not.
    pub fn split(self) -> (Vec<SessionId>, Vec<SessionId>) {
        let (written, late): (Vec<_>, Vec<_>) = self
            .sessions
            .into_iter()
            .partition(|(_, written)| *written != Written::No);
        let sessions = |of: Vec<(SessionId, Written)>| of.into_iter().map(|(session, _)| session).collect();
        (sessions(written), sessions(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_is_over_when_it_has_been_written_to_all() {
        let [alice, bob, carol] = std::array::from_fn(|_| SessionId::generate());
        let ids = actors::model::MessageIds::default();
        let [first, second] = std::array::from_fn(|_| ids.next(actors::clock::now()));
        let mut posts = Posts::default();
        posts.take(first, [alice, bob].into_iter());
        posts.take(second, [alice, bob].into_iter());
        assert!(matches!(posts.note(carol, first), Noted::Nothing));
        assert!(matches!(posts.note(alice, first), Noted::One));
        assert!(matches!(posts.note(alice, first), Noted::One), "twice is once");
        assert_eq!(posts.tell(alice), [first]);
        assert_eq!(posts.tell(alice), [], "it has been told");
        assert!(posts.tell(bob).is_empty());
        let Noted::Last(post) = posts.note(bob, first) else {
            panic!("not written to all");
        };
        let (mut written, late) = post.split();
        written.sort_unstable();
        assert_eq!(written, [alice.min(bob), alice.max(bob)]);
        assert_eq!(late, []);
        assert!(matches!(posts.note(bob, first), Noted::Nothing), "it is over");

        posts.note(bob, second);
        let given_up = posts.end(second).unwrap();
        assert_eq!(given_up.split(), (vec![bob], vec![alice]));
        assert!(posts.is_empty() && posts.end(second).is_none());
    }
}
