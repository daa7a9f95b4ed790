//! `/api/v1/login`, `/api/v1/logout` and `/api/v1/me`: how a browser keeps a key, and what a key is good for.

#![allow(unused_qualifications, reason = "what utoipa writes")]

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method,
        header::{AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderValue, SET_COOKIE},
    },
    web,
};
use actors::model::{BrokerError, KeyDigest, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    admin::schemas,
    auth::{API_KEY, Credentials, Identity, cookie},
    edge,
    http::{
        extract::{ApiResult, Caller, NoQuery, PublicJsonBody},
        middleware::delay_if_limited,
        paths::{LOGIN, LOGOUT},
        problem_body::ProblemBody,
        replicas,
        resource::Resource,
        state::StateData,
    },
};

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![
        Resource::at(LOGIN).on(Method::POST, web::to(log_in)),
        Resource::at(LOGOUT).on(Method::POST, web::to(log_out)),
        Resource::at("/api/v1/me").on(Method::GET, web::to(me)),
    ]
}

/// The key that a browser is to keep.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    #[schema(min_length = 1, max_length = 1024, pattern = "^[!-~]+$")]
    key: String,
}

/// What a key is good for.
#[derive(Serialize, ToSchema)]
pub struct LoggedIn {
    /// The project that it acts in, unless X-Project-ID names another.
    #[schema(value_type = schemas::ProjectId)]
    project_id: String,
    #[schema(value_type = ScopeName)]
    scope: &'static str,
    /// Null for the admin key, for a token and without a key.
    #[schema(required, value_type = Option<schemas::KeyId>)]
    key_id: Option<String>,
    #[schema(required, value_type = Option<schemas::Name>)]
    label: Option<String>,
    /// The person in whose name the key answers questions. Absent for other scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<schemas::HumanName>)]
    human: Option<String>,
    /// Roles of that person.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Vec<schemas::Role>>)]
    roles: Option<Vec<String>>,
    /// The value of X-CSRF-Token that every method but GET and HEAD needs beside the cookie. Absent without the cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    csrf_token: Option<String>,
}

/// What a caller may do.
#[allow(dead_code, reason = "schema of Scope::as_str")]
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ScopeName {
    Observer,
    Answer,
    Member,
    Admin,
    Operator,
}

impl LoggedIn {
    /// What the caller with this credential may do.
    fn of(by: &Identity, credential: Option<&str>, csrf_token: Option<String>) -> Self {
        // The admin key has the digest of no key of a project.
        let digest = credential
            .map(KeyDigest::of_key)
            .filter(|_| by.scope() < Scope::Operator);
        let record = by.project.record();
        let key = digest.and_then(|digest| record.keys.iter().find(|key| key.digest.matches(&digest)));
        Self {
            project_id: by.project.id().to_string(),
            scope: by.scope().as_str(),
            key_id: key.map(|key| key.id.to_string()),
            label: key.and_then(|key| key.label.clone()),
            human: by.principal.human.as_ref().map(|human| human.name.to_string()),
            roles: by.principal.human.as_ref().map(|human| human.roles.clone()),
            csrf_token,
        }
    }
}

/// Exchanges a key for a cookie with the key (`HttpOnly`, `SameSite=Strict`), which authenticates requests to `/api/v1`
/// that have no key in a header. Beside the cookie, every method but GET and HEAD needs the token of the answer as
/// X-CSRF-Token. The cookie ends with the key, with the browser, and with `POST /api/v1/logout`.
#[utoipa::path(post, path = "/api/v1/login", operation_id = "log_in", tag = "login", security(()),
    request_body = LogIn, responses(
    (status = 200, description = "The browser keeps the key", body = LoggedIn,
        headers(("Set-Cookie" = String, description = "The cookie"))),
    (status = 401, description = "The key is not valid", body = ProblemBody, content_type = "application/problem+json"),
    (status = 429, description = "Too many wrong keys", body = ProblemBody, content_type = "application/problem+json"),
    (status = 503, description = "The broker cannot serve the request now", body = ProblemBody,
        content_type = "application/problem+json"),
))]
pub async fn log_in(
    state: StateData,
    _: NoQuery,
    PublicJsonBody(LogIn { key }): PublicJsonBody<LogIn>,
    request: HttpRequest,
) -> ApiResult {
    let auth = state.auth.get().ok_or(BrokerError::unavailable())?;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    let value = HeaderValue::from_str(&key).ok().filter(|_| is_key);
    let set_cookie = cookie::keep(&key, request.headers());
    let (Some(value), Some(set_cookie)) = (value, set_cookie) else {
        let allowed = "visible ASCII characters without spaces, and no more than a cookie has room for (3800 bytes)";
        return Err(BrokerError::invalid("key", allowed).into());
    };
    let mut headers: HeaderMap = request.headers().clone();
    headers.remove(AUTHORIZATION);
    headers.insert(API_KEY, value);
    let credentials = Credentials {
        headers: &headers,
        ..Credentials::of(request.head())
    };
    let by = match edge::authenticate(auth, &credentials).await {
        Ok(by) => by,
        Err(problem) => return Err(delay_if_limited(problem).await.into()),
    };
    let answer = LoggedIn::of(&by, Some(&key), Some(cookie::csrf_token(&key)));
    Ok(HttpResponse::Ok()
        .insert_header((SET_COOKIE, set_cookie))
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(answer))
}

/// Removes the cookie, whether its key is still valid or not. The key stays valid.
#[utoipa::path(post, path = "/api/v1/logout", operation_id = "log_out", tag = "login", security(()), responses(
    (status = 204, description = "The browser has no key", headers(("Set-Cookie" = String, description = "No cookie"))),
))]
pub async fn log_out(_: NoQuery, request: HttpRequest) -> ApiResult {
    let removal = cookie::remove(request.headers());
    Ok(HttpResponse::NoContent().insert_header((SET_COOKIE, removal)).finish())
}

/// The caller, and the broker that answers it.
#[derive(Serialize, ToSchema)]
pub struct Me {
    /// Whether every caller needs a key.
    auth_enabled: bool,
    #[serde(flatten)]
    caller: LoggedIn,
    version: &'static str,
    /// The id of the replica that answers; null where the storage is not shared.
    #[schema(required)]
    replica: Option<String>,
}

/// Who the caller is, and what it may do.
#[utoipa::path(get, path = "/api/v1/me", operation_id = "get_me", tag = "login", responses(
    (status = 200, description = "The caller", body = Me),
))]
pub async fn me(state: StateData, Caller(by): Caller, _: NoQuery, request: HttpRequest) -> ApiResult {
    let auth = state.auth.get().ok_or(BrokerError::unavailable())?;
    let credentials = Credentials::of(request.head());
    let csrf_token = credentials.cookie_key().map(|key| cookie::csrf_token(&key));
    let credential = credentials.credential()?;
    let answer = Me {
        auth_enabled: auth.is_required(),
        caller: LoggedIn::of(&by, credential.as_deref(), csrf_token),
        version: env!("CARGO_PKG_VERSION"),
        replica: replicas::own_id(&request).map(|replica| replica.to_string()),
    };
    Ok(HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(answer))
}
