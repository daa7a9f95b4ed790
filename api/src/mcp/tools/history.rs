//! The tools `get_thread` and `search_messages`: what the acting session sent or got, from the event log.

use std::borrow::Cow;

use actors::{
    model::{BrokerError, Scope},
    project::MessageFilter,
    storage::Direction,
};
use serde_json::{Value, json};

use super::{
    schema::{cursor_schema, limit_schema, string_schema},
    tool::{Called, READ_ONLY, Tool, ToolCaller},
};
use crate::{
    mcp::reply::{ReplyTo, ToolResult},
    verbs::{
        arguments::{Arguments, parse_search, parse_time},
        history::{parse_cursor, write_page},
        sending::check_thread_id,
    },
};

const PAGE_LEN: usize = 20;
const PAGE_LEN_MAX: usize = 100;

fn page_schema() -> (Value, &'static [&'static str]) {
    let messages = json!({"type": "array", "items": {"type": "object"}});
    (
        json!({"messages": messages, "payloads_kept": {"type": "boolean"}, "next_cursor": string_schema("")}),
        &["messages", "payloads_kept"],
    )
}

fn include_payloads_schema() -> Value {
    json!({"type": "boolean", "description": "Those still kept."})
}

/// `get_thread`.
pub const GET_THREAD: Tool = Tool {
    name: "get_thread",
    title: "Get thread",
    description: "Messages of a thread that you sent or got, oldest first.",
    hints: READ_ONLY,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "thread_id": string_schema("Id of its first message, or header."),
            "include_payloads": include_payloads_schema(),
            "limit": limit_schema(PAGE_LEN, PAGE_LEN_MAX),
            "cursor": cursor_schema(),
        });
        (properties, &["thread_id"])
    },
    output: page_schema,
    acts_as_session: true,
    exclusive: false,
    run: get_thread,
};

fn get_thread(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let thread_id = arguments.required_text("thread_id")?.into_owned();
    check_thread_id("thread_id", &thread_id)?;
    let with_payloads = arguments.optional::<bool>("include_payloads")?.unwrap_or(false);
    let filter = MessageFilter {
        thread_id: Some(thread_id),
        ..MessageFilter::default()
    };
    page_of(caller, arguments, filter, Direction::Forward, with_payloads)
}

/// `search_messages`.
pub const SEARCH_MESSAGES: Tool = Tool {
    name: "search_messages",
    title: "Search messages",
    description: "Find messages that you sent or got, newest first, or read a thread, oldest first.",
    hints: READ_ONLY,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "query": string_schema("In subject, peer, protocol, correlation id or payload."),
            "thread_id": string_schema("Only this thread."),
            "from": string_schema("Sender id or name."),
            "since": string_schema("RFC 3339."),
            "include_payloads": include_payloads_schema(),
            "limit": limit_schema(PAGE_LEN, PAGE_LEN_MAX),
            "cursor": cursor_schema(),
        });
        (properties, &[])
    },
    output: page_schema,
    acts_as_session: true,
    exclusive: false,
    run: search_messages,
};

fn search_messages(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let query = arguments.text("query")?;
    let thread_id = arguments.text("thread_id")?.map(Cow::into_owned);
    match &thread_id {
        Some(thread_id) => check_thread_id("thread_id", thread_id)?,
        None if query.is_none() => return Err(BrokerError::invalid("query", "required, unless there is a thread_id")),
        None => {}
    }
    let since = arguments.text("since")?;
    let with_payloads = arguments.optional::<bool>("include_payloads")?.unwrap_or(false);
    // A thread is read from its beginning; a search finds the latest first.
    let direction = match (&query, &thread_id) {
        (None, Some(_)) => Direction::Forward,
        _ => Direction::Backward,
    };
    let filter = MessageFilter {
        text: query.map(|query| parse_search("query", &query)).transpose()?,
        is_payload_searched: true,
        thread_id,
        from: arguments.text("from")?.map(Cow::into_owned),
        since_ms: since.map(|since| parse_time("since", &since)).transpose()?,
        ..MessageFilter::default()
    };
    page_of(caller, arguments, filter, direction, with_payloads)
}

/// Reads the arguments of a page, and answers with the messages that the filter selects of those that the acting session
/// sent or got.
fn page_of(
    caller: &ToolCaller,
    mut arguments: Arguments<'_>,
    filter: MessageFilter,
    direction: Direction,
    with_payloads: bool,
) -> Result<Called, BrokerError> {
    let limit = arguments.bounded("limit", PAGE_LEN, 1, PAGE_LEN_MAX)?;
    let cursor = arguments.text("cursor")?;
    let after = cursor.map(|text| parse_cursor(&text)).transpose()?;
    arguments.finish()?;
    let filter = MessageFilter {
        session: Some(caller.session()?.record.id),
        ..filter
    };
    Ok(Called::page(caller, async move |caller| {
        let project = caller.project();
        let page = project
            .envelopes(&filter, direction, after, limit, with_payloads)
            .await?;
        Ok(ToolResult::from(write_page(project, &page, with_payloads).await?))
    }))
}
