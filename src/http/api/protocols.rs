//! `/api/v1/protocols`: the protocols of a project.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, http::header::LOCATION, web};
use actors::{
    clock::{millis, now},
    model::{BrokerError, Pattern, ProtocolName, Scope},
    registry::DiscoverQuery,
};
use rest::words;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::http::{
    backpressure::transport_context,
    extract::{Admin, ApiResult, Caller, JsonArguments, listed, ok_object, ok_text, parse_limit, parse_text},
};
use api::verbs::protocols::{self, PAGE_LEN, PAGE_LEN_MAX};
use common::config::{Rule, Span};

/// The time in which messages are counted by default.
const USAGE_WINDOW: Duration = Duration::from_hours(24);

/// Selects protocols of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only this one.
    #[param(value_type = Option<words::ProtocolName>)]
    name: Option<String>,
    /// Only versions that meet this requirement, such as `^1.2`.
    version: Option<String>,
    /// Only protocols with all of these tags, separated by commas.
    tags: Option<String>,
    /// Only protocols for this use.
    #[param(value_type = Option<Pattern>)]
    capability: Option<Pattern>,
    /// Only protocols with this text, in any case, in their name, description, author or tags.
    #[param(min_length = 1, max_length = 128)]
    q: Option<String>,
    /// Show schemas.
    #[serde(default)]
    #[param(default = false)]
    include_schema: bool,
    /// Most protocols of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// The protocols of the project, as the tool `discover_protocols` lists them.
#[utoipa::path(get, path = "/api/v1/protocols", operation_id = "list_protocols", tag = "protocols", params(Query),
    responses((status = 200, description = "A page of the protocols", body = rest::protocols::Protocols),
))]
pub async fn list(Caller(by): Caller, web::Query(query): web::Query<Query>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let filter = DiscoverQuery {
        name: query.name.map(|name| ProtocolName::parse(&name)).transpose()?,
        version: query
            .version
            .map(|text| protocols::parse_requirement(&text))
            .transpose()?,
        tags: listed(query.tags).collect(),
        capability: query.capability,
        text: query.q.map(|text| parse_text(&text)).transpose()?,
        limit: Some(parse_limit(query.limit, PAGE_LEN, PAGE_LEN_MAX)?),
        cursor: query.cursor,
    };
    let page = by.project.discover_protocols(&filter)?;
    ok_text(&by, protocols::page(&by.project, &page, query.include_schema))
}

/// The same as `GET /api/v1/protocols`.
#[utoipa::path(get, path = "/protocols", operation_id = "list_protocols_of_the_project", tag = "protocols",
    params(Query),
    responses((status = 200, description = "A page of the protocols", body = rest::protocols::Protocols),
))]
#[allow(dead_code, reason = "describes a second path of the list")]
pub fn list_at_root() {}

/// One protocol with its schema.
#[utoipa::path(get, path = "/api/v1/protocols/{name}/{version}", operation_id = "get_protocol", tag = "protocols",
    params(("name" = words::ProtocolName, Path), ("version" = rest::words::Version, Path)), responses(
    (status = 200, description = "The protocol", body = rest::protocols::Protocol),
))]
pub async fn show(Caller(by): Caller, path: web::Path<(String, String)>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let (name, version) = path.into_inner();
    let found = by.project.look_up(move |project| project.protocol(&name, &version));
    let protocol = found.answer().await?;
    ok_object(&by, &protocols::protocol_view(&by.project, &protocol.record, true))
}

/// A protocol to register: the arguments of the tool `register_protocol`.
#[allow(dead_code, reason = "schema of the input of parse_definition")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterProtocol {
    name: words::ProtocolName,
    version: rest::words::Version,
    /// A JSON Schema (draft-07 or 2020-12) of payloads, which are objects.
    #[schema(value_type = Object)]
    schema: (),
    /// How it is meant to be used.
    capabilities: Option<Vec<Pattern>>,
    metadata: Option<ProtocolMetadata>,
    /// A registered version that is lower: comes together with `lens`.
    from: Option<rest::words::Version>,
    /// Operations from payloads of `from` to those of `version`, at most 64; none: nothing changes.
    #[schema(value_type = Option<Vec<Object>>, max_items = 64)]
    lens: (),
    /// Which way messages are transformed; `both` by default.
    direction: Option<rest::protocols::LensDirection>,
    /// The way from the lower version may lose what is declared.
    allow_loss: Option<bool>,
    /// Replaces another lens of the same versions.
    replace_lens: Option<bool>,
    /// Checks everything and stores nothing.
    dry_run: Option<bool>,
}

/// A lens from a lower version.
#[allow(dead_code, reason = "schema of the input of parse_lens_from")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLens {
    /// The operations in order, at most 64; none: nothing changes.
    #[schema(value_type = Vec<Object>, max_items = 64)]
    lens: (),
    /// Which way messages are transformed; `both` by default.
    direction: Option<rest::protocols::LensDirection>,
    /// The way from the lower version may lose what is declared.
    allow_loss: Option<bool>,
    /// Replaces another lens of the same versions.
    replace_lens: Option<bool>,
}

/// Who made the protocol, and what for.
#[allow(dead_code, reason = "schema of the input of parse_definition")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewProtocolMetadata)]
pub struct ProtocolMetadata {
    author: Option<String>,
    description: Option<String>,
    #[schema(nullable = false)]
    tags: Option<Vec<String>>,
}

/// Registers a protocol, with a lens from a lower version if there is one. Registering the identical one again changes nothing.
/// Requires the scope `member`.
#[utoipa::path(post, path = "/api/v1/protocols", operation_id = "register_protocol", tag = "protocols",
    request_body = RegisterProtocol, responses(
    (status = 201, description = "The protocol is registered", body = rest::protocols::RegisteredProtocol,
        headers(("Location" = String, description = "The path of the protocol"))),
    (status = 200, description = "The identical protocol was registered before, or `dry_run` is set", body = rest::protocols::RegisteredProtocol),
    (status = 409, description = "Another protocol has this name and version, or these versions have another lens"),
))]
pub async fn register(admin: Admin, Caller(by): Caller, body: JsonArguments) -> ApiResult {
    by.check_scope(Scope::Member)?;
    let definition = protocols::parse_definition(body.arguments()?, None)?;
    let location = format!("/api/v1/protocols/{}/{}", definition.name, definition.version);
    let dry_run = definition.dry_run;
    let registered = admin.register_protocol(&by, definition).await?;
    let answer = protocols::registered_view(&registered, dry_run);
    let mut response = if answer.existed || dry_run {
        HttpResponse::Ok()
    } else {
        HttpResponse::Created()
    };
    Ok(response.insert_header((LOCATION, location)).json(answer))
}

/// A payload to transform: the arguments of the tool `transform_message`.
#[allow(dead_code, reason = "schema of the input of parse_transform")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformPayload {
    /// The version of the payload.
    from_version: rest::words::Version,
    to_version: rest::words::Version,
    #[schema(value_type = Object)]
    payload: (),
    /// Of an earlier answer: restores on the reverse path what it has lost.
    #[schema(value_type = Option<Object>)]
    complement: Option<()>,
}

/// Shows what a recipient of another version gets of a payload. It sends nothing.
#[utoipa::path(post, path = "/api/v1/protocols/{name}/transform", operation_id = "transform_payload", tag = "protocols",
    params(("name" = words::ProtocolName, Path)), request_body = TransformPayload, responses(
    (status = 200, description = "The payload in the other version", body = rest::protocols::TransformedPayload),
    (status = 409, description = "No lenses lead to this version, or they do not transform this payload"),
))]
pub async fn transform(
    Caller(by): Caller,
    name: web::Path<String>,
    body: JsonArguments,
    request: HttpRequest,
) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let context = transport_context(&request).ok_or(BrokerError::unavailable())?;
    let wanted = protocols::parse_transform(&name, body.arguments()?, context.service.payload_len_max)?;
    let text = protocols::transform(&by, wanted).await?;
    ok_text(&by, text)
}

/// Selects messages to count.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Messages of this time until now: from `10s` to `30d`; `24h` by default.
    #[param(pattern = "^[1-9][0-9]{0,3}[smhd]$", example = "24h")]
    window: Option<String>,
}

/// Who speaks which version of a protocol, and in which versions messages were sent, counted from the event log.
#[utoipa::path(get, path = "/api/v1/protocols/{name}", operation_id = "get_protocol_usage", tag = "protocols",
    params(("name" = words::ProtocolName, Path), UsageQuery), responses(
    (status = 200, description = "The versions with their use", body = rest::protocols::ProtocolUsage),
))]
pub async fn usage(Caller(by): Caller, name: web::Path<String>, query: web::Query<UsageQuery>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let name = ProtocolName::parse(&name)?;
    let rule = Span(Duration::from_secs(10)..=Duration::from_hours(30 * 24));
    let window = query
        .window
        .as_deref()
        .map_or(Ok(USAGE_WINDOW), |text| rule.parse(text));
    let window = window.map_err(|_| BrokerError::invalid("window", rule.allowed()))?;
    // The end is after messages of this very millisecond.
    let until_ms = now().unix_ms + 1;
    let since_ms = until_ms.saturating_sub(millis(window));
    let usage = protocols::usage(&by.project, &name, since_ms, until_ms).await?;
    ok_object(&by, &usage)
}

/// Registers a lens into a registered version, or replaces it. The identical lens again changes nothing. Requires the scope
/// `member`, and the key that registered the version, or one that was rotated from it; or the scope `admin`.
#[utoipa::path(put, path = "/api/v1/protocols/{name}/{version}/lenses/{from}", operation_id = "put_lens", tag = "protocols",
    params(("name" = words::ProtocolName, Path), ("version" = rest::words::Version, Path),
        ("from" = rest::words::Version, Path, description = "The lower version")),
    request_body = NewLens, responses(
    (status = 201, description = "The lens is registered", body = rest::protocols::RegisteredLens),
    (status = 200, description = "The lens is replaced, or the identical one was registered before",
        body = rest::protocols::RegisteredLens),
    (status = 409, description = "These versions have another lens, and `replace_lens` is not set"),
))]
pub async fn put_lens(
    admin: Admin,
    Caller(by): Caller,
    path: web::Path<(String, String, String)>,
    body: JsonArguments,
) -> ApiResult {
    let (name, version, from) = path.into_inner();
    let lens = protocols::parse_lens_from(body.arguments()?, &from)?;
    let outcome = admin.put_lens(&by, name, version, lens).await?;
    let mut response = if outcome.is_duplicate || outcome.is_replacement {
        HttpResponse::Ok()
    } else {
        HttpResponse::Created()
    };
    Ok(response.json(protocols::registered_lens_view(&outcome)))
}

/// Removes a lens. What was delivered stays. Requires the scope `member`, and the key that registered the version, or one that was
/// rotated from it; or the scope `admin`.
#[utoipa::path(delete, path = "/api/v1/protocols/{name}/{version}/lenses/{from}", operation_id = "remove_lens",
    tag = "protocols", params(("name" = words::ProtocolName, Path), ("version" = rest::words::Version, Path),
        ("from" = rest::words::Version, Path, description = "The lower version")), responses(
    (status = 204, description = "The lens is removed"),
))]
pub async fn remove_lens(admin: Admin, Caller(by): Caller, path: web::Path<(String, String, String)>) -> ApiResult {
    let (name, version, from) = path.into_inner();
    let from = protocols::parse_version_of("from", &from)?;
    admin.remove_lens(&by, name, version, from).await?;
    Ok(HttpResponse::NoContent().finish())
}
