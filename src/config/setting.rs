use super::layers::ENV_PREFIX;
use super::rules::Shape;

/// What the outside sees of one setting. The typed value is the field of the same name in [`Config`](super::Config).
pub struct Setting {
    /// The key in the file and the name of the field.
    pub key: &'static str,
    /// What it means, in Markdown; the first sentence stands alone.
    pub help: &'static [&'static str],
    /// The default, as a user would write it.
    pub default: &'static str,
    /// How its value looks on the command line.
    pub shape: Shape,
    /// The values it takes, in words.
    pub allowed: fn() -> String,
}

impl Setting {
    /// The setting of this key.
    pub fn find(key: &str) -> Option<&'static Self> {
        super::SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The flag without its dashes: `queue-capacity`.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The environment variable: `MCP_BROKER_QUEUE_CAPACITY`.
    pub fn env(&self) -> String {
        format!("{ENV_PREFIX}{}", self.key.to_ascii_uppercase())
    }

    /// What it means, as one paragraph of Markdown.
    pub fn text(&self) -> String {
        self.help.concat().trim().to_owned()
    }
}

/// Makes `Config`, `SETTINGS` and `read` from one list, so that a field without flag or docs cannot exist.
///
/// An entry reads: doc comment (it becomes the help), `field: type = "default", rule;`.
macro_rules! settings {
    ($( $(#[doc = $help:literal])+ $field:ident: $type:ty = $default:literal, $rule:expr; )+) => {
        /// Every setting of `serve`, checked. A setting that holds a secret needs a type whose `Debug` hides it,
        /// because this `Debug` may be logged.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $( $(#[doc = $help])+ pub $field: $type, )+
        }

        /// The settings in the order in which people read them.
        pub const SETTINGS: &[Setting] = &[$(
            Setting {
                key: stringify!($field),
                help: &[$($help),+],
                default: $default,
                shape: $crate::config::rules::shape(&$rule),
                allowed: || $crate::config::rules::Rule::allowed(&$rule),
            },
        )+];

        /// The first value that its rule refuses ends the reading, in the order of [`SETTINGS`].
        fn read(layers: &Layers) -> Result<Config, ConfigError> {
            Ok(Config { $( $field: layers.read(stringify!($field), &$rule)?, )+ })
        }
    };
}

pub(super) use settings;
