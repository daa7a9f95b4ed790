//! `/api/v1/login`, `/api/v1/logout` and `/api/v1/me`: how a browser keeps a key, and what a key is good for.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderValue, SET_COOKIE},
};
use actors::model::BrokerError;
use rest::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    edge,
    http::{
        extract::{ApiResult, Caller, PublicJsonBody},
        middleware::delay_if_limited,
        replicas,
        state::StateData,
    },
};
use api::auth::{API_KEY, Credential, Credentials, Identity, cookie};

/// Bytes of the longest credential that can log in. A record of a project has room for 128 of them.
const KEY_LEN_MAX: usize = 3800;

/// The key that a browser logs in with.
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
    #[schema(value_type = words::ProjectId)]
    project_id: String,
    #[schema(value_type = ScopeName)]
    scope: &'static str,
    /// Null for the admin key, for a token and without a key.
    #[schema(required, value_type = Option<words::KeyId>)]
    key_id: Option<String>,
    #[schema(required, value_type = Option<words::Name>)]
    label: Option<String>,
    /// The person in whose name the key answers questions. Absent for other scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<words::HumanName>)]
    human: Option<String>,
    /// Roles of that person.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Vec<words::Role>>)]
    roles: Option<Vec<String>>,
    /// The value of X-CSRF-Token that every method but GET and HEAD needs in addition to the cookie. Absent without the cookie.
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
    /// What this caller may do.
    fn of(by: &Identity, csrf_token: Option<String>) -> Self {
        let record = by.project.record();
        let key = by.principal.key_in(&record);
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

/// Exchanges a key for a cookie with a random token (`HttpOnly`, `SameSite=Strict`), which authenticates requests to
/// `/api/v1` that have no key in a header. In addition to the cookie, every method but GET and HEAD needs the token of the answer
/// as X-CSRF-Token. The cookie ends with `POST /api/v1/logout`, with the key, with the browser, after 7 days, and when the
/// same key logs in 8 times more.
#[utoipa::path(post, path = "/api/v1/login", operation_id = "log_in", tag = "login", security(()),
    request_body = LogIn, responses(
    (status = 200, description = "The browser is logged in", body = LoggedIn,
        headers(("Set-Cookie" = String, description = "The cookie"))),
    (status = 401, description = "The key is not valid"),
    (status = 429, description = "Too many wrong keys"),
    (status = 503, description = "The broker cannot serve the request now"),
))]
pub async fn log_in(
    state: StateData,
    PublicJsonBody(LogIn { key }): PublicJsonBody<LogIn>,
    request: HttpRequest,
) -> ApiResult {
    let auth = &state.ready()?.auth;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    let value = HeaderValue::from_str(&key).ok().filter(|_| is_key);
    let Some(value) = value.filter(|_| key.len() <= KEY_LEN_MAX) else {
        let allowed = format!("1 to {KEY_LEN_MAX} visible ASCII characters without spaces");
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
    let login = auth.log_in(&by, &key).await?;
    let answer = LoggedIn::of(&by, Some(cookie::csrf_token(&login)));
    Ok(HttpResponse::Ok()
        .insert_header((SET_COOKIE, cookie::keep(&login, request.headers())))
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(answer))
}

/// Ends the login and removes the cookie, whether its key is still valid or not. The key stays valid.
#[utoipa::path(post, path = "/api/v1/logout", operation_id = "log_out", tag = "login", security(()), responses(
    (status = 204, description = "The login has ended", headers(("Set-Cookie" = String, description = "No cookie"))),
    (status = 429, description = "Too many wrong tokens"),
    (status = 503, description = "The broker cannot serve the request now"),
))]
pub async fn log_out(state: StateData, request: HttpRequest) -> ApiResult {
    if let Some(login) = cookie::token_in(request.headers()) {
        let auth = &state.ready()?.auth;
        auth.log_out(&login, &Credentials::of(request.head())).await?;
    }
    let mut answer = HttpResponse::NoContent();
    for removal in cookie::removals(request.headers()) {
        answer.append_header((SET_COOKIE, removal));
    }
    Ok(answer.finish())
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
pub async fn me(state: StateData, Caller(by): Caller, request: HttpRequest) -> ApiResult {
    let auth = &state.ready()?.auth;
    let csrf_token = match Credentials::of(request.head()).credential()? {
        Some(Credential::Login(login)) => Some(cookie::csrf_token(&login)),
        _ => None,
    };
    let answer = Me {
        auth_enabled: auth.is_required(),
        caller: LoggedIn::of(&by, csrf_token),
        version: env!("CARGO_PKG_VERSION"),
        replica: replicas::own_id(&request).map(|replica| replica.to_string()),
    };
    Ok(HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(answer))
}
