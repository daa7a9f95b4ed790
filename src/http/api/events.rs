//! `/api/v1/events`: the events of a project as they happen, as server-sent events.

use std::{convert::Infallible, rc::Rc, task::Poll};

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
    model::{BrokerError, ProjectId, Scope, Via},
    project::ProjectHandle,
    storage::EventPosition,
};
use futures_util::{Stream, StreamExt, stream};
use rest::words;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    http::{
        backpressure::{socket_state, transport_context},
        events::{
            DeskFollower, DeskSource, DeskTopics, DeskView, Follower, TooManyFollowers, Topics, View, parse_yap_id,
        },
        extract::{ApiError, ApiResult, Caller},
        people::{self, NamedHuman, QuestionReader},
        state::StateData,
    },
    transport::{OpenResponse, SocketState},
};
use api::{auth::Identity, problem::Problem};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Proxies that buffer would hold events back.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Selects events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only these topics, separated by commas: `session`, `protocol`, `message`, `dead_letter`, `actor`, and `audit` with
    /// the scope `admin`; or only `questions`, `yaps` and `desk`, which are a stream of their own.
    #[param(
        pattern = "^((session|protocol|message|dead_letter|actor|audit)(,(session|protocol|message|dead_letter|actor|audit))*|(questions|yaps|desk)(,(questions|yaps|desk))*)$"
    )]
    topics: Option<String>,
    /// With `questions`: the stream is a console of this person, to which questions are offered until it ends. Empty for
    /// the person of the key.
    console: Option<String>,
    /// With `console`: roles of the person, separated by commas. A key has roles of its own.
    roles: Option<String>,
    /// The project, for a caller who may act in several and cannot send X-Project-ID, as a browser.
    #[param(value_type = Option<words::ProjectId>)]
    project: Option<String>,
    /// As the header Last-Event-ID, for a client that cannot send it. The header takes precedence.
    last_event_id: Option<String>,
}

/// The events of the project as they happen, without payloads (`text/event-stream`). The id of an event is its place in
/// the log: a client that returns with it gets what came after, as long as the log keeps it. `gap` reports events that
/// are missing, because the log has lost them, because the client was too slow, or because there were more than 500 a
/// second about messages. A member sees events about messages that its own sessions sent or got.
///
/// The topics `questions`, `yaps` and `desk` begin with `desk` (who is there; `console` is the id of this console), the
/// open questions that the caller may read, and the last 50 yaps; then they tell what changes. `question` has the question
/// as in the list, with `mine` when this console has it. A `yap` has the id `y` and its `seq`: a client that returns with
/// it gets the yaps behind it. After `gap` a client reads the lists again.
#[utoipa::path(get, path = "/api/v1/events", operation_id = "follow_events", tag = "events",
    params(Query, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client got")),
    responses(
    (status = 200, description = "A stream of events that does not end", body = String, content_type = "text/event-stream"),
    (status = 429, description = "Too many callers follow events"),
))]
pub async fn follow(
    state: StateData,
    Caller(by): Caller,
    named: NamedHuman,
    web::Query(query): web::Query<Query>,
    request: HttpRequest,
) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let of_desk = DeskTopics::parse(query.topics.as_deref())?;
    if of_desk.is_none_or(|topics| !topics.questions) && query.console.is_some() {
        return Err(BrokerError::invalid("console", "only with the topic questions").into());
    }
    let after = match request.headers().get(LAST_EVENT_ID) {
        Some(id) => Some(id.to_str().unwrap_or_default().to_owned()),
        None => query.last_event_id,
    };
    // Browsers send an empty id before the first event.
    let after = after.filter(|id| !id.is_empty());
    let project = match query.project.map(|id| ProjectId::parse(&id)).transpose()? {
        Some(id) if id != *by.project.id() => {
            if by.scope() < Scope::Operator {
                return Err(BrokerError::ProjectNotFound.into());
            }
            state.ready()?.broker.project(&id).await?
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
    if let Some(topics) = of_desk {
        let place = state.followers.take_place(&project).map_err(too_many)?;
        let after_yap = after.as_deref().map(parse_yap_id);
        if after_yap == Some(None) {
            return Err(BrokerError::invalid("last_event_id", "not the id of a yap").into());
        }
        let (source, reader) = desk_source(&by, &project, topics, query.console, named, query.roles).await?;
        let view = DeskView {
            topics,
            reader,
            after_yap: after_yap.flatten(),
        };
        let follower = DeskFollower::new(project, view, source, open, heartbeat_interval, place);
        let stream = stream::unfold(follower, |mut follower| async move {
            let chunk = follower.next().await?;
            Some((Ok::<_, Infallible>(chunk), follower))
        });
        return Ok(response.streaming(until_closed(socket_state(&request), stream)));
    }
    let view = View {
        topics: Topics::parse(query.topics.as_deref(), by.scope())?,
        messages_of: by.messages_of().cloned(),
    };
    let after = after.map(|id| parse_id(&id)).transpose()?;
    let follower = Follower::join(&state.followers, &project, view, open, heartbeat_interval).map_err(too_many)?;
    let follower = follower.begin(after).await?;
    let stream = stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next().await?;
        Some((Ok::<_, Infallible>(chunk), follower))
    });
    Ok(response.streaming(stream))
}

/// The stream until its client closes the connection, which a console must not outlive. Reading the end of the socket wakes
/// the task that polls the stream.
fn until_closed<T>(socket: Rc<SocketState>, stream: impl Stream<Item = T>) -> impl Stream<Item = T> {
    let mut stream = Box::pin(stream);
    stream::poll_fn(move |task| {
        if socket.has_peer_closed() {
            return Poll::Ready(None);
        }
        stream.poll_next_unpin(task)
    })
}

fn too_many(why: TooManyFollowers) -> ApiError {
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", why.text());
    ApiError::from(problem.with_retry_after(std::time::Duration::from_secs(10)))
}

/// The feed of the desk for a console or for a caller who only watches, and what the caller may read.
async fn desk_source(
    by: &Identity,
    project: &ProjectHandle,
    topics: DeskTopics,
    console: Option<String>,
    mut named: NamedHuman,
    roles: Option<String>,
) -> Result<(DeskSource, Option<QuestionReader>), BrokerError> {
    if let Some(name) = console {
        named.name = Some(name).filter(|name| !name.is_empty()).or(named.name);
        if roles.is_some() {
            named.roles = people::roles(roles);
        }
        let human = named.acting(by, Via::Console).await?;
        let console = project.attach_console(human.clone()).await?;
        return Ok((DeskSource::Console(console), Some(QuestionReader::Human(human))));
    }
    let reader = match (by.scope(), topics.questions) {
        (Scope::Observer, false) => None,
        _ => Some(named.reading(by).await?),
    };
    Ok((DeskSource::Watch(project.watch_desk()?), reader))
}

fn parse_id(text: &str) -> Result<EventPosition, BrokerError> {
    text.parse()
        .map_err(|_| BrokerError::invalid("last_event_id", "not the id of an event"))
}
