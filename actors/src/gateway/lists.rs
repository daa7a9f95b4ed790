//! What one backend offers: its tools, prompts, resources and templates, each with the text that the backend has sent. Pure.

use std::{borrow::Cow, collections::HashSet};

use crate::json::scan::{self, ScanError};

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
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The method that lists it.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The list that a method asks for.
    #[must_use]
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The member of a result that has the items.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an item that identifies it.
    #[must_use]
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
    #[must_use]
    pub fn of(&self, kind: ListKind) -> &[Item] {
        match kind {
            ListKind::Tools => &self.tools,
            ListKind::Prompts => &self.prompts,
            ListKind::Resources => &self.resources,
            ListKind::Templates => &self.templates,
        }
    }

    /// The bytes of all items.
    #[must_use]
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

/// Adds the items of one page of a list, and returns the cursor of the next page. Items without a key are left out: no
/// client could name them.
///
/// # Errors
/// The text is not the result of a list.
pub fn add_page(items: &mut Vec<Item>, kind: ListKind, result: &str) -> Result<Option<String>, ScanError> {
    let (mut list, mut cursor) = (None, None);
    scan::members::<ScanError>(result, |key, value| {
        match &*key {
            member if member == kind.member() => list = Some(value),
            "nextCursor" => cursor = scan::string(value).map(Cow::into_owned),
            _ => {}
        }
        Ok(())
    })?;
    scan::elements::<ScanError>(list.ok_or(ScanError::Syntax)?, |element| {
        if let Some(key) = key_of(kind, element)? {
            items.push(Item {
                key,
                text: element.into(),
            });
        }
        Ok(())
    })?;
    Ok(cursor)
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
    fn pages_are_added_up_and_the_text_is_kept() {
        let mut items = Vec::new();
        let first = r#"{"tools":[{"name":"a","x":10000000000000000001},{"title":"no name"}],"nextCursor":""}"#;
        assert_eq!(add_page(&mut items, ListKind::Tools, first), Ok(Some(String::new())));
        let second = r#"{"nextTime":1,"tools":[ {"name":"b"} ]}"#;
        assert_eq!(add_page(&mut items, ListKind::Tools, second), Ok(None));
        let texts: Vec<&str> = items.iter().map(|item| &*item.text).collect();
        assert_eq!(texts, [r#"{"name":"a","x":10000000000000000001}"#, r#"{"name":"b"}"#]);
        for wrong in ["{}", "[]", r#"{"tools":{}}"#, r#"{"tools":[1]}"#] {
            assert!(add_page(&mut Vec::new(), ListKind::Tools, wrong).is_err(), "{wrong}");
        }
    }
}
