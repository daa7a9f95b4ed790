//! What one backend offers: its tools, prompts, resources and templates, each with the text that the backend has sent. Pure.

use std::{borrow::Cow, collections::HashSet};

use super::sound_items::{ItemSchema, PROMPT, RESOURCE, TEMPLATE, TOOL, sound_item};
use crate::json::scan::{self, ScanError};

/// Characters of the name of an item that operators are shown.
const LABEL_LEN_MAX: usize = 64;
/// Items of one page that are left out by name.
const LEFT_OUT_MAX: usize = 20;

/// What a backend offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendLists {
    pub tools: Vec<Item>,
    pub prompts: Vec<Item>,
    pub resources: Vec<Item>,
    pub templates: Vec<Item>,
}

/// One tool, prompt, resource or template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What identifies it: its name, URI or URI template.
    pub key: String,
    /// The JSON object, as the backend has sent it.
    pub text: Box<str>,
}

/// A list of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    /// All lists.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The method that lists it.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The list that a method asks for.
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The member of a result that has the items.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an item that identifies it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

impl BackendLists {
    /// The items of a list.
    pub fn of(&self, kind: ListKind) -> &[Item] {
        match kind {
            ListKind::Tools => &self.tools,
            ListKind::Prompts => &self.prompts,
            ListKind::Resources => &self.resources,
            ListKind::Templates => &self.templates,
        }
    }

    /// The bytes of all items.
    pub fn bytes(&self) -> usize {
        let items = ListKind::ALL.into_iter().flat_map(|kind| self.of(kind));
        items.map(|item| item.key.len() + item.text.len()).sum()
    }

    /// These lists, followed by the items of others that are not among them.
    #[must_use]
    pub fn with_items_of(mut self, others: &Self) -> Self {
        for kind in ListKind::ALL {
            let known: HashSet<&str> = self.of(kind).iter().map(|item| item.key.as_str()).collect();
            let further = others.of(kind).iter().filter(|item| !known.contains(item.key.as_str()));
            let further: Vec<Item> = further.cloned().collect();
            self.of_mut(kind).extend(further);
        }
        self
    }

    /// The items of a list, to be changed.
    pub fn of_mut(&mut self, kind: ListKind) -> &mut Vec<Item> {
        match kind {
            ListKind::Tools => &mut self.tools,
            ListKind::Prompts => &mut self.prompts,
            ListKind::Resources => &mut self.resources,
            ListKind::Templates => &mut self.templates,
        }
    }
}

/// One page of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListPart {
    /// The items that every client can read.
    pub items: Vec<Item>,
    /// What is left out, and why, for operators.
    pub left_out: Vec<String>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// Reads one page of a list.
///
/// # Errors
/// The text is not the result of a list.
pub fn read_page(kind: ListKind, result: &str) -> Result<ListPart, ScanError> {
    let (mut list, mut cursor) = (None, None);
    scan::members::<ScanError>(result, |key, value| {
        match &*key {
            member if member == kind.member() => list = Some(value),
            "nextCursor" => cursor = Some(value),
            _ => {}
        }
        Ok(())
    })?;
    let mut part = ListPart::default();
    let (mut position, mut unnamed) = (0, 0);
    let schema = schema_of(kind);
    scan::elements::<ScanError>(list.ok_or(ScanError::Syntax)?, |element| {
        position += 1;
        match sound_item(schema, element) {
            Ok(text) => {
                if let Some(key) = key_of(kind, &text)? {
                    part.items.push(Item { key, text: text.into() });
                }
            }
            Err(_) if part.left_out.len() == LEFT_OUT_MAX => unnamed += 1,
            Err(reason) => part
                .left_out
                .push(format!("{}: {reason}", label(kind, element, position))),
        }
        Ok(())
    })?;
    if unnamed > 0 {
        part.left_out.push(format!("{unnamed} more of this page"));
    }
    part.next = cursor.and_then(scan::string).map(Cow::into_owned);
    if part.next.is_none() && cursor.is_some_and(|cursor| cursor != "null") {
        part.left_out
            .push(format!("{}: what follows a nextCursor that is no text", kind.method()));
    }
    Ok(part)
}

fn schema_of(kind: ListKind) -> &'static ItemSchema {
    match kind {
        ListKind::Tools => &TOOL,
        ListKind::Prompts => &PROMPT,
        ListKind::Resources => &RESOURCE,
        ListKind::Templates => &TEMPLATE,
    }
}

/// What operators call an item that is left out.
fn label(kind: ListKind, element: &str, position: usize) -> String {
    let noun = match kind {
        ListKind::Tools => "tool",
        ListKind::Prompts => "prompt",
        ListKind::Resources => "resource",
        ListKind::Templates => "template",
    };
    let key = key_of(kind, element).ok().flatten().filter(|key| !key.is_empty());
    match key {
        Some(key) => {
            let shown: String = key.chars().filter(|c| !c.is_control()).take(LABEL_LEN_MAX).collect();
            format!("{noun} {shown}")
        }
        None => format!("{noun} {position} of a page"),
    }
}

fn key_of(kind: ListKind, element: &str) -> Result<Option<String>, ScanError> {
    let mut found = None;
    scan::members::<ScanError>(element, |key, value| {
        if key == kind.key() {
            found = scan::string(value).map(Cow::into_owned);
        }
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_others_follow_where_they_are_not_known() {
        let item = |key: &str, text: &str| Item {
            key: key.to_owned(),
            text: text.into(),
        };
        let lists = |tools| BackendLists {
            tools,
            ..BackendLists::default()
        };
        let own = lists(vec![item("b", "1"), item("a", "2")]);
        let others = lists(vec![item("c", "3"), item("a", "4")]);
        let all = own.with_items_of(&others);
        assert_eq!(all.tools, [item("b", "1"), item("a", "2"), item("c", "3")]);
    }

    #[test]
    fn a_page_has_its_sound_items_and_names_the_others() {
        let page = r#"{"tools":[{"name":"a","inputSchema":{"type":"object"},"x":10000000000000000001},
            {"title":"no name"},{"name":"b","inputSchema":null},1],"nextCursor":""}"#;
        let part = read_page(ListKind::Tools, page).unwrap();
        let texts: Vec<&str> = part.items.iter().map(|item| &*item.text).collect();
        assert_eq!(
            texts,
            [r#"{"name":"a","inputSchema":{"type":"object"},"x":10000000000000000001}"#]
        );
        assert_eq!(part.next.as_deref(), Some(""));
        assert_eq!(
            part.left_out,
            [
                "tool 2 of a page: name is missing",
                "tool b: inputSchema is no object",
                "tool 4 of a page: is no object"
            ]
        );
        for (last, left_out) in [
            (r#"{"nextTime":1,"prompts":[]}"#, 0),
            (r#"{"prompts":[],"nextCursor":null}"#, 0),
            (r#"{"prompts":[],"nextCursor":2}"#, 1),
        ] {
            let part = read_page(ListKind::Prompts, last).unwrap();
            assert_eq!((part.next, part.left_out.len()), (None, left_out), "{last}");
        }
        for wrong in ["{}", "[]", r#"{"tools":{}}"#, r#"{"tools":null}"#] {
            assert!(read_page(ListKind::Tools, wrong).is_err(), "{wrong}");
        }
    }
}
