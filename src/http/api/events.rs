//! `/api/v1/events`: the events of a project as they happen, as server-sent events.

#![allow(unused_qualifications, reason = "what utoipa writes")]

use std::convert::Infallible;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method, StatusCode,
        header::{CACHE_CONTROL, HeaderName},
    },
    web,
};
use actors::{
    metrics::TransportKind,
    model::{BrokerError, ProjectId, Scope},
    storage::EventPosition,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    admin::schemas,
    http::{
        backpressure::transport_context,
        events::{Follower, Topics, View},
        extract::{ApiError, ApiResult, Caller},
        problem_body::ProblemBody,
        resource::Resource,
        state::StateData,
    },
    problem::Problem,
    transport::OpenResponse,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Proxies that buffer would hold events back.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![Resource::at("/api/v1/events").on(Method::GET, web::to(follow))]
}

/// Selects events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only these topics, separated by commas: `session`, `protocol`, `message`, `dead_letter`, `actor`, and `audit` with
    /// the scope `admin`.
    #[param(
        pattern = "^(session|protocol|message|dead_letter|actor|audit)(,(session|protocol|message|dead_letter|actor|audit))*$"
    )]
    topics: Option<String>,
    /// The project, for a caller who may act in several and cannot send X-Project-ID, as a browser.
    #[param(value_type = Option<schemas::ProjectId>)]
    project: Option<String>,
    /// As the header Last-Event-ID, for a client that cannot send it. The header takes precedence.
    last_event_id: Option<String>,
}

/// The events of the project as they happen, without payloads (`text/event-stream`). The id of an event is its place in
/// the log: a client that returns with it gets what came after, as long as the log keeps it. `gap` tells of events that
/// are missing, because the log has lost them, because the client was too slow, or because there were more than 500 a
/// second about messages. A member sees events about messages that its own sessions sent or got.
#[utoipa::path(get, path = "/api/v1/events", operation_id = "follow_events", tag = "events",
    params(Query, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client got")),
    responses(
    (status = 200, description = "A stream of events that does not end", body = String, content_type = "text/event-stream"),
    (status = 429, description = "Too many callers follow events", body = ProblemBody,
        content_type = "application/problem+json"),
))]
pub async fn follow(state: StateData, Caller(by): Caller, query: web::Query<Query>, request: HttpRequest) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let Query {
        topics,
        project,
        last_event_id,
    } = query.into_inner();
    let view = View {
        topics: Topics::parse(topics.as_deref(), by.scope())?,
        messages_of: by.messages_of().cloned(),
    };
    let after = match request.headers().get(LAST_EVENT_ID) {
        Some(id) => Some(id.to_str().unwrap_or_default().to_owned()),
        None => last_event_id,
    };
    // Browsers send an empty id before the first event.
    let after = after.filter(|id| !id.is_empty()).map(|id| parse_id(&id)).transpose()?;
    let project = match project.map(|id| ProjectId::parse(&id)).transpose()? {
        Some(id) if id != *by.project.id() => {
            if by.scope() < Scope::Operator {
                return Err(BrokerError::ProjectNotFound.into());
            }
            let broker = state.broker.get().ok_or(BrokerError::unavailable())?;
            broker.project(&id).await?
        }
        _ => by.project.clone(),
    };
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((X_ACCEL_BUFFERING, "no"));
    if *request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let context = transport_context(&request).ok_or(BrokerError::unavailable())?;
    let open = OpenResponse::try_open(context, &by, TransportKind::Http);
    let open = open.ok_or_else(|| Problem::unavailable("the broker has its maximum of connections, or is stopping"))?;
    let heartbeat_interval = context.timeouts.ping_interval;
    let follower = Follower::join(&state.followers, &project, view, open, heartbeat_interval).map_err(|why| {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", why.text());
        ApiError::from(problem.with_retry_after(std::time::Duration::from_secs(10)))
    })?;
    let follower = follower.begin(after).await?;
    let stream = futures_util::stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next().await?;
        Some((Ok::<_, Infallible>(chunk), follower))
    });
    Ok(response.streaming(stream))
}

fn parse_id(text: &str) -> Result<EventPosition, BrokerError> {
    text.parse()
        .map_err(|_| BrokerError::invalid("last_event_id", "not the id of an event"))
}
