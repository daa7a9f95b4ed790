//! Group leases of this replica: to which members the message was written. Pure.
//!
//! A group lease is one lease of one message for many sessions (`scripts/group_leases.lua`). It is here from the moment
//! at which the replica learns of it until it is acknowledged.

use std::collections::HashMap;

use actors::model::{MessageId, SessionId};

/// All group leases of a project, by message.
#[derive(Debug, Default)]
pub(super) struct GroupLeases(HashMap<MessageId, GroupLease>);

/// One group lease.
#[derive(Debug)]
pub(super) struct GroupLease {
    members: HashMap<SessionId, MemberState>,
    unwritten_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    Pending,
    Written,
    /// Written, and acknowledged by itself because an operation looked into the inbox.
    Acknowledged,
}

/// What follows from writing a message to a session.
#[derive(Debug)]
pub(super) enum WrittenEffect {
    /// It belongs to no group lease of this session: it is acknowledged by itself.
    NotMember,
    /// It belongs to one, and other members are pending.
    Counted,
    /// It was the last member.
    Complete(GroupLease),
}

impl GroupLeases {
    /// Adds a group lease. Returns the number of its members.
    pub fn insert(&mut self, message: MessageId, members: impl Iterator<Item = SessionId>) -> u32 {
        let members: HashMap<_, _> = members.map(|session| (session, MemberState::Pending)).collect();
        let unwritten_len = members.len();
        self.0.insert(message, GroupLease { members, unwritten_len });
        u32::try_from(unwritten_len).unwrap_or(u32::MAX)
    }

    /// Notes that a message was written to a session; a second time has no effect.
    pub fn note_written(&mut self, session: SessionId, message: MessageId) -> WrittenEffect {
        let Some(lease) = self.0.get_mut(&message) else {
            return WrittenEffect::NotMember;
        };
        match lease.members.get_mut(&session) {
            Some(state @ MemberState::Pending) => *state = MemberState::Written,
            Some(MemberState::Written | MemberState::Acknowledged) => return WrittenEffect::Counted,
            None => return WrittenEffect::NotMember,
        }
        lease.unwritten_len -= 1;
        if lease.unwritten_len > 0 {
            return WrittenEffect::Counted;
        }
        self.remove(message)
            .map_or(WrittenEffect::NotMember, WrittenEffect::Complete)
    }

    /// Removes a group lease, if it is still here.
    pub fn remove(&mut self, message: MessageId) -> Option<GroupLease> {
        self.0.remove(&message)
    }

    /// The messages that were written to a session and are not acknowledged for it yet. Each is returned once.
    pub fn take_written_of(&mut self, session: SessionId) -> Vec<MessageId> {
        let mut messages = Vec::new();
        for (message, lease) in &mut self.0 {
            if let Some(state @ MemberState::Written) = lease.members.get_mut(&session) {
                *state = MemberState::Acknowledged;
                messages.push(*message);
            }
        }
        messages
    }

    /// Whether this replica has no group lease.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl GroupLease {
    /// The members, by what is known of them.
    pub fn split(self) -> Members {
        let mut split = Members::default();
        for (session, state) in self.members {
            let list = match state {
                MemberState::Pending => &mut split.pending,
                MemberState::Written => &mut split.written,
                MemberState::Acknowledged => &mut split.acknowledged,
            };
            list.push(session);
        }
        split
    }
}

/// The members of a group lease.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The message was not written to them.
    pub pending: Vec<SessionId>,
    /// It was, and is acknowledged with the group.
    pub written: Vec<SessionId>,
    /// It was, and was acknowledged by itself.
    pub acknowledged: Vec<SessionId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_lease_is_complete_when_every_member_is_written() {
        let [alice, bob, carol] = std::array::from_fn(|_| SessionId::generate());
        let ids = actors::model::MessageIds::default();
        let [first, second] = std::array::from_fn(|_| ids.next(actors::clock::now()));
        let mut leases = GroupLeases::default();
        leases.insert(first, [alice, bob].into_iter());
        leases.insert(second, [alice, bob].into_iter());
        assert!(matches!(leases.note_written(carol, first), WrittenEffect::NotMember));
        assert!(matches!(leases.note_written(alice, first), WrittenEffect::Counted));
        assert!(
            matches!(leases.note_written(alice, first), WrittenEffect::Counted),
            "a second time has no effect"
        );
        assert_eq!(leases.take_written_of(alice), [first]);
        assert_eq!(leases.take_written_of(alice), [], "each is returned once");
        assert!(leases.take_written_of(bob).is_empty());
        let WrittenEffect::Complete(lease) = leases.note_written(bob, first) else {
            panic!("a member is pending");
        };
        let members = lease.split();
        assert_eq!((members.written, members.acknowledged), (vec![bob], vec![alice]));
        assert_eq!(members.pending, []);
        assert!(
            matches!(leases.note_written(bob, first), WrittenEffect::NotMember),
            "it is removed"
        );

        leases.note_written(bob, second);
        let removed = leases.remove(second).unwrap();
        let members = removed.split();
        assert_eq!((members.written, members.pending), (vec![bob], vec![alice]));
        assert!(leases.is_empty() && leases.remove(second).is_none());
    }
}
