//! `/openapi.json`: generated from the handlers.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, Object, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type,
        header::HeaderBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::{
    answer_link,
    api::{
        added_backends, audit, backends, compatibility, dead_letters, desk, desk_messages, events, flow, history,
        log_level, login, messages, open_calls, projects, protocols, questions, sessions, settings, stats, threads,
        tree, yaps,
    },
    dashboard, docs, health, metrics,
    problem_body::ProblemBody,
};
use api::problem;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "mcp-broker",
        description = "What operators read and administer, and a way to send. Agents use MCP at /mcp and /ws.\n\nA broker with \
            `enable_auth` requires a key. Every path that answers GET answers HEAD."
    ),
    paths(
        health::welcome, health::health, health::livez, health::readyz, health::startupz, health::security,
        health::resource_metadata, document, docs::page, dashboard::page, dashboard::desk,
        dashboard::question,
        login::log_in, login::log_out, login::me,
        projects::list, projects::create, projects::show, projects::change, projects::delete,
        projects::keys, projects::add_key, projects::revoke_key, projects::rotate,
        projects::grants, projects::grant, projects::revoke_grant,
        sessions::list, sessions::list_at_root, sessions::show, sessions::end, compatibility::matrix,
        protocols::list, protocols::list_at_root, protocols::show, protocols::register, protocols::put_lens,
        protocols::remove_lens, protocols::transform, protocols::usage,
        messages::send, history::list, history::life, dead_letters::list, dead_letters::redrive, events::follow,
        flow::show, threads::list,
        questions::list, questions::ask, questions::show, questions::remove,
        questions::claim, questions::release, questions::hand_over, questions::answer, questions::decline,
        questions::cancel, questions::typed, questions::draft, questions::put_draft,
        yaps::list, yaps::yap, desk::show, desk::change, desk_messages::list, desk_messages::send, desk_messages::read,
        answer_link::show, answer_link::answer,
        backends::list, backends::show, backends::tools, backends::log, backends::start, backends::restart,
        backends::stop, backends::ready, open_calls::list, open_calls::end,
        added_backends::add, added_backends::replace, added_backends::patch, added_backends::remove,
        added_backends::enable, added_backends::disable,
        stats::show, settings::show, audit::list, tree::tree, log_level::show, log_level::change, metrics::metrics,
    ),
    components(schemas(ProblemBody, rest::sessions::SessionStatusFilter)),
    modifiers(&SecuritySchemes, &CommonRefusals),
    security(("key" = []), ("bearer" = [])),
    tags(
        (name = "login", description = "Keys in browsers"),
        (name = "projects", description = "Tenants"),
        (name = "keys", description = "Credentials of a project's callers"),
        (name = "grants", description = "Permissions to send to other projects"),
        (name = "backends", description = "MCP servers that the agents of a project share"),
        (name = "sessions", description = "Participants, and what they can speak"),
        (name = "protocols", description = "Formats of messages"),
        (name = "messages", description = "Sending, and messages that were given up"),
        (name = "desk", description = "Questions of agents to people, the people who answer, and their messages"),
        (name = "events", description = "What happens in a project"),
        (name = "audit", description = "Administrative actions and refusals"),
        (name = "broker", description = "State of the broker"),
    ),
)]
struct Document;

struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("key", key);
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    }
}

/// Adds the refusals of the middleware to every operation that may return them.
struct CommonRefusals;

impl Modify for CommonRefusals {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for refusal in &REFUSALS {
            let name = refusal.name.to_owned();
            components.responses.insert(name, RefOr::T(refusal.response()));
        }
        let project = RefOr::T(project_header());
        components.parameters.insert("Project".to_owned(), project);
        let problem = || Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
        for operation in document.paths.paths.values_mut().flat_map(operations) {
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && status.as_str() >= "400"
                    && response.content.is_empty()
                {
                    response
                        .content
                        .insert(problem::CONTENT_TYPE.to_owned(), RefOr::T(problem()));
                }
            }
            let is_public = operation.security.is_some();
            let has_body = operation.request_body.is_some();
            for refusal in &REFUSALS {
                let may_come = match refusal.applies_to {
                    AppliesTo::All => true,
                    AppliesTo::Protected => !is_public,
                    AppliesTo::Bodies => has_body,
                };
                if may_come {
                    let responses = &mut operation.responses.responses;
                    let response = || RefOr::Ref(Ref::from_response_name(refusal.name));
                    responses.entry(refusal.status.to_owned()).or_insert_with(response);
                }
            }
            if !is_public {
                let parameters = operation.parameters.get_or_insert_default();
                parameters.push(RefOr::Ref(Ref::new("#/components/parameters/Project")));
            }
        }
    }
}

fn operations(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [
        &mut path.get,
        &mut path.put,
        &mut path.post,
        &mut path.patch,
        &mut path.delete,
    ];
    all.into_iter().flatten()
}

/// The operations that may return a refusal.
#[derive(Clone, Copy)]
enum AppliesTo {
    All,
    /// Operations that require a key.
    Protected,
    /// Operations with a request body.
    Bodies,
}

struct RefusalDoc {
    status: &'static str,
    name: &'static str,
    applies_to: AppliesTo,
    description: &'static str,
    header: Option<&'static str>,
}

const REFUSALS: [RefusalDoc; 9] = [
    RefusalDoc {
        status: "400",
        name: "BadRequest",
        applies_to: AppliesTo::All,
        description: "The request is invalid, or its URL contains a key",
        header: None,
    },
    RefusalDoc {
        status: "401",
        name: "Unauthorized",
        applies_to: AppliesTo::Protected,
        description: "The key is missing or invalid",
        header: Some("WWW-Authenticate"),
    },
    RefusalDoc {
        status: "403",
        name: "Forbidden",
        applies_to: AppliesTo::All,
        description: "The Host or Origin is not allowed, or the scope of the key is too narrow",
        header: None,
    },
    RefusalDoc {
        status: "404",
        name: "NotFound",
        applies_to: AppliesTo::Protected,
        description: "What the request names does not exist for this caller",
        header: None,
    },
    RefusalDoc {
        status: "408",
        name: "RequestTimeout",
        applies_to: AppliesTo::Bodies,
        description: "The body arrived too slowly",
        header: None,
    },
    RefusalDoc {
        status: "413",
        name: "TooLarge",
        applies_to: AppliesTo::Bodies,
        description: "The body is too large",
        header: None,
    },
    RefusalDoc {
        status: "415",
        name: "UnsupportedMediaType",
        applies_to: AppliesTo::Bodies,
        description: "The media type of the body is not JSON",
        header: None,
    },
    RefusalDoc {
        status: "429",
        name: "TooManyRequests",
        applies_to: AppliesTo::Protected,
        description: "Too many requests, or too many wrong keys",
        header: Some("Retry-After"),
    },
    RefusalDoc {
        status: "503",
        name: "Unavailable",
        applies_to: AppliesTo::Protected,
        description: "The broker cannot serve the request now",
        header: Some("Retry-After"),
    },
];

impl RefusalDoc {
    fn response(&self) -> Response {
        let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
        let response = ResponseBuilder::new()
            .description(self.description)
            .content(problem::CONTENT_TYPE, Content::new(Some(schema)));
        let header = |schema: Object, description| {
            let header = HeaderBuilder::new().schema(Some(schema));
            header.description(Some(description)).build()
        };
        match self.header {
            None => response,
            Some(name @ "Retry-After") => {
                let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
                response.header(name, header(seconds.build(), "Seconds to wait"))
            }
            Some(name) => response.header(name, header(Object::with_type(Type::String), "How to send a key")),
        }
        .build()
    }
}

fn project_header() -> Parameter {
    let id = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)?$"));
    ParameterBuilder::new()
        .name("X-Project-ID")
        .parameter_in(ParameterIn::Header)
        .description(Some(
            "The project to act in, for a caller without a project of its own; a key's own project may be named too. \
             Empty counts as absent.",
        ))
        .schema(Some(id))
        .build()
}

/// The document as JSON.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| Document::openapi().to_json().unwrap_or_default());
    &TEXT
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", operation_id = "get_openapi", tag = "broker", security(()), responses(
    (status = 200, description = "This document", body = Object),
))]
pub async fn document() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(text())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::http::resources;
    use api::auth::METADATA_PATH;

    fn described() -> Value {
        serde_json::to_value(Document::openapi()).unwrap()
    }

    /// Path, method and description of each operation.
    fn described_operations(document: &Value) -> Vec<(&str, &str, &Value)> {
        let paths = document["paths"].as_object().unwrap();
        paths
            .iter()
            .flat_map(|(path, item)| {
                let operations = item.as_object().unwrap().iter();
                operations.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
            })
            .collect()
    }

    #[test]
    fn openapi_describes_exactly_the_served_operations() {
        // A WebSocket is not a resource; the next path is described without its suffix, and the others belong to pages.
        let left_out = [
            "/ws",
            "/ws/{exposed}",
            &format!("{METADATA_PATH}/{{resource:.*}}"),
            dashboard::ASSETS_ROUTE,
            dashboard::DESK_SLASH_ROUTE,
        ];
        let mut served = BTreeSet::new();
        for resource in resources() {
            for method in resource.methods() {
                if !left_out.contains(&&*resource.path) {
                    served.insert(format!("{method} {}", resource.path));
                }
            }
        }
        let document = described();
        let described = described_operations(&document)
            .into_iter()
            .map(|(path, method, _)| format!("{} {path}", method.to_uppercase()));
        assert_eq!(served, described.collect());
    }

    /// Of two types with one name, the document would have one.
    #[test]
    fn outcomes_of_messages_and_of_the_audit_have_schemas_of_their_own() {
        let schemas = &described()["components"]["schemas"];
        assert_eq!(schemas["Outcome"]["enum"][1], "blocked");
        assert_eq!(schemas["AuditOutcome"]["enum"][1], "refused");
    }

    #[test]
    fn openapi_marks_exactly_the_public_operations() {
        let document = described();
        for (path, _, operation) in described_operations(&document) {
            let is_public = operation.get("security").is_some();
            assert_eq!(is_public, crate::http::paths::is_public(path), "{path}");
        }
    }
}
