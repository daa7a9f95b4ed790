//! Lists of the broker: their pages, and how they are shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::job::Context;
use crate::client::{ApiRequest, Client, ClientError, parameter, parsed, with_query};
use crate::error::CliError;
use crate::output::{Written, json_line, print, write};
use crate::table::Table;

/// The most items that a list shows.
pub const LIMIT_MAX: u32 = 100_000;

/// A list, read page by page.
pub struct Pages<'a> {
    client: &'a Client,
    /// Path and query, without limit and cursor.
    path: String,
    headers: Vec<(&'static str, String)>,
    /// The member of the answer that has the items.
    member: &'static str,
    page_len_max: usize,
    /// Items that may still be read.
    left: usize,
    cursor: Option<String>,
    has_begun: bool,
}

impl<'a> Pages<'a> {
    /// A list of which nothing has been read.
    pub fn new(client: &'a Client, path: String, member: &'static str, page_len_max: usize, limit: usize) -> Self {
        Self {
            client,
            path,
            headers: Vec::new(),
            member,
            page_len_max,
            left: limit,
            cursor: None,
            has_begun: false,
        }
    }

    /// Adds a header to the request of each page.
    pub fn with_header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The next items; `None` at the end or at the limit. A page may be empty and still be followed by another.
    ///
    /// # Errors
    /// The broker refused the request, or its answer has another form.
    pub fn next_page(&mut self) -> Result<Option<Vec<Box<RawValue>>>, ClientError> {
        if self.left == 0 || self.has_begun && self.cursor.is_none() {
            return Ok(None);
        }
        let limit = Some(format!("limit={}", self.left.min(self.page_len_max)));
        let path = with_query(&self.path, [limit, parameter("cursor", self.cursor.as_ref())]);
        let mut ask = ApiRequest::get(path);
        ask.headers.clone_from(&self.headers);
        let body = self.client.send(&ask)?;
        let page: BTreeMap<String, Box<RawValue>> = parsed(&body)?;
        let items = page.get(self.member).map_or("[]", |items| items.get());
        let items: Vec<Box<RawValue>> = parsed(items)?;
        let cursor = page.get("next_cursor").map_or("null", |cursor| cursor.get());
        self.cursor = parsed(cursor)?;
        self.has_begun = true;
        self.left = self.left.saturating_sub(items.len());
        Ok(Some(items))
    }

    /// All items up to the limit.
    ///
    /// # Errors
    /// Those of [`Self::next_page`].
    pub fn all<T: DeserializeOwned>(mut self) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        while let Some(page) = self.next_page()? {
            for item in page {
                items.push(parsed(item.get())?);
            }
        }
        Ok(items)
    }

    /// Whether the broker has more items than the limit allowed.
    pub fn has_more(&self) -> bool {
        self.cursor.is_some()
    }
}

/// Prints a list: as JSON item by item while it comes, or as one table. Returns the number of items.
///
/// # Errors
/// The list cannot be read or printed.
pub fn show<T: DeserializeOwned>(
    context: &Context,
    mut pages: Pages<'_>,
    what: &str,
    table: impl FnOnce(&[T]) -> Table,
) -> Result<usize, CliError> {
    let mut items: Vec<T> = Vec::new();
    let mut count = 0;
    while let Some(page) = pages.next_page()? {
        count += page.len();
        if context.output.json {
            let lines: String = page.iter().map(|item| json_line(item)).collect();
            if write(&lines)? == Written::Closed {
                return Ok(count);
            }
        } else {
            for item in &page {
                items.push(parsed(item.get())?);
            }
        }
    }
    if context.output.json {
        return Ok(count);
    }
    if items.is_empty() && !pages.has_more() {
        print(&format!("no {what}\n"))?;
        return Ok(0);
    }
    let mut text = context.output.table(&table(&items));
    if pages.has_more() {
        let _ = writeln!(text, "\nThere are more {what}: --limit shows more.");
    }
    print(&text)?;
    Ok(count)
}

/// Prints a list that comes in one answer: as JSON item by item, or as text. `none` is said of an empty one.
///
/// # Errors
/// An item has another form, or the list cannot be printed.
pub fn show_all<T: DeserializeOwned>(
    context: &Context,
    items: &[Box<RawValue>],
    none: &str,
    text: impl FnOnce(&[T]) -> String,
) -> Result<(), CliError> {
    if context.output.json {
        return print(&items.iter().map(|item| json_line(item)).collect::<String>());
    }
    if items.is_empty() {
        return print(none);
    }
    let items: Result<Vec<T>, _> = items.iter().map(|item| parsed(item.get())).collect();
    print(&text(&items?))
}

/// Prints one object: as JSON, or as text.
///
/// # Errors
/// The answer has another form, or cannot be printed.
pub fn show_one<T>(context: &Context, body: &str, text: impl FnOnce(&T) -> String) -> Result<(), CliError>
where
    T: for<'de> Deserialize<'de>,
{
    if context.output.json {
        return print(&json_line(&parsed::<Box<RawValue>>(body)?));
    }
    print(&text(&parsed(body)?))
}

/// Asks for one object and prints it like [`show_one`].
///
/// # Errors
/// As [`show_one`], or the broker refuses.
pub fn show_path<T>(context: &Context, path: String, text: impl FnOnce(&T) -> String) -> Result<(), CliError>
where
    T: for<'de> Deserialize<'de>,
{
    show_one(context, &context.client.send(&ApiRequest::get(path))?, text)
}
