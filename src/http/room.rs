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

use super::{State, health};
use crate::{
    auth::Identity,
    budget::Hold,
    problem::Problem,
    transport::{
        Gate, LONG_ANSWER_LEN, Line,
        body::{self, BodyError},
    },
};

/// Bytes of one body.
pub const BODY_LEN_MAX: usize = 64 * 1024;
/// How long an answer waits for room.
const ANSWER_ROOM_TIME_MAX: Duration = Duration::from_secs(60);

/// What is under way for callers without a project: the pages for everybody. No project has this id.
const PUBLIC: &str = "system";

fn gate(request: &HttpRequest) -> Option<&Gate> {
    request.app_data::<Data<Arc<State>>>()?.gate.get()
}

fn line(request: &HttpRequest) -> Rc<Line> {
    request.conn_data::<Rc<Line>>().cloned().unwrap_or_default()
}

/// The project for which room is taken.
fn project_of(request: &HttpRequest) -> Option<ProjectId> {
    match request.extensions().get::<Arc<Identity>>() {
        Some(identity) => Some(identity.project.id().clone()),
        None => ProjectId::parse(PUBLIC).ok(),
    }
}

/// Reads a body, which waits for room when it is not small. The room is held as long as what is returned.
///
/// # Errors
/// A problem: the body is too long, too slow or broken, or there is no room for it.
pub async fn read_body(request: &HttpRequest, payload: Payload) -> Result<(Bytes, Hold), Problem> {
    let (Some(gate), Some(project)) = (gate(request), project_of(request)) else {
        return Err(Problem::unavailable("the broker is starting"));
    };
    let mut hold = Hold::new(&gate.inbound, &project);
    let room = body::Room {
        hold: &mut hold,
        line: line(request),
    };
    match body::read(request.headers(), payload, BODY_LEN_MAX, room).await {
        Ok(body) => Ok((body, hold)),
        Err(error) => {
            if !matches!(error, BodyError::BrokeOff(_)) {
                line(request).refuse(gate.refused_len_max());
            }
            Err(problem(&error))
        }
    }
}

fn problem(error: &BodyError) -> Problem {
    let reason = error.to_string();
    match error {
        BodyError::TooLarge { len_max } => Problem::from(&BrokerError::PayloadTooLarge { limit: *len_max }),
        BodyError::NoRoom => Problem::unavailable(&reason),
        BodyError::TooSlow => Problem::new(error.status(), "timeout", reason),
        BodyError::BrokeOff(_) => Problem::new(error.status(), "invalid_argument", reason),
    }
}

/// Has a request that may be answered with a page wait until there is room for it, and counts an answer that is long until
/// it is with the kernel.
pub async fn answer<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let mut hold = match (gate(request.request()), project_of(request.request())) {
        (Some(gate), Some(project)) => Some(Hold::new(&gate.service.outbound, &project)),
        // The broker is starting: there are but short answers.
        _ => None,
    };
    let may_be_long = [Method::GET, Method::HEAD].contains(request.method()) && !health::is_brief(request.path());
    if may_be_long
        && let Some(hold) = &mut hold
        && timeout(ANSWER_ROOM_TIME_MAX, hold.grow(PAGE_BYTES_MAX)).await.is_err()
    {
        let problem = Problem::unavailable("too many answers are under way: read them, or try again later");
        return Ok(request.into_response(problem.into_response()));
    }
    let response = next.call(request).await?;
    let line = line(response.request());
    Ok(response.map_body(|_, body| match (body.try_into_bytes(), hold) {
        (Ok(body), Some(mut hold)) if body.len() >= LONG_ANSWER_LEN => {
            hold.set(body.len());
            BoxBody::new(Long {
                len: body.len() as u64,
                body: Some(body),
                emptied_before: 0,
                line,
                _hold: hold,
            })
        }
        (Ok(body), _) => BoxBody::new(body),
        (Err(body), _) => BoxBody::new(body),
    }))
}

/// An answer that holds its room until it is with the kernel.
struct Long {
    len: u64,
    body: Option<Bytes>,
    /// How often all was written before HTTP took the body.
    emptied_before: u64,
    line: Rc<Line>,
    _hold: Hold,
}

impl MessageBody for Long {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.len)
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if let Some(body) = self.body.take() {
            self.emptied_before = self.line.emptied();
            return Poll::Ready(Some(Ok(body)));
        }
        if self.line.emptied() > self.emptied_before || self.line.hung_up() {
            return Poll::Ready(None);
        }
        self.line.wake_when_empty(cx.waker());
        Poll::Pending
    }
}
