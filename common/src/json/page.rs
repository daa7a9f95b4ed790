//! Writes a page of a list as JSON text, bounded in bytes.

use actors::model::PageRoom;
use serde::Serialize;

use super::write_json;

/// Writes `{"<key>":[...]}` item by item, until the next item has no room.
pub struct JsonPage {
    out: Vec<u8>,
    room: PageRoom,
    is_empty: bool,
    is_full: bool,
    /// The members after the list.
    rest: Vec<u8>,
}

impl JsonPage {
    /// An empty page; `key` names the list.
    pub fn new(key: &str) -> Self {
        let mut out = Vec::with_capacity(1024);
        out.push(b'{');
        write_json(&mut out, &key);
        out.extend_from_slice(b":[");
        Self {
            out,
            room: PageRoom::default(),
            is_empty: true,
            is_full: false,
            rest: Vec::new(),
        }
    }

    /// Appends the item that `write` writes. Returns false and appends nothing if it has no room; the page is then full
    /// for all later items.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.is_full {
            return false;
        }
        let before = self.out.len();
        if !self.is_empty {
            self.out.push(b',');
        }
        write(&mut self.out);
        self.is_full = !self.room.try_take(self.out.len() - before);
        if self.is_full {
            self.out.truncate(before);
        }
        self.is_empty = false;
        !self.is_full
    }

    /// As [`Self::push_with`], for an item that serializes.
    pub fn push(&mut self, item: &impl Serialize) -> bool {
        self.push_with(|out| write_json(out, item))
    }

    /// Appends the items that have room. Returns the last appended one if some had none.
    pub fn push_all<'a, T, J: Serialize>(&mut self, items: &'a [T], json: impl Fn(&'a T) -> J) -> Option<&'a T> {
        let pushed = items.iter().take_while(|item| self.push(&json(item))).count();
        (pushed < items.len()).then(|| items[..pushed].last()).flatten()
    }

    /// Adds a member next to the list.
    #[must_use]
    pub fn with(mut self, key: &str, value: &impl Serialize) -> Self {
        self.rest.push(b',');
        write_json(&mut self.rest, &key);
        self.rest.push(b':');
        write_json(&mut self.rest, value);
        self
    }

    /// The whole object. `next_cursor` is present if there are more items.
    pub fn finish(self, next_cursor: Option<impl Serialize>) -> Vec<u8> {
        let page = match next_cursor {
            Some(cursor) => self.with("next_cursor", &cursor),
            None => self,
        };
        let Self { mut out, rest, .. } = page;
        out.push(b']');
        out.extend_from_slice(&rest);
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use actors::model::PAGE_BYTES_MAX;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_page_is_json_and_ends_before_the_item_that_has_no_room() {
        let items: Vec<_> = (0..10)
            .map(|at| format!("{at}{}", "x".repeat(PAGE_BYTES_MAX / 4)))
            .collect();
        let mut page = JsonPage::new("items");
        let last = page.push_all(&items, |item| json!(item)).unwrap();
        assert_eq!(last, &items[2]);
        assert!(!page.push(&json!(1)), "the page has ended");
        let text = page.finish(Some(last));
        let page: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(page["items"], json!(items[..3]));
        assert_eq!(page["next_cursor"], json!(last));
    }

    #[test]
    fn a_page_that_holds_all_has_no_cursor() {
        let mut page = JsonPage::new("items");
        assert_eq!(page.push_all(&[1, 2], |item| *item), None);
        assert_eq!(page.finish(None::<&str>), br#"{"items":[1,2]}"#);
    }
}
