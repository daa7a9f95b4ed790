//! Edits of the items of lists in JSON, such as the hooks of a client. All other bytes stay as they are, and each edit is
//! checked before it is returned, as for entries.

use serde_json::{Value, json};

use super::{EditError, Parsed, at, at_mut, check_objects, hash, json as text_edit, removals, slot};
use crate::agent_clients::FileFormat;
use text_edit::Item;

/// The items of a list. None when it is missing.
///
/// # Errors
/// [`EditError`] when the text cannot be edited.
pub fn items(text: &str, keys: &[&str]) -> Result<Vec<Value>, EditError> {
    let (_, value) = read(text, keys)?;
    Ok(at(&value, keys).and_then(Value::as_array).cloned().unwrap_or_default())
}

/// The text with one more item at the end of a list, which is made if it is missing.
///
/// # Errors
/// [`EditError`].
pub fn push(text: &str, keys: &[&str], item: &Value) -> Result<String, EditError> {
    let (file, mut value) = read(text, keys)?;
    let list = slot(&mut value, keys).ok_or(EditError::Unusual)?;
    match list.as_array_mut() {
        Some(list) => list.push(item.clone()),
        None => *list = json!([item]),
    }
    let new = text_edit::insert(file.text, keys, Item::Listed(item));
    file.checked(new, &[hash(&value)])
}

/// The text with another item in the place of one.
///
/// # Errors
/// [`EditError`].
pub fn replace(text: &str, keys: &[&str], index: usize, item: &Value) -> Result<String, EditError> {
    let (file, mut value) = read(text, keys)?;
    let there = at_mut(&mut value, keys).and_then(|list| list.get_mut(index));
    *there.ok_or(EditError::Unusual)? = item.clone();
    let new = text_edit::replace(file.text, keys, Some(index), item);
    file.checked(new, &[hash(&value)])
}

/// The text without an item, and without the list and the objects around it that [`push`] made for it.
///
/// # Errors
/// [`EditError`].
pub fn remove(text: &str, keys: &[&str], index: usize) -> Result<String, EditError> {
    let (file, mut value) = read(text, keys)?;
    let list = at_mut(&mut value, keys).and_then(Value::as_array_mut);
    let list = list.filter(|list| index < list.len()).ok_or(EditError::Unusual)?;
    let item = list.remove(index);
    let is_empty = list.is_empty();
    let mut expected = vec![hash(&value)];
    if is_empty {
        expected.extend(removals(value, keys));
    }
    let new = text_edit::remove(file.text, keys, Some(index), Item::Listed(&item));
    file.checked(new, &expected)
}

/// The text with a member of its outermost object, unless it has one of this name.
///
/// # Errors
/// [`EditError`].
pub fn set_unless_there(text: &str, name: &str, member: &Value) -> Result<String, EditError> {
    let (file, mut value) = read(text, &[])?;
    if at(&value, &[name]).is_some() {
        return Ok(text.to_owned());
    }
    *slot(&mut value, &[name]).ok_or(EditError::Unusual)? = member.clone();
    let new = text_edit::insert(file.text, &[name], Item::Value(member));
    file.checked(new, &[hash(&value)])
}

/// Reads a text, and what it says. The keys lead through objects to a list, as far as they are there.
fn read<'a>(text: &'a str, keys: &[&str]) -> Result<(Parsed<'a>, Value), EditError> {
    let (file, value) = Parsed::read(FileFormat::Json, text)?;
    check_objects(&value, keys.split_last().map_or(&[], |(_, parents)| parents))?;
    match at(&value, keys) {
        Some(list) if !keys.is_empty() && !list.is_array() => Err(EditError::NotAList(keys.join("."))),
        _ => Ok((file, value)),
    }
}
