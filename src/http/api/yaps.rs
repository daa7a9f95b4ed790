//! `/api/v1/yaps`: remarks of agents to the people who watch them.

use actix_web::{HttpResponse, web};
use actors::{
    desk::NewYap,
    model::{BrokerError, Scope, YAP_CHARACTERS_MAX},
};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::{desk_requests as documented, messages};
use crate::http::extract::{ApiResult, Caller, ShortJsonArguments, ok_text, parse_limit};
use api::verbs::{arguments::parse_time, desk::yap_view};
use common::json::page::JsonPage;

const PAGE_LEN: usize = 50;
const PAGE_LEN_MAX: usize = 1000;
/// The largest integer that every JSON parser reads exactly.
const SEQ_MAX: u64 = (1 << 53) - 1;
/// Bytes of the JSON of a message: each character may be an escape of a surrogate pair.
const MESSAGE_JSON_MAX: usize = YAP_CHARACTERS_MAX * 12 + 2;

/// Selects yaps.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only yaps behind this `seq`, the oldest first. Without it the last ones.
    #[param(value_type = Option<usize>, maximum = 9_007_199_254_740_991_i64)]
    after: Option<u64>,
    /// Most yaps of a page.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

/// The yaps of the last 24 hours, at most 1,000, in the order in which all consoles show them. A member sees those of its
/// own sessions.
#[utoipa::path(get, path = "/api/v1/yaps", operation_id = "list_yaps", tag = "desk", params(Query), responses(
    (status = 200, description = "Yaps; `seq` of the last one continues the list", body = rest::desk::Yaps),
))]
pub async fn list(Caller(by): Caller, query: web::Query<Query>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let Query { after, limit } = query.into_inner();
    if after.is_some_and(|seq| seq > SEQ_MAX) {
        return Err(BrokerError::invalid("after", "expected the seq of a yap").into());
    }
    let limit = parse_limit(limit, PAGE_LEN, PAGE_LEN_MAX)?;
    let mut yaps = by.project.yaps(after, limit).await?;
    if by.messages_of().is_some() {
        yaps.retain(|shown| by.owns_session(shown.yap.sender));
    }
    let mut text = JsonPage::new("yaps");
    text.push_all(&yaps, |yap| yap_view(yap));
    ok_text(&by, text.finish(None::<&str>))
}

/// Shows people a remark in the name of a session, as the tool `yap` does. Requires the scope `member`.
#[utoipa::path(post, path = "/api/v1/yaps", operation_id = "yap", tag = "desk", request_body = documented::PostYap,
    responses(
    (status = 201, description = "The yap is kept", body = rest::desk::YapAccepted),
    (status = 409, description = "The session was taken over"),
))]
pub async fn yap(Caller(by): Caller, body: ShortJsonArguments) -> ApiResult {
    by.check_scope(Scope::Member)?;
    let mut arguments = body.arguments()?;
    let from = arguments.required_text("from")?.into_owned();
    let message: Option<String> = arguments.optional_within("message", MESSAGE_JSON_MAX)?;
    let new = NewYap {
        message: message.unwrap_or_default(),
        mode: arguments.optional("mode")?,
        category: arguments.optional("category")?,
        task_context: arguments.optional("task_context")?,
        sent_at_ms: arguments
            .text("sent_at")?
            .map(|text| parse_time("sent_at", &text))
            .transpose()?,
    };
    arguments.finish()?;
    new.check()?;
    let sender = messages::sender(&by, &from, true).await?;
    let accepted = by.project.yap(&sender, new).await?;
    let answer = json!({"yap_id": accepted.id, "shown_to": accepted.shown_to, "kept": true});
    Ok(HttpResponse::Created().json(answer))
}
