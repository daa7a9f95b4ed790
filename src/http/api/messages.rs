//! `POST /api/v1/messages`: sends messages. `history` has the reading half.

use std::sync::Arc;

use actix_web::{
    FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    http::header::{HeaderName, LOCATION},
};
use actors::{
    clock::now,
    metrics::TransportKind,
    model::{BrokerError, Scope, SessionId, SessionName, SessionStatus},
    project::{PreparedSend, Registration, RequestTrace},
    router::Routed,
    session::Member,
};
use rest::words;
use utoipa::{
    ToSchema,
    openapi::{Object, OneOf, Schema, schema::Type},
};

use crate::{
    http::{
        backpressure::transport_context,
        extract::{Admin, ApiError, ApiResult, Caller, JsonArguments},
    },
    transport::OpenResponse,
};
use api::{
    auth::{Identity, only_value},
    verbs::{
        arguments::Arguments,
        sending::{self, MessageArguments, WaitGoal},
    },
};
use common::{json::write_json, telemetry};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A message to send: the arguments of the tool `send_message` with a recipient, or of `broadcast_message` without one.
#[allow(dead_code, reason = "schema of the input of send")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// Name of the session that sends, or the id that its registration returned. It belongs to the caller; a name that no
    /// session has is registered.
    #[schema(min_length = 1, max_length = 128)]
    from: String,
    /// Id, name, or `name@project` of the recipient; without it the message is a broadcast.
    recipient_id: Option<String>,
    /// Comes together with `protocol_version`; without both the message is a plain text, of the built-in protocol `text` 1.0.0.
    #[schema(nullable = false)]
    protocol_name: Option<words::ProtocolName>,
    #[schema(nullable = false)]
    protocol_version: Option<rest::words::Version>,
    /// Fits the schema of the protocol. Of a plain text: the text, or an object with it as `text`.
    #[schema(schema_with = text_or_object)]
    payload: (),
    headers: Option<rest::messages::Headers>,
    /// Of a direct message to a name that no session has: `keep` keeps it for the agent that registers the name.
    if_unknown: Option<IfUnknown>,
    /// Of a direct message: the status to wait for.
    wait_for: Option<WaitFor>,
    /// Longest wait, in seconds.
    #[schema(minimum = 0, maximum = 110, default = 30)]
    timeout_seconds: Option<f64>,
    /// Of a broadcast: only sessions that meet it.
    capability_filter: Option<CapabilityFilter>,
}

fn text_or_object() -> Schema {
    let of = |kind| Object::builder().schema_type(kind).build();
    OneOf::builder()
        .item(of(Type::String))
        .item(of(Type::Object))
        .build()
        .into()
}

/// What becomes of a message to a name that no session has.
#[allow(dead_code, reason = "schema of the input of send")]
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum IfUnknown {
    Refuse,
    Keep,
}

/// The status that a sender waits for.
#[allow(dead_code, reason = "schema of the input of send")]
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum WaitFor {
    Queued,
    Delivered,
    Acknowledged,
}

/// What a recipient of a broadcast must declare.
#[allow(dead_code, reason = "schema of the input of send")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilityFilter {
    /// Version requirements by name of protocol.
    #[schema(nullable = false, value_type = Option<std::collections::BTreeMap<String, String>>)]
    protocols: Option<()>,
    #[schema(nullable = false)]
    features: Option<Vec<String>>,
}

/// Sends a message to one session or to all. Requires the scope `member`.
#[utoipa::path(post, path = "/api/v1/messages", operation_id = "send_message", tag = "messages",
    params(("Idempotency-Key" = Option<String>, Header, max_length = 256, pattern = "^[ -~]*$",
        description = "The same as `headers.idempotency_key` in the body")),
    request_body = SendMessage, responses(
    (status = 201, description = "The message is accepted", body = rest::messages::Sent,
        headers(("Location" = String, description = "The path of the message"))),
    (status = 200, description = "A message with this idempotency key was accepted before: the first answer again",
        body = rest::messages::Sent),
    (status = 409, description = "The recipient does not speak the protocol, or the session was taken over"),
))]
pub async fn send(
    admin: Admin,
    Caller(by): Caller,
    IdempotencyKey(key): IdempotencyKey,
    body: JsonArguments,
    request: HttpRequest,
) -> ApiResult {
    by.check_scope(Scope::Member)?;
    let context = transport_context(&request).ok_or(BrokerError::unavailable())?;
    let wish = Wish::parse(body.arguments()?, key, context.service.payload_len_max)?;
    let sender = sender(&by, &wish.from, true).await?;
    let trace = telemetry::trace_of(&request);
    let mut preparation = wish.prepare(&by, &sender, telemetry::request_trace(&request, trace.as_ref()));
    let waits = OpenResponse::open_over_limit(context, &by, TransportKind::Http).ok_or(BrokerError::unavailable())?;
    let prepared = preparation.send.answer().await;
    let prepared = prepared.map_err(|error| match &preparation.recipient {
        Some(recipient) => sending::audit_isolation_refusal(admin.audit(), &by, recipient, error),
        None => error,
    })?;
    let recipient = prepared.recipient().cloned();
    let is_cross_project = matches!(prepared, PreparedSend::CrossProject(_));
    let routed = accept(&by, prepared).await?;
    let is_repeat = routed.is_repeat;
    let accepted = routed.clone();
    let routed = if is_repeat {
        accepted
    } else {
        let outcome = sending::await_outcome(
            &by.project,
            sender.record.id,
            preparation.wait_goal.take(),
            preparation.idempotency_key.as_deref(),
            routed,
        );
        tokio::select! {
            routed = outcome => routed,
            // The broker stops: the sender gets the present status.
            _ = waits.closed() => accepted,
        }
    };
    let mut text = Vec::new();
    if preparation.recipient.is_some() {
        sending::write_direct(&mut text, &by.project, &routed, !is_cross_project, recipient.as_deref());
    } else {
        write_json(&mut text, &sending::broadcast_json(&routed));
    }
    let mut response = if is_repeat {
        HttpResponse::Ok()
    } else {
        HttpResponse::Created()
    };
    let location = format!("/api/v1/messages/{}", routed.result.message);
    Ok(response
        .insert_header((LOCATION, location))
        .content_type("application/json")
        .body(text))
}

/// The header `Idempotency-Key`, plain or as a quoted string (RFC 9651, section 3.3.3).
pub struct IdempotencyKey(Option<String>);

impl FromRequest for IdempotencyKey {
    type Error = ApiError;
    type Future = std::future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        std::future::ready(Self::read(request).map_err(ApiError::from))
    }
}

impl IdempotencyKey {
    fn read(request: &HttpRequest) -> Result<Self, BrokerError> {
        let invalid = |reason: String| BrokerError::invalid(IDEMPOTENCY_KEY.as_str(), reason);
        let Some(value) = only_value(request.headers(), &IDEMPOTENCY_KEY)? else {
            return Ok(Self(None));
        };
        let text = value.to_str().map(str::trim);
        let text = text.map_err(|_| invalid("printable ASCII characters only".to_owned()))?;
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let key = quoted.unwrap_or(text);
        if key.len() > sending::HEADER_LEN_MAX {
            return Err(invalid(format!("at most {} bytes", sending::HEADER_LEN_MAX)));
        }
        Ok(Self(Some(key.to_owned()).filter(|key| !key.is_empty())))
    }
}

/// What the caller wants to send.
struct Wish<'a> {
    from: String,
    recipient: Option<String>,
    message: MessageArguments<'a>,
    wait_goal: Option<WaitGoal>,
    filter: actors::model::CapabilityFilter,
}

/// A message that is checked, or will be after a lookup.
struct Preparation {
    send: actors::project::Lookup<PreparedSend>,
    recipient: Option<String>,
    wait_goal: Option<WaitGoal>,
    idempotency_key: Option<String>,
}

impl<'a> Wish<'a> {
    fn parse(mut arguments: Arguments<'a>, key: Option<String>, payload_len_max: usize) -> Result<Self, BrokerError> {
        let from = arguments.required_text("from")?.into_owned();
        let recipient = arguments.text("recipient_id")?.map(std::borrow::Cow::into_owned);
        let (mut wait_goal, mut filter) = (None, actors::model::CapabilityFilter::default());
        let mut keeps_for_unknown = false;
        if recipient.is_some() {
            wait_goal = sending::parse_wait(&mut arguments)?;
            keeps_for_unknown = sending::parse_if_unknown(&mut arguments)?;
        } else {
            filter = sending::parse_filter(&mut arguments)?;
        }
        let mut message = MessageArguments::parse(&mut arguments, payload_len_max)?;
        message.keeps_for_unknown = keeps_for_unknown;
        arguments.finish()?;
        let in_body = &mut message.headers.idempotency_key;
        match (&in_body, key) {
            (Some(in_body), Some(key)) if **in_body != key => {
                let reason = "differs from the header Idempotency-Key";
                return Err(BrokerError::invalid("headers.idempotency_key", reason));
            }
            (None, key) => *in_body = key,
            (Some(_), _) => {}
        }
        Ok(Self {
            from,
            recipient,
            message,
            wait_goal,
            filter,
        })
    }

    fn prepare(self, by: &Arc<Identity>, sender: &Arc<Member>, trace: Option<RequestTrace<'_>>) -> Preparation {
        let request = self.message.send_request(self.wait_goal.is_some(), trace);
        let prepared = if let Some(recipient) = &self.recipient {
            by.project.prepare_direct(sender, recipient, &request)
        } else {
            let prepared = by.project.prepare_broadcast(sender, self.filter, &request);
            prepared.map(|late| late.result.map(PreparedSend::Local))
        };
        by.charge_work(request.work.spent());
        let identity = Arc::clone(by);
        Preparation {
            send: prepared.map(move |late| {
                identity.charge_work(late.work);
                late.result
            }),
            recipient: self.recipient,
            wait_goal: self.wait_goal,
            idempotency_key: self.message.headers.idempotency_key,
        }
    }
}

/// The caller's session of this name, or of the id that its registration returned. A name that no session has is
/// registered. A session that exists is not registered again: its client keeps its connection.
///
/// A session that is registered here ends soon if the caller `only_sends` with it, and else after the retention.
pub(super) async fn sender(by: &Arc<Identity>, from: &str, only_sends: bool) -> Result<Arc<Member>, BrokerError> {
    if let Some(id) = SessionId::parse(from) {
        let own = by.project.own_session(id, by.owner()).answer().await;
        return own.map_err(|error| match error {
            BrokerError::InvalidArgument { .. } => BrokerError::listed_session_id("from"),
            error => error,
        });
    }
    let name = SessionName::parse(from).map_err(|error| match error {
        BrokerError::InvalidArgument { reason, .. } => BrokerError::invalid("from", reason),
        error => error,
    })?;
    let member = match by.project.resolve(name.as_str()).answer().await {
        Ok(member) if member.record.owner == *by.owner() && (only_sends || !member.record.holder.only_sends) => member,
        // The name may also belong to a session whose key is gone: then registering it takes the name.
        Ok(_) | Err(BrokerError::SessionNotFound(_)) => {
            let registration = Registration {
                name: Some(name),
                owner: by.owner().clone(),
                is_absent: true,
                only_sends,
                ..Registration::default()
            };
            by.project.register(registration).await?.member
        }
        Err(error) => return Err(error),
    };
    if by.project.status(&member) == SessionStatus::Disconnected {
        // This request comes from no agent: the session stays disconnected, and its retention begins again.
        member.shared.leave(now());
    } else {
        member.touch(by.project.settings().presence, now());
    }
    Ok(member)
}

/// Sends the message: to the router of the project, or to another project.
pub(super) async fn accept(by: &Arc<Identity>, prepared: PreparedSend) -> Result<Routed, BrokerError> {
    match prepared {
        PreparedSend::Local(submission) => {
            let answers = by.project.submit(vec![submission])?.await.unwrap_or_default();
            answers.into_iter().next().unwrap_or(Err(BrokerError::unavailable()))
        }
        PreparedSend::CrossProject(send) => {
            let project = by.project.clone();
            // It continues if the caller disconnects; the caller may repeat it with the same idempotency key.
            let sending = actix_rt::spawn(async move { project.send_cross_project(*send).await });
            sending.await.unwrap_or(Err(BrokerError::unavailable()))
        }
    }
}
