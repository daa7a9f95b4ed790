//! `/openapi.json`: made from the code that serves it.

use std::{collections::BTreeMap, sync::LazyLock};

use actix_web::HttpResponse;
use serde::Serialize;
use utoipa::{
    Modify, OpenApi, ToSchema,
    openapi::{
        Content, Ref, RefOr, Response, ResponseBuilder,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::api::{audit, projects};
use crate::problem;

/// Why a request was refused (RFC 9457).
#[allow(dead_code, reason = "it describes what Problem writes")]
#[derive(Serialize, ToSchema)]
pub struct ProblemBody {
    r#type: String,
    title: String,
    status: u16,
    /// One of a fixed list: see the guide.
    code: String,
    detail: String,
    /// How long to wait before trying again.
    retry_after_ms: Option<u64>,
}

/// What every resource may answer instead.
pub struct Refusals;

impl utoipa::IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        const ALL: [(u16, &str); 9] = [
            (400, "Something of the request does not fit"),
            (401, "No key, or one that is not good"),
            (403, "The key may not do this"),
            (404, "There is no such project, or not for this key"),
            (405, "There is no such method here"),
            (409, "There is one of this name already"),
            (413, "The body is too large"),
            (429, "Too many requests; Retry-After says when to come back"),
            (503, "Not now; Retry-After says when to come back"),
        ];
        let refusal = |(status, description): (u16, &str)| {
            let schema = RefOr::Ref(Ref::from_schema_name("ProblemBody"));
            let response = ResponseBuilder::new()
                .description(description)
                .content(problem::CONTENT_TYPE, Content::new(Some(schema)))
                .build();
            (status.to_string(), RefOr::T(response))
        };
        ALL.map(refusal).into()
    }
}

#[derive(OpenApi)]
#[openapi(
    info(title = "mcp-broker", description = "Administration of projects, keys and permissions. Agents use MCP at /mcp and /ws."),
    paths(
        projects::list, projects::create, projects::show, projects::change, projects::delete,
        projects::keys, projects::add_key, projects::revoke_key, projects::rotate,
        projects::grants, projects::grant, projects::revoke_grant,
        audit::list,
    ),
    components(schemas(ProblemBody)),
    modifiers(&Credentials),
    security(("key" = []), ("bearer" = [])),
)]
struct Document;

struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("key", key);
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    }
}

/// The document (OpenAPI 3.1).
pub async fn document() -> HttpResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| Document::openapi().to_json().unwrap_or_default());
    HttpResponse::Ok().content_type("application/json").body(TEXT.as_str())
}
