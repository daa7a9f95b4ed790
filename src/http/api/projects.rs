//! `/api/v1/projects`: projects with their keys and grants. The verbs and their checks are in `admin`.

use std::{collections::BTreeSet, time::Duration};

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::LOCATION},
    web,
};
use actors::{
    clock::{millis, now},
    model::{
        BrokerError, ConfigChanges, KeyHuman, KeyId, NewKey, NewProject, ProjectChanges, ProjectConfig, ProjectId,
        ProtocolName, Scope, ToolSet,
    },
};
use rest::words;
use serde::{Deserialize, Deserializer, de::Error};
use utoipa::{IntoParams, ToSchema};

use crate::http::extract::{Admin, ApiError, ApiResult, Caller, JsonBody, ok, parse_text};
use api::{
    problem::Problem,
    verbs::administration::{GRACE_MAX, KEY_LIFE_MAX, ProjectFilter},
};
use common::json::JsonObject;

fn parse_project_id(id: &str) -> Result<ProjectId, BrokerError> {
    // A text that cannot be a project id names no project.
    ProjectId::parse(id).map_err(|_| BrokerError::ProjectNotFound)
}

/// Parses the cursor of a page: the project of its last entry.
fn parse_cursor(cursor: Option<String>) -> Result<Option<ProjectId>, BrokerError> {
    let parsed = cursor.map(|text| ProjectId::parse(&text)).transpose();
    parsed.map_err(|_| BrokerError::invalid("cursor", "not a cursor of this list"))
}

/// Selects projects of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Include deleted projects.
    #[serde(default)]
    #[param(default = false)]
    include_inactive: bool,
    /// Only projects with all of these tags, separated by commas.
    tags: Option<String>,
    /// Only projects with this text in their id or name, in any case.
    #[param(min_length = 1, max_length = 128)]
    q: Option<String>,
    /// The `next_cursor` of the previous page.
    #[param(value_type = Option<words::ProjectId>)]
    cursor: Option<String>,
}

/// The caller's own project and the discoverable ones; all projects for the admin key.
#[utoipa::path(get, path = "/api/v1/projects", operation_id = "list_projects", tag = "projects",
    params(ListQuery), responses(
    (status = 200, description = "The projects", body = rest::projects::Projects),
))]
pub async fn list(admin: Admin, Caller(by): Caller, web::Query(query): web::Query<ListQuery>) -> ApiResult {
    let tags = query.tags.unwrap_or_default();
    let tags = tags
        .split(',')
        .filter(|tag| !tag.is_empty())
        .map(str::to_owned)
        .collect();
    let filter = ProjectFilter {
        include_inactive: query.include_inactive,
        tags,
        text: query.q.map(|text| parse_text(&text)).transpose()?,
        after: parse_cursor(query.cursor)?,
    };
    ok(admin.list(&by, &filter))
}

/// A project to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    #[schema(value_type = words::ProjectId)]
    project_id: String,
    #[schema(value_type = words::Name)]
    name: String,
    #[schema(value_type = Option<words::Description>)]
    description: Option<String>,
    #[serde(default)]
    #[schema(value_type = Vec<words::Tag>, max_items = 32)]
    tags: BoundedSet<String, 32>,
    #[serde(default, deserialize_with = "object")]
    #[schema(value_type = ConfigBody)]
    config: ProjectConfig,
}

/// The configuration of a project. Absent members stay unchanged; null means the broker's default.
#[allow(dead_code, reason = "schema of the input of ProjectConfig and ConfigChanges")]
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigBody {
    /// Sessions of this project may exchange messages with other projects, where a grant allows it.
    #[schema(nullable = false)]
    allow_cross_project: Option<bool>,
    /// Other projects see this one in lists.
    #[schema(nullable = false)]
    discoverable: Option<bool>,
    #[schema(minimum = 1, maximum = 10_000_000)]
    max_sessions: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_protocols: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    queue_capacity: Option<usize>,
    /// Requests per minute of all callers of the project together; 0 means no limit.
    #[schema(nullable = false, maximum = 4_294_967_295_u32)]
    rate_limit: Option<usize>,
}

/// Creates a project with its first key, of scope `admin`. Requires the admin key.
#[utoipa::path(post, path = "/api/v1/projects", operation_id = "create_project", tag = "projects",
    request_body = CreateProject, responses(
    (status = 201, description = "The project and its first key", body = rest::projects::CreatedProject,
        headers(("Location" = String, description = "The path of the project"))),
    (status = 409, description = "A project with this id exists or existed"),
))]
pub async fn create(admin: Admin, Caller(by): Caller, JsonBody(body): JsonBody<CreateProject>) -> ApiResult {
    let wanted = NewProject {
        id: ProjectId::parse(&body.project_id)?,
        name: body.name,
        description: body.description,
        tags: body.tags.0,
        config: body.config,
    };
    let created = admin.create(&by, wanted).await?;
    let location = format!("/api/v1/projects/{}", body.project_id);
    Ok(HttpResponse::Created()
        .insert_header((LOCATION, location))
        .json(created))
}

/// One project: in full for its own callers, its public part for others.
#[utoipa::path(get, path = "/api/v1/projects/{project_id}", operation_id = "get_project", tag = "projects",
    params(("project_id" = words::ProjectId, Path)), responses(
    (status = 200, description = "The project", body = rest::projects::ProjectInfo),
))]
pub async fn show(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    ok(admin.show(&by, Some(&parse_project_id(&path)?)).await?)
}

/// Changes of a project; absent members stay unchanged.
#[allow(clippy::option_option, reason = "absent, null and a text are distinct")]
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeProject {
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, value_type = Option<words::Name>)]
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<words::Description>)]
    description: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, value_type = Option<Vec<words::Tag>>, max_items = 32)]
    tags: Option<BoundedSet<String, 32>>,
    #[serde(default, deserialize_with = "object")]
    #[schema(value_type = ConfigBody)]
    config: ConfigChanges,
}

/// A set written as a list of at most `LEN_MAX` items; repeated items count.
struct BoundedSet<T, const LEN_MAX: usize>(BTreeSet<T>);

impl<T, const LEN_MAX: usize> Default for BoundedSet<T, LEN_MAX> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<'de, T: Deserialize<'de> + Ord, const LEN_MAX: usize> Deserialize<'de> for BoundedSet<T, LEN_MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::deserialize(deserializer)?;
        if items.len() > LEN_MAX {
            return Err(D::Error::custom(format!("a list of at most {LEN_MAX}")));
        }
        Ok(Self(items.into_iter().collect()))
    }
}

fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    JsonObject::deserialize(deserializer).map(|JsonObject(value)| value)
}

/// A member that is present, in contrast to an absent one: `null` is a value.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Changes a project. Its limits require the admin key.
#[utoipa::path(patch, path = "/api/v1/projects/{project_id}", operation_id = "change_project", tag = "projects",
    params(("project_id" = words::ProjectId, Path)), request_body = ChangeProject, responses(
    (status = 200, description = "The changed project", body = rest::projects::ChangedProject),
))]
pub async fn change(
    admin: Admin,
    Caller(by): Caller,
    path: web::Path<String>,
    JsonBody(body): JsonBody<ChangeProject>,
) -> ApiResult {
    let changes = ProjectChanges {
        name: body.name,
        description: body.description,
        tags: body.tags.map(|tags| tags.0),
        config: body.config,
    };
    ok(admin.change(&by, &parse_project_id(&path)?, changes).await?)
}

/// Deletes a project with its keys, sessions and messages. Requires the admin key.
#[utoipa::path(delete, path = "/api/v1/projects/{project_id}", operation_id = "delete_project", tag = "projects",
    params(("project_id" = words::ProjectId, Path)), responses(
    (status = 204, description = "The project is deleted"),
))]
pub async fn delete(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    admin.delete(&by, &parse_project_id(&path)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The keys of a project, without their secrets.
#[utoipa::path(get, path = "/api/v1/projects/{project_id}/keys", operation_id = "list_keys", tag = "keys",
    params(("project_id" = words::ProjectId, Path)), responses(
    (status = 200, description = "The keys", body = rest::projects::Keys),
))]
pub async fn keys(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    ok(admin.keys(&by, &parse_project_id(&path)?)?)
}

/// A key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// A display name.
    #[schema(value_type = Option<words::Name>)]
    label: Option<String>,
    /// The default is `member`.
    #[schema(value_type = Option<words::KeyScope>)]
    scope: Option<String>,
    /// With scope `answer`, and only then: the person who holds the key.
    #[schema(value_type = Option<words::HumanName>)]
    human: Option<String>,
    /// With scope `answer`: roles of that person, to which questions may be addressed.
    #[schema(value_type = Option<Vec<words::Role>>, max_items = 16)]
    roles: Option<Vec<String>>,
    /// The tools that callers with the key are listed; the default is the setting `tools` of the broker.
    #[schema(value_type = Option<ToolSet>)]
    tools: Option<String>,
    /// At most ten years. Without it the key does not expire.
    #[schema(value_type = Option<usize>, minimum = 1, maximum = 315_360_000)]
    expires_in_seconds: Option<u64>,
}

/// Creates a key. The response shows it once.
#[utoipa::path(post, path = "/api/v1/projects/{project_id}/keys", operation_id = "create_key", tag = "keys",
    params(("project_id" = words::ProjectId, Path)), request_body = CreateKey, responses(
    (status = 201, description = "The key", body = rest::projects::CreatedKey, links(
        ("revoke" = (operation_id = "revoke_key", parameters(
            ("project_id" = "$request.path.project_id"), ("key_id" = "$response.body#/key/key_id"))))
    )),
))]
pub async fn add_key(
    admin: Admin,
    Caller(by): Caller,
    path: web::Path<String>,
    JsonBody(body): JsonBody<CreateKey>,
) -> ApiResult {
    let scope = match body.scope.as_deref() {
        Some("admin") => Scope::Admin,
        None | Some("member") => Scope::Member,
        Some("answer") => Scope::Answer,
        Some("observer") => Scope::Observer,
        Some(_) => return Err(BrokerError::invalid("scope", "admin, member, answer or observer").into()),
    };
    let human = match (body.human, body.roles) {
        (Some(name), roles) => Some(KeyHuman::parse(&name, roles.unwrap_or_default())?),
        (None, None) => None,
        (None, Some(_)) => return Err(BrokerError::invalid("roles", "only with human").into()),
    };
    let tools = body
        .tools
        .map(|word| ToolSet::parse(&word).ok_or_else(|| BrokerError::invalid("tools", "core, agent or full")))
        .transpose()?;
    let most = KEY_LIFE_MAX.as_secs();
    let expires_in = match body.expires_in_seconds {
        Some(seconds) if !(1..=most).contains(&seconds) => {
            return Err(BrokerError::invalid("expires_in_seconds", format!("1 to {most}")).into());
        }
        seconds => seconds.map(Duration::from_secs),
    };
    let wanted = NewKey {
        label: body.label,
        scope,
        human,
        tools,
        expires_at_ms: expires_in.map(|life| now().unix_ms + millis(life)),
    };
    let created = admin.add_key(&by, &parse_project_id(&path)?, wanted).await?;
    Ok(HttpResponse::Created().json(created))
}

/// Revokes a key at once and closes the connections that use it.
#[utoipa::path(delete, path = "/api/v1/projects/{project_id}/keys/{key_id}", operation_id = "revoke_key", tag = "keys",
    params(("project_id" = words::ProjectId, Path), ("key_id" = words::KeyId, Path)), responses(
    (status = 200, description = "When the key became invalid", body = rest::projects::RevokedKeys),
))]
pub async fn revoke_key(admin: Admin, Caller(by): Caller, path: web::Path<(String, String)>) -> ApiResult {
    let (id, key) = path.into_inner();
    let (id, key) = (parse_project_id(&id)?, KeyId::parse(&key).map_err(key_not_found)?);
    ok(admin.revoke_key(&by, &id, key).await.map_err(key_not_found)?)
}

/// A key that a path names and that does not exist is 404, although a tool would call it an invalid argument.
fn key_not_found(error: BrokerError) -> ApiError {
    match error {
        BrokerError::InvalidArgument { field, .. } if field == "key_id" => {
            Problem::new(StatusCode::NOT_FOUND, "invalid_argument", "the project has no such key").into()
        }
        error => error.into(),
    }
}

/// Which keys to rotate.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKeys {
    /// Only this key; all keys without it.
    #[schema(value_type = Option<words::KeyId>)]
    key_id: Option<String>,
    /// How long the old keys stay valid, in seconds; at most 30 days. By default they end at once.
    #[serde(default)]
    #[schema(value_type = usize, maximum = 2_592_000)]
    grace_period_seconds: u64,
}

/// Replaces keys by new ones.
#[utoipa::path(post, path = "/api/v1/projects/{project_id}/keys/rotate", operation_id = "rotate_keys", tag = "keys",
    params(("project_id" = words::ProjectId, Path)), request_body = RotateKeys, responses(
    (status = 200, description = "The new keys, and when the old keys end", body = rest::projects::RotatedKeys),
))]
pub async fn rotate(
    admin: Admin,
    Caller(by): Caller,
    path: web::Path<String>,
    JsonBody(body): JsonBody<RotateKeys>,
) -> ApiResult {
    let most = GRACE_MAX.as_secs();
    if body.grace_period_seconds > most {
        return Err(BrokerError::invalid("grace_period_seconds", format!("0 to {most}")).into());
    }
    let key = body.key_id.map(|text| KeyId::parse(&text)).transpose()?;
    let grace = Duration::from_secs(body.grace_period_seconds);
    ok(admin.rotate(&by, &parse_project_id(&path)?, key, grace).await?)
}

/// The projects that sessions of this project may send to.
#[utoipa::path(get, path = "/api/v1/projects/{project_id}/grants", operation_id = "list_grants", tag = "grants",
    params(("project_id" = words::ProjectId, Path), GrantsQuery), responses(
    (status = 200, description = "A page of the grants", body = rest::projects::Grants),
))]
pub async fn grants(
    admin: Admin,
    Caller(by): Caller,
    query: web::Query<GrantsQuery>,
    path: web::Path<String>,
) -> ApiResult {
    let after = parse_cursor(query.into_inner().cursor)?;
    ok(admin.grants(&by, &parse_project_id(&path)?, after.as_ref())?)
}

/// Selects grants of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantsQuery {
    /// The `next_cursor` of the previous page.
    #[param(value_type = Option<words::ProjectId>)]
    cursor: Option<String>,
}

/// What a grant allows.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantAccess {
    /// Names of protocols; empty means all.
    #[serde(default)]
    #[schema(value_type = Vec<words::ProtocolName>, max_items = 1000)]
    allowed_protocols: BoundedSet<ProtocolName, 1000>,
    /// Messages per minute; 0 means no limit.
    #[serde(default)]
    #[schema(value_type = usize, maximum = 4_294_967_295_u32)]
    message_rate_limit: u32,
}

/// Allows sessions of this project to send to another one.
#[utoipa::path(put, path = "/api/v1/projects/{project_id}/grants/{target_project_id}",
    operation_id = "grant_access", tag = "grants",
    params(
        ("project_id" = words::ProjectId, Path),
        ("target_project_id" = words::ProjectId, Path, example = "umbrella"),
    ), request_body = GrantAccess, responses(
    (status = 200, description = "The grant", body = rest::projects::Granted),
))]
pub async fn grant(
    admin: Admin,
    Caller(by): Caller,
    path: web::Path<(String, String)>,
    JsonBody(body): JsonBody<GrantAccess>,
) -> ApiResult {
    let (id, target) = path.into_inner();
    let (id, target) = (parse_project_id(&id)?, ProjectId::parse(&target)?);
    ok(admin
        .grant(&by, &id, target, body.allowed_protocols.0, body.message_rate_limit)
        .await?)
}

/// Revokes a grant.
#[utoipa::path(delete, path = "/api/v1/projects/{project_id}/grants/{target_project_id}",
    operation_id = "revoke_access", tag = "grants",
    params(
        ("project_id" = words::ProjectId, Path),
        ("target_project_id" = words::ProjectId, Path, example = "umbrella"),
    ), responses(
    (status = 200, description = "Whether the grant existed", body = rest::projects::GrantRevoked),
))]
pub async fn revoke_grant(admin: Admin, Caller(by): Caller, path: web::Path<(String, String)>) -> ApiResult {
    let (id, target) = path.into_inner();
    ok(admin
        .revoke_grant(&by, &parse_project_id(&id)?, &ProjectId::parse(&target)?)
        .await?)
}
