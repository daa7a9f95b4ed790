//! Adds an entry to the text of a client's file, changes it and takes it out again. All other bytes stay as they are.
//!
//! Each edit is checked before it is returned: the new text parses, and differs from the old one in the entry alone. A
//! parsed file takes many times its bytes, so that one is in memory at a time: files are compared by their hashes.

mod json;
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
    let (_, mut value, keys) = read(client, text, name)?;
    Ok(at_mut(&mut value, &keys).map(Value::take))
}

/// The text with a new entry.
///
/// # Errors
/// [`EditError`].
pub fn insert(client: &AgentClient, text: &str, name: &str, members: &Members) -> Result<String, EditError> {
    let (file, mut value, keys) = read(client, text, name)?;
    let owned = |(key, value): &(&str, Value)| ((*key).to_owned(), value.clone());
    *slot(&mut value, &keys).ok_or(EditError::Unusual)? = Value::Object(members.iter().map(owned).collect());
    let expected = hash_of(value);
    let new = match client.format {
        FileFormat::Json => json::insert(file.text, &keys, json::Item::Entry(members)),
        FileFormat::Toml => Some(toml::insert(file.text, &keys, members)),
    };
    file.checked(new, &[expected])
}

/// The text with other values for members of an entry. What the entry has besides stays.
///
/// # Errors
/// [`EditError`].
pub fn update(client: &AgentClient, text: &str, name: &str, members: &Members) -> Result<String, EditError> {
    let (file, mut value, keys) = read(client, text, name)?;
    let slot = at_mut(&mut value, &keys).ok_or(EditError::Unusual)?;
    let entry = slot.clone();
    if let Value::Object(object) = slot {
        object.extend(members.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    }
    let expected = hash_of(value);
    let new = match client.format {
        FileFormat::Json => members.iter().try_fold(file.text.to_owned(), |text, (key, value)| {
            let keys: Vec<&str> = keys.iter().copied().chain([*key]).collect();
            match entry.get(*key) {
                Some(old) if old == value => Some(text),
                Some(_) => json::replace(&text, &keys, None, value),
                None => json::insert(&text, &keys, json::Item::Value(value)),
            }
        }),
        FileFormat::Toml => toml::update(file.text, &keys, &entry, members),
    };
    file.checked(new, &[expected])
}

/// The text without the entry, and without the objects around it that [`insert`] made for it.
///
/// # Errors
/// [`EditError`].
pub fn remove(client: &AgentClient, text: &str, name: &str, members: &Members) -> Result<String, EditError> {
    let (file, value, keys) = read(client, text, name)?;
    let expected = removals(value, &keys);
    let new = match client.format {
        FileFormat::Json => json::remove(file.text, &keys, None, json::Item::Entry(members)),
        FileFormat::Toml => toml::remove(file.text, &keys, members),
    };
    file.checked(new, &expected)
}

/// Reads a text, what it says, and the keys that lead to an entry.
fn read<'a>(
    client: &AgentClient,
    text: &'a str,
    name: &'a str,
) -> Result<(Parsed<'a>, Value, Vec<&'a str>), EditError> {
    let is_blank = client.format == FileFormat::Json && text.trim_start_matches('\u{feff}').trim().is_empty();
    let (mut file, mut value) = Parsed::read(client.format, text)?;
    if is_blank {
        file.text = blank(client);
        value = parse(client.format, file.text).map_err(EditError::Invalid)?;
    }
    let path = servers_path(client, &value);
    check_objects(&value, path)?;
    Ok((file, value, path.iter().copied().chain([name]).collect()))
}

/// A text that can be edited.
struct Parsed<'a> {
    format: FileFormat,
    /// The byte order mark of the text, if it has one.
    mark: &'static str,
    text: &'a str,
}

impl<'a> Parsed<'a> {
    /// Reads a text, and what it says.
    fn read(format: FileFormat, text: &'a str) -> Result<(Self, Value), EditError> {
        let (mark, text) = match text.strip_prefix('\u{feff}') {
            Some(rest) => ("\u{feff}", rest),
            None => ("", text),
        };
        let value = parse(format, text).map_err(EditError::Invalid)?;
        Ok((Self { format, mark, text }, value))
    }

    /// The new text, if it parses to one of the expected values.
    fn checked(&self, new: Option<String>, expected: &[u64]) -> Result<String, EditError> {
        let new = new.ok_or(EditError::Unusual)?;
        let value = parse(self.format, &new).map_err(|_| EditError::Unusual)?;
        if expected.contains(&hash_of(value)) {
            Ok(format!("{}{new}", self.mark))
        } else {
            Err(EditError::Unusual)
        }
    }
}

/// Checks that the keys lead through objects to an object, as far as they are there.
fn check_objects(value: &Value, keys: &[&str]) -> Result<(), EditError> {
    let mut found = (0..=keys.len()).map_while(|len| Some((len, at(value, &keys[..len])?)));
    match found.find(|(_, value)| !value.is_object()) {
        Some((len, _)) => Err(EditError::NotAnObject(keys[..len].join("."))),
        None => Ok(()),
    }
}

/// The hashes of a value without what the keys lead to, and without the objects around it that are empty then.
fn removals(mut value: Value, keys: &[&str]) -> Vec<u64> {
    let mut hashes = Vec::new();
    for level in (0..keys.len()).rev() {
        let parent = at_mut(&mut value, &keys[..level]);
        let Some(object) = parent.and_then(Value::as_object_mut) else {
            break;
        };
        object.remove(keys[level]);
        let is_empty = object.is_empty();
        hashes.push(hash(&value));
        if !is_empty {
            break;
        }
    }
    hashes
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

/// What the keys lead to; objects are made where they are missing, and null at the end.
fn slot<'a>(file: &'a mut Value, keys: &[&str]) -> Option<&'a mut Value> {
    keys.iter().try_fold(file, |value, key| {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        Some(value.as_object_mut()?.entry(*key).or_insert(Value::Null))
    })
}
