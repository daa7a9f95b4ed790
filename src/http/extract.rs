//! What handlers of the REST API extract from a request, and how they answer: caller, JSON body, administration,
//! refusals.

use std::{fmt, future::Ready, sync::Arc};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError, body::BoxBody, dev::Payload,
    error::QueryPayloadError, http::StatusCode, web, web::Bytes,
};
use actors::{clock::now, model::BrokerError};
use futures_util::future::LocalBoxFuture;
use rest::series::{STEP_SECONDS, WINDOW_SECONDS};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    backpressure::{self, BODY_LEN_MAX},
    state::StateData,
};
use api::{
    auth::Identity,
    budget::Reservation,
    problem::Problem,
    verbs::administration::Administration,
    verbs::arguments::{ARGUMENTS_LEN_MAX, Arguments, parse_search},
};
use common::{
    json::{
        JsonObject, from_text,
        scan::{self, DEPTH_MAX, ScanError},
        write_json,
    },
    refusal::{json_error_reason, serde_error_reason},
};

/// The subtype or suffix of JSON media types.
const JSON: &str = "json";

/// Sets how query errors are answered.
pub fn configure_queries(config: &mut web::ServiceConfig) {
    config.app_data(web::QueryConfig::default().error_handler(|error, _| {
        let QueryPayloadError::Deserialize(mistake) = &error else {
            return ApiError::from(BrokerError::invalid("query", "cannot be read")).into();
        };
        ApiError::from(BrokerError::invalid("query", serde_error_reason(&mistake.to_string()))).into()
    }));
}

/// The authenticated caller of a request.
pub struct Caller(pub Arc<Identity>);

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let identity = request.extensions().get::<Arc<Identity>>().cloned();
        std::future::ready(identity.map(Self).ok_or(BrokerError::AuthenticationFailed.into()))
    }
}

/// A body with a JSON object.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest for JsonBody<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let (bytes, _reservation) = read_json_body(&request, payload, BODY_LEN_MAX).await?;
            parse_body(&bytes).map(Self)
        })
    }
}

/// A body with a JSON object of a caller that has not been authenticated.
pub struct PublicJsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest for PublicJsonBody<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            check_is_json(&request)?;
            let (bytes, _reservation) = backpressure::read_body(&request, payload, BODY_LEN_MAX).await?;
            parse_body(&bytes).map(Self)
        })
    }
}

/// A body with a JSON object of arguments: those of an MCP tool, read by the same code. At most `LEN_MAX` bytes, or as large
/// as a message may be.
pub struct JsonArguments<const LEN_MAX: usize = { usize::MAX }> {
    body: Bytes,
    checked: Result<(), ScanError>,
    _reservation: Reservation,
}

/// Arguments that take few bytes.
pub type ShortJsonArguments = JsonArguments<BODY_LEN_MAX>;

/// Bytes of a body that is checked on the worker. Checking a larger one takes milliseconds.
const CHECKED_ON_WORKER_BYTES_MAX: usize = 256 * 1024;

impl<const LEN_MAX: usize> FromRequest for JsonArguments<LEN_MAX> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            // Without a context the broker is starting, and reads no body.
            let len_max = backpressure::transport_context(&request).map_or(0, |context| context.message_len_max());
            let (body, reservation) = read_json_body(&request, payload, len_max.min(LEN_MAX)).await?;
            let Caller(identity) = Caller::extract(&request).await?;
            let taken = identity.take_extra_requests(body.len());
            taken.map_err(|retry_after| BrokerError::RateLimited { retry_after })?;
            let checked = if body.len() > CHECKED_ON_WORKER_BYTES_MAX {
                let body = body.clone();
                let checking = web::block(move || check_json(&body)).await;
                checking.map_err(|_| BrokerError::unavailable())?
            } else {
                check_json(&body)
            };
            Ok(Self {
                body,
                checked,
                _reservation: reservation,
            })
        })
    }
}

impl<const LEN_MAX: usize> JsonArguments<LEN_MAX> {
    /// The members of the object.
    ///
    /// # Errors
    /// `InvalidArgument` for a body that is no JSON object, is nested too deeply or has a member twice.
    pub fn arguments(&self) -> Result<Arguments<'_>, BrokerError> {
        let text = utf8(&self.body)?;
        let mut members = Vec::new();
        let scanned = self.checked.and_then(|()| {
            scan::members::<ScanError>(text, |name, value| {
                // One more than a call may have is refused by their reader.
                if members.len() <= ARGUMENTS_LEN_MAX {
                    members.push((name, value));
                }
                Ok(())
            })
        });
        scanned.map_err(|error| {
            let reason = match error {
                ScanError::Syntax => "must be a JSON object".to_owned(),
                ScanError::TooDeep => format!("nested deeper than {DEPTH_MAX} levels"),
            };
            BrokerError::invalid("body", reason)
        })?;
        Ok(Arguments::new(members)?.exact())
    }
}

/// Checks that a body is JSON and not nested too deeply, the latter first. Text that is not UTF-8 is refused by its reader.
fn check_json(body: &[u8]) -> Result<(), ScanError> {
    let Ok(text) = std::str::from_utf8(body) else {
        return Ok(());
    };
    scan::members::<ScanError>(text, |_, _| Ok(()))?;
    scan::check(text)
}

/// Reads a body of at most `len_max` bytes that the request calls JSON, and checks the credential again: it may have been
/// revoked while the body arrived.
async fn read_json_body(
    request: &HttpRequest,
    payload: Payload,
    len_max: usize,
) -> Result<(Bytes, Reservation), ApiError> {
    check_is_json(request)?;
    let read = backpressure::read_body(request, payload, len_max).await?;
    recheck_credentials(request).await?;
    Ok(read)
}

fn utf8(body: &[u8]) -> Result<&str, BrokerError> {
    std::str::from_utf8(body).map_err(|_| BrokerError::invalid("body", "not UTF-8"))
}

fn check_is_json(request: &HttpRequest) -> Result<(), ApiError> {
    let is_json = request
        .mime_type()
        .ok()
        .flatten()
        .is_some_and(|mime| mime.subtype() == JSON || mime.suffix().is_some_and(|suffix| suffix == JSON));
    if is_json {
        return Ok(());
    }
    let detail = "the body must be JSON, with Content-Type: application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_argument", detail).into())
}

/// Checks that the caller's credential is still valid.
async fn recheck_credentials(request: &HttpRequest) -> Result<(), ApiError> {
    let Caller(identity) = Caller::extract(request).await?;
    if identity.is_valid(now().unix_ms) {
        return Ok(());
    }
    let state = request.app_data::<StateData>().ok_or(BrokerError::unavailable())?;
    Err(state.ready()?.auth.invalid_credential().into())
}

fn parse_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let parsed = parse_json(utf8(body)?);
    parsed.map_err(|error| BrokerError::invalid("body", json_error_reason(&error)).into())
}

fn parse_json<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    from_text(text).map(|JsonObject(body)| body)
}

/// Refuses any query parameter: an unknown one may be a misspelled wish.
pub struct NoQuery;

impl FromRequest for NoQuery {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        std::future::ready(if request.query_string().is_empty() {
            Ok(Self)
        } else {
            Err(BrokerError::invalid("query", "this path takes no query parameters").into())
        })
    }
}

/// The administration, available once the broker has started.
pub struct Admin(Arc<Administration>);

impl std::ops::Deref for Admin {
    type Target = Administration;

    fn deref(&self) -> &Administration {
        &self.0
    }
}

impl FromRequest for Admin {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = request.app_data::<StateData>();
        let ready = state.and_then(|state| state.ready.get());
        let admin = ready.map(|ready| Arc::clone(&ready.admin));
        std::future::ready(admin.map(Self).ok_or(BrokerError::unavailable().into()))
    }
}

/// A refusal, answered as a problem document.
#[derive(Debug)]
pub struct ApiError(Problem);

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.code())
    }
}

impl From<BrokerError> for ApiError {
    fn from(error: BrokerError) -> Self {
        Self(Problem::from(&error))
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        self.0.clone().into_response()
    }
}

/// How handlers answer.
pub type ApiResult = Result<HttpResponse, ApiError>;

/// 200 with a JSON object. A long one is charged to the caller's rate limit.
pub fn ok_object(by: &Identity, body: &impl Serialize) -> ApiResult {
    let mut text = Vec::new();
    write_json(&mut text, body);
    ok_text(by, text)
}

/// 200 with the text of a JSON object. A long one is charged to the caller's rate limit.
#[allow(clippy::unnecessary_wraps, reason = "handlers end with this call")]
pub fn ok_text(by: &Identity, body: Vec<u8>) -> ApiResult {
    by.charge_answer(body.len());
    Ok(HttpResponse::Ok().content_type("application/json").body(body))
}

/// Parses the number of items of a page.
///
/// # Errors
/// `InvalidArgument` for 0 or more than `max`.
pub fn parse_limit(limit: Option<usize>, default: usize, max: usize) -> Result<usize, BrokerError> {
    match limit {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(_) => Err(BrokerError::invalid("limit", format!("1 to {max}"))),
    }
}

/// A time from ten seconds to an hour, such as `10s`, `15m` or `1h`, in seconds.
///
/// # Errors
/// `InvalidArgument` for another text.
pub fn parse_seconds(field: &'static str, text: &str) -> Result<u64, BrokerError> {
    let units = [('s', 1), ('m', 60), ('h', 3600)];
    let parsed = units.into_iter().find_map(|(unit, seconds)| {
        let digits = text.strip_suffix(unit)?;
        let is_number = digits.len() <= 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let count: u64 = digits.parse().ok().filter(|_| is_number)?;
        Some(count * seconds)
    });
    let allowed = STEP_SECONDS..=WINDOW_SECONDS;
    parsed
        .filter(|seconds| allowed.contains(seconds))
        .ok_or_else(|| BrokerError::invalid(field, "from 10s to 1h, such as 10s, 15m or 1h"))
}

/// The query parameter `q`: a text that a search is for, in lower case.
///
/// # Errors
/// `InvalidArgument` for a text that is empty or too long.
pub fn parse_text(text: &str) -> Result<String, BrokerError> {
    parse_search("q", text)
}

/// The items of a query parameter that is a list separated by commas. An absent parameter has none.
pub fn listed(text: Option<String>) -> impl Iterator<Item = String> {
    let items = text
        .into_iter()
        .flat_map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    items.filter(|item| !item.is_empty())
}

/// 200 with a JSON body.
#[allow(clippy::unnecessary_wraps, reason = "handlers end with this call")]
pub fn ok(body: impl Serialize) -> ApiResult {
    Ok(HttpResponse::Ok().json(body))
}

#[cfg(test)]
mod tests {
    use actors::model::ProjectConfig;

    use super::*;

    #[test]
    fn integral_numbers_are_integers_in_every_notation() {
        let max_sessions = |text: &str| {
            let config: serde_json::Result<ProjectConfig> = parse_json(&format!("{{\"max_sessions\": {text}}}"));
            config
                .map(|config| config.max_sessions)
                .map_err(|error| error.to_string())
        };
        for text in ["7", "7.0", "7e0", "0.7e1"] {
            assert_eq!(max_sessions(text), Ok(Some(7)), "{text}");
        }
        for text in ["7.5", "-7.0", "1e300", "1e400", "\"7\"", "[7.0]"] {
            assert!(max_sessions(text).is_err(), "{text}");
        }
        assert!(
            max_sessions("7, \"max_sessions\": 7")
                .unwrap_err()
                .contains("duplicate")
        );
    }

    #[test]
    fn a_list_is_not_an_object() {
        for text in ["[]", "[true]", "[1.0]", "null"] {
            assert!(parse_json::<ProjectConfig>(text).is_err(), "{text}");
        }
    }
}
