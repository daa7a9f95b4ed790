//! Middleware of all routes: admission and authentication, with the functions of the edge.

use std::{borrow::Cow, rc::Rc, time::Duration};

use actix_web::{
    Error, HttpMessage,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{Method, StatusCode, header::SET_COOKIE},
    middleware::Next,
};

use actors::idle;
use serde_json::Value;

use super::{
    metrics::OwnPort,
    paths::{METRICS, PROBES, is_public},
    state::StateData,
};
use crate::{edge, metrics::count_request, transport::SocketState};
use api::{
    auth::{Credential, Credentials, cookie},
    budget::WorkerTime,
    problem::Problem,
};

/// Middleware: refuses hosts and origins that are not allowed, before anything else, and counts the answers. Probes and
/// the port of the metrics answer to every host.
///
/// # Errors
/// The error of the inner service.
pub async fn admit<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let _awake = idle::keep_awake();
    let (route, method) = (route_of(&request), request.method().clone());
    let admitted = admit_uncounted(request, next).await.map(log_refusal);
    let status = match &admitted {
        Ok(response) => response.status(),
        Err(error) => error.as_response_error().status_code(),
    };
    count_request(route.as_deref(), method.as_str(), status.as_u16());
    admitted
}

/// Logs at level debug why a request is answered with 4xx or 5xx.
fn log_refusal(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || !tracing::enabled!(tracing::Level::DEBUG) {
        return response;
    }
    let (method, path) = (
        response.request().method().clone(),
        response.request().path().to_owned(),
    );
    response.map_body(|_, body| {
        let (reason, body) = match body.try_into_bytes() {
            Ok(bytes) => (refusal_reason(&bytes), BoxBody::new(bytes)),
            Err(body) => (String::new(), body),
        };
        tracing::debug!(%method, path, http_status = status.as_u16(), reason, "a request is refused");
        body
    })
}

/// The text of the error in a body: of a problem document, or of a JSON-RPC error.
fn refusal_reason(body: &[u8]) -> String {
    const REASON_CHARACTERS_MAX: usize = 500;
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let reason = body["detail"].as_str().or(body["error"]["message"].as_str());
    reason.unwrap_or_default().chars().take(REASON_CHARACTERS_MAX).collect()
}

/// The pattern of the route of a request; None for a path without a route.
fn route_of(request: &ServiceRequest) -> Option<Cow<'static, str>> {
    /// The paths that most requests ask for: the search for a pattern is slow.
    const MCP: &str = "/mcp";
    const EXPOSED: &str = "/mcp/{exposed}";
    match request.path().strip_prefix(MCP) {
        Some("" | "/") => Some(Cow::Borrowed(MCP)),
        Some(rest) if rest.len() > 1 && rest.rfind('/') == Some(0) => Some(Cow::Borrowed(EXPOSED)),
        _ => request.match_pattern().map(Cow::Owned),
    }
}

async fn admit_uncounted<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let checked = request.app_data::<StateData>().map_or(Ok(()), |state| {
        // Scrapers address a replica by its IP, as probes do.
        let is_scraped = request.app_data::<OwnPort>().is_some();
        if is_scraped || PROBES.contains(&request.path()) {
            state.admission.check_origin(request.headers())?;
        } else {
            state.admission.check(request.headers())?;
        }
        let is_page = *request.method() == Method::GET && is_public(request.path());
        state.admission.check_site(request.headers(), is_page)
    });
    if let Err(problem) = checked {
        return Ok(request.into_response(problem.into_response()));
    }
    Ok(next.call(request).await?.map_into_boxed_body())
}

/// Delay of a 429 response to an authentication, plus up to the same again at random: a refusal costs the refused caller time, and callers
/// that are refused together do not return together.
const REFUSAL_DELAY: Duration = Duration::from_millis(150);

/// Delays the answer to a caller whose authentication was refused with 429.
pub async fn delay_if_limited(problem: Problem) -> Problem {
    if problem.status != StatusCode::TOO_MANY_REQUESTS {
        return problem;
    }
    let share = (uuid::Uuid::new_v4().as_u128() % 100) as u32;
    tokio::time::sleep(REFUSAL_DELAY + REFUSAL_DELAY * share / 100).await;
    problem
}

/// Whether a request for metrics has the token that is good for them alone.
fn is_scraper(request: &ServiceRequest) -> bool {
    let state = request.app_data::<StateData>().filter(|_| request.path() == METRICS);
    let token = state.and_then(|state| state.scraping.token.as_ref());
    token.is_some_and(|token| {
        let credentials = Credentials::of(request.head());
        matches!(credentials.credential(), Ok(Some(Credential::Key(given))) if token.accepts(given))
    })
}

/// Middleware: authenticates the caller and takes one request from its rate limit. Its project is charged for the time of
/// the worker, and waits for its slice of it. Handlers find the
/// [`Identity`](api::auth::Identity) among the extensions of the request. A preflight request has no key (Fetch,
/// section 4.8). A key in the URL is refused on public paths too: it is in logs by now, and its owner must learn of it.
///
/// # Errors
/// The error of the inner service.
pub async fn authenticate<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if is_public(request.path()) || *request.method() == Method::OPTIONS {
        if let Err(error) = Credentials::of(request.head()).check_query() {
            return Ok(request.into_response(Problem::from(&error).into_response()));
        }
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    if is_scraper(&request) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let state = request.app_data::<StateData>();
    let ready = state.and_then(|state| state.ready.get());
    let Some(auth) = ready.map(|ready| &ready.auth).cloned() else {
        let problem = Problem::unavailable("the broker is starting");
        return Ok(request.into_response(problem.into_response()));
    };
    let socket = request.request().conn_data::<Rc<SocketState>>();
    let credentials = Credentials {
        stranger: socket.and_then(|socket| socket.stranger()),
        ..Credentials::of(request.head())
    };
    let authenticated = edge::authenticate(&auth, &credentials).await;
    let problem = match authenticated {
        Ok(identity) => {
            let time = WorkerTime::of(identity.project.id());
            request.extensions_mut().insert(identity);
            return Ok(time.charged(next.call(request)).await?.map_into_boxed_body());
        }
        Err(problem) => delay_if_limited(problem).await,
    };
    let has_dead_cookie = problem.status == StatusCode::UNAUTHORIZED && Credentials::of(request.head()).is_cookie();
    let problem = cookie::removals(request.headers())
        .filter(|_| has_dead_cookie)
        .fold(problem, |problem, removal| problem.with_header(SET_COOKIE, &removal));
    Ok(request.into_response(problem.into_response()))
}
