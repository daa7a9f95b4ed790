//! The settings as they are in force, each with the place that its value came from.

use super::{error::Source, layers::Layers, setting::Setting, table::SETTINGS};

/// What is shown instead of a secret value.
const HIDDEN: &str = "***";

/// A setting as it is in force. It can be shown: a secret value is hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingValue {
    /// The key of the setting, as it is in the file.
    pub name: &'static str,
    /// The value as it was given, or the default; `***` for a secret, `None` for an empty value.
    pub value: Option<String>,
    /// The default of this broker; `None` where the setting has none.
    pub default: Option<String>,
    /// Where the value came from.
    pub source: Source,
    /// Whether `value` is hidden.
    pub is_secret: bool,
}

impl SettingValue {
    fn of(setting: &Setting, layers: &Layers) -> Self {
        let given = layers.given(setting.key);
        let text = given.text.trim();
        let is_secret = given.source != Source::Default && is_secret(setting.key, text);
        let value = if is_secret { HIDDEN } else { text };
        let filled = |text: String| (!text.is_empty()).then_some(text);
        Self {
            name: setting.key,
            value: (!text.is_empty()).then(|| value.to_owned()),
            default: filled(layers.default_of(setting.key)),
            source: given.source,
            is_secret,
        }
    }

    /// Where to change the value: `--port`, `MCP_BROKER_PORT`, the path of the file, or `default`.
    pub fn location(&self) -> String {
        self.source.location(self.name)
    }
}

/// A key, or a URL that may hold a password or a token.
fn is_secret(key: &str, text: &str) -> bool {
    ["admin_key", "desk_webhooks", "desk_ntfy"].contains(&key) || text.contains("://") && text.contains('@')
}

/// All settings in the order of the documentation.
pub fn values(layers: &Layers) -> Vec<SettingValue> {
    SETTINGS
        .iter()
        .map(|setting| SettingValue::of(setting, layers))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::config::{load_over, load_with_values};

    #[test]
    fn a_value_says_where_it_came_from_and_hides_a_secret() {
        let env = [
            ("MCP_BROKER_ADMIN_KEY".into(), "an-admin-key-of-some-length".into()),
            ("MCP_BROKER_REDIS_URL".into(), "redis://:hunter2@cache".into()),
        ];
        let (_, values) = load_with_values(None, vec![("port", "9000".into())], env).unwrap();
        let shown = |name: &str| {
            let value = values.iter().find(|value| value.name == name).unwrap();
            (value.value.as_deref(), value.location(), value.is_secret)
        };
        assert_eq!(shown("port"), (Some("9000"), "--port".to_owned(), false));
        assert_eq!(shown("host"), (Some("127.0.0.1"), "default".to_owned(), false));
        assert_eq!(shown("admin_key_file"), (None, "default".to_owned(), false));
        for name in ["admin_key", "redis_url"] {
            let variable = format!("MCP_BROKER_{}", name.to_uppercase());
            assert_eq!(shown(name), (Some("***"), variable, true));
        }
        assert!(!format!("{values:?}").contains("hunter2"));
    }

    #[test]
    fn a_replaced_default_is_the_default() {
        let defaults = vec![("storage", "disk".to_owned())];
        let (_, values) = load_over(defaults, None, Vec::new(), Vec::new()).unwrap();
        let storage = values.iter().find(|value| value.name == "storage").unwrap();
        assert_eq!(
            (storage.value.as_deref(), storage.default.as_deref()),
            (Some("disk"), Some("disk"))
        );
        assert_eq!(storage.location(), "default");
    }
}
