//! `/api/v1/desk/messages`: what a person and agents have written to each other.

use std::sync::Arc;

use actix_web::{HttpResponse, web};
use actors::{
    desk::Human,
    model::{ANSWER_BYTES_MAX, BrokerError, DeliveryStatus, Headers, SessionId, TEXT_PROTOCOL, TEXT_VERSION, Via},
    project::{ListedMessage, MessageFilter, PreparedSend, SendRequest},
    registry::{WorkBudget, builtin::HUMAN_ANSWER},
    session::Member,
    storage::{Acknowledge, EventPosition},
};
use rest::messages::MessagesRead;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{desk_requests::HumanHeaders, history::write_listed, messages::accept};
use crate::http::{
    extract::{Admin, ApiResult, Caller, JsonArguments, ShortJsonArguments, ok, ok_text, parse_limit},
    people::NamedHuman,
};
use api::{
    auth::Identity,
    verbs::{
        history::{PAYLOAD_LEN_MAX, parse_cursor, payload_of},
        messages::parse_ids,
        sending::{self, HEADER_LEN_MAX, check_thread_id},
    },
};
use common::json::page::JsonPage;

const PAGE_LEN: usize = 50;
const PAGE_LEN_MAX: usize = 200;
/// Messages that one request marks as read.
const READ_MAX: usize = 500;
/// Bytes of a text as JSON: each byte may be an escape.
const TEXT_JSON_MAX: usize = 6 * ANSWER_BYTES_MAX + 2;

/// The protocol of what people write.
const PROTOCOL: (&str, &str) = (TEXT_PROTOCOL, TEXT_VERSION);

/// Selects messages of a person.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Most messages of a page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[0-9a-f]{1,16}-[0-9a-f]{1,16}-[0-9a-f]{1,8}$")]
    cursor: Option<String>,
}

/// What a person writes to an agent.
#[allow(dead_code, reason = "schema of the input of send")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteMessage {
    /// Id, name, or `name@project` of the session.
    to: String,
    /// At most 64 KiB.
    #[schema(min_length = 1, max_length = 65_536)]
    text: String,
    /// The thread that the message answers in.
    #[schema(max_length = 128)]
    thread_id: Option<String>,
    /// A repeat within 24 hours sends nothing and gets the first answer.
    #[schema(max_length = 256)]
    idempotency_key: Option<String>,
}

/// Messages that a person has read.
#[allow(dead_code, reason = "schema of the input of read")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadMessages {
    #[schema(max_items = 500)]
    message_ids: Vec<String>,
}

/// The session of the person in whose name the request acts.
async fn person(by: &Identity, named: NamedHuman, is_active: bool) -> Result<(Human, Arc<Member>), BrokerError> {
    let human = named.acting(by, Via::Web).await?;
    let member = by.project.person(&human, is_active).await?;
    Ok((human, member))
}

/// What the person and agents have written to each other, newest first, with the payloads that are kept and have at most
/// 256 KiB. Answers to questions are with their questions. A page looks at up to 5,000 events.
#[utoipa::path(get, path = "/api/v1/desk/messages", operation_id = "list_persons_messages", tag = "desk",
    params(Query, HumanHeaders), responses(
    (status = 200, description = "A page of the messages", body = rest::messages::PersonsMessages),
))]
pub async fn list(Caller(by): Caller, named: NamedHuman, query: web::Query<Query>) -> ApiResult {
    let Query { limit, cursor } = query.into_inner();
    let before = cursor.map(|text| parse_cursor(&text)).transpose()?;
    let limit = parse_limit(limit, PAGE_LEN, PAGE_LEN_MAX)?;
    let (human, member) = person(&by, named, false).await?;
    let filter = MessageFilter {
        session: Some(member.record.id),
        except_protocol: Some(HUMAN_ANSWER.name),
        ..MessageFilter::default()
    };
    let page = by.project.messages(&filter, before, limit).await?;
    by.project.refresh_waiting(&[Arc::clone(&member)]).await;
    let mut text = JsonPage::new("messages").with("payloads_kept", &by.project.settings().keeps_payloads);
    let mut shown: Option<EventPosition> = None;
    let mut next = page.next;
    for message in &page.messages {
        let payload = payload_of(&by.project, &message.accepted).await?;
        let payload = payload.filter(|payload| payload.len() <= PAYLOAD_LEN_MAX);
        let unread = Value::from(is_unread(message, member.record.id));
        let is_shown = text.push_with(|out| {
            write_listed(out, &by.project, message, payload.as_deref(), None);
            out.pop();
            out.extend_from_slice(format!(",\"unread\":{unread}}}").as_bytes());
        });
        if !is_shown {
            next = shown;
            break;
        }
        shown = Some(message.position);
    }
    let text = text
        .with("session_id", &member.record.id)
        .with("human", &human.name)
        .with("waiting", &member.shared.waiting());
    ok_text(&by, text.finish(next.map(|position| position.to_string())))
}

fn is_unread(message: &ListedMessage, person: SessionId) -> bool {
    let mut recipients = message.recipients.iter().flatten();
    let own = recipients.find(|recipient| recipient.session == person);
    own.is_some_and(|own| matches!(own.status, DeliveryStatus::Queued | DeliveryStatus::Delivered))
}

/// Sends a text of the person to an agent, with the protocol `text`. Its answers come to the person.
#[utoipa::path(post, path = "/api/v1/desk/messages", operation_id = "write_message", tag = "desk", params(HumanHeaders),
    request_body = WriteMessage, responses(
    (status = 201, description = "The message is accepted", body = rest::messages::Sent),
))]
pub async fn send(
    admin: Admin,
    Caller(by): Caller,
    named: NamedHuman,
    body: JsonArguments<{ TEXT_JSON_MAX + 4096 }>,
) -> ApiResult {
    let mut arguments = body.arguments()?;
    let to = arguments.required_text("to")?.into_owned();
    let text: Option<String> = arguments.optional_within("text", TEXT_JSON_MAX)?;
    let thread_id = arguments.text("thread_id")?.map(std::borrow::Cow::into_owned);
    let idempotency_key = arguments.text("idempotency_key")?.map(std::borrow::Cow::into_owned);
    arguments.finish()?;
    let text = text.unwrap_or_default();
    if text.trim().is_empty() || text.len() > ANSWER_BYTES_MAX {
        return Err(BrokerError::invalid("text", format!("1 to {ANSWER_BYTES_MAX} bytes, not blank")).into());
    }
    if let Some(thread_id) = &thread_id {
        check_thread_id("thread_id", thread_id)?;
    }
    if idempotency_key.as_ref().is_some_and(|key| key.len() > HEADER_LEN_MAX) {
        return Err(BrokerError::invalid("idempotency_key", format!("at most {HEADER_LEN_MAX} bytes")).into());
    }
    let (_, member) = person(&by, named, true).await?;
    let headers = Headers {
        thread_id,
        idempotency_key,
        ..Headers::default()
    };
    let payload = json!({"text": text}).to_string();
    let request = SendRequest {
        protocol_name: PROTOCOL.0,
        protocol_version: PROTOCOL.1,
        payload: &payload,
        headers: &headers,
        tracked: false,
        keeps_for_unknown: false,
        work: WorkBudget::default(),
        trace: None,
    };
    let preparing = by.project.prepare_direct(&member, &to, &request);
    by.charge_work(request.work.spent());
    let identity = Arc::clone(&by);
    let preparing = preparing.map(move |late| {
        identity.charge_work(late.work);
        late.result
    });
    let prepared = preparing.answer().await;
    let prepared = prepared.map_err(|error| sending::audit_isolation_refusal(admin.audit(), &by, &to, error))?;
    let recipient = prepared.recipient().cloned();
    let is_local = matches!(prepared, PreparedSend::Local(_));
    let routed = accept(&by, prepared).await?;
    let mut text = Vec::new();
    sending::write_direct(&mut text, &by.project, &routed, is_local, recipient.as_deref());
    Ok(HttpResponse::Created().content_type("application/json").body(text))
}

/// Acknowledges messages that the person has read.
#[utoipa::path(post, path = "/api/v1/desk/messages/read", operation_id = "read_messages", tag = "desk",
    params(HumanHeaders), request_body = ReadMessages, responses(
    (status = 200, description = "How many of them waited", body = MessagesRead),
))]
pub async fn read(Caller(by): Caller, named: NamedHuman, body: ShortJsonArguments) -> ApiResult {
    let mut arguments = body.arguments()?;
    let ids: Option<Vec<String>> = arguments.optional("message_ids")?;
    arguments.finish()?;
    let ids = ids.ok_or_else(|| BrokerError::invalid("message_ids", "required"))?;
    if ids.len() > READ_MAX {
        return Err(BrokerError::invalid("message_ids", format!("at most {READ_MAX}")).into());
    }
    let (ids, mut unknown) = parse_ids(ids)?;
    let (_, member) = person(&by, named, true).await?;
    let done = by.project.acknowledge(&member, Acknowledge::Seen(ids)).await?;
    unknown.extend(done.unknown.iter().map(ToString::to_string));
    ok(MessagesRead {
        acknowledged: done.acknowledged,
        unknown,
    })
}
