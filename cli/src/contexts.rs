//! The contexts of a user: a name for the address of a broker, the file with its key, and a project. They are kept in one
//! private file in the configuration folder of the user.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{ErrorKind, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use common::config::suggestion;
use common::user_broker::{config_file_of_user, write_private};

/// The name that means no context: the broker of the user.
pub const OWN: &str = "local";
/// Contexts of a user, at most.
const CONTEXTS_MAX: usize = 200;
/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;
const NAME_LEN_MAX: usize = 32;
/// The bits of a mode by which others may change a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The contexts of a user.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Contexts {
    /// The one that commands use unless they name another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    contexts: BTreeMap<String, Context>,
}

/// A broker and how it is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    pub url: String,
    /// The file that holds the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The project, for a key that may act in several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The key may be sent over `http://` to another machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl Contexts {
    /// Reads the contexts of the user. Without a file there is none.
    ///
    /// # Errors
    /// One line: the file cannot be read, or others may change it.
    pub fn read() -> Result<Self, String> {
        match file() {
            Ok(file) => Self::read_from(&file),
            // A user without a home folder has no contexts.
            Err(_) => Ok(Self::default()),
        }
    }

    fn read_from(path: &Path) -> Result<Self, String> {
        let unusable = |reason: String| format!("the contexts in {} cannot be used: {reason}", path.display());
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(unusable(error.to_string())),
        };
        let metadata = file.metadata().map_err(|error| unusable(error.to_string()))?;
        let is_foreign = metadata.uid() != geteuid().as_raw() && metadata.uid() != 0;
        if is_foreign || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(unusable("others may change it; run chmod 600".to_owned()));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| unusable(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))
    }

    /// Keeps the contexts in the file, which no other user may read.
    ///
    /// # Errors
    /// One line: the file cannot be written.
    pub fn write(&self) -> Result<(), String> {
        self.write_to(&file()?)
    }

    fn write_to(&self, path: &Path) -> Result<(), String> {
        let folder = path.parent().unwrap_or(path);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        let written = made.and_then(|()| write_private(path, text.as_bytes()));
        written.map_err(|error| format!("the contexts in {} cannot be written: {error}", path.display()))
    }

    /// The context of a name.
    ///
    /// # Errors
    /// One line that says which there are.
    pub fn find(&self, name: &str) -> Result<&Context, String> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).chain([OWN]).collect();
            let suggestion = suggestion(name, &names, str::to_owned, "mcp-broker context list");
            format!("no context {name:?}; {suggestion}")
        })
    }

    /// All of them by their names.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Context)> {
        self.contexts.iter().map(|(name, context)| (name.as_str(), context))
    }

    /// Adds a context, or changes the one of this name. Says whether there was one.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, name: String, context: Context) -> Result<bool, String> {
        if self.contexts.len() >= CONTEXTS_MAX && !self.contexts.contains_key(&name) {
            return Err(format!(
                "there are {CONTEXTS_MAX} contexts already; remove one with mcp-broker context remove"
            ));
        }
        Ok(self.contexts.insert(name, context).is_some())
    }

    /// Takes a context away. If it is the current one, none is current then.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub fn remove(&mut self, name: &str) -> Result<(), String> {
        self.find(name)?;
        self.contexts.remove(name);
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
        Ok(())
    }
}

/// The file of the contexts.
///
/// # Errors
/// No folder of the user is named.
pub fn file() -> Result<PathBuf, String> {
    let beside = config_file_of_user();
    let file = beside.map(|file| file.with_file_name("contexts.json"));
    file.ok_or_else(|| "neither XDG_CONFIG_HOME nor HOME names a folder for contexts; set HOME".to_owned())
}

/// Reads the name of a context.
///
/// # Errors
/// What a name is, for the text "allowed: ...".
pub fn read_name(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(is_allowed) && text != OWN {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "1 to {NAME_LEN_MAX} letters, digits, -, _ and ., but not {OWN}"
        ))
    }
}

/// Whether others may read a file that holds a key.
pub fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn contexts_are_kept_in_a_private_file_that_others_may_not_change() {
        let folder = std::env::temp_dir().join(format!("mb-{}", uuid::Uuid::now_v7().simple()));
        let path = folder.join("mcp-broker/contexts.json");
        assert!(Contexts::read_from(&path).unwrap().all().next().is_none());
        let mut contexts = Contexts::default();
        let team = Context {
            url: "https://broker.example.com".to_owned(),
            project: Some("acme".to_owned()),
            ..Context::default()
        };
        assert!(!contexts.add("team".to_owned(), team.clone()).unwrap());
        assert!(contexts.add("team".to_owned(), team.clone()).unwrap());
        contexts.current = Some("team".to_owned());
        contexts.write_to(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut read = Contexts::read_from(&path).unwrap();
        assert_eq!(read.find("team").unwrap(), &team);
        assert_eq!(
            read.find("taem").unwrap_err(),
            "no context \"taem\"; did you mean team?"
        );
        read.remove("team").unwrap();
        assert_eq!(read.current, None);
        fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        assert!(Contexts::read_from(&path).unwrap_err().contains("others may change it"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn contexts_are_bounded_and_have_plain_names() {
        let mut contexts = Contexts::default();
        for at in 0..CONTEXTS_MAX {
            contexts.add(at.to_string(), Context::default()).unwrap();
        }
        assert!(contexts.add("more".to_owned(), Context::default()).is_err());
        assert!(contexts.add("7".to_owned(), Context::default()).unwrap());
        for name in ["team", "a.b-c_1"] {
            assert_eq!(read_name(name).unwrap(), name);
        }
        for name in ["", OWN, "a b", "a/b", "ä", &"x".repeat(33)] {
            assert!(read_name(name).is_err(), "{name}");
        }
    }
}
