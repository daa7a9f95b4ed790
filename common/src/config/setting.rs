//! The description of a setting, and the macro that declares all settings.

use super::names::ENV_PREFIX;
use super::rules::Shape;

/// The public description of one setting. Its typed value is the field of the same name in [`Config`](super::Config).
pub struct Setting {
    /// The heading under which help and documentation show it.
    pub section: &'static str,
    /// The key in the file, and the name of the field.
    pub key: &'static str,
    /// The meaning in Markdown; its beginning is a summary.
    pub help: &'static [&'static str],
    /// The default, as a user would write it.
    pub default: &'static str,
    /// How its value looks on the command line.
    pub shape: Shape,
    /// The allowed values in words.
    pub allowed: fn() -> String,
}

impl Setting {
    /// The flag without its dashes: `queue-capacity`.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The environment variable: `MCP_BROKER_QUEUE_CAPACITY`.
    pub fn env(&self) -> String {
        format!("{ENV_PREFIX}{}", self.key.to_ascii_uppercase())
    }

    /// The meaning as one paragraph of Markdown.
    pub fn text(&self) -> String {
        self.help.concat().trim().to_owned()
    }

    /// The beginning of the meaning, up to its first mark that is no comma.
    pub fn summary(&self) -> String {
        let text = self.text();
        let ends = [". ", ": ", "; "].map(|mark| text.find(mark).unwrap_or(text.len()));
        let end = ends.into_iter().min().unwrap_or(text.len());
        text[..end].trim_end_matches('.').to_owned()
    }

    /// The default in words.
    pub const fn shown_default(&self) -> &'static str {
        if self.default.is_empty() { "none" } else { self.default }
    }
}

/// Makes `Config`, `SETTINGS` and `read` from one list, so that every field has a flag and a description.
///
/// A section reads: `section "Heading";`, and its entries. An entry reads: doc comment (it becomes the help),
/// `field: type = "default", rule;`.
macro_rules! settings {
    ($( section $section:literal;
        $( $(#[doc = $help:literal])+ $field:ident: $type:ty = $default:literal, $rule:expr; )+ )+) => {
        /// All settings of `serve`, checked. The type of a secret must hide it in `Debug`, because this `Debug` may be
        /// logged.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $( $( $(#[doc = $help])+ pub $field: $type, )+ )+
            /// The backends of the configuration file.
            pub backends: std::sync::Arc<actors::model::BackendsConfig>,
            /// No port is opened: clients use the socket or the FIFOs. A command sets it, and no setting.
            pub has_no_http: bool,
            /// What was taken otherwise than it is written, for the operator.
            pub notes: Vec<String>,
        }

        /// The settings in the order of the documentation.
        pub const SETTINGS: &[Setting] = &[$( $(
            Setting {
                section: $section,
                key: stringify!($field),
                help: &[$($help),+],
                default: $default,
                shape: $crate::config::rules::shape(&$rule),
                allowed: || $crate::config::rules::Rule::allowed(&$rule),
            },
        )+ )+];

        /// Parses all settings in the order of [`SETTINGS`].
        ///
        /// # Errors
        /// The first value that is not allowed.
        pub fn read(layers: &Layers) -> Result<Config, ConfigError> {
            let mut config = Config {
                $( $( $field: layers.read(stringify!($field), &$rule)?, )+ )+
                backends: std::sync::Arc::default(),
                has_no_http: false,
                notes: layers.notes().to_vec(),
            };
            config.backends = std::sync::Arc::new(layers.backends(config.backend_defaults())?);
            Ok(config)
        }
    };
}

pub(super) use settings;
