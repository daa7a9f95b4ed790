//! `/api/v1/flow`: who talks to whom.

use actix_web::web;
use actors::{
    clock::{now, rfc3339_text},
    model::Scope,
    project::FlowEdge,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::parties::PartyView;
use crate::http::extract::{ApiResult, Caller, ok_text, parse_limit, parse_seconds};
use common::json::page::JsonPage;

const WINDOW_SECONDS: u64 = 300;
const EDGES_LEN: usize = 500;
const EDGES_LEN_MAX: usize = 1000;

/// Selects messages to count.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Messages of this time until now: from `10s` to `1h`; `5m` by default.
    #[param(pattern = "^[1-9][0-9]{0,3}[smh]$", example = "5m")]
    window: Option<String>,
    /// Most pairs of the answer; the others are summed up in `folded`.
    #[param(minimum = 1, maximum = 1000, default = 500)]
    limit: Option<usize>,
}

/// Messages from one session to another.
#[derive(Serialize, ToSchema)]
#[schema(as = FlowEdge)]
pub struct EdgeView<'a> {
    from: PartyView<'a>,
    to: PartyView<'a>,
    /// Copies of messages: a broadcast has one for each recipient.
    messages: u64,
    /// Those of them that were given up.
    dead_letters: u64,
}

/// Pairs that the answer does not list.
#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct Folded {
    edges: usize,
    messages: u64,
}

/// Who talks to whom.
#[allow(dead_code, reason = "schema of what show writes")]
#[derive(ToSchema)]
pub struct Flow<'a> {
    /// Since when messages were counted: the start of the window, or later if `complete` is false.
    #[schema(format = DateTime)]
    since: String,
    #[schema(format = DateTime)]
    until: String,
    /// The number of events that were looked at.
    events: usize,
    /// Whether all messages of the window were counted. One answer looks at up to 50,000 events, and at messages with up to
    /// 200,000 recipients together.
    complete: bool,
    /// The busiest ones first.
    edges: Vec<EdgeView<'a>>,
    folded: Folded,
}

/// Who talks to whom: the accepted messages of the last minutes by sender and recipient, counted from the event log. A
/// member sees messages that its own sessions sent or got.
#[utoipa::path(get, path = "/api/v1/flow", operation_id = "get_flow", tag = "messages", params(Query), responses(
    (status = 200, description = "The flow of messages", body = Flow),
))]
pub async fn show(Caller(by): Caller, query: web::Query<Query>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let Query { window, limit } = query.into_inner();
    let window = window.map(|text| parse_seconds("window", &text)).transpose()?;
    let limit = parse_limit(limit, EDGES_LEN, EDGES_LEN_MAX)?;
    // The end is after messages of this very millisecond.
    let until_ms = now().unix_ms + 1;
    let since_ms = until_ms.saturating_sub(window.unwrap_or(WINDOW_SECONDS) * 1000);
    let flow = by.project.flow(since_ms, until_ms, limit, by.messages_of()).await?;
    let mut page = JsonPage::new("edges");
    let mut folded = Folded {
        edges: flow.folded_edges,
        messages: flow.folded_messages,
    };
    for edge in &flow.edges {
        if !page.push(&view(edge)) {
            folded.edges += 1;
            folded.messages += edge.messages;
        }
    }
    let page = page
        .with("since", &rfc3339_text(flow.since_ms))
        .with("until", &rfc3339_text(until_ms))
        .with("events", &flow.events)
        .with("complete", &flow.is_complete)
        .with("folded", &folded);
    ok_text(&by, page.finish(None::<&str>))
}

fn view(edge: &FlowEdge) -> EdgeView<'_> {
    EdgeView {
        from: PartyView::of(&edge.from),
        to: PartyView::of(&edge.to),
        messages: edge.messages,
        dead_letters: edge.dead_letters,
    }
}
