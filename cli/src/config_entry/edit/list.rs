//! Edits of the items of lists in JSON, such as the hooks of a client. All other bytes stay as they are, and each edit is
//! checked before it is returned, as for entries.

use serde_json::{Map, Value, json};

use super::{EditError, at_mut, hash, json as text_edit, json_list};
use crate::agent_clients::FileFormat;
use crate::client_file::parse;

/// The items of a list. None when it is missing.
///
/// # Errors
/// [`EditError`] when the text cannot be edited.
pub fn items(text: &str, keys: &[&str]) -> Result<Vec<Value>, EditError> {
    let (_, value) = read(text, keys)?;
    let list = keys.iter().try_fold(&value, |value, key| value.get(key));
    Ok(list.and_then(Value::as_array).cloned().unwrap_or_default())
}

/// The text with one more item at the end of a list, which is made if it is missing.
///
/// # Errors
/// [`EditError`].
pub fn push(text: &str, keys: &[&str], item: &Value) -> Result<String, EditError> {
    let (mark, mut value) = read(text, keys)?;
    let list = list_mut(&mut value, keys).ok_or(EditError::Unusual)?;
    list.push(item.clone());
    checked(mark, json_list::push(&text[mark.len()..], keys, item), &[hash(&value)])
}

/// The text with another item in the place of one.
///
/// # Errors
/// [`EditError`].
pub fn replace(text: &str, keys: &[&str], index: usize, item: &Value) -> Result<String, EditError> {
    let (mark, mut value) = read(text, keys)?;
    let list = list_mut(&mut value, keys).ok_or(EditError::Unusual)?;
    *list.get_mut(index).ok_or(EditError::Unusual)? = item.clone();
    let new = json_list::replace(&text[mark.len()..], keys, index, item);
    checked(mark, new, &[hash(&value)])
}

/// The text without an item, and without the list and the objects around it that [`push`] made for it.
///
/// # Errors
/// [`EditError`].
pub fn remove(text: &str, keys: &[&str], index: usize) -> Result<String, EditError> {
    let (mark, mut value) = read(text, keys)?;
    let list = list_mut(&mut value, keys).ok_or(EditError::Unusual)?;
    if index >= list.len() {
        return Err(EditError::Unusual);
    }
    let item = list.remove(index);
    let mut is_empty = list.is_empty();
    let mut expected = vec![hash(&value)];
    // Removing the last item may remove the list, and the objects that hold nothing else.
    for level in (0..keys.len()).rev() {
        if !is_empty {
            break;
        }
        let parent = at_mut(&mut value, &keys[..level]).and_then(Value::as_object_mut);
        let parent = parent.ok_or(EditError::Unusual)?;
        parent.remove(keys[level]);
        is_empty = parent.is_empty();
        expected.push(hash(&value));
    }
    let new = json_list::remove(&text[mark.len()..], keys, index, &item);
    checked(mark, new, &expected)
}

/// The text with a member of its outermost object, unless it has one of this name.
///
/// # Errors
/// [`EditError`].
pub fn set_unless_there(text: &str, name: &str, member: &Value) -> Result<String, EditError> {
    let (mark, mut value) = read(text, &[])?;
    let object = value.as_object_mut().ok_or(EditError::Unusual)?;
    if object.contains_key(name) {
        return Ok(text.to_owned());
    }
    object.insert(name.to_owned(), member.clone());
    let new = text_edit::insert(&text[mark.len()..], &[name], &text_edit::Item::Value(member));
    checked(mark, new, &[hash(&value)])
}

/// Reads a text: its byte order mark, and what it says. The keys lead through objects to a list, as far as they are there.
fn read(text: &str, keys: &[&str]) -> Result<(&'static str, Value), EditError> {
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let value = parse(FileFormat::Json, text).map_err(EditError::Invalid)?;
    let mut at = Some(&value);
    for (level, key) in keys.iter().enumerate() {
        let Some(here) = at else { break };
        if !here.is_object() {
            return Err(EditError::NotAnObject(keys[..level].join(".")));
        }
        at = here.get(key);
    }
    match at {
        Some(list) if !keys.is_empty() && !list.is_array() => Err(EditError::NotAList(keys.join("."))),
        Some(root) if keys.is_empty() && !root.is_object() => Err(EditError::NotAnObject(String::new())),
        _ => Ok((mark, value)),
    }
}

/// The list that the keys lead to; objects and the list are made where they are missing.
fn list_mut<'a>(value: &'a mut Value, keys: &[&str]) -> Option<&'a mut Vec<Value>> {
    let (last, parents) = keys.split_last()?;
    let mut at = value;
    for key in parents {
        at = at
            .as_object_mut()?
            .entry(*key)
            .or_insert_with(|| Value::Object(Map::new()));
    }
    at.as_object_mut()?
        .entry(*last)
        .or_insert_with(|| json!([]))
        .as_array_mut()
}

fn checked(mark: &str, new: Option<String>, expected: &[u64]) -> Result<String, EditError> {
    let new = new.ok_or(EditError::Unusual)?;
    let value = parse(FileFormat::Json, &new).map_err(|_| EditError::Unusual)?;
    if expected.contains(&hash(&value)) {
        Ok(format!("{mark}{new}"))
    } else {
        Err(EditError::Unusual)
    }
}
