//! Who reads, answers and cancels questions.

use crate::model::{AnsweredBy, Owner, Question, SessionName, Via};

/// A person, or an agent that the operator lets answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Human {
    /// The name of the person, which is also that of the session by which the asker is answered.
    pub name: SessionName,
    /// Roles of the person: a question may be addressed to one.
    pub roles: Vec<String>,
    /// The owner of the credentials.
    pub owner: Owner,
    /// The name comes with the credentials: the person cannot choose another one.
    pub is_name_fixed: bool,
    /// The credentials are those of an agent.
    pub is_agent: bool,
    /// The way in which the person answers.
    pub via: Via,
}

impl Human {
    /// Whether this person may answer a question, claim it and hand it over.
    pub fn may_answer(&self, question: &Question) -> bool {
        question.to.includes(self.name.as_str(), &self.roles)
    }

    /// Whether this person may read a question: all that they may answer, and those that they handed over or closed.
    pub fn may_read(&self, question: &Question) -> bool {
        let handed_over = question.handover.as_ref().is_some_and(|last| last.from == self.name);
        let closed = || question.closed().and_then(|closed| closed.how.by());
        self.may_answer(question) || handed_over || closed().is_some_and(|by| by.human == self.name)
    }

    /// Whether answers come from a session of this person. An agent, the client of one, and a link answer without: a session
    /// of theirs could be used to send messages that look like a person's.
    pub const fn has_session(&self) -> bool {
        !self.is_agent && !matches!(self.via, Via::Elicitation | Via::Link)
    }

    /// This person as the one who closes a question.
    pub fn answered_by(&self) -> AnsweredBy {
        AnsweredBy {
            human: self.name.clone(),
            via: self.via,
            is_agent: self.is_agent,
        }
    }
}

/// Who asks for a question, as far as it decides whether they may read or cancel it.
#[derive(Clone, Copy, Debug)]
pub enum Reader<'a> {
    /// An agent, by the owner of its session: it reads and cancels its own questions.
    Asker(&'a Owner),
    /// A person reads the questions that they may answer.
    Human(&'a Human),
    /// An administrator reads and cancels every question.
    Admin,
}

impl Reader<'_> {
    /// Whether this caller may read a question. For others it does not exist.
    pub fn may_read(&self, question: &Question) -> bool {
        match self {
            Self::Asker(owner) => question.asker.owner == **owner,
            Self::Human(human) => human.may_read(question),
            Self::Admin => true,
        }
    }
}
