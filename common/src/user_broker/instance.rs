//! The name of a local broker.

use std::fmt;

/// The longest part of a name, in bytes.
const NAME_LEN_MAX: usize = 32;
/// Reserved names: the folders have entries that are called so.
const RESERVED: [&str; 2] = ["dev", "data"];
const DEV_PREFIX: &str = "dev/";

/// A local broker of this user: `default`, another name, or `dev/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance(String);

impl Instance {
    /// Reads a name.
    ///
    /// # Errors
    /// What a name is, for the text "allowed: ...".
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix(DEV_PREFIX).unwrap_or(text);
        let is_reserved = name == text && RESERVED.contains(&name);
        if !is_name(name) || is_reserved {
            return Err(format!(
                "{}, optionally after dev/, but not {}",
                rule(),
                RESERVED.join(" or ")
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The broker for development with this name.
    ///
    /// # Errors
    /// What a name is, for the text "allowed: ...".
    pub fn dev(name: &str) -> Result<Self, String> {
        if is_name(name) {
            Ok(Self(format!("{DEV_PREFIX}{name}")))
        } else {
            Err(rule())
        }
    }

    /// The name, with `dev/` before that of a broker for development.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the broker that clients use unless they name another.
    pub fn is_default(&self) -> bool {
        self.0 == "default"
    }

    /// The command line that does this with the broker: `verb` is `start`, `stop` or `restart`.
    pub fn command_line(&self, verb: &str) -> String {
        match (self.dev_name(), self.as_str()) {
            (Some("default"), _) => format!("mcp-broker dev {verb}"),
            (Some(name), _) => format!("mcp-broker dev {verb} --name {name}"),
            (None, "default") => format!("mcp-broker {verb}"),
            (None, name) => format!("mcp-broker {verb} --instance {name}"),
        }
    }

    /// The name of a broker for development; `None` for another.
    pub fn dev_name(&self) -> Option<&str> {
        self.0.strip_prefix(DEV_PREFIX)
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(is_allowed)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

fn rule() -> String {
    format!("a name of 1 to {NAME_LEN_MAX} characters from a-z, 0-9, - and _ that begins with a letter or digit")
}

impl Default for Instance {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_inside_its_folder() {
        for name in ["default", "a", "shop-2", "dev/default", "dev/x_1"] {
            assert_eq!(Instance::parse(name).unwrap().as_str(), name);
        }
        let long = "a".repeat(NAME_LEN_MAX + 1);
        for name in [
            "", "dev", "data", "..", "dev/", "dev/..", "a/b", "dev/a/b", "-a", "A", "a.b", "a b", "/a", &long,
        ] {
            assert!(Instance::parse(name).is_err(), "{name:?}");
        }
        assert_eq!(Instance::dev("dev").unwrap().as_str(), "dev/dev");
        for name in ["", "dev/x", "A"] {
            assert!(!Instance::dev(name).unwrap_err().contains("dev/"), "{name:?}");
        }
    }

    #[test]
    fn each_instance_has_the_command_that_starts_it() {
        for (name, expected) in [
            ("default", "mcp-broker start"),
            ("team", "mcp-broker start --instance team"),
            ("dev/default", "mcp-broker dev start"),
            ("dev/try", "mcp-broker dev start --name try"),
        ] {
            assert_eq!(Instance::parse(name).unwrap().command_line("start"), expected);
        }
    }
}
