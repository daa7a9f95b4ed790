//! MCP over Streamable HTTP at `/mcp`, both eras on one endpoint. `/sse` is the same endpoint, under the path that
//! clients of 2024-11-05 expect.
//!
//! A modern request (2026-07-28, with `_meta`) is stateless: its [`Peer`](api::mcp::Peer) lives as long as the
//! response. An `initialize` (2025-11-25 and before) opens an `HttpSession`, whose peer runs in a task until the
//! session is deleted or times out; answers go to the HTTP requests that asked, everything else to the stream of its
//! `GET`. A `GET` without a session is a client of 2024-11-05 (HTTP+SSE transport), which gets all answers there.

mod commands;
mod endpoint;
mod forwarding;
mod get;
mod headers;
mod post;
mod refusal;
mod replay_logs;
mod response;
mod sessions;
mod streams;

use actix_web::{HttpRequest, HttpResponse, web};

pub use self::{endpoint::Endpoint, sessions::HttpSessions};

use self::{
    endpoint::{HttpResult, SSE_PATH, identity_of, method_not_allowed, session_of, socket_state},
    get::handle_get,
    post::handle_post,
    refusal::Refusal,
};
use super::TransportContext;

/// Registers the routes.
pub fn routes(config: &mut web::ServiceConfig) {
    // A resource of several patterns would search with each of them, also where no segment is variable.
    for path in ["/mcp", SSE_PATH, "/mcp/{exposed}", "/mcp/", "/sse/", "/mcp/{exposed}/"] {
        config.service(
            web::resource(path)
                .route(web::post().to(post))
                .route(web::get().to(get))
                .route(web::delete().to(delete))
                .default_service(web::to(not_allowed)),
        );
    }
}

type EndpointData = web::Data<Endpoint>;

async fn post(request: HttpRequest, payload: web::Payload, endpoint: EndpointData) -> HttpResponse {
    let answer = match forwarding::destination(&request, &endpoint).await {
        Ok(None) => handle_post(&request, payload, &endpoint).await,
        Ok(Some(replica)) => forwarding::forward(&request, Some(payload), &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    };
    if matches!(&answer, Err(refusal) if refusal.closes()) {
        let len_max = endpoint
            .context
            .get()
            .map_or(0, TransportContext::discarded_body_len_max);
        socket_state(&request).discard_input(len_max);
    }
    into_response(answer)
}

async fn get(request: HttpRequest, endpoint: EndpointData) -> HttpResponse {
    into_response(match forwarding::destination(&request, &endpoint).await {
        Ok(None) => handle_get(&request, &endpoint).await,
        Ok(Some(replica)) => forwarding::forward(&request, None, &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    })
}

async fn delete(request: HttpRequest, endpoint: EndpointData) -> HttpResponse {
    into_response(match forwarding::destination(&request, &endpoint).await {
        Ok(None) => handle_delete(&request, &endpoint),
        Ok(Some(replica)) => forwarding::forward(&request, None, &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    })
}

async fn not_allowed() -> HttpResponse {
    into_response(Err(method_not_allowed()))
}

fn into_response(answer: HttpResult) -> HttpResponse {
    answer.unwrap_or_else(Refusal::into_response)
}

fn handle_delete(request: &HttpRequest, endpoint: &Endpoint) -> HttpResult {
    let headers = request.headers();
    if headers::is_modern(headers) {
        return Err(method_not_allowed());
    }
    let session = session_of(request, endpoint, &identity_of(request)?)?;
    endpoint.sessions.close(&session.id);
    Ok(HttpResponse::NoContent().finish())
}
