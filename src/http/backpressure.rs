//! Room for the bodies and the answers of REST: they count against the same budgets as those of MCP.

use std::{
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    Error, HttpMessage, HttpRequest,
    body::{BodySize, BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::Method,
    middleware::Next,
    web::{Bytes, Data},
};
use actors::model::{BrokerError, PAGE_BYTES_MAX, ProjectId};
use tokio::time::timeout;

use super::{HttpState, health};
use crate::{
    auth::Identity,
    budget::Reservation,
    problem::Problem,
    transport::{
        LONG_ANSWER_LEN_MIN, SocketState, TransportContext,
        body::{self, BodyError},
    },
};

/// Bytes of one body.
pub const BODY_LEN_MAX: usize = 64 * 1024;
/// How long an answer waits for room.
const ANSWER_RESERVATION_TIMEOUT: Duration = Duration::from_secs(60);

/// What is under way for callers without a project: the pages for everybody. No project has this id.
const UNAUTHENTICATED_PROJECT: &str = "system";

fn transport_context(request: &HttpRequest) -> Option<&TransportContext> {
    request.app_data::<Data<Arc<HttpState>>>()?.transport.get()
}

fn socket_state(request: &HttpRequest) -> Rc<SocketState> {
    request.conn_data::<Rc<SocketState>>().cloned().unwrap_or_default()
}

/// The project for which room is taken.
fn project_of(request: &HttpRequest) -> Option<ProjectId> {
    match request.extensions().get::<Arc<Identity>>() {
        Some(identity) => Some(identity.project.id().clone()),
        None => ProjectId::parse(UNAUTHENTICATED_PROJECT).ok(),
    }
}

/// Reads a body, which waits for room when it is not small. The room is held as long as what is returned.
///
/// # Errors
/// A problem: the body is too long, too slow or broken, or there is no room for it.
pub async fn read_body(request: &HttpRequest, payload: Payload) -> Result<(Bytes, Reservation), Problem> {
    let (Some(gate), Some(project)) = (transport_context(request), project_of(request)) else {
        return Err(Problem::unavailable("the broker is starting"));
    };
    let mut hold = Reservation::new(&gate.inbound, &project);
    let room = body::BodyReservation {
        reservation: &mut hold,
        socket: socket_state(request),
    };
    match body::read(request.headers(), payload, BODY_LEN_MAX, room).await {
        Ok(body) => Ok((body, hold)),
        Err(error) => {
            if !matches!(error, BodyError::Incomplete(_)) {
                socket_state(request).discard_input(gate.discarded_body_len_max());
            }
            Err(problem(&error))
        }
    }
}

fn problem(error: &BodyError) -> Problem {
    let reason = error.to_string();
    match error {
        BodyError::TooLarge { len_max } => Problem::from(&BrokerError::PayloadTooLarge { limit: *len_max }),
        BodyError::Overloaded => Problem::unavailable(&reason),
        BodyError::TooSlow => Problem::new(error.status(), "timeout", reason),
        BodyError::Incomplete(_) => Problem::new(error.status(), "invalid_argument", reason),
    }
}

/// Has a request that may be answered with a page wait until there is room for it, and counts an answer that is long until
/// it is with the kernel.
pub async fn limit_answers<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let mut hold = match (transport_context(request.request()), project_of(request.request())) {
        (Some(gate), Some(project)) => Some(Reservation::new(&gate.service.outbound, &project)),
        // The broker is starting: there are but short answers.
        _ => None,
    };
    let may_be_long =
        [Method::GET, Method::HEAD].contains(request.method()) && !health::has_short_answer(request.path());
    if may_be_long
        && let Some(hold) = &mut hold
        && timeout(ANSWER_RESERVATION_TIMEOUT, hold.grow_to(PAGE_BYTES_MAX))
            .await
            .is_err()
    {
        let problem = Problem::unavailable("too many answers are under way: read them, or try again later");
        return Ok(request.into_response(problem.into_response()));
    }
    let response = next.call(request).await?;
    let line = socket_state(response.request());
    Ok(response.map_body(|_, body| match (body.try_into_bytes(), hold) {
        (Ok(body), Some(mut hold)) if body.len() >= LONG_ANSWER_LEN_MIN => {
            hold.set_bytes(body.len());
            BoxBody::new(LongAnswer {
                len: body.len() as u64,
                body: Some(body),
                flushes_before: 0,
                socket: line,
                _reservation: hold,
            })
        }
        (Ok(body), _) => BoxBody::new(body),
        (Err(body), _) => BoxBody::new(body),
    }))
}

/// An answer that holds its room until it is with the kernel.
struct LongAnswer {
    len: u64,
    body: Option<Bytes>,
    /// How often all was written before HTTP took the body.
    flushes_before: u64,
    socket: Rc<SocketState>,
    _reservation: Reservation,
}

impl MessageBody for LongAnswer {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.len)
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if let Some(body) = self.body.take() {
            self.flushes_before = self.socket.flush_count();
            return Poll::Ready(Some(Ok(body)));
        }
        if self.socket.flush_count() > self.flushes_before || self.socket.has_peer_closed() {
            return Poll::Ready(None);
        }
        self.socket.wake_on_flush(cx.waker());
        Poll::Pending
    }
}
