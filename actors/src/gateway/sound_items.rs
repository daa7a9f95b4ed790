//! Makes an item that a backend lists one that every client can read: by the schema of MCP in each revision that the broker
//! speaks. Clients refuse a whole list for one item that is not. Pure.

use std::borrow::Cow;

use serde_json::Value;
use url::Url;

use crate::json::{self, scan};

/// Characters of the reason for which an item is left out.
const REASON_LEN_MAX: usize = 200;

/// What a value has to be.
enum Shape {
    Text,
    /// A text that is not empty.
    Name,
    /// A URI, as strict clients read it.
    Address,
    /// A time with the difference to UTC, which not every client needs.
    Time,
    Flag,
    Integer,
    /// A number from 0 to 1.
    Share,
    OneOf(&'static [&'static str]),
    ListOf(&'static Shape),
    Object(&'static [Member]),
    /// An object whose values are JSON Schemas.
    Schemas,
}

/// What the items of a list have to be.
pub(super) struct ItemSchema(&'static [Member]);

/// A member of an object.
struct Member {
    name: &'static str,
    shape: Shape,
    absent: Absent,
}

/// What becomes of an object without a member. A null counts as none, and so does an empty list in the place of an object: some
/// languages write an empty object so.
#[derive(PartialEq, Eq)]
enum Absent {
    /// It cannot be used.
    Unsound,
    /// It is complete.
    Complete,
    /// It is complete. So the member is left out if its value is not sound: nothing depends on it.
    Dispensable,
    /// It gets this value, which says the same.
    Means(&'static str),
}

const fn needed(name: &'static str, shape: Shape) -> Member {
    Member {
        name,
        shape,
        absent: Absent::Unsound,
    }
}

const fn optional(name: &'static str, shape: Shape) -> Member {
    Member {
        name,
        shape,
        absent: Absent::Complete,
    }
}

const fn dispensable(name: &'static str, shape: Shape) -> Member {
    Member {
        name,
        shape,
        absent: Absent::Dispensable,
    }
}

/// The schema of the arguments of a tool. They are always an object.
const INPUT_SCHEMA: &[Member] = &[
    Member {
        name: "type",
        shape: Shape::OneOf(&["object"]),
        absent: Absent::Means("\"object\""),
    },
    optional("$schema", Shape::Text),
    optional("properties", Shape::Schemas),
    optional("required", Shape::ListOf(&Shape::Text)),
];

/// The schema of a result. 2026-07-28 allows any; the revisions before it want that of an object.
const OUTPUT_SCHEMA: &[Member] = &[
    needed("type", Shape::OneOf(&["object"])),
    optional("$schema", Shape::Text),
    optional("properties", Shape::Schemas),
    optional("required", Shape::ListOf(&Shape::Text)),
];

const ICON: Shape = Shape::Object(&[
    needed("src", Shape::Text),
    optional("mimeType", Shape::Text),
    optional("sizes", Shape::ListOf(&Shape::Text)),
    optional("theme", Shape::OneOf(&["light", "dark"])),
]);

const ANNOTATIONS: Shape = Shape::Object(&[
    optional("audience", Shape::ListOf(&Shape::OneOf(&["user", "assistant"]))),
    optional("priority", Shape::Share),
    dispensable("lastModified", Shape::Time),
]);

const TOOL_ANNOTATIONS: Shape = Shape::Object(&[
    optional("title", Shape::Text),
    optional("readOnlyHint", Shape::Flag),
    optional("destructiveHint", Shape::Flag),
    optional("idempotentHint", Shape::Flag),
    optional("openWorldHint", Shape::Flag),
]);

const ARGUMENT: Shape = Shape::Object(&[
    needed("name", Shape::Text),
    optional("title", Shape::Text),
    optional("description", Shape::Text),
    optional("required", Shape::Flag),
]);

const TITLE: Member = optional("title", Shape::Text);
const DESCRIPTION: Member = optional("description", Shape::Text);
const MIME_TYPE: Member = optional("mimeType", Shape::Text);
const ICONS: Member = dispensable("icons", Shape::ListOf(&ICON));
const META: Member = optional("_meta", Shape::Object(&[]));

/// As tools are listed.
pub(super) const TOOL: ItemSchema = ItemSchema(&[
    needed("name", Shape::Name),
    TITLE,
    DESCRIPTION,
    needed("inputSchema", Shape::Object(INPUT_SCHEMA)),
    dispensable("outputSchema", Shape::Object(OUTPUT_SCHEMA)),
    optional("annotations", TOOL_ANNOTATIONS),
    optional(
        "execution",
        Shape::Object(&[optional(
            "taskSupport",
            Shape::OneOf(&["forbidden", "optional", "required"]),
        )]),
    ),
    ICONS,
    META,
]);

/// As prompts are listed.
pub(super) const PROMPT: ItemSchema = ItemSchema(&[
    needed("name", Shape::Name),
    TITLE,
    DESCRIPTION,
    optional("arguments", Shape::ListOf(&ARGUMENT)),
    ICONS,
    META,
]);

/// As resources are listed.
pub(super) const RESOURCE: ItemSchema = ItemSchema(&[
    needed("uri", Shape::Address),
    needed("name", Shape::Text),
    TITLE,
    DESCRIPTION,
    MIME_TYPE,
    optional("size", Shape::Integer),
    optional("annotations", ANNOTATIONS),
    ICONS,
    META,
]);

/// As templates are listed.
pub(super) const TEMPLATE: ItemSchema = ItemSchema(&[
    needed("uriTemplate", Shape::Name),
    needed("name", Shape::Text),
    TITLE,
    DESCRIPTION,
    MIME_TYPE,
    optional("annotations", ANNOTATIONS),
    ICONS,
    META,
]);

/// Why a value cannot be used: where in it, and what is wrong there.
struct Unsound {
    path: String,
    what: String,
}

impl Unsound {
    fn new(what: impl Into<String>) -> Self {
        Self {
            path: String::new(),
            what: what.into(),
        }
    }

    /// The problem as one of the value that has this value as a member.
    fn below(mut self, member: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => member.to_owned(),
            path => format!("{member}.{path}"),
        };
        self
    }

    fn into_reason(self) -> String {
        let Self { path, what } = self;
        let separator = if path.is_empty() { "" } else { " " };
        format!("{path}{separator}{what}")
            .chars()
            .take(REASON_LEN_MAX)
            .collect()
    }
}

/// An item of a list as every client can read it. The text changes as little as possible, and mostly not at all.
///
/// # Errors
/// It cannot be offered: why.
pub(super) fn sound_item<'a>(schema: &ItemSchema, text: &'a str) -> Result<Cow<'a, str>, String> {
    // Parsers differ in numbers and in escapes of half a character: this one takes what all take.
    if let Err(error) = serde_json::from_str::<Value>(text) {
        return Err(Unsound::new(format!("is not JSON that every client reads: {error}")).into_reason());
    }
    sound_object(schema.0, text).map_err(Unsound::into_reason)
}

fn sound<'a>(shape: &Shape, raw: &'a str) -> Result<Cow<'a, str>, Unsound> {
    let text = || scan::string(raw);
    let number = || raw.parse::<f64>().ok();
    let (is_sound, what) = match shape {
        Shape::Text => (text().is_some(), "is no text"),
        Shape::Name => (text().is_some_and(|text| !text.is_empty()), "is no text, or empty"),
        Shape::Address => (text().is_some_and(|text| is_address(&text)), "is no URI"),
        Shape::Time => (text().is_some_and(|text| is_time(&text)), "is no time"),
        Shape::Flag => (matches!(raw, "true" | "false"), "is neither true nor false"),
        Shape::Integer => (number().is_some_and(|number| number.fract() == 0.0), "is no integer"),
        Shape::Share => (
            number().is_some_and(|number| (0.0..=1.0).contains(&number)),
            "is no number from 0 to 1",
        ),
        Shape::OneOf(known) => {
            let is_known = text().is_some_and(|text| known.contains(&&*text));
            if !is_known {
                return Err(Unsound::new(format!("is not {}", known.join(" or "))));
            }
            (true, "")
        }
        Shape::ListOf(shape) => return sound_list(shape, raw),
        Shape::Object(members) => return sound_object(members, raw),
        Shape::Schemas => return sound_schemas(raw),
    };
    if is_sound {
        Ok(Cow::Borrowed(raw))
    } else {
        Err(Unsound::new(what))
    }
}

fn sound_list<'a>(shape: &Shape, raw: &'a str) -> Result<Cow<'a, str>, Unsound> {
    let (mut elements, mut is_changed) = (Vec::new(), false);
    let mut wrong = None;
    let scanned = scan::elements::<scan::ScanError>(raw, |element| {
        match sound(shape, element) {
            Ok(element) => {
                is_changed |= matches!(element, Cow::Owned(_));
                elements.push(element);
            }
            Err(unsound) => {
                wrong.get_or_insert_with(|| unsound.below(&elements.len().to_string()));
            }
        }
        Ok(())
    });
    match (scanned, wrong) {
        (Err(_), _) => Err(Unsound::new("is no list")),
        (Ok(()), Some(unsound)) => Err(unsound),
        (Ok(()), None) if is_changed => Ok(Cow::Owned(format!("[{}]", elements.join(",")))),
        (Ok(()), None) => Ok(Cow::Borrowed(raw)),
    }
}

fn sound_object<'a>(members: &[Member], raw: &'a str) -> Result<Cow<'a, str>, Unsound> {
    let found = json::members(raw).map_err(|_| Unsound::new("is no object"))?;
    let (mut kept, mut is_changed) = (Vec::with_capacity(found.len()), false);
    for (key, value) in found {
        let Some(member) = members.iter().find(|member| member.name == key) else {
            kept.push((key, Cow::Borrowed(value)));
            continue;
        };
        if member.absent != Absent::Unsound && is_none(&member.shape, value) {
            is_changed = true;
            continue;
        }
        match sound(&member.shape, value) {
            Ok(value) => {
                is_changed |= matches!(value, Cow::Owned(_));
                kept.push((key, value));
            }
            Err(_) if member.absent == Absent::Dispensable => is_changed = true,
            Err(unsound) => return Err(unsound.below(member.name)),
        }
    }
    for member in members {
        if kept.iter().any(|(key, _)| key == member.name) {
            continue;
        }
        match member.absent {
            Absent::Unsound => return Err(Unsound::new("is missing").below(member.name)),
            Absent::Means(value) => {
                is_changed = true;
                kept.push((Cow::Borrowed(member.name), Cow::Borrowed(value)));
            }
            Absent::Complete | Absent::Dispensable => {}
        }
    }
    if !is_changed {
        return Ok(Cow::Borrowed(raw));
    }
    Ok(Cow::Owned(object(&kept)))
}

/// Schemas by name. Revisions before 2026-07-28 have no `true` and `false` as schemas.
fn sound_schemas(raw: &str) -> Result<Cow<'_, str>, Unsound> {
    let found = json::members(raw).map_err(|_| Unsound::new("is no object"))?;
    let (mut kept, mut is_changed) = (Vec::with_capacity(found.len()), false);
    for (key, value) in found {
        let schema = match value {
            "true" => "{}",
            "false" => "{\"not\":{}}",
            _ if value.starts_with('{') => value,
            _ => return Err(Unsound::new("is no schema").below(&key)),
        };
        is_changed |= schema != value;
        kept.push((key, Cow::Borrowed(schema)));
    }
    if !is_changed {
        return Ok(Cow::Borrowed(raw));
    }
    Ok(Cow::Owned(object(&kept)))
}

fn object(members: &[(Cow<'_, str>, Cow<'_, str>)]) -> String {
    let mut out = Vec::new();
    json::write_object(&mut out, members.iter().map(|(key, value)| (&**key, &**value)));
    String::from_utf8(out).unwrap_or_default()
}

/// Whether a value says that there is none.
fn is_none(shape: &Shape, raw: &str) -> bool {
    let is_empty_list = || {
        let inner = raw.strip_prefix('[').and_then(|raw| raw.strip_suffix(']'));
        inner.is_some_and(|inner| inner.trim().is_empty())
    };
    raw == "null" || (matches!(shape, Shape::Object(_) | Shape::Schemas) && is_empty_list())
}

/// Whether clients take this as a URI, also behind the name of its backend.
fn is_address(text: &str) -> bool {
    Url::parse(text).is_ok() && Url::parse(&format!("x+{text}")).is_ok()
}

/// Whether this is a time as RFC 3339 writes it, in the shape alone: `2026-01-31T23:59:59.5+01:00`.
fn is_time(text: &str) -> bool {
    let fits = |text: &[u8], pattern: &[u8]| {
        let is_like = |(byte, like): (&u8, &u8)| byte == like || (*like == b'0' && byte.is_ascii_digit());
        text.len() == pattern.len() && text.iter().zip(pattern).all(is_like)
    };
    let Some((start, rest)) = text.as_bytes().split_at_checked(19) else {
        return false;
    };
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = match rest {
        [b'.', fraction @ ..] => &fraction[digits(fraction)..],
        rest => rest,
    };
    fits(start, b"0000-00-00T00:00:00") && (rest == b"Z" || fits(rest, b"+00:00") || fits(rest, b"-00:00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(members: &str) -> String {
        format!("{{\"name\":\"t\",\"inputSchema\":{{\"type\":\"object\"}}{members}}}")
    }

    fn with_schema(schema: &str) -> String {
        format!("{{\"name\":\"t\",\"inputSchema\":{schema}}}")
    }

    #[test]
    fn a_sound_item_keeps_its_bytes() {
        for (kind, text) in [
            (
                &TOOL,
                tool(r#", "x" : 10000000000000000001 ,"title":"T","_meta":{"a":null}"#),
            ),
            (
                &TOOL,
                with_schema(r#"{"type":"object","properties":{"a":{"type":null}},"required":["a"],"anyOf":[{}]}"#),
            ),
            (
                &TOOL,
                tool(r#","outputSchema":{"type":"object","properties":{}},"execution":{"taskSupport":"optional"}"#),
            ),
            (
                &PROMPT,
                r#"{"name":"p","arguments":[{"name":"a","required":true}]}"#.to_owned(),
            ),
            (
                &RESOURCE,
                r#"{"uri":"file:///a b","name":"","size":5.0,"annotations":{"priority":1,"audience":["user"]}}"#
                    .to_owned(),
            ),
            (
                &RESOURCE,
                r#"{"uri":"a:b","name":"n","annotations":{"lastModified":"2026-01-31T23:59:59.5+01:00"}}"#.to_owned(),
            ),
            (&TEMPLATE, r#"{"uriTemplate":"{+x}","name":"n"}"#.to_owned()),
        ] {
            assert!(matches!(sound_item(kind, &text), Ok(Cow::Borrowed(_))), "{text}");
        }
    }

    #[test]
    fn what_may_be_absent_is_left_out_where_it_is_none() {
        let plain = tool("");
        for odd in [
            r#","description":null"#,
            r#","annotations":null"#,
            r#","annotations":[]"#,
            r#","outputSchema":null"#,
            r#","outputSchema":{"type":"array"}"#,
            r#","outputSchema":{}"#,
            r#","icons":null"#,
            r#","icons":[{"src":"a","sizes":"48x48"}]"#,
            r#","execution":null,"_meta":[ ],"title":null"#,
        ] {
            assert_eq!(sound_item(&TOOL, &tool(odd)).unwrap(), plain, "{odd}");
        }
        for (odd, schema) in [
            ("{}", r#"{"type":"object"}"#),
            (r#"{"type":null}"#, r#"{"type":"object"}"#),
            (
                r#"{"type":"object","properties":[],"required":null}"#,
                r#"{"type":"object"}"#,
            ),
            (
                r#"{"type":"object","properties":{"a":true,"b":false,"c":{"x":null}}}"#,
                r#"{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{"x":null}}}"#,
            ),
            (r#"{"anyOf":[{}]}"#, r#"{"anyOf":[{}],"type":"object"}"#),
        ] {
            assert_eq!(sound_item(&TOOL, &with_schema(odd)).unwrap(), with_schema(schema));
        }
        for (kind, odd, plain) in [
            (
                &TOOL,
                r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"title":null,"readOnlyHint":true}}"#,
                r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#,
            ),
            (&PROMPT, r#"{"name":"p","arguments":null}"#, r#"{"name":"p"}"#),
            (
                &PROMPT,
                r#"{"name":"p","arguments":[{"name":"a","required":null}, {"name":"b"}]}"#,
                r#"{"name":"p","arguments":[{"name":"a"},{"name":"b"}]}"#,
            ),
            (
                &RESOURCE,
                r#"{"uri":"a:b","name":"n","size":null,"mimeType":null,"annotations":{"priority":null}}"#,
                r#"{"uri":"a:b","name":"n","annotations":{}}"#,
            ),
            (
                &RESOURCE,
                r#"{"uri":"a:b","name":"n","annotations":{"priority":0.5,"lastModified":"2026-01-31T10:00:00"}}"#,
                r#"{"uri":"a:b","name":"n","annotations":{"priority":0.5}}"#,
            ),
            (
                &TEMPLATE,
                r#"{"uriTemplate":"a:{b}","name":"n","mimeType":null}"#,
                r#"{"uriTemplate":"a:{b}","name":"n"}"#,
            ),
        ] {
            assert_eq!(sound_item(kind, odd).unwrap(), plain);
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_reason() {
        let reason = |kind, text: &str| sound_item(kind, text).map(Cow::into_owned).unwrap_err();
        for (text, expected) in [
            (r#"{"name":"t"}"#.to_owned(), "inputSchema is missing"),
            (with_schema("null"), "inputSchema is no object"),
            (with_schema("[]"), "inputSchema is no object"),
            (with_schema("true"), "inputSchema is no object"),
            (with_schema(r#"{"type":"string"}"#), "inputSchema.type is not object"),
            (with_schema(r#"{"type":["object"]}"#), "inputSchema.type is not object"),
            (
                with_schema(r#"{"type":"object","properties":["a"]}"#),
                "inputSchema.properties is no object",
            ),
            (
                with_schema(r#"{"type":"object","properties":{"a":null}}"#),
                "inputSchema.properties.a is no schema",
            ),
            (
                with_schema(r#"{"type":"object","required":[1]}"#),
                "inputSchema.required.0 is no text",
            ),
            (
                r#"{"name":"","inputSchema":{}}"#.to_owned(),
                "name is no text, or empty",
            ),
            (
                r#"{"name":null,"inputSchema":{}}"#.to_owned(),
                "name is no text, or empty",
            ),
            (r#"{"inputSchema":{}}"#.to_owned(), "name is missing"),
            (tool(r#","description":5"#), "description is no text"),
            (
                tool(r#","annotations":{"readOnlyHint":"yes"}"#),
                "annotations.readOnlyHint is neither true nor false",
            ),
            (tool(r#","_meta":1"#), "_meta is no object"),
            ("[]".to_owned(), "is no object"),
        ] {
            assert_eq!(reason(&TOOL, &text), expected, "{text}");
        }
        for (kind, text, expected) in [
            (&PROMPT, r#"{"name":"p","arguments":{}}"#, "arguments is no list"),
            (
                &PROMPT,
                r#"{"name":"p","arguments":[{"name":"a"},{}]}"#,
                "arguments.1.name is missing",
            ),
            (&RESOURCE, r#"{"uri":"a:b"}"#, "name is missing"),
            (&RESOURCE, r#"{"uri":"notes","name":"n"}"#, "uri is no URI"),
            (&RESOURCE, r#"{"uri":"http://[","name":"n"}"#, "uri is no URI"),
            (
                &RESOURCE,
                r#"{"uri":"a:b","name":"n","size":1.5}"#,
                "size is no integer",
            ),
            (
                &RESOURCE,
                r#"{"uri":"a:b","name":"n","annotations":{"audience":["all"]}}"#,
                "annotations.audience.0 is not user or assistant",
            ),
            (
                &TEMPLATE,
                r#"{"uriTemplate":"","name":"n"}"#,
                "uriTemplate is no text, or empty",
            ),
        ] {
            assert_eq!(reason(kind, text), expected, "{text}");
        }
        for unreadable in [
            r#","description":"\ud800""#,
            r#","x":1e999"#,
            r#","x":NaN"#,
            r#","x":[1,]"#,
        ] {
            let reason = reason(&TOOL, &tool(unreadable));
            assert!(reason.starts_with("is not JSON that every client reads"), "{reason}");
        }
    }
}
