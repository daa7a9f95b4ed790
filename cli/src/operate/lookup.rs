//! Finds the id with a given beginning, so that every command takes the short ids of tables.

use actors::clock::rfc3339_text;
use serde::Deserialize;

use super::lists::Pages;
use crate::client::{Client, parameter, with_query};
use crate::error::CliError;
use crate::short::{counted, first_of, is_prefix, milliseconds};

/// Items that are searched, at most.
const ITEMS_MAX: usize = 20_000;
/// Ids that an ambiguous beginning names.
const SHOWN_MAX: usize = 5;
/// The time between the making of an id and what lists say of it, at most.
const MARGIN_MS: u64 = 10_000;
/// The end of the year 9999: a broker reads no later time.
const TIME_MS_MAX: u64 = 253_402_300_799_999;

/// What an id is of.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Message,
    DeadLetter,
    Session,
    Question,
    /// An open call of a backend.
    Call,
}

impl Kind {
    /// The list that has it, its member with the items, and the most of them on a page.
    fn list(self, prefix: &str) -> (String, &'static str, usize) {
        match self {
            Self::Message => {
                let (first, last) = milliseconds(prefix);
                let time = |ms: u64| Some(rfc3339_text(ms.min(TIME_MS_MAX)));
                let since = parameter("since", time(first.saturating_sub(MARGIN_MS)));
                let until = parameter("until", time(last.saturating_add(MARGIN_MS)));
                (with_query("/api/v1/messages", [since, until]), "messages", 500)
            }
            Self::DeadLetter => ("/api/v1/dead-letters".to_owned(), "dead_letters", 500),
            Self::Session => {
                let path = "/api/v1/sessions?status=all";
                (with_query(path, [parameter("q", Some(prefix))]), "sessions", 1000)
            }
            Self::Question | Self::Call => ("/api/v1/questions?state=all".to_owned(), "questions", 1000),
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::DeadLetter => "dead letter",
            Self::Session => "session",
            Self::Question => "question",
            Self::Call => "call",
        }
    }
}

/// The members of an item that may be its id.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    message_id: Option<String>,
    /// The message of a dead letter.
    message: Option<Message>,
    session_id: Option<String>,
    name: Option<String>,
    question_id: Option<String>,
    call_id: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    message_id: String,
}

impl Item {
    fn id(self, kind: Kind) -> Option<String> {
        match kind {
            Kind::Message => self.message_id,
            Kind::DeadLetter => self.message.map(|message| message.message_id),
            Kind::Session => self.session_id,
            Kind::Question => self.question_id,
            Kind::Call => self.call_id,
        }
    }
}

/// The path of a request with whole ids in place of their beginnings.
///
/// # Errors
/// Those of [`whole_id`].
pub fn whole_path(client: &Client, path: &str) -> Result<String, CliError> {
    let (path, query) = path
        .split_once('?')
        .map_or((path, None), |(path, query)| (path, Some(query)));
    let mut whole: Vec<String> = Vec::new();
    for segment in path.split('/') {
        let kind = whole.last().and_then(|before| match before.as_str() {
            "messages" => Some(Kind::Message),
            "sessions" => Some(Kind::Session),
            "questions" => Some(Kind::Question),
            "calls" => Some(Kind::Call),
            _ => None,
        });
        whole.push(match kind {
            Some(kind) => whole_id(client, kind, segment)?,
            None => segment.to_owned(),
        });
    }
    let mut path = whole.join("/");
    for parameter in query.into_iter().flat_map(|query| query.split('&')) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = match name {
            "session" | "asker" => whole_id(client, Kind::Session, value)?,
            // A thread has the id of its first message, unless its sender has named it.
            "thread_id" => whole_id(client, Kind::Message, value)?,
            _ => value.to_owned(),
        };
        path = with_query(&path, [Some(format!("{name}={value}"))]);
    }
    Ok(path)
}

/// The whole id of which a text is the beginning. Any other text, and a beginning that no id has, stays as it is: it may be
/// a name.
///
/// # Errors
/// Several ids begin so, or the broker refuses to list them.
pub fn whole_id(client: &Client, kind: Kind, text: &str) -> Result<String, CliError> {
    if !is_prefix(text) {
        return Ok(text.to_owned());
    }
    let mut found: Vec<String> = Vec::new();
    for item in items(client, kind, text)? {
        if item.name.as_deref() == Some(text) {
            return Ok(text.to_owned());
        }
        found.extend(item.id(kind).filter(|id| id.starts_with(text)));
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Ok(text.to_owned()),
        [id] => Ok(id.clone()),
        several => {
            let ids = counted(several.len() as u64, kind.noun());
            let shown = first_of(several, SHOWN_MAX);
            Err(CliError::Failed(format!(
                "{text} is the beginning of {ids}: {shown}; give more of the id"
            )))
        }
    }
}

/// The items of the list among which an id is looked for.
fn items(client: &Client, kind: Kind, prefix: &str) -> Result<Vec<Item>, CliError> {
    if matches!(kind, Kind::Call) {
        // Calls come in one answer, without pages.
        #[derive(Deserialize)]
        struct Answer {
            calls: Vec<Item>,
        }
        let answer: Answer = client.get("/api/v1/gateway/calls")?;
        return Ok(answer.calls);
    }
    let (path, member, page_len) = kind.list(prefix);
    Ok(Pages::new(client, path, member, page_len, ITEMS_MAX).all()?)
}
