//! `/api/v1/threads`: the messages of each thread id, or else correlation id.

use actix_web::web;
use actors::{
    clock::rfc3339_text,
    model::{BrokerError, Scope},
    project::{Thread, ThreadCursor, ThreadKey},
    storage::EventStart,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{history::reads_texts, parties::PartyView};
use crate::http::extract::{ApiResult, Caller, ok_text, parse_limit};
use api::verbs::{arguments::parse_time, history::Excerpts};
use common::json::page::JsonPage;

const PAGE_LEN: usize = 50;
const PAGE_LEN_MAX: usize = 200;

/// Selects threads.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only messages accepted at this time or later (RFC 3339).
    #[param(format = DateTime)]
    since: Option<String>,
    /// `excerpt` shows the first words of the first message of each thread, as far as the caller may read them.
    #[param(pattern = "^excerpt$")]
    include: Option<String>,
    /// Most threads of a page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(
        pattern = "^[ab]\\.[0-9a-f]{1,16}-[0-9a-f]{1,16}-[0-9a-f]{1,8}(\\.[0-9a-f]{1,16}-[0-9a-f]{1,16}-[0-9a-f]{1,8})?$"
    )]
    cursor: Option<String>,
}

/// The messages of one thread id, or of one correlation id: exactly one of the two is present.
#[derive(Serialize, ToSchema)]
#[schema(as = Thread)]
pub struct ThreadView<'a> {
    /// The header `thread_id` of these messages, or the id of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    thread_id: Option<&'a str>,
    /// The header `correlation_id` of these messages, which have no `thread_id`, or the id of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    correlation_id: Option<&'a str>,
    /// The subject of the first of these messages that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    subject: Option<&'a str>,
    /// With `include=excerpt`: the first words of the first of these messages. Null once its payload is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 160)]
    excerpt: Option<Value>,
    /// Its messages; a broadcast is one.
    messages: usize,
    /// At most 20 of its senders and recipients.
    participants: Vec<PartyView<'a>>,
    participants_total: usize,
    /// At most 20 of its protocols.
    protocols: &'a [String],
    /// When the first of these messages was accepted.
    #[schema(format = DateTime)]
    first_at: String,
    /// When the last of these messages was accepted.
    #[schema(format = DateTime)]
    last_at: String,
}

/// A page of threads, the one with the newest message first.
#[allow(dead_code, reason = "schema of what list writes")]
#[derive(ToSchema)]
pub struct Threads<'a> {
    threads: Vec<ThreadView<'a>>,
    /// Cursor of the next page.
    #[schema(nullable = false)]
    next_cursor: Option<String>,
}

/// The threads of the last `MESSAGE_HISTORY`: messages by thread id, or else by correlation id, newest first. `GET
/// /api/v1/messages` with `thread_id` or `correlation_id` lists the messages of one. A page looks at up to 50,000 events: it may have
/// fewer threads than its limit and still be followed by another, and a longer thread is on a later page again, with its
/// older messages. A member sees messages that its own sessions sent or got.
#[utoipa::path(get, path = "/api/v1/threads", operation_id = "list_threads", tag = "messages", params(Query), responses(
    (status = 200, description = "A page of the threads", body = Threads),
))]
pub async fn list(Caller(by): Caller, web::Query(query): web::Query<Query>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let with_excerpts = match query.include.as_deref() {
        None => false,
        Some("excerpt") => reads_texts(&by),
        Some(_) => return Err(BrokerError::invalid("include", "excerpt, or absent").into()),
    };
    let since_ms = query.since.map(|text| parse_time("since", &text)).transpose()?;
    let limit = parse_limit(query.limit, PAGE_LEN, PAGE_LEN_MAX)?;
    let cursor = match query.cursor {
        Some(text) => parse_cursor(&text)?,
        None => ThreadCursor::NEWEST,
    };
    let page = by.project.threads(since_ms, cursor, limit, by.messages_of()).await?;
    let mut text = JsonPage::new("threads");
    let mut excerpts = Excerpts::default();
    let mut views = Vec::new();
    for thread in &page.threads {
        let mut view = view(thread);
        if with_excerpts {
            let kept = match &thread.excerpt {
                Some(known) => Some(known.clone()),
                None => excerpts.of_kept(&by.project, thread.first).await?,
            };
            view.excerpt = Some(kept.into());
        }
        views.push((thread, view));
    }
    let last = text.push_all(&views, |(_, view)| view).map(|(thread, _)| *thread);
    let next = match last {
        Some(last) => Some(page.behind(last)),
        None => page.next,
    };
    ok_text(&by, text.finish(next.map(cursor_text)))
}

fn view(thread: &Thread) -> ThreadView<'_> {
    let (thread_id, correlation_id) = match &thread.key {
        ThreadKey::Thread(id) => (Some(&**id), None),
        ThreadKey::Correlation(id) => (None, Some(&**id)),
    };
    ThreadView {
        thread_id,
        correlation_id,
        subject: thread.subject.as_deref(),
        excerpt: None,
        messages: thread.messages,
        participants: thread.participants.iter().map(PartyView::of).collect(),
        participants_total: thread.participants_total,
        protocols: &thread.protocols,
        first_at: rfc3339_text(thread.first_ms),
        last_at: rfc3339_text(thread.last_ms),
    }
}

/// `a.POSITION` or `b.POSITION` for a span of the log that ends after or before an event, and `.POSITION` of the last
/// thread of the page.
fn cursor_text(cursor: ThreadCursor) -> String {
    let span = match cursor.span {
        EventStart::After(newest) => format!("a.{newest}"),
        EventStart::Before(oldest) => format!("b.{oldest}"),
        // A page with a successor has read events, and its span ends at one.
        EventStart::Newest | EventStart::Oldest | EventStart::At(_) => String::new(),
    };
    match cursor.after {
        Some(after) => format!("{span}.{after}"),
        None => span,
    }
}

fn parse_cursor(text: &str) -> Result<ThreadCursor, BrokerError> {
    let parse = || {
        let mut parts = text.split('.');
        let (kind, span) = (parts.next()?, parts.next()?.parse().ok()?);
        let after = parts.next().map(str::parse).transpose().ok()?;
        let span = match kind {
            "a" => EventStart::After(span),
            "b" => EventStart::Before(span),
            _ => return None,
        };
        parts.next().is_none().then_some(ThreadCursor { span, after })
    };
    parse().ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_from_its_text() {
        for text in ["a.1-2-3", "b.1-2-3", "a.1-2-3.1-2-0", "b.f-2-3.1-2-0"] {
            assert_eq!(cursor_text(parse_cursor(text).unwrap()), text);
        }
        for text in ["", "a", "a.", "c.1-2-3", "a.1-2-3.", "a.1-2-3.1-2-3.1-2-3", "1-2-3"] {
            assert!(parse_cursor(text).is_err(), "{text}");
        }
    }
}
