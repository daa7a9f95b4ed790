//! The topics of events, by which followers select them.

use actors::model::{BrokerError, EventKind, EventKinds, Scope};

/// A topic: the name of an event on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    Session,
    Protocol,
    Message,
    DeadLetter,
    Actor,
    Audit,
    /// Events are missing. Every follower gets this.
    Gap,
    /// What happens to questions: in the log and in no stream of it. The stream of the desk shows the questions themselves.
    Question,
}

impl Topic {
    /// The topics that a follower selects.
    const ALL: [Self; 6] = [
        Self::Session,
        Self::Protocol,
        Self::Message,
        Self::DeadLetter,
        Self::Actor,
        Self::Audit,
    ];

    /// The name in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Protocol => "protocol",
            Self::Message => "message",
            Self::DeadLetter => "dead_letter",
            Self::Actor => "actor",
            Self::Audit => "audit",
            Self::Gap => "gap",
            Self::Question => "question",
        }
    }

    /// The topic of a kind of event.
    pub const fn of(kind: EventKind) -> Self {
        match kind {
            EventKind::Accepted
            | EventKind::Delivered
            | EventKind::Transformed
            | EventKind::Acknowledged
            | EventKind::Released
            | EventKind::Redriven => Self::Message,
            EventKind::DeadLettered => Self::DeadLetter,
            EventKind::Session => Self::Session,
            EventKind::Protocol | EventKind::Lens => Self::Protocol,
            EventKind::Actor => Self::Actor,
            EventKind::Audit => Self::Audit,
            EventKind::Lost => Self::Gap,
            EventKind::Question => Self::Question,
        }
    }
}

/// The events that a follower wants.
#[derive(Clone, Copy, Debug)]
pub struct Topics(EventKinds);

impl Topics {
    /// Reads a list of topics separated by commas; without one, all that the scope may see.
    ///
    /// # Errors
    /// `InvalidArgument` for another word, `Forbidden` for the audit without the scope `admin`.
    pub fn parse(text: Option<&str>, scope: Scope) -> Result<Self, BrokerError> {
        let may_see_audit = scope >= Scope::Admin;
        let Some(text) = text else {
            return Ok(Self::of(|topic| topic != Topic::Audit || may_see_audit));
        };
        let mut wanted = Vec::new();
        for word in text.split(',') {
            let topic = Topic::ALL.into_iter().find(|topic| topic.as_str() == word);
            let reason = "a list of session, protocol, message, dead_letter, actor, audit";
            wanted.push(topic.ok_or_else(|| BrokerError::invalid("topics", reason))?);
        }
        if wanted.contains(&Topic::Audit) && !may_see_audit {
            return Err(BrokerError::forbidden("the audit requires a key of scope admin"));
        }
        Ok(Self::of(|topic| wanted.contains(&topic)))
    }

    fn of(is_wanted: impl Fn(Topic) -> bool) -> Self {
        let is_shown = |kind: &&EventKind| match Topic::of(**kind) {
            Topic::Gap => true,
            Topic::Question => false,
            topic => is_wanted(topic),
        };
        let kinds = EventKind::ALL.iter().filter(is_shown);
        let none = EventKinds::of(&[]);
        Self(kinds.fold(none, |set, kind| set.union(EventKinds::of(&[*kind]))))
    }

    /// The kinds of the events.
    pub const fn kinds(self) -> EventKinds {
        self.0
    }

    /// Whether an event of this kind is wanted.
    pub const fn contains(self, kind: EventKind) -> bool {
        self.0.contains(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_by_name_and_the_audit_is_for_administrators() {
        let some = Topics::parse(Some("session,dead_letter"), Scope::Observer).unwrap();
        let wanted: Vec<_> = EventKind::ALL.iter().filter(|kind| some.contains(**kind)).collect();
        let lost = &EventKind::Lost;
        assert_eq!(
            wanted,
            [&EventKind::DeadLettered, &EventKind::Session, lost],
            "every follower is told of gaps"
        );
        let all = Topics::parse(None, Scope::Admin).unwrap();
        assert!(!all.contains(EventKind::Question), "the desk shows questions");
        assert!(!Topics::parse(None, Scope::Member).unwrap().contains(EventKind::Audit));
        assert!(Topics::parse(None, Scope::Admin).unwrap().contains(EventKind::Audit));
        for text in ["", "sessions", "session,", " session"] {
            assert_eq!(
                Topics::parse(Some(text), Scope::Admin).unwrap_err().code(),
                "invalid_argument"
            );
        }
        assert_eq!(
            Topics::parse(Some("audit"), Scope::Member).unwrap_err().code(),
            "forbidden"
        );
    }
}
