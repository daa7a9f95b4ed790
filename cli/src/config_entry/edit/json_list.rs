//! Edits of lists in JSON with comments, in addition to those of objects.
//!
//! [`push`] writes into an empty list that was there with a space before and after the item, and into one that it makes
//! without, so that [`remove`] can take back exactly what was made.

use std::ops::Range;

use jsonc_parser::ast::{Array, Object, Value as Node};
use serde_json::{Value, json};

use super::json::{
    Item, Tail, find, insert, one_line, own_line_indent, parse, range_of, remove as remove_member, without_part,
};

/// The text with one more item at the end of a list, which is made if it is missing.
pub fn push(text: &str, keys: &[&str], item: &Value) -> Option<String> {
    let root = parse(text)?;
    let list = match list_at(root.as_object()?, keys) {
        Place::List(list) => list,
        Place::Missing => return insert(text, keys, &Item::Value(&json!([item]))),
        Place::Other => return None,
    };
    let new = one_line(item);
    let Some(last) = list.elements.last() else {
        let inside = list.range.start + 1;
        return Some(format!("{} {new} {}", &text[..inside], &text[inside..]));
    };
    let Range { start, end } = range_of(last);
    let tail = Tail::of(text, end);
    let space = match own_line_indent(text, start) {
        Some(indent) => format!("{}{indent}", if text.contains("\r\n") { "\r\n" } else { "\n" }),
        None if tail.ends_in_line_comment => "\n".to_owned(),
        None => " ".to_owned(),
    };
    let (comma, trailing) = if tail.comma.is_some() { ("", ",") } else { (",", "") };
    Some(format!(
        "{}{comma}{}{space}{new}{trailing}{}",
        &text[..end],
        &text[end..tail.end],
        &text[tail.end..]
    ))
}

/// The text with another item in the place of one.
pub fn replace(text: &str, keys: &[&str], index: usize, item: &Value) -> Option<String> {
    let root = parse(text)?;
    let Place::List(list) = list_at(root.as_object()?, keys) else {
        return None;
    };
    let Range { start, end } = range_of(list.elements.get(index)?);
    Some(format!("{}{}{}", &text[..start], one_line(item), &text[end..]))
}

/// The text without an item, which is `item`, and without what [`push`] would have made around it.
pub fn remove(text: &str, keys: &[&str], index: usize, item: &Value) -> Option<String> {
    let root = parse(text)?;
    let Place::List(list) = list_at(root.as_object()?, keys) else {
        return None;
    };
    let parts: Vec<_> = list.elements.iter().map(range_of).collect();
    if parts.len() > 1 {
        return without_part(text, list.range.start..list.range.end, &parts, index).pop();
    }
    let Range { start, end } = parts.first()?.clone();
    let before = text[..start].strip_suffix(' ').zip(text[end..].strip_prefix(' '));
    let emptied = before.map(|(before, after)| format!("{before}{after}"));
    emptied
        .filter(|emptied| push(emptied, keys, item).as_deref() == Some(text))
        .or_else(|| remove_member(text, keys, &Item::Value(&json!([item]))))
}

/// What the keys lead to.
enum Place<'a, 't> {
    List(&'a Array<'t>),
    Missing,
    /// What should be a list or an object is something else.
    Other,
}

fn list_at<'a, 't>(root: &'a Object<'t>, keys: &[&str]) -> Place<'a, 't> {
    let mut object = root;
    for (level, key) in keys.iter().enumerate() {
        match find(object, key).map(|member| &member.value) {
            None => return Place::Missing,
            Some(Node::Array(list)) if level + 1 == keys.len() => return Place::List(list),
            Some(Node::Object(below)) => object = below,
            Some(_) => return Place::Other,
        }
    }
    Place::Other
}
