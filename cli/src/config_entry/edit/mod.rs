//! Adds an entry to the text of a client's file, changes it and takes it out again. All other bytes stay as they are.
//!
//! Each edit is checked before it is returned: the new text parses, and differs from the old one in the entry alone. A
//! parsed file takes many times its bytes, so that one is in memory at a time: files are compared by their hashes.

mod json;
mod json_list;
#[cfg(test)]
mod json_tests;
pub mod list;
#[cfg(test)]
mod list_tests;
mod members;
mod toml;
#[cfg(test)]
mod toml_tests;

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use crate::agent_clients::{AgentClient, FileFormat};
use crate::client_file::parse;
pub use members::Members;

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditError {
    /// It does not parse, and where.
    Invalid(String),
    /// What should hold the entry is something else. The keys that lead to it.
    NotAnObject(String),
    /// What should be a list is something else. The keys that lead to it.
    NotAList(String),
    /// The text is written in a way that the edit would have to rewrite.
    Unusual,
}

impl std::fmt::Display for EditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(reason) => write!(f, "{reason}; correct it in an editor"),
            Self::NotAnObject(keys) if keys.is_empty() => {
                f.write_str("its content is not an object; correct it in an editor")
            }
            Self::NotAnObject(keys) => write!(f, "its member {keys} is not an object; correct it in an editor"),
            Self::NotAList(keys) => write!(f, "its member {keys} is not a list; correct it in an editor"),
            Self::Unusual => f.write_str("it is written in a way that only an editor can change safely"),
        }
    }
}

/// The text of a file that has no entries.
pub fn blank(client: &AgentClient) -> &'static str {
    match (client.format, client.word) {
        (FileFormat::Toml, _) => "",
        (_, "opencode") => "{\n  \"$schema\": \"https://opencode.ai/config.json\"\n}\n",
        (FileFormat::Json, _) => "{}\n",
    }
}

/// The keys that lead to the servers in this file: of several ways the first that the file has.
fn servers_path(client: &AgentClient, file: &Value) -> &'static [&'static str] {
    let is_there = |keys: &&&'static [&'static str]| at(file, keys).is_some_and(Value::is_object);
    let found = client.servers.iter().find(is_there).or(client.servers.last());
    found.copied().unwrap_or_default()
}

fn at<'a>(file: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().try_fold(file, |value, key| value.get(key))
}

/// The entry of a name, if the file has one.
///
/// # Errors
/// [`EditError`] when the text cannot be edited, with or without an entry.
pub fn entry(client: &AgentClient, text: &str, name: &str) -> Result<Option<Value>, EditError> {
    let (file, mut value) = Parsed::read(client, text, name)?;
    Ok(at_mut(&mut value, &file.keys).map(Value::take))
}

/// The text with a new entry.
///
/// # Errors
/// [`EditError`].
pub fn insert(client: &AgentClient, text: &str, name: &str, members: &Members) -> Result<String, EditError> {
    let (file, mut value) = Parsed::read(client, text, name)?;
    set(&mut value, &file.keys, members);
    let expected = hash_of(value);
    let new = match client.format {
        FileFormat::Json => json::insert(file.text, &file.keys, &json::Item::Entry(members)),
        FileFormat::Toml => Some(toml::insert(file.text, &file.keys, members)),
    };
    file.checked(new, &[expected])
}

/// The text with other values for members of an entry. What the entry has besides stays.
///
/// # Errors
/// [`EditError`].
pub fn update(client: &AgentClient, text: &str, name: &str, members: &Members) -> Result<String, EditError> {
    let (file, mut value) = Parsed::read(client, text, name)?;
    let slot = at_mut(&mut value, &file.keys).ok_or(EditError::Unusual)?;
    let entry = slot.clone();
    if let Value::Object(object) = slot {
        object.extend(members.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    }
    let expected = hash_of(value);
    let new = match client.format {
        FileFormat::Json => members.iter().try_fold(file.text.to_owned(), |text, (key, value)| {
            let keys: Vec<&str> = file.keys.iter().copied().chain([*key]).collect();
            match entry.get(*key) {
                Some(old) if old == value => Some(text),
                Some(_) => json::replace(&text, &keys, value),
                None => json::insert(&text, &keys, &json::Item::Value(value)),
            }
        }),
        FileFormat::Toml => toml::update(file.text, &file.keys, &entry, members),
    };
    file.checked(new, &[expected])
}

/// The text without the entry, and without the objects around it that [`insert`] made for it.
///
/// # Errors
/// [`EditError`].
pub fn remove(client: &AgentClient, text: &str, name: &str, members: &Members) -> Result<String, EditError> {
    let (file, mut value) = Parsed::read(client, text, name)?;
    // The entry alone may be removed, or with objects that hold nothing else.
    let mut expected = Vec::new();
    for level in (0..file.keys.len()).rev() {
        let parent = at_mut(&mut value, &file.keys[..level]);
        let Some(object) = parent.and_then(Value::as_object_mut) else {
            break;
        };
        object.remove(file.keys[level]);
        let is_empty = object.is_empty();
        expected.push(hash(&value));
        if !is_empty {
            break;
        }
    }
    drop(value);
    let new = match client.format {
        FileFormat::Json => json::remove(file.text, &file.keys, &json::Item::Entry(members)),
        FileFormat::Toml => toml::remove(file.text, &file.keys, members),
    };
    file.checked(new, &expected)
}

/// A text that can be edited.
struct Parsed<'a> {
    client: &'a AgentClient,
    /// The byte order mark of the text, if it has one.
    mark: &'static str,
    text: &'a str,
    /// The keys that lead to the entry.
    keys: Vec<&'a str>,
}

impl<'a> Parsed<'a> {
    /// Reads a text, and what it says.
    fn read(client: &'a AgentClient, text: &'a str, name: &'a str) -> Result<(Self, Value), EditError> {
        let (mark, text) = match text.strip_prefix('\u{feff}') {
            Some(rest) => ("\u{feff}", rest),
            None => ("", text),
        };
        let text = if text.trim().is_empty() && client.format == FileFormat::Json {
            blank(client)
        } else {
            text
        };
        let value = parse(client.format, text).map_err(EditError::Invalid)?;
        let path = servers_path(client, &value);
        for len in 0..=path.len() {
            match at(&value, &path[..len]) {
                Some(Value::Object(_)) => {}
                Some(_) => return Err(EditError::NotAnObject(path[..len].join("."))),
                None => break,
            }
        }
        let file = Self {
            client,
            mark,
            text,
            keys: path.iter().copied().chain([name]).collect(),
        };
        Ok((file, value))
    }

    /// The new text, if it parses to one of the expected values.
    fn checked(&self, new: Option<String>, expected: &[u64]) -> Result<String, EditError> {
        let new = new.ok_or(EditError::Unusual)?;
        let value = parse(self.client.format, &new).map_err(|_| EditError::Unusual)?;
        if expected.contains(&hash_of(value)) {
            Ok(format!("{}{new}", self.mark))
        } else {
            Err(EditError::Unusual)
        }
    }
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn hash_of(value: Value) -> u64 {
    hash(&value)
}

fn at_mut<'a>(file: &'a mut Value, keys: &[&str]) -> Option<&'a mut Value> {
    keys.iter().try_fold(file, |value, key| value.get_mut(*key))
}

/// Puts the entry into a value.
fn set(file: &mut Value, keys: &[&str], members: &Members) {
    let Some((key, rest)) = keys.split_first() else {
        let owned = |(key, value): &(&str, Value)| ((*key).to_owned(), value.clone());
        *file = Value::Object(members.iter().map(owned).collect());
        return;
    };
    if let Value::Object(object) = file {
        let below = object.entry(*key).or_insert_with(|| Value::Object(Map::new()));
        set(below, rest, members);
    }
}
