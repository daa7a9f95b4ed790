//! Backpressure for the REST API: bodies and answers use the same byte budgets as those of MCP.

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
    web::Bytes,
};
use actors::model::{BrokerError, PAGE_BYTES_MAX, ProjectId};
use tokio::time::timeout;

use super::{
    paths::{METRICS, has_short_answer},
    state::StateData,
};
use crate::transport::{
    LONG_ANSWER_LEN_MIN, SocketState, TransportContext,
    body::{self, BodyError},
};
use api::{
    auth::Identity,
    budget::{ByteBudget, Reservation},
    problem::Problem,
};

/// Bytes of a request body, unless it has a payload or a schema.
pub const BODY_LEN_MAX: usize = 64 * 1024;
/// Longest time that an answer waits for its reservation.
pub const ANSWER_RESERVATION_TIMEOUT: Duration = Duration::from_secs(60);

/// The budget account of public pages. The id is reserved, so no project has it.
const UNAUTHENTICATED_PROJECT: &str = "system";

/// The state that the transports share; `None` while the broker starts.
pub fn transport_context(request: &HttpRequest) -> Option<&TransportContext> {
    let ready = request.app_data::<StateData>()?.ready.get();
    ready.map(|ready| &ready.transport)
}

/// The socket of a request.
pub fn socket_state(request: &HttpRequest) -> Rc<SocketState> {
    request.conn_data::<Rc<SocketState>>().cloned().unwrap_or_default()
}

/// The project whose budget a request uses.
fn project_of(request: &HttpRequest) -> Option<ProjectId> {
    match request.extensions().get::<Arc<Identity>>() {
        Some(identity) => Some(identity.project.id().clone()),
        None => ProjectId::parse(UNAUTHENTICATED_PROJECT).ok(),
    }
}

/// The budget of the answer to a request; `None` while the broker starts.
fn outbound_of(request: &HttpRequest) -> Option<&Arc<ByteBudget>> {
    if request.path() == METRICS {
        return Some(&request.app_data::<StateData>()?.scraping.answers);
    }
    Some(&transport_context(request)?.service.outbound)
}

/// Reads a body of at most `len_max` bytes. Bodies over 4 KiB wait for a reservation, which is held as long as the returned value.
///
/// # Errors
/// The problem to answer with: 400, 408, 413 or 503.
pub async fn read_body(
    request: &HttpRequest,
    payload: Payload,
    len_max: usize,
) -> Result<(Bytes, Reservation), Problem> {
    let (Some(context), Some(project)) = (transport_context(request), project_of(request)) else {
        return Err(Problem::unavailable("the broker is starting"));
    };
    let mut reservation = Reservation::new(&context.inbound, &project);
    let body_reservation = body::BodyReservation {
        reservation: &mut reservation,
        socket: socket_state(request),
    };
    match body::read(request.headers(), payload, len_max, body_reservation).await {
        Ok(body) => Ok((body, reservation)),
        Err(error) => {
            if !matches!(error, BodyError::Incomplete(_)) {
                socket_state(request).discard_input(context.discarded_body_len_max());
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

/// Middleware: a request whose answer may be a page waits for a reservation. A long answer keeps its reservation until
/// the kernel has it.
///
/// # Errors
/// The error of the inner service.
pub async fn limit_answers<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let mut reservation = match (outbound_of(request.request()), project_of(request.request())) {
        (Some(budget), Some(project)) => Some(Reservation::new(budget, &project)),
        // The broker is starting: all answers are short.
        _ => None,
    };
    let may_be_long = [Method::GET, Method::HEAD].contains(request.method()) && !has_short_answer(request.path());
    if may_be_long
        && let Some(reservation) = &mut reservation
        && timeout(ANSWER_RESERVATION_TIMEOUT, reservation.grow_to(PAGE_BYTES_MAX))
            .await
            .is_err()
    {
        let problem = Problem::unavailable("too many answers are in progress: read them, or try again later");
        return Ok(request.into_response(problem.into_response()));
    }
    let response = next.call(request).await?;
    let socket = socket_state(response.request());
    Ok(response.map_body(|_, body| match (body.try_into_bytes(), reservation) {
        (Ok(body), Some(mut reservation)) if body.len() >= LONG_ANSWER_LEN_MIN => {
            reservation.set_bytes(body.len());
            BoxBody::new(LongAnswer {
                len: body.len() as u64,
                body: Some(body),
                flushes_before: 0,
                socket,
                _reservation: reservation,
            })
        }
        (Ok(body), _) => BoxBody::new(body),
        (Err(body), _) => BoxBody::new(body),
    }))
}

/// A body that holds its reservation until the kernel has it.
struct LongAnswer {
    len: u64,
    body: Option<Bytes>,
    /// Flushes of the socket before HTTP took the body.
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
