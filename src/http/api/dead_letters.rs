//! `/api/v1/dead-letters`: messages that were given up.

use actix_web::{HttpRequest, web};
use actors::{
    model::{BrokerError, DeadLetter, DeadLetterReason, ProtocolName, Scope},
    storage::DeadLetterQuery,
};
use rest::words;
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use super::parties::parse_session;
use crate::http::{
    backpressure::{ANSWER_RESERVATION_TIMEOUT, transport_context},
    extract::{ApiError, ApiResult, Caller, JsonArguments, ok, ok_text, parse_limit},
};
use api::{
    auth::Identity,
    budget::{AnswerBudget, Reservation},
    problem::Problem,
    verbs::{
        dead_letters::{self, PAGE_LEN, PAGE_LEN_MAX, Redrive},
        messages::{is_of_protocol, read_ids, write_envelope},
    },
};

/// Selects dead letters of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only this reason.
    #[param(value_type = Option<DeadLetterReason>)]
    reason: Option<DeadLetterReason>,
    /// Only messages that this session sent or should have got: its id or its name.
    session: Option<String>,
    /// Only messages of this protocol.
    #[param(value_type = Option<words::ProtocolName>)]
    protocol: Option<String>,
    /// `payload` shows the payloads, which requires the scope `admin`.
    #[param(pattern = "^payload$")]
    include: Option<String>,
    /// Most dead letters of a page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// The dead letters of the project, oldest first. A member sees those of messages that its own sessions sent or should
/// have got. A page looks at as many dead letters as its limit: with `session` or `protocol` it may have fewer, or
/// none, and still be followed by another.
#[utoipa::path(get, path = "/api/v1/dead-letters", operation_id = "list_dead_letters", tag = "messages",
    params(Query), responses((status = 200, description = "A page of the dead letters", body = rest::messages::DeadLetters),
))]
pub async fn list(Caller(by): Caller, web::Query(query): web::Query<Query>, request: HttpRequest) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let with_payload = includes_payload(&by, query.include.as_deref())?;
    let protocol = query.protocol.map(|name| ProtocolName::parse(&name)).transpose()?;
    let session = match query.session {
        None => None,
        Some(address) => Some(parse_session(&by.project, &address).await?),
    };
    let query = DeadLetterQuery {
        reason: query.reason,
        after: query.cursor.map(|text| dead_letters::parse_cursor(&text)).transpose()?,
        limit: parse_limit(query.limit, PAGE_LEN, PAGE_LEN_MAX)?,
        ..DeadLetterQuery::default()
    };
    let context = transport_context(&request).ok_or(BrokerError::unavailable())?;
    let room = AnswerBudget::new(Reservation::new(&context.service.outbound, by.project.id()), 1);
    let page = timeout(ANSWER_RESERVATION_TIMEOUT, by.project.dead_letters(query, &room)).await;
    let page = page.map_err(|_| {
        ApiError::from(Problem::unavailable(
            "too many answers are in progress: try again later",
        ))
    })??;
    let is_shown = |letter: &DeadLetter| {
        let parties = [letter.message.sender, letter.recipient];
        session.is_none_or(|session| parties.contains(&session))
            && protocol
                .as_ref()
                .is_none_or(|name| is_of_protocol(&letter.message, name))
            && (by.scope() != Scope::Member || parties.iter().any(|id| by.owns_session(*id)))
    };
    let write_message = |out: &mut Vec<u8>, letter: &DeadLetter| {
        write_envelope(out, &letter.message, letter.deliveries, with_payload);
    };
    ok_text(&by, dead_letters::page(&by.project, &page, is_shown, write_message))
}

/// Parses the query parameter `include`. Payloads require the scope `admin`.
///
/// # Errors
/// `InvalidArgument` for another word, `Forbidden`.
pub fn includes_payload(by: &Identity, include: Option<&str>) -> Result<bool, BrokerError> {
    match include {
        None => Ok(false),
        Some("payload") => by.check_scope(Scope::Admin).map(|()| true),
        Some(_) => Err(BrokerError::invalid("include", "payload, or absent")),
    }
}

/// The dead letters to send again: the arguments of the tool `redrive_dead_letters`.
#[allow(dead_code, reason = "schema of the input of redrive")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedriveDeadLetters {
    #[schema(max_items = 10_000)]
    message_ids: Vec<String>,
    /// Id or name of another recipient.
    recipient_id: Option<String>,
}

/// Sends dead letters again, to their recipients or to another one. Requires the scope `member`.
#[utoipa::path(post, path = "/api/v1/dead-letters/redrive", operation_id = "redrive_dead_letters", tag = "messages",
    request_body = RedriveDeadLetters, responses(
    (status = 200, description = "What became of them", body = rest::messages::Redriven),
))]
pub async fn redrive(Caller(by): Caller, body: JsonArguments) -> ApiResult {
    by.check_scope(Scope::Member)?;
    let mut arguments = body.arguments()?;
    let redrive = Redrive::new(read_ids(&mut arguments)?)?;
    let recipient = arguments.text("recipient_id")?;
    arguments.finish()?;
    let recipient = match recipient {
        None => None,
        Some(address) => Some(by.project.resolve(&address).answer().await?.record.id),
    };
    ok(redrive.run(&by.project, recipient).await?)
}
