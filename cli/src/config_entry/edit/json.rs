//! Edits of objects and lists in JSON with comments. The parser says where things are; an edit cuts and inserts text there.
//!
//! [`insert`] marks what it makes by its spaces, so that [`remove`] can take back exactly that: an object that it makes has
//! a space or a line break after its brace and a list none after its bracket; into an empty object that was there it writes
//! directly after the brace, and into an empty list with a space before and after the item.

use std::ops::Range;

use jsonc_parser::ast::{Object, Value as Node};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, parse_to_ast};
use serde_json::{Value, json};

use super::members::Members;
use crate::client_file::json_with_comments;

/// The indentation of a text that has none.
const INDENT: &str = "  ";

/// What is inserted under the last of some keys.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    Entry(&'a Members),
    Value(&'a Value),
    /// An item of the list there.
    Listed(&'a Value),
}

/// How new text is laid out.
#[derive(Clone)]
enum Layout {
    /// One member a line, with this indentation.
    Lines(String),
    OneLine,
}

/// The text with an item under the last of the keys. Objects and the list that are missing on the way are made.
pub fn insert(text: &str, keys: &[&str], item: Item) -> Option<String> {
    let root = parse(text)?;
    let shape = Shape::of(text, root.as_object()?);
    let (around, missing) = reach(&root, keys)?;
    match (around, missing, item) {
        (Node::Array(_), [], Item::Listed(_)) | (Node::Object(_), [_, ..], _) => {}
        _ => return None,
    }
    let new = |layout: &Layout| match item {
        Item::Listed(value) if missing.is_empty() => one_line(value),
        item => shape.member(missing, item, layout),
    };
    let inside = around.range().start + 1;
    let Some(last) = parts(around).pop() else {
        let new = match around {
            Node::Array(_) => format!(" {} ", new(&Layout::OneLine)),
            _ if around.range() == root.range() => {
                let (line_break, layout) = (shape.line_break, Layout::Lines(shape.indent.clone()));
                format!("{line_break}{}{}{line_break}", shape.indent, new(&layout))
            }
            _ => new(&Layout::OneLine),
        };
        return Some(format!("{}{new}{}", &text[..inside], &text[inside..]));
    };
    let tail = Tail::of(text, last.end);
    let layout = match own_line_indent(text, last.start) {
        Some(indent) => Layout::Lines(indent.to_owned()),
        None if tail.ends_in_line_comment => {
            let indent = format!("{}{}", line_indent(text, inside - 1), shape.indent);
            Layout::Lines(indent)
        }
        None => Layout::OneLine,
    };
    let space = match &layout {
        Layout::Lines(indent) => format!("{}{indent}", shape.line_break),
        Layout::OneLine => " ".to_owned(),
    };
    let (comma, trailing) = if tail.comma.is_some() { ("", ",") } else { (",", "") };
    Some(format!(
        "{}{comma}{}{space}{}{trailing}{}",
        &text[..last.end],
        &text[last.end..tail.end],
        new(&layout),
        &text[tail.end..]
    ))
}

/// The text with another value under the last of the keys, or with another item at an index of the list there.
pub fn replace(text: &str, keys: &[&str], index: Option<usize>, value: &Value) -> Option<String> {
    let root = parse(text)?;
    let (found, []) = reach(&root, keys)? else { return None };
    let Range { start, end } = match index {
        Some(index) => parts(found).get(index)?.clone(),
        None => range_of(found),
    };
    Some(format!("{}{}{}", &text[..start], one_line(value), &text[end..]))
}

/// The text without the item under the last of the keys, or at an index of the list there, and without what [`insert`] would
/// have made around it.
pub fn remove(text: &str, keys: &[&str], index: Option<usize>, item: Item) -> Option<String> {
    let root = parse(text)?;
    let mut chain = Vec::new();
    for level in 0..keys.len() {
        let (around, []) = reach(&root, &keys[..level])? else {
            return None;
        };
        let members = &around.as_object()?.properties;
        chain.push((
            around,
            members.iter().rposition(|member| member.name.as_str() == keys[level])?,
        ));
    }
    if let Some(index) = index {
        chain.push((reach(&root, keys)?.0, index));
    }
    let is_alone = |level: usize| chain[level + 1..].iter().all(|(around, _)| parts(around).len() == 1);
    for (around, index) in (0..chain.len())
        .filter(|level| is_alone(*level))
        .map(|level| chain[level])
    {
        for before in without_part(text, around, index) {
            if insert(&before, keys, item).as_deref() == Some(text) {
                return Some(before);
            }
        }
    }
    // A list that would be empty goes with its last item.
    let last = chain.pop()?;
    let last = if index.is_some() && parts(last.0).len() == 1 {
        chain.pop()?
    } else {
        last
    };
    without_part(text, last.0, last.1).pop()
}

fn parse(text: &str) -> Option<Node<'_>> {
    parse_to_ast(text, &CollectOptions::default(), &json_with_comments())
        .ok()?
        .value
}

/// What the keys lead to as far as they are there, and the other keys. `None` if something else than an object is on the
/// way. Of several members of a name the last counts, as for every parser.
fn reach<'a, 't, 'k>(root: &'a Node<'t>, keys: &'k [&'k str]) -> Option<(&'a Node<'t>, &'k [&'k str])> {
    let mut node = root;
    for (level, key) in keys.iter().enumerate() {
        let mut members = node.as_object()?.properties.iter().rev();
        match members.find(|member| member.name.as_str() == *key) {
            None => return Some((node, &keys[level..])),
            Some(member) => node = &member.value,
        }
    }
    Some((node, &[]))
}

/// Where the members of an object or the items of a list are.
fn parts(node: &Node) -> Vec<Range<usize>> {
    match node {
        Node::Object(object) => object.properties.iter().map(range_of).collect(),
        Node::Array(list) => list.elements.iter().map(range_of).collect(),
        _ => Vec::new(),
    }
}

fn range_of(part: &impl Ranged) -> Range<usize> {
    part.start()..part.end()
}

/// How a text is laid out.
struct Shape {
    line_break: &'static str,
    indent: String,
}

impl Shape {
    fn of(text: &str, root: &Object) -> Self {
        let first = root.properties.first();
        let indent = first.and_then(|first| own_line_indent(text, first.range.start));
        Self {
            line_break: if text.contains("\r\n") { "\r\n" } else { "\n" },
            indent: indent.filter(|indent| !indent.is_empty()).unwrap_or(INDENT).to_owned(),
        }
    }

    /// A member with its name, in objects for the other keys.
    fn member(&self, keys: &[&str], item: Item, layout: &Layout) -> String {
        let Some((key, rest)) = keys.split_first() else {
            return String::new();
        };
        let name = Value::from(*key);
        if rest.is_empty() {
            return format!("{name}: {}", self.item(item, layout));
        }
        match layout {
            Layout::OneLine => format!("{name}: {{ {} }}", self.member(rest, item, layout)),
            Layout::Lines(indent) => {
                let below = format!("{indent}{}", self.indent);
                let inner = self.member(rest, item, &Layout::Lines(below.clone()));
                let line_break = self.line_break;
                format!("{name}: {{{line_break}{below}{inner}{line_break}{indent}}}")
            }
        }
    }

    fn item(&self, item: Item, layout: &Layout) -> String {
        let members = match item {
            Item::Value(value) => return one_line(value),
            Item::Listed(value) => return one_line(&json!([value])),
            Item::Entry(members) => members,
        };
        let members = members
            .iter()
            .map(|(key, value)| format!("{}: {}", Value::from(*key), one_line(value)));
        match layout {
            Layout::OneLine => format!("{{{}}}", members.collect::<Vec<_>>().join(", ")),
            Layout::Lines(indent) => {
                let line = format!("{}{indent}{}", self.line_break, self.indent);
                let members: Vec<_> = members.map(|member| format!("{line}{member}")).collect();
                format!("{{{}{}{indent}}}", members.join(","), self.line_break)
            }
        }
    }
}

/// A value in one line, with a space after each comma and colon.
fn one_line(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(one_line).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let member =
                |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), one_line(value));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

/// The text after a member on its line: its comma and comments.
struct Tail {
    comma: Option<usize>,
    /// Where the next line, or what follows on this line, begins.
    end: usize,
    ends_in_line_comment: bool,
}

impl Tail {
    /// The text after a member or an item that ends there.
    fn of(text: &str, end: usize) -> Self {
        let comma = comma_after(text, end);
        let mut tail = Self {
            comma,
            end: comma.map_or(end, |comma| comma + 1),
            ends_in_line_comment: false,
        };
        for part in trivia(text, tail.end) {
            match part.kind {
                Kind::Space if text[part.range.clone()].contains('\n') => break,
                Kind::Space => {}
                Kind::Block if text[part.range.clone()].contains('\n') => break,
                Kind::Block => tail.end = part.range.end,
                Kind::Line => {
                    tail.end = part.range.end;
                    tail.ends_in_line_comment = true;
                    break;
                }
            }
        }
        tail
    }
}

/// The comma that follows a place after spaces and comments.
fn comma_after(text: &str, from: usize) -> Option<usize> {
    let next = trivia(text, from).last().map_or(from, |part| part.range.end);
    text[next..].starts_with(',').then_some(next)
}

/// The texts without a part of an object or of a list. The last one is good for every layout; the others are what stood there
/// before [`insert`] added the part, if it did.
fn without_part(text: &str, around: &Node, index: usize) -> Vec<String> {
    let (around, parts) = (range_of(around), parts(around));
    let part = &parts[index];
    let comma = comma_after(text, part.end);
    let after = comma.map_or(part.end, |comma| comma + 1);
    let kept_comments = &text[part.end..comma.unwrap_or(part.end)];
    let inside = around.start + 1;
    if parts.len() == 1 {
        let mut texts = vec![format!("{}{}", &text[..inside], &text[part.end..])];
        let rest = &text[part.end..];
        let spaces = ["\r\n", "\n", " "].iter().find_map(|space| rest.strip_prefix(space));
        texts.extend(spaces.map(|rest| format!("{}{rest}", &text[..inside])));
        let start = cut_start(text, inside, part.start, after);
        let inner = format!(
            "{}{kept_comments}{}",
            &text[inside..start],
            &text[after..around.end - 1]
        );
        let inner = if inner.trim().is_empty() { "" } else { &inner };
        texts.push(format!("{}{inner}{}", &text[..inside], &text[around.end - 1..]));
        return texts;
    }
    let previous = index.checked_sub(1).map(|index| parts[index].end);
    let comma_before = previous.and_then(|end| comma_after(text, end));
    let start = cut_start(text, comma_before.map_or(inside, |comma| comma + 1), part.start, after);
    let is_last = index + 1 == parts.len();
    vec![match comma_before {
        Some(before) if is_last && comma.is_none() => {
            format!("{}{}{}", &text[..before], &text[before + 1..start], &text[after..])
        }
        _ => format!("{}{kept_comments}{}", &text[..start], &text[after..]),
    }]
}

/// Where a cut before a member begins: behind the comment or token before it, so that its line goes with it. A line
/// comment keeps its line break if the text after the cut has none.
fn cut_start(text: &str, from: usize, member: usize, after: usize) -> usize {
    let parts = trivia(text, from).take_while(|part| part.range.start < member);
    let comment = parts.filter(|part| !matches!(part.kind, Kind::Space)).last();
    let rest = text[after..].trim_start_matches([' ', '\t', '\r']);
    match comment {
        Some(comment) if matches!(comment.kind, Kind::Line) && !rest.starts_with('\n') => member,
        Some(comment) => comment.range.end,
        None => from,
    }
}

/// The white space before a place, if nothing else is before it on its line.
fn own_line_indent(text: &str, place: usize) -> Option<&str> {
    let line = text[..place].rfind('\n').map(|at| at + 1)?;
    let before = &text[line..place];
    before.chars().all(|c| c == ' ' || c == '\t').then_some(before)
}

/// The white space at the beginning of the line of a place.
fn line_indent(text: &str, place: usize) -> &str {
    let line = text[..place].rfind('\n').map_or(0, |at| at + 1);
    let rest = &text[line..place];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

/// What may be between the tokens of JSON with comments.
struct Trivia {
    kind: Kind,
    range: Range<usize>,
}

enum Kind {
    Space,
    /// To the end of its line, without the line break.
    Line,
    Block,
}

/// The spaces and comments from a place to the next token. The text has been parsed: each comment ends.
fn trivia(text: &str, from: usize) -> impl Iterator<Item = Trivia> {
    let mut at = from;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let space = rest.len() - rest.trim_start().len();
        let (kind, len) = if space > 0 {
            (Kind::Space, space)
        } else if rest.starts_with("//") {
            let line = rest.find('\n').unwrap_or(rest.len());
            (Kind::Line, rest[..line].trim_end_matches('\r').len())
        } else if rest.starts_with("/*") {
            (Kind::Block, rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else {
            return None;
        };
        let range = at..at + len;
        at = range.end;
        Some(Trivia { kind, range })
    })
}
