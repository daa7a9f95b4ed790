//! `/api/v1/messages` and `/api/v1/messages/{id}`: which messages there were, and the life of each.

use std::sync::Arc;

use actix_web::{http::StatusCode, web};
use actors::{
    clock::rfc3339_text,
    model::{
        AcceptedMessage, BrokerError, DeadLetterReason, DeliveryStatus, MessageId, Priority, ProtocolName, Scope,
        SessionId, Transformed,
    },
    project::{LifeChange, ListedMessage, MessageFilter, MessageLife, ProjectHandle, RecipientLife, StatusFilter},
    storage::EventPosition,
};
use rest::{messages as view, words};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::{dead_letters::includes_payload, parties::parse_session};
use crate::http::extract::{ApiError, ApiResult, Caller, ok_text, parse_limit, parse_text};
use api::{
    auth::Identity,
    problem::Problem,
    verbs::{
        arguments::parse_time,
        history::{Excerpts, parse_cursor, payload_of, write_envelope},
        sending::check_thread_id,
        sessions,
    },
};
use common::json::{page::JsonPage, write_json};

const PAGE_LEN: usize = 50;
const PAGE_LEN_MAX: usize = 500;
/// Recipients of a page of the life of a message.
const LIVES_LEN: usize = 500;
const LIVES_LEN_MAX: usize = 1000;

/// Selects messages of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only messages that this session sent or got: its id or another address.
    session: Option<String>,
    /// Only messages with this status for some recipient; with `session`, for that one if it is a recipient.
    #[param(value_type = Option<rest::messages::DeliveryStatus>)]
    status: Option<String>,
    /// Only messages with this header, and the message with this id if it has neither this header nor a thread.
    correlation_id: Option<String>,
    /// Only messages of this thread: those with this header, and the message with this id if it has no such header.
    #[param(max_length = 128)]
    thread_id: Option<String>,
    /// Only messages accepted at this time or later (RFC 3339).
    #[param(format = DateTime)]
    since: Option<String>,
    /// Only messages accepted before this time (RFC 3339).
    #[param(format = DateTime)]
    until: Option<String>,
    /// Only messages of this protocol.
    #[param(value_type = Option<words::ProtocolName>)]
    protocol: Option<String>,
    /// Only messages with this priority.
    #[param(value_type = Option<Priority>)]
    priority: Option<Priority>,
    /// Only messages with this text, in any case, in the subject, in the name of the sender or of a recipient other than
    /// `session`, in the name of the protocol or in the correlation id.
    #[param(min_length = 1, max_length = 128)]
    q: Option<String>,
    /// `payload` shows the payloads that are kept, which requires the scope `admin`; `excerpt` their first words, as far as the
    /// caller may read them: an administrator all, a member those of its own messages.
    #[param(pattern = "^(payload|excerpt)$")]
    include: Option<String>,
    /// Most messages of a page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[0-9a-f]{1,16}-[0-9a-f]{1,16}-[0-9a-f]{1,8}$")]
    cursor: Option<String>,
}

/// The messages of the last `MESSAGE_HISTORY`, newest first. A member sees those that its own sessions sent or got. A page
/// looks at up to 5,000 events, and at messages with up to 200,000 recipients together, and reads the receipts of up to
/// 20,000: it may have fewer messages than its limit, or none, and still be followed by another.
#[utoipa::path(get, path = "/api/v1/messages", operation_id = "list_messages", tag = "messages",
    params(Query), responses((status = 200, description = "A page of the messages", body = rest::messages::Messages),
))]
pub async fn list(Caller(by): Caller, web::Query(query): web::Query<Query>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let include = Include::parse(&by, query.include.as_deref())?;
    if let Some(thread_id) = &query.thread_id {
        check_thread_id("thread_id", thread_id)?;
    }
    let filter = MessageFilter {
        status: query.status.map(|word| parse_status(&word)).transpose()?,
        correlation_id: query.correlation_id,
        thread_id: query.thread_id,
        since_ms: query.since.map(|text| parse_time("since", &text)).transpose()?,
        until_ms: query.until.map(|text| parse_time("until", &text)).transpose()?,
        protocol: query.protocol.map(|name| ProtocolName::parse(&name)).transpose()?,
        priority: query.priority,
        text: query.q.map(|text| parse_text(&text)).transpose()?,
        visible_to: by.messages_of().cloned(),
        session: match query.session {
            None => None,
            Some(address) => Some(parse_session(&by.project, &address).await?),
        },
        ..MessageFilter::default()
    };
    let before = query.cursor.map(|text| parse_cursor(&text)).transpose()?;
    let limit = parse_limit(query.limit, PAGE_LEN, PAGE_LEN_MAX)?;
    let page = by.project.messages(&filter, before, limit).await?;
    let mut text = JsonPage::new("messages").with("payloads_kept", &by.project.settings().keeps_payloads);
    let mut shown: Option<EventPosition> = None;
    let mut excerpts = Excerpts::default();
    for message in &page.messages {
        let (mut kept, mut excerpt) = (None, None);
        match include {
            Include::Payload => kept = payload_of(&by.project, &message.accepted).await?,
            Include::Excerpt => excerpt = Some(Value::from(excerpts.of(&by.project, &message.accepted).await?)),
            Include::Nothing => {}
        }
        let is_shown = !excerpts.is_full() || shown.is_none();
        let is_shown = is_shown
            && text.push_with(|out| write_listed(out, &by.project, message, kept.as_deref(), excerpt.as_ref()));
        if !is_shown {
            return ok_text(&by, text.finish(shown.map(|position| position.to_string())));
        }
        shown = Some(message.position);
    }
    ok_text(&by, text.finish(page.next.map(|position| position.to_string())))
}

/// What a list of messages shows of payloads.
#[derive(Clone, Copy)]
enum Include {
    Nothing,
    Payload,
    Excerpt,
}

impl Include {
    fn parse(by: &Identity, word: Option<&str>) -> Result<Self, BrokerError> {
        match word {
            Some("excerpt") if reads_texts(by) => Ok(Self::Excerpt),
            Some("excerpt") => Ok(Self::Nothing),
            word => Ok(if includes_payload(by, word)? {
                Self::Payload
            } else {
                Self::Nothing
            }),
        }
    }
}

/// Whether the caller may read the texts of the messages that a list shows it.
pub(super) fn reads_texts(by: &Identity) -> bool {
    by.messages_of().is_some() || by.check_scope(Scope::Admin).is_ok()
}

fn parse_status(word: &str) -> Result<StatusFilter, BrokerError> {
    Ok(match word {
        "queued" => StatusFilter::Queued,
        "delivered" => StatusFilter::Delivered,
        "acknowledged" => StatusFilter::Acknowledged,
        "expired" => StatusFilter::Expired,
        "dead_lettered" => StatusFilter::DeadLettered,
        _ => {
            let reason = "queued, delivered, acknowledged, expired or dead_lettered";
            return Err(BrokerError::invalid("status", reason));
        }
    })
}

/// Writes the envelope with the members `recipient_name`, `thread_id`, `status` and `recipients`, and `excerpt` if it was wanted.
pub(super) fn write_listed(
    out: &mut Vec<u8>,
    project: &ProjectHandle,
    message: &ListedMessage,
    payload: Option<&str>,
    excerpt: Option<&Value>,
) {
    write_envelope(out, project, &message.accepted, payload);
    out.pop();
    out.extend_from_slice(b",\"thread_id\":");
    write_json(out, &thread_id(&message.accepted));
    if let Some(excerpt) = excerpt {
        out.extend_from_slice(b",\"excerpt\":");
        write_json(out, excerpt);
    }
    let recipients = message.recipients.as_deref();
    let status = match recipients {
        Some([recipient]) => Some(recipient.status.as_str()),
        _ => None,
    };
    let counts = recipients.map(|recipients| {
        let mut counts = view::RecipientCounts::default();
        for recipient in recipients {
            *match recipient.status {
                DeliveryStatus::Queued => &mut counts.queued,
                DeliveryStatus::Delivered => &mut counts.delivered,
                DeliveryStatus::Acknowledged => &mut counts.acknowledged,
                DeliveryStatus::Expired => &mut counts.expired,
                DeliveryStatus::DeadLettered(_) => &mut counts.dead_lettered,
            } += 1;
        }
        counts
    });
    out.extend_from_slice(b",\"status\":");
    write_json(out, &status);
    out.extend_from_slice(b",\"recipients\":");
    write_json(out, &counts);
    out.push(b'}');
}

/// The thread of a message: the header, or the id of the message, which is then the first of its thread.
fn thread_id(accepted: &AcceptedMessage) -> String {
    accepted
        .parse_thread_id()
        .unwrap_or_else(|| accepted.message.to_string())
}

/// How to show the life of a message.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LifeQuery {
    /// `payload` shows the payload if it is kept, which requires the scope `admin`.
    #[param(pattern = "^payload$")]
    include: Option<String>,
    /// Most recipients of a page.
    #[param(minimum = 1, maximum = 1000, default = 500)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page of recipients.
    #[param(format = "uuid")]
    cursor: Option<String>,
}

/// The life of a message: its envelope, and for each recipient of a page what happened and when. Once the history has forgotten the
/// message, only the last status of each recipient is known. A member sees messages that its own sessions sent or got.
#[utoipa::path(get, path = "/api/v1/messages/{message_id}", operation_id = "get_message", tag = "messages",
    params(("message_id" = String, Path, format = "uuid"), LifeQuery), responses(
    (status = 200, description = "The life of the message", body = rest::messages::MessageLife),
    (status = 404, description = "No such message, or none that is remembered"),
))]
pub async fn life(Caller(by): Caller, query: web::Query<LifeQuery>, path: web::Path<String>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let LifeQuery { include, limit, cursor } = query.into_inner();
    let with_payload = includes_payload(&by, include.as_deref())?;
    let after = cursor.map(|text| sessions::parse_cursor(&text)).transpose()?;
    let limit = parse_limit(limit, LIVES_LEN, LIVES_LEN_MAX)?;
    let id = MessageId::parse(&path).ok_or_else(not_known)?;
    let life = by.project.message_life(id, after, limit).await?;
    let life = life.filter(|life| is_visible(&by, life));
    let life = life.ok_or_else(not_known)?;
    let mut page = JsonPage::new("recipients");
    let recipients: Vec<_> = life.recipients.iter().collect();
    let last = page.push_all(&recipients, |(session, life)| {
        recipient_view(&by.project, **session, life)
    });
    let next_cursor = last.map(|(session, _)| **session).or(life.next);
    let mut envelope = Vec::new();
    let accepted_at = if let Some((at_ms, accepted)) = &life.accepted {
        let payload = if with_payload {
            payload_of(&by.project, accepted).await?
        } else {
            None
        };
        accepted.write_envelope(by.project.id(), payload.as_deref(), &mut envelope);
        Some(rfc3339_text(*at_ms))
    } else {
        envelope.extend_from_slice(b"null");
        None
    };
    let envelope = String::from_utf8(envelope)
        .ok()
        .and_then(|text| serde_json::value::RawValue::from_string(text).ok());
    let page = page
        .with("message_id", &id)
        .with("message", &envelope)
        .with("payloads_kept", &by.project.settings().keeps_payloads)
        .with(
            "thread_id",
            &life.accepted.as_ref().map(|(_, accepted)| thread_id(accepted)),
        )
        .with("accepted_at", &accepted_at)
        .with("incomplete", &life.is_partial);
    ok_text(&by, page.finish(next_cursor))
}

fn not_known() -> ApiError {
    let detail = "no such message, or none that is remembered";
    Problem::new(StatusCode::NOT_FOUND, "invalid_argument", detail).into()
}

/// A message that the log has forgotten is shown to those who have its id, as the tool `get_message_status` shows it.
fn is_visible(by: &Arc<Identity>, life: &MessageLife) -> bool {
    by.scope() != Scope::Member
        || life
            .accepted
            .as_ref()
            .is_none_or(|(_, accepted)| by.project.is_party(by.owner(), accepted))
        || life.with_receipt.iter().any(|session| by.owns_session(*session))
}

/// The life of a message for one recipient, as callers see it.
fn recipient_view(project: &ProjectHandle, session: SessionId, life: &RecipientLife) -> view::RecipientLife {
    let member = project.session(session);
    let reason = life.status.as_ref().and_then(|status| match status.status {
        DeliveryStatus::DeadLettered(reason) => Some(reason),
        DeliveryStatus::Expired => Some(DeadLetterReason::Expired),
        _ => None,
    });
    let outcome = life.status.as_ref().and_then(|status| status.outcome.as_deref());
    let transformed = life.status.as_ref().and_then(|status| status.transformed.as_deref());
    view::RecipientLife {
        session_id: session.to_string(),
        name: member.and_then(|member| member.record.name.as_ref().map(ToString::to_string)),
        status: life.status.as_ref().map(|status| status.status.as_str().to_owned()),
        at: life.status.as_ref().map(|status| rfc3339_text(status.at_ms)),
        reason: reason.map(|reason| reason.as_str().to_owned()),
        outcome: outcome.map(|outcome| outcome.kind.as_str().to_owned()),
        note: outcome
            .map(|outcome| &*outcome.note)
            .filter(|note| !note.is_empty())
            .map(str::to_owned),
        transformed: transformed.map(transform_view),
        events: life
            .changes
            .iter()
            .map(|(at_ms, change)| change_view(*at_ms, change))
            .collect(),
    }
}

fn transform_view(of: &Transformed) -> view::Transform {
    view::Transform {
        from: Some(of.from.to_string()),
        to: of.to.as_ref().map(ToString::to_string),
        loss: of.loss.clone(),
        defaulted: of.defaulted.clone(),
        more: of.more.then_some(true),
        ..view::Transform::default()
    }
}

fn change_view(at_ms: u64, change: &LifeChange) -> view::LifeChange {
    let mut view = view::LifeChange {
        at: rfc3339_text(at_ms),
        ..view::LifeChange::default()
    };
    let event = match *change {
        LifeChange::Queued => "queued",
        LifeChange::Released => "released",
        LifeChange::Acknowledged => "acknowledged",
        LifeChange::Delivered {
            delivery,
            ref transformed,
        } => {
            view.delivery = Some(delivery);
            view.transformed = transformed.as_deref().map(transform_view);
            "delivered"
        }
        LifeChange::DeadLettered {
            reason: DeadLetterReason::Expired,
            ..
        } => "expired",
        LifeChange::DeadLettered { reason, .. } => {
            view.reason = Some(reason.as_str().to_owned());
            "dead_lettered"
        }
        LifeChange::Redriven { from } => {
            view.from = Some(from.to_string());
            "redriven"
        }
    };
    event.clone_into(&mut view.event);
    view
}
