//! What the client of a legacy backend can be asked for. A backend gets it once, in its handshake, and offers tools by it.

use std::fmt;

/// A set of client capabilities: what a caller can answer, or what an instance got as those of its client.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Profile(u8);

impl Profile {
    /// Nothing can be asked.
    pub const NONE: Self = Self(0);
    /// A form or a choice for a person.
    pub const FORM: Self = Self(1);
    /// A page that a person opens.
    pub const URL: Self = Self(2);
    /// A text of the client's model.
    pub const SAMPLING: Self = Self(4);
    /// The folders that the client works in.
    pub const ROOTS: Self = Self(8);
    /// Everything can be asked.
    pub const ALL: Self = Self(15);

    const NAMES: [(Self, &str); 4] = [
        (Self::FORM, "elicitation.form"),
        (Self::URL, "elicitation.url"),
        (Self::SAMPLING, "sampling"),
        (Self::ROOTS, "roots"),
    ];

    /// These capabilities, and the other one if `is_declared`.
    #[must_use]
    pub const fn with(self, other: Self, is_declared: bool) -> Self {
        if is_declared { Self(self.0 | other.0) } else { self }
    }

    /// Whether any of the other capabilities is among these.
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The capabilities as the client declares them in `initialize`: a JSON object.
    pub fn to_json(self) -> String {
        let mut members = Vec::new();
        let modes: Vec<_> = [(Self::FORM, "\"form\":{}"), (Self::URL, "\"url\":{}")]
            .into_iter()
            .filter_map(|(mode, text)| self.has_any(mode).then_some(text))
            .collect();
        if !modes.is_empty() {
            members.push(format!("\"elicitation\":{{{}}}", modes.join(",")));
        }
        for (capability, text) in [(Self::SAMPLING, "\"sampling\":{}"), (Self::ROOTS, "\"roots\":{}")] {
            if self.has_any(capability) {
                members.push(text.to_owned());
            }
        }
        format!("{{{}}}", members.join(","))
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(capability, _)| self.has_any(*capability));
        f.debug_list().entries(names.map(|(_, name)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_declared_as_clients_do() {
        assert_eq!(Profile::NONE.to_json(), "{}");
        assert_eq!(
            Profile::ALL.to_json(),
            r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#
        );
        let some = Profile::NONE.with(Profile::URL, true).with(Profile::ROOTS, true);
        let some = some.with(Profile::SAMPLING, false);
        assert_eq!(some.to_json(), r#"{"elicitation":{"url":{}},"roots":{}}"#);
        assert_eq!(format!("{some:?}"), r#"["elicitation.url", "roots"]"#);
    }
}
