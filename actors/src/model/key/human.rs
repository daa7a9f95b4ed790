//! The person who holds a key of scope `answer`.

use serde::{Deserialize, Serialize};

use crate::model::{AddressedTo, BrokerError, SessionName};

/// Roles of one person.
const ROLES_LEN_MAX: usize = 16;

/// The person in whose name a key answers questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyHuman {
    /// The name under which the person answers; questions may be addressed to it.
    pub name: SessionName,
    /// Questions may be addressed to each of these, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

impl KeyHuman {
    /// Parses the name and the roles of a person. A role has the grammar of a name, without commas.
    ///
    /// # Errors
    /// `invalid_argument`: a name or role with another form, the word `desk`, which means all people, or too many roles.
    pub fn parse(name: &str, mut roles: Vec<String>) -> Result<Self, BrokerError> {
        let name = SessionName::parse_as("human", name)?;
        if name.as_str() == AddressedTo::ANYONE {
            return Err(BrokerError::invalid("human", "`desk` means all people"));
        }
        if roles.len() > ROLES_LEN_MAX {
            return Err(BrokerError::invalid("roles", format!("at most {ROLES_LEN_MAX}")));
        }
        for role in &mut roles {
            *role = SessionName::parse_as("roles", role)?.to_string();
            if role.contains(',') || role == AddressedTo::ANYONE {
                return Err(BrokerError::invalid(
                    "roles",
                    "no commas, and not `desk`, which means all people",
                ));
            }
        }
        roles.sort_unstable();
        roles.dedup();
        Ok(Self { name, roles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_has_a_name_and_roles_that_are_not_the_desk() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let mara = KeyHuman::parse("mara", texts(&["oncall", "dba", "oncall"])).unwrap();
        assert_eq!(mara.roles, texts(&["dba", "oncall"]));
        for (name, roles) in [
            ("", texts(&[])),
            ("desk", texts(&[])),
            ("mara@shop", texts(&[])),
            ("mara", texts(&["desk"])),
            ("mara", texts(&["a,b"])),
            ("mara", texts(&[""])),
            ("mara", vec!["r".to_owned(); ROLES_LEN_MAX + 1]),
        ] {
            let refused = KeyHuman::parse(name, roles.clone());
            assert_eq!(refused.unwrap_err().code(), "invalid_argument", "{name} {roles:?}");
        }
    }
}
