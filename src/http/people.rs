//! The person in whose name a request about the desk acts, and who may read questions.

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpRequest, dev::Payload, http::header::HeaderName};
use actors::{
    desk::{Human, Reader},
    model::{BrokerError, Owner, Scope, Via},
};

use super::extract::ApiError;
use api::auth::{Identity, only_value};

const HUMAN: HeaderName = HeaderName::from_static("x-human");
const HUMAN_ROLES: HeaderName = HeaderName::from_static("x-human-roles");

/// The headers `X-Human` and `X-Human-Roles`: the name of a person, and roles separated by commas.
#[derive(Debug, Default)]
pub struct NamedHuman {
    pub name: Option<String>,
    pub roles: Vec<String>,
}

impl FromRequest for NamedHuman {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = |name: &HeaderName| {
            let Some(value) = only_value(request.headers(), name)? else {
                return Ok(None);
            };
            // Programs send names as UTF-8.
            match std::str::from_utf8(value.as_bytes()) {
                Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
                Err(_) => Err(BrokerError::invalid(name.as_str(), "not UTF-8")),
            }
        };
        let read = || {
            Ok::<_, BrokerError>(Self {
                name: text(&HUMAN)?,
                roles: roles(text(&HUMAN_ROLES)?),
            })
        };
        ready(read().map_err(ApiError::from))
    }
}

/// Roles of a text in which they are separated by commas.
pub fn roles(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    let roles = text.split(',').map(str::trim).filter(|role| !role.is_empty());
    roles.map(str::to_owned).collect()
}

impl NamedHuman {
    /// The person who acts.
    ///
    /// # Errors
    /// `forbidden` for a caller who only asks, or who names another person than its own.
    pub async fn acting(self, by: &Identity, via: Via) -> Result<Human, BrokerError> {
        match self.known(by, via).await? {
            Some(human) => Ok(human),
            None => Err(only_asks()),
        }
    }

    /// The caller as a reader of questions: the person whom the key or the request names, an administrator, or an agent
    /// with its own questions.
    ///
    /// # Errors
    /// `forbidden` for a caller who may read no question, or who may not act for the person whom it names.
    pub async fn reading(self, by: &Identity) -> Result<QuestionReader, BrokerError> {
        if self.name.is_some() || by.principal.human.is_some() {
            return self.acting(by, Via::Api).await.map(QuestionReader::Human);
        }
        QuestionReader::of_scope(by)
    }

    /// The person; None for a caller who only asks. One who may act under any name has the roles of its consoles.
    async fn known(self, by: &Identity, via: Via) -> Result<Option<Human>, BrokerError> {
        let human = by.human(self.name.as_deref(), self.roles, via)?;
        let Some(mut human) = human else { return Ok(None) };
        if human.roles.is_empty() && by.principal.human.is_none() {
            let desk = by.project.desk().await?;
            let own = desk.consoles.iter().filter(|console| console.human == human.name);
            human.roles = own.flat_map(|console| console.roles.iter().cloned()).collect();
        }
        Ok(Some(human))
    }
}

/// Who reads or cancels questions.
#[derive(Debug)]
pub enum QuestionReader {
    Asker(Owner),
    Human(Human),
    Admin,
}

impl QuestionReader {
    /// The caller as its scope says.
    ///
    /// # Errors
    /// `forbidden` for an observer, who sees no texts of agents.
    pub fn of_scope(by: &Identity) -> Result<Self, BrokerError> {
        Ok(match (by.scope(), by.human(None, Vec::new(), Via::Api)) {
            (Scope::Answer, human) => Self::Human(human?.ok_or_else(only_asks)?),
            (Scope::Member, _) => Self::Asker(by.owner().clone()),
            (Scope::Admin | Scope::Operator, _) => Self::Admin,
            (Scope::Observer, _) => {
                return Err(BrokerError::forbidden(
                    "this requires a key of scope answer, member or admin",
                ));
            }
        })
    }

    /// The reader as the project knows it.
    pub fn reader(&self) -> Reader<'_> {
        match self {
            Self::Asker(owner) => Reader::Asker(owner),
            Self::Human(human) => Reader::Human(human),
            Self::Admin => Reader::Admin,
        }
    }
}

fn only_asks() -> BrokerError {
    BrokerError::forbidden("this key asks and does not answer: answering requires a key of scope answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_separated_by_commas() {
        assert_eq!(roles(Some(" dba, oncall,,".to_owned())), ["dba", "oncall"]);
        assert!(roles(None).is_empty());
    }
}
