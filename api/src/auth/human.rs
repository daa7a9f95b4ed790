//! The person in whose name a caller answers questions.

use actors::{
    desk::Human,
    model::{BrokerError, KeyHuman, Owner, Scope, Via},
};

use super::Identity;

/// The name of a caller who may answer under any name and gives none.
const NAME_DEFAULT: &str = "human";

impl Identity {
    /// The person in whose name the caller answers; None for a caller who only asks. `named` and `roles` are what the
    /// request says.
    ///
    /// A key of scope `answer` has a person and roles of its own. The admin keys, callers where no key is required, and
    /// programs of the user on this machine may answer under any name. Keys of agents do so only with the setting
    /// `allow_agent_answers`.
    ///
    /// # Errors
    /// `forbidden` when the request names another person, or roles in addition to those of its key; `invalid_argument` for a name
    /// or role with another form.
    pub fn human(&self, named: Option<&str>, roles: Vec<String>, via: Via) -> Result<Option<Human>, BrokerError> {
        if let Some(own) = &self.principal.human {
            if let Some(named) = named.filter(|named| *named != own.name.as_str()) {
                let reason = format!("this key answers as {}, not as {named:.128?}", own.name);
                return Err(BrokerError::forbidden(reason));
            }
            if !roles.is_empty() {
                return Err(BrokerError::forbidden("this key has roles of its own: leave them out"));
            }
            return Ok(Some(Human {
                is_name_fixed: true,
                ..self.answering(own.clone(), false, via)
            }));
        }
        let is_agent = self.scope() == Scope::Member && !self.may_be_any_human();
        if self.scope() < Scope::Member || is_agent && !self.allows_agent_answers {
            return Ok(None);
        }
        let human = KeyHuman::parse(named.unwrap_or(NAME_DEFAULT), roles)?;
        Ok(Some(self.answering(human, is_agent, via)))
    }

    /// Whether the caller of scope `member` is a person as well as an agent: it has no key.
    fn may_be_any_human(&self) -> bool {
        *self.owner() == Owner::anonymous()
    }

    fn answering(&self, human: KeyHuman, is_agent: bool, via: Via) -> Human {
        Human {
            name: human.name,
            roles: human.roles,
            owner: self.owner().clone(),
            is_name_fixed: false,
            is_agent,
            via,
        }
    }
}
